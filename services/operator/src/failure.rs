//! Why a write failed, and what that means for its resource.

use contract::managed::Conflict;

use crate::plan::Write;
use crate::services::CallError;
use crate::status::{Progress, Reason, State};

/// Why a write failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Kubernetes(#[from] kube::Error),
    /// A Secret with this name does not belong to the resource.
    #[error("The Secret {0} exists and is not that of this consumer: delete it.")]
    SecretTaken(String),
}

/// The state of a resource after a failed write.
pub(crate) fn state_of(write: &Write, error: &WriteError) -> State {
    use Progress::{Reconciling, Stalled};
    let (progress, reason, message) = match error {
        WriteError::Kubernetes(error) => {
            let message = format!("A request to the API server failed: {}", service::chain(error));
            (Reconciling, Reason::Pending, message)
        }
        WriteError::SecretTaken(_) => (Stalled, Reason::SecretTaken, error.to_string()),
        WriteError::Call(CallError::Unavailable(message)) => {
            let (name, reason) = match write {
                Write::PutProducer { .. } | Write::DeleteProducer { .. } => {
                    ("session", Reason::SessionUnavailable)
                }
                Write::PutConsumer { .. } | Write::PutLogin { .. } | Write::DeleteConsumer { .. } => {
                    ("ingest", Reason::IngestUnavailable)
                }
                _ => ("identity", Reason::IdentityUnavailable),
            };
            (Reconciling, reason, format!("The service {name} is not available: {message}"))
        }
        WriteError::Call(CallError::Rejected(message)) => (Stalled, Reason::Invalid, message.clone()),
        WriteError::Call(CallError::Conflict(conflict)) => {
            let (progress, reason, advice) = match conflict {
                Conflict::Stale | Conflict::InviteSettled | Conflict::NotReleased => {
                    (Reconciling, Reason::Pending, "")
                }
                Conflict::Released => (
                    Reconciling,
                    Reason::Released,
                    " The operator restores it within 15 minutes, or at once after a change of the spec.",
                ),
                Conflict::TenantNotFound => {
                    (Reconciling, Reason::TenantNotReady, " session has not received it yet.")
                }
                Conflict::TenantExists => {
                    (Stalled, Reason::TenantExists, " To take it over, set `adoption: IfUnowned`.")
                }
                Conflict::ManagedElsewhere { .. } => (
                    Stalled,
                    Reason::ManagedElsewhere,
                    " Delete its resource, or take it over with the value `operator.takeOverFrom`.",
                ),
                Conflict::TenantDeleted => (Stalled, Reason::TenantDeleted, " Use another name."),
                Conflict::ServiceAccountTaken => {
                    (Stalled, Reason::ServiceAccountTaken, " Delete it, or use another service account.")
                }
                Conflict::ConsumerTaken => {
                    (Stalled, Reason::ConsumerTaken, " Use another name, or delete that consumer.")
                }
            };
            (progress, reason, sentence(conflict, advice))
        }
    };
    State::new(progress, reason, message)
}

/// The text of a conflict as a sentence.
fn sentence(conflict: &Conflict, advice: &str) -> String {
    let text = conflict.to_string();
    let mut characters = text.chars();
    let first: String = characters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.{advice}", characters.as_str())
}
