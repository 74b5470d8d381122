//! The use cases, one file each, and what they share: an event is checked, made a message, published, and answered for.

pub(crate) mod ingest_batch;
pub(crate) mod ingest_event;

use std::sync::Arc;
use std::time::Duration;

use authn::{Caller, CredentialVerifier};
use axum::extract::FromRef;
use bus::{Message, PublishError, Publisher, Request};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use contract::ProblemKind;
use contract::internal::Credential;
use service::Clock;
use udm::Event;
use uuid::Uuid;

use crate::http::Room;

/// How long the stream may take to acknowledge.
const PUBLISH_LIMIT: Duration = Duration::from_secs(5);

/// What every use case works with. Clones share everything.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) authority: Arc<dyn CredentialVerifier>,
    pub(crate) publisher: Publisher,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) room: Room,
}

impl FromRef<App> for Arc<dyn CredentialVerifier> {
    fn from_ref(app: &App) -> Self {
        Arc::clone(&app.authority)
    }
}

/// Who sends, and when that arrived.
pub(crate) struct Sending {
    pub(crate) caller: Caller,
    pub(crate) received_at: DateTime<Utc>,
    common: Request,
}

impl Sending {
    pub(crate) fn new(
        caller: Caller,
        received_at: DateTime<Utc>,
        request_id: &str,
        traceparent: Option<&str>,
    ) -> Self {
        let common = Request::new(
            caller.tenant_id().clone(),
            received_at,
            request_id,
            &caller.credential_label(),
            traceparent,
        );
        Self { caller, received_at, common }
    }

    /// Whether the credential may send for this source.
    fn allows(&self, source_id: &str) -> bool {
        match &self.caller.subject().credential {
            Credential::Session { .. } => true,
            Credential::ApiKey { source_ids, .. } => {
                source_ids.is_empty() || source_ids.iter().any(|allowed| allowed == source_id)
            }
        }
    }

    /// The message of an event, and the ids it is answered with. `payload` are the event's own bytes.
    fn message(&self, event: &Event<'_>, payload: Bytes) -> Result<(Ids, Message), ProblemKind> {
        if !self.allows(&event.source_id) {
            return Err(ProblemKind::SourceNotAllowed);
        }
        let event_id =
            event.event_id.as_ref().map_or_else(|| Uuid::now_v7().to_string(), ToString::to_string);
        // What passed the check always makes a message; should it not, that is our defect and not the sender's.
        let message = Message::event(&self.common, event, &event_id, payload).map_err(|error| {
            tracing::error!(%error, "a checked event makes no message");
            ProblemKind::Internal
        })?;
        let server_event_id =
            udm::server_event_id(self.caller.tenant_id().as_str(), &event.source_id, &event_id);
        Ok((Ids { event_id, server_event_id }, message))
    }
}

/// What an event is answered with.
pub(crate) struct Ids {
    pub(crate) event_id: String,
    pub(crate) server_event_id: Uuid,
}

/// The problem of an event that the stream may not hold. Every one of them passes: the sender still has the event, and its
/// id makes a retry safe.
fn kind_of(error: &PublishError) -> ProblemKind {
    match error {
        PublishError::Overloaded => ProblemKind::Overloaded,
        PublishError::Unavailable => ProblemKind::DependencyUnavailable,
        PublishError::StreamFull => ProblemKind::StreamFull,
        PublishError::AckTimeout => ProblemKind::AckTimeout,
        PublishError::Misconfigured { .. } => {
            tracing::error!(%error, "the broker refuses what this service publishes");
            ProblemKind::DependencyUnavailable
        }
    }
}
