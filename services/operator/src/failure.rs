//! Why a write failed, and what that means for its resource.

use contract::managed::Conflict;

use crate::plan::Write;
use crate::services::CallError;
use crate::status::{Progress, Reason, State};

/// Why a write failed.
pub(crate) enum WriteError {
    Call(CallError),
    Kubernetes(kube::Error),
    /// A Secret with this name does not belong to the resource.
    SecretTaken(String),
}

impl From<CallError> for WriteError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        Self::Kubernetes(error)
    }
}

/// The state of a resource after a failed write.
pub(crate) fn state_of(write: &Write, error: &WriteError) -> State {
    let stalled = |reason, message: String| State::new(Progress::Stalled, reason, message);
    match error {
        WriteError::Kubernetes(error) => State::new(
            Progress::Reconciling,
            Reason::Pending,
            format!("A request to the API server failed: {}", service::chain(error)),
        ),
        WriteError::SecretTaken(name) => {
            let message = format!("The Secret {name} exists and is not that of this consumer: delete it.");
            stalled(Reason::SecretTaken, message)
        }
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
            State::new(
                Progress::Reconciling,
                reason,
                format!("The service {name} is not available: {message}"),
            )
        }
        WriteError::Call(CallError::Rejected(message)) => stalled(Reason::Invalid, message.clone()),
        WriteError::Call(CallError::Conflict(conflict)) => match conflict {
            Conflict::Stale | Conflict::InviteSettled | Conflict::NotReleased => {
                State::new(Progress::Reconciling, Reason::Pending, sentence(conflict, ""))
            }
            Conflict::Released => {
                let advice =
                    " The operator restores it within 15 minutes, or at once after a change of the spec.";
                State::new(Progress::Reconciling, Reason::Released, sentence(conflict, advice))
            }
            Conflict::TenantNotFound => {
                let advice = " session has not received it yet.";
                State::new(Progress::Reconciling, Reason::TenantNotReady, sentence(conflict, advice))
            }
            Conflict::TenantExists => {
                let advice = " To take it over, set `adoption: IfUnowned`.";
                stalled(Reason::TenantExists, sentence(conflict, advice))
            }
            Conflict::ManagedElsewhere { .. } => {
                let advice = " Delete its resource, or take it over with the value `operator.takeOverFrom`.";
                stalled(Reason::ManagedElsewhere, sentence(conflict, advice))
            }
            Conflict::TenantDeleted => {
                stalled(Reason::TenantDeleted, sentence(conflict, " Use another name."))
            }
            Conflict::ServiceAccountTaken => {
                let advice = " Delete it, or use another service account.";
                stalled(Reason::ServiceAccountTaken, sentence(conflict, advice))
            }
            Conflict::ConsumerTaken => {
                let advice = " Use another name, or delete that consumer.";
                stalled(Reason::ConsumerTaken, sentence(conflict, advice))
            }
        },
    }
}

/// The text of a conflict as a sentence.
fn sentence(conflict: &Conflict, advice: &str) -> String {
    let text = conflict.to_string();
    let mut characters = text.chars();
    let first: String = characters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.{advice}", characters.as_str())
}
