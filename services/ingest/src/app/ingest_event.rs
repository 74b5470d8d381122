//! Take one event.

use bytes::Bytes;
use contract::ProblemKind;
use contract::events::{AcceptedEvent, EventStatus};
use service::Problem;
use tokio::time::Instant;
use udm::Invalid;

use super::{App, PUBLISH_LIMIT, Sending, kind_of};

impl App {
    /// Answers when the stream holds the event.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn ingest_event(
        &self,
        sending: &Sending,
        body: Bytes,
    ) -> Result<AcceptedEvent, Problem> {
        let deadline = Instant::now() + PUBLISH_LIMIT;
        let event = udm::parse(&body).map_err(refused)?;
        let (ids, message) = sending.message(&event, body.clone())?;
        let published = self.publisher.publish(sending.caller.tenant_id(), message, deadline).await;
        let ack = published.map_err(|error| Problem::new(kind_of(&error)))?;
        Ok(AcceptedEvent {
            event_id: ids.event_id,
            server_event_id: ids.server_event_id,
            status: EventStatus::Accepted,
            duplicate: ack.duplicate,
            received_at: sending.received_at,
        })
    }
}

fn refused(invalid: Invalid) -> Problem {
    match invalid {
        Invalid::NotJson(_) => Problem::new(ProblemKind::MalformedJson).detail(invalid.to_string()),
        Invalid::TooLarge => ProblemKind::EventTooLarge.into(),
        Invalid::WrongShape { faults, .. } => Problem::new(ProblemKind::ValidationFailed).fields(faults),
    }
}
