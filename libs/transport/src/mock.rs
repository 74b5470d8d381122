//! A transport for tests, which needs no service.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use contract::{FieldError, ProblemKind};
use parking_lot::Mutex;
use udm::ParseError;
use uuid::Uuid;

use crate::in_flight::InFlight;
use crate::{
    BatchProgress, BatchSendResult, OutgoingEvent, SendResult, Transport, TransportError, TransportErrorKind,
    UdmEvent,
};

/// Behavior of a [`MockTransport`]. By default, it accepts all valid events immediately.
#[derive(Clone, Debug, Default)]
pub struct MockBehavior {
    /// All events fail.
    pub fail_all: bool,
    /// Number of events that fail first, counted over all calls.
    pub fail_first: usize,
    /// Events with these ids always fail.
    pub fail_event_ids: HashSet<String>,
    /// `connect` fails and `health_check` returns false.
    pub fail_connect: bool,
    /// Duration of each call.
    pub latency: Duration,
    /// Error of failed calls. By default, a retryable connection error.
    pub error: Option<TransportError>,
}

/// Records all events and responds as configured. Rejects events that are not valid, as the service does. Never retries.
#[derive(Debug, Default)]
pub struct MockTransport {
    behavior: Mutex<MockBehavior>,
    sent: Mutex<Sent>,
    in_flight: InFlight,
}

/// The sent events, including failed ones.
#[derive(Debug, Default)]
struct Sent {
    events: Vec<UdmEvent>,
    outgoing: Vec<OutgoingEvent>,
}

impl Sent {
    fn len(&self) -> usize {
        self.events.len() + self.outgoing.len()
    }
}

impl MockTransport {
    /// Creates a transport. Without a behavior, it accepts all valid events.
    pub fn new(behavior: Option<MockBehavior>) -> Self {
        let behavior = Mutex::new(behavior.unwrap_or_default());
        Self { behavior, sent: Mutex::default(), in_flight: InFlight::default() }
    }

    /// Changes the behavior, for example to simulate an outage and its end.
    pub fn set_behavior(&self, behavior: MockBehavior) {
        *self.behavior.lock() = behavior;
    }

    /// Forgets the sent events. `fail_first` counts from here.
    pub fn clear(&self) {
        *self.sent.lock() = Sent::default();
    }

    fn behavior(&self) -> MockBehavior {
        self.behavior.lock().clone()
    }

    /// All events passed to `send` and `send_batch` so far, in order and with their ids, including failed ones.
    pub fn sent_events(&self) -> Vec<UdmEvent> {
        self.sent.lock().events.clone()
    }

    /// All events passed to `send_outgoing` so far, in order, including failed ones.
    pub fn sent_outgoing(&self) -> Vec<OutgoingEvent> {
        self.sent.lock().outgoing.clone()
    }

    /// Like [`send_batch`](Transport::send_batch). Calls `on_progress` once, at the end, as
    /// [`HttpTransport`](crate::HttpTransport::send_batch_with_progress) does for a batch of one request.
    pub async fn send_batch_with_progress(
        &self,
        events: &[UdmEvent],
        on_progress: impl FnMut(BatchProgress) + Send,
    ) -> BatchSendResult {
        let results = {
            let mut sent = self.sent.lock();
            events.iter().map(|event| self.record(&mut sent, event)).collect()
        };
        self.finish(results, on_progress).await
    }

    /// Sends events that are JSON already. Otherwise like [`send_batch_with_progress`](Self::send_batch_with_progress).
    pub async fn send_outgoing(
        &self,
        events: &[OutgoingEvent],
        on_progress: impl FnMut(BatchProgress) + Send,
    ) -> BatchSendResult {
        let results = {
            let mut sent = self.sent.lock();
            events.iter().map(|event| self.record_outgoing(&mut sent, event)).collect()
        };
        self.finish(results, on_progress).await
    }

    /// Waits, and returns the result of a batch.
    async fn finish(
        &self,
        results: Vec<SendResult>,
        mut on_progress: impl FnMut(BatchProgress) + Send,
    ) -> BatchSendResult {
        if results.is_empty() {
            return BatchSendResult::from_results(results, None, None);
        }
        let _sending = self.in_flight.start();
        self.wait().await;
        let batch_id = Some(Uuid::now_v7().to_string());
        let batch = BatchSendResult::from_results(results, batch_id, self.response_time());
        on_progress(BatchProgress {
            total_events: batch.total_events,
            attempts: 1,
            accepted: batch.successful_events,
            failed: batch.failed_events,
            ..BatchProgress::default()
        });
        batch
    }

    fn record_outgoing(&self, sent: &mut Sent, event: &OutgoingEvent) -> SendResult {
        let index = sent.len();
        sent.outgoing.push(event.clone());
        self.result(index, event)
    }

    fn record(&self, sent: &mut Sent, event: &UdmEvent) -> SendResult {
        let outgoing = match OutgoingEvent::try_from(event) {
            Ok(outgoing) => outgoing,
            Err(error) => {
                sent.events.push(event.clone());
                return SendResult::fail(event.event_id.clone().unwrap_or_default(), error);
            }
        };
        let event_id = outgoing.event_id().to_owned();
        let index = sent.len();
        sent.events.push(UdmEvent { event_id: Some(event_id), ..event.clone() });
        self.result(index, &outgoing)
    }

    /// Result of the event with this index among all sent events.
    fn result(&self, index: usize, event: &OutgoingEvent) -> SendResult {
        let event_id = event.event_id().to_owned();
        let MockBehavior { fail_all, fail_first, fail_event_ids, .. } = self.behavior();
        if fail_all || index < fail_first || fail_event_ids.contains(&event_id) {
            return SendResult::fail(event_id, self.error());
        }
        if let Err(error) = udm::parse(event.body().as_bytes()) {
            return SendResult::fail(event_id, rejection(error));
        }
        let server_event_id = Uuid::new_v5(&Uuid::NAMESPACE_OID, event_id.as_bytes()).to_string();
        SendResult::ok(event_id, self.response_time(), Some(server_event_id))
    }

    fn error(&self) -> TransportError {
        self.behavior().error.unwrap_or_else(|| {
            TransportError::new(TransportErrorKind::Connection, "the mock transport is configured to fail")
        })
    }

    #[expect(clippy::unnecessary_wraps, reason = "the field of the result is optional")]
    fn response_time(&self) -> Option<f64> {
        Some(self.behavior().latency.as_secs_f64() * 1000.0)
    }

    async fn wait(&self) {
        let latency = self.behavior().latency;
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
    }
}

/// Error of an event that the service rejects.
fn rejection(error: ParseError) -> TransportError {
    let message = error.to_string();
    let (kind, message) = match error {
        ParseError::NotJson(_) => (ProblemKind::MalformedJson, message),
        ParseError::TooLarge => (ProblemKind::EventTooLarge, message),
        ParseError::Invalid { errors, .. } => {
            let described =
                |error: &FieldError| format!("{} {}", error.pointer, error.message).trim().to_owned();
            let errors: Vec<_> = errors.iter().map(described).collect();
            (ProblemKind::ValidationFailed, format!("{message}: {}", errors.join("; ")))
        }
    };
    TransportError {
        status: Some(kind.status()),
        code: Some(kind.code().to_owned()),
        ..TransportError::new(TransportErrorKind::Status, message)
    }
}

#[async_trait]
impl Transport for MockTransport {
    async fn connect(&self) -> Result<(), TransportError> {
        self.wait().await;
        if self.behavior().fail_connect { Err(self.error()) } else { Ok(()) }
    }

    async fn disconnect(&self) {}

    async fn flush(&self, timeout: Duration) -> usize {
        self.in_flight.wait(timeout).await
    }

    // Events are recorded before the latency, so that a canceled call is recorded too.

    async fn send(&self, event: &UdmEvent) -> SendResult {
        let _sending = self.in_flight.start();
        let result = self.record(&mut self.sent.lock(), event);
        self.wait().await;
        result
    }

    async fn send_batch(&self, events: &[UdmEvent]) -> BatchSendResult {
        self.send_batch_with_progress(events, |_| ()).await
    }

    async fn send_json(&self, events: &[OutgoingEvent]) -> BatchSendResult {
        self.send_outgoing(events, |_| ()).await
    }

    async fn health_check(&self) -> bool {
        self.wait().await;
        !self.behavior().fail_connect
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::{Metadata, RawValue, new_event_id};

    fn mock(behavior: MockBehavior) -> MockTransport {
        MockTransport::new(Some(behavior))
    }

    #[tokio::test]
    async fn accepts_all_events_by_default() {
        let transport = MockTransport::new(None);
        assert!(transport.send(&UdmEvent::new("fw")).await.success);
        assert!(transport.send_batch(&[UdmEvent::new("fw")]).await.success);
    }

    #[tokio::test]
    async fn fail_all_fails_and_records_all_events() {
        let error = TransportError::new(TransportErrorKind::Timeout, "configured");
        let transport =
            mock(MockBehavior { fail_all: true, error: Some(error.clone()), ..MockBehavior::default() });
        let result = transport.send(&UdmEvent::new("a")).await;
        assert!(!result.success);
        assert_eq!(result.error, Some(error));
        assert_eq!(transport.send_batch(&[UdmEvent::new("b"), UdmEvent::new("c")]).await.failed_events, 2);
        let sources: Vec<_> = transport.sent_events().into_iter().map(|event| event.source_id).collect();
        assert_eq!(sources, ["a", "b", "c"]);
    }

    #[tokio::test]
    async fn rejects_events_that_are_not_valid_as_the_service_does() {
        let transport = MockTransport::new(None);
        for (event, text) in [
            (UdmEvent::new(""), "/source_id"),
            (UdmEvent::new("fw").with_event_id("x y!"), "/event_id"),
            (UdmEvent::new("fw").with_metadata(Metadata::new("user login")), "/metadata/event_type"),
        ] {
            let error = transport.send(&event).await.into_result().unwrap_err();
            assert_eq!((error.status, error.code.as_deref()), (Some(422), Some("validation_failed")));
            assert!(error.message.contains(text) && !error.retryable, "{error}");
        }
        let large = UdmEvent::new("fw").with_field("x", "x".repeat(256 * 1024));
        let error = transport.send_batch(&[large]).await.into_result().unwrap_err();
        assert_eq!((error.status, error.code.as_deref()), (Some(413), Some("event_too_large")));
    }

    #[tokio::test]
    async fn fail_first_counts_over_all_calls() {
        let transport = mock(MockBehavior { fail_first: 3, ..MockBehavior::default() });
        let event = UdmEvent::new("fw");
        assert!(!transport.send(&event).await.success);
        let batch = transport.send_batch(&[event.clone(), event.clone(), event.clone()]).await;
        assert_eq!(
            batch.results.iter().map(|result| result.success).collect::<Vec<_>>(),
            [false, false, true]
        );
        assert!(transport.send(&event).await.success);
    }

    #[tokio::test]
    async fn records_complete_events() {
        let transport = MockTransport::new(None);
        let event = UdmEvent::new("fw").with_event_id("a").with_field("later", 1);
        assert!(transport.send(&event).await.success);
        assert_eq!(transport.sent_events(), [event]);
    }

    #[tokio::test]
    async fn json_events_are_recorded_with_their_bytes_and_count_as_all_others() {
        let transport = mock(MockBehavior { fail_first: 2, ..MockBehavior::default() });
        let texts = ["a", "b"].map(|id| format!(r#"{{ "event_id": "{id}", "source_id": "fw", "n": 1.50 }}"#));
        let outgoing = texts.each_ref().map(|text| {
            OutgoingEvent::from_json(RawValue::from_string(text.clone()).unwrap(), new_event_id).unwrap()
        });
        assert!(!transport.send(&UdmEvent::new("fw")).await.success);
        let mut calls = Vec::new();
        let batch = transport.send_outgoing(&outgoing, |progress| calls.push(progress)).await;
        let results: Vec<_> =
            batch.results.iter().map(|result| (result.event_id.as_str(), result.success)).collect();
        assert_eq!(results, [("a", false), ("b", true)]);
        let (total_events, attempts, accepted, failed) = (2, 1, 1, 1);
        let progress = BatchProgress { total_events, attempts, accepted, failed, ..BatchProgress::default() };
        assert_eq!(calls, [progress]);
        let sent = transport.sent_outgoing();
        assert_eq!(sent.iter().map(OutgoingEvent::body).collect::<Vec<_>>(), texts);
        assert_eq!(transport.sent_events().len(), 1);
    }

    #[tokio::test]
    async fn progress_of_a_batch_is_reported_unless_it_is_empty() {
        let transport = MockTransport::new(None);
        let mut accepted = Vec::new();
        for events in [vec![], vec![UdmEvent::new("fw"); 2]] {
            let on_progress = |progress: BatchProgress| accepted.push(progress.accepted);
            assert!(transport.send_batch_with_progress(&events, on_progress).await.success);
        }
        assert_eq!(accepted, [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn records_events_before_the_latency() {
        let latency = Duration::from_secs(5);
        let transport = mock(MockBehavior { latency, ..MockBehavior::default() });
        let event = UdmEvent::new("fw");
        let start = Instant::now();
        assert_eq!(transport.send(&event).await.response_time_ms, Some(5000.0));
        assert!(transport.send_batch(std::slice::from_ref(&event)).await.success);
        assert_eq!(start.elapsed(), latency * 2);

        assert!(timeout(latency / 2, transport.send(&event)).await.is_err());
        assert_eq!(transport.sent_events().len(), 3);
    }
}
