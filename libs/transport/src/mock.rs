//! A transport without a service, for tests of code that sends events.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::{
    BatchSendResult, SendResult, Transport, TransportError, TransportErrorKind, UdmEvent, new_event_id,
};

/// What a [`MockTransport`] answers. The default accepts everything at once.
#[derive(Clone, Debug, Default)]
pub struct MockBehavior {
    /// Every event fails.
    pub fail_all: bool,
    /// This many events fail before the first that does not, counted over all calls.
    pub fail_first: usize,
    /// The events with these ids fail, however often they are sent.
    pub fail_event_ids: HashSet<String>,
    /// `connect` fails and `health_check` is false.
    pub fail_connect: bool,
    /// How long each call takes.
    pub latency: Duration,
    /// What failures carry; a retryable connection fault when absent.
    pub error: Option<TransportError>,
}

/// Records every event, then answers as its behaviour says. It never retries.
#[derive(Debug, Default)]
pub struct MockTransport {
    behavior: MockBehavior,
    sent_events: Mutex<Vec<UdmEvent>>,
}

impl MockTransport {
    /// A transport with this behaviour; without one it accepts everything.
    pub fn new(behavior: Option<MockBehavior>) -> Self {
        Self { behavior: behavior.unwrap_or_default(), sent_events: Mutex::default() }
    }

    /// Every event passed to `send` and `send_batch` so far, in order, with the id that it was given, whether it failed or not.
    pub fn sent_events(&self) -> Vec<UdmEvent> {
        self.sent().clone()
    }

    fn sent(&self) -> MutexGuard<'_, Vec<UdmEvent>> {
        self.sent_events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, sent: &mut Vec<UdmEvent>, event: &UdmEvent) -> SendResult {
        let mut event = event.clone();
        let event_id = event.event_id.get_or_insert_with(new_event_id).clone();
        let place = sent.len();
        sent.push(event);
        self.answer(place, event_id)
    }

    /// The answer to the event at this place of all that were sent.
    fn answer(&self, place: usize, event_id: String) -> SendResult {
        let MockBehavior { fail_all, fail_first, fail_event_ids, .. } = &self.behavior;
        if *fail_all || place < *fail_first || fail_event_ids.contains(&event_id) {
            return SendResult::fail(event_id, self.error());
        }
        let server_event_id = Uuid::new_v5(&Uuid::NAMESPACE_OID, event_id.as_bytes()).to_string();
        SendResult::ok(event_id, self.response_time(), Some(server_event_id))
    }

    fn error(&self) -> TransportError {
        self.behavior.error.clone().unwrap_or_else(|| {
            TransportError::new(TransportErrorKind::Connection, "the mock transport was told to fail")
        })
    }

    #[expect(clippy::unnecessary_wraps, reason = "the results' field is optional")]
    fn response_time(&self) -> Option<f64> {
        Some(self.behavior.latency.as_secs_f64() * 1000.0)
    }

    async fn wait(&self) {
        if !self.behavior.latency.is_zero() {
            tokio::time::sleep(self.behavior.latency).await;
        }
    }
}

#[async_trait]
impl Transport for MockTransport {
    async fn connect(&self) -> Result<(), TransportError> {
        self.wait().await;
        if self.behavior.fail_connect { Err(self.error()) } else { Ok(()) }
    }

    async fn disconnect(&self) {}

    // Both record before they wait: a caller that gives up has sent all the same.

    async fn send(&self, event: &UdmEvent) -> SendResult {
        let result = self.record(&mut self.sent(), event);
        self.wait().await;
        result
    }

    async fn send_batch(&self, events: &[UdmEvent]) -> BatchSendResult {
        let results = {
            let mut sent = self.sent();
            events.iter().map(|event| self.record(&mut sent, event)).collect()
        };
        if events.is_empty() {
            return BatchSendResult::from_results(results, None, None);
        }
        self.wait().await;
        BatchSendResult::from_results(results, Some(Uuid::now_v7().to_string()), self.response_time())
    }

    async fn health_check(&self) -> bool {
        self.wait().await;
        !self.behavior.fail_connect
    }
}
