//! Delivery of a batch of any length: splits it into requests, retries retryable events, returns one result per event.
//!
//! Requests are sequential, so that events are sent in order. If a request fails as a whole, the rest of the batch fails
//! with the same error, because further requests would fail too. Only the events of one request are held as JSON.

use std::borrow::Cow;
use std::time::Instant;

use contract::events::{BatchResponse, EventStatus};
use contract::{ProblemKind, routes};

use super::TransportState;
use super::body::RequestBody;
use super::response::HttpResponse;
use super::retry::{RetryState, milliseconds};
use crate::{BatchProgress, BatchSendResult, OutgoingEvent, SendResult, TransportError, UdmEvent};

/// Maximum number of events of a request. The service accepts more, but a lost request is then sent again as a whole.
const MAX_REQUEST_EVENTS: usize = 1_000;
/// Maximum body size of the service, before compression.
const MAX_BYTES: usize = 10 * 1024 * 1024;
/// Bytes of a JSON list in addition to its items.
const BRACKETS: usize = 2;
const COMMA: usize = 1;

/// Receives the progress, and the results so far: parallel to the events, `None` without a final result.
pub(super) type OnChange<'a> = &'a mut (dyn FnMut(BatchProgress, &[Option<SendResult>]) + Send);

/// An event as it is sent, or the result of one that cannot be sent.
type Prepared<'a> = Result<Cow<'a, OutgoingEvent>, Box<SendResult>>;

/// An event in any form.
pub(super) trait Event: Sync {
    fn prepare(&self) -> Prepared<'_>;
}

impl Event for OutgoingEvent {
    fn prepare(&self) -> Prepared<'_> {
        Ok(Cow::Borrowed(self))
    }
}

impl Event for UdmEvent {
    fn prepare(&self) -> Prepared<'_> {
        OutgoingEvent::try_from(self)
            .map(Cow::Owned)
            .map_err(|error| SendResult::fail(self.event_id.clone().unwrap_or_default(), error).into())
    }
}

/// Sends events. Calls `on_change` after each response and at the end.
pub(super) async fn deliver<E: Event>(
    shared: &TransportState,
    events: &[E],
    on_change: OnChange<'_>,
) -> BatchSendResult {
    let total_events = events.len();
    let progress = BatchProgress { total_events, ..BatchProgress::default() };
    let mut delivery = BatchDelivery {
        shared,
        started: shared.clock.now(),
        results: vec![None; total_events],
        batch_id: None,
        progress,
        reported: progress,
        on_change,
    };
    let mut failed = None;
    let mut first = 0;
    for request in Requests::new(events) {
        let mut events = Vec::with_capacity(request.len());
        for (index, event) in (first..).zip(&request) {
            match event {
                Ok(event) => events.push((index, event.as_ref())),
                Err(result) => delivery.settle(index, (**result).clone()),
            }
        }
        if failed.is_none() {
            failed = delivery.deliver_request(&events).await.err();
        }
        if let Some(error) = &failed {
            delivery.fail_rest(&events, error);
            // Without a request, nothing else is awaited.
            tokio::task::yield_now().await;
        }
        first += request.len();
    }
    delivery.finish()
}

struct BatchDelivery<'a> {
    shared: &'a TransportState,
    started: Instant,
    /// Parallel to the events of the batch; `None` without a final result.
    results: Vec<Option<SendResult>>,
    batch_id: Option<String>,
    progress: BatchProgress,
    /// Progress of the last call of `on_change`.
    reported: BatchProgress,
    on_change: OnChange<'a>,
}

/// An event and its index in the batch.
type IndexedEvent<'a> = (usize, &'a OutgoingEvent);

/// Events of one request.
struct Chunk<'a> {
    events: Vec<IndexedEvent<'a>>,
    retries: RetryState<'a>,
}

impl BatchDelivery<'_> {
    async fn deliver_request(&mut self, events: &[IndexedEvent<'_>]) -> Result<(), TransportError> {
        if events.is_empty() {
            return Ok(());
        }
        super::current_runtime()?;
        // A stack: the last chunk is sent next.
        let mut chunks = vec![Chunk { events: events.to_vec(), retries: self.shared.retry_state() }];
        while let Some(mut chunk) = chunks.pop() {
            chunk.retries.restart_if_unsent();
            chunks.extend(self.deliver_chunk(chunk).await?);
        }
        Ok(())
    }

    /// Sends a chunk until each event has a final result. Returns the two halves, the later first, if the chunk is too large for the
    /// service or too slow.
    async fn deliver_chunk<'e>(&mut self, mut chunk: Chunk<'e>) -> Result<Vec<Chunk<'e>>, TransportError> {
        loop {
            let (response, results) = match self.post(&mut chunk).await {
                Ok(response) => response,
                Err(error) if error.status == Some(413) || is_too_slow(&error, &chunk) => {
                    return Ok(self.halve(chunk, error));
                }
                Err(error) => return Err(error),
            };
            let retryable = self.record(&chunk.events, &response, results);
            let Some((_, first)) = retryable.first() else {
                self.report();
                return Ok(Vec::new());
            };
            let first = first.clone();
            if retryable.len() < chunk.events.len() {
                chunk.retries.record_progress();
            }
            chunk.events = retryable.iter().map(|(event, _)| *event).collect();
            if let Err(error) = self.pause(&mut chunk, first).await {
                for ((index, event), error) in retryable {
                    self.settle(index, SendResult::fail(event.event_id(), error));
                }
                self.report();
                // Without a success status, the cause affects the next chunk too.
                return if response.status.is_success() { Ok(Vec::new()) } else { Err(error) };
            }
        }
    }

    /// Posts a chunk until there is a result for each event.
    async fn post(&mut self, chunk: &mut Chunk<'_>) -> Result<(HttpResponse, BatchResponse), TransportError> {
        let body = RequestBody::list(chunk.events.iter().map(|(_, event)| *event)).await;
        loop {
            let attempts = &mut self.progress.attempts;
            let on_start = || *attempts += 1;
            let response =
                self.shared.attempt(routes::SEND_EVENTS.path, &body, &mut chunk.retries, on_start).await;
            let parsed = response.and_then(|response| {
                let results = response.batch_results(chunk.events.len())?;
                Ok((response, results))
            });
            match parsed {
                Ok(parsed) => return Ok(parsed),
                Err(error) if is_too_slow(&error, chunk) => return Err(error),
                Err(error) => self.pause(chunk, error).await?,
            }
        }
    }

    /// Waits until the next attempt. Returns the error if no attempt is left.
    async fn pause(&mut self, chunk: &mut Chunk<'_>, error: TransportError) -> Result<(), TransportError> {
        let cause = error.code.as_deref().and_then(ProblemKind::from_code);
        let pause = chunk.retries.next_pause(error.clone())?;
        self.progress.retry_cause = cause;
        self.progress.waiting_for_retry = chunk.events.len();
        self.progress.retry_delay = Some(pause);
        self.report();
        let slept = chunk.retries.sleep(pause, error).await;
        self.progress.waiting_for_retry = 0;
        self.progress.retry_delay = None;
        self.progress.retry_cause = None;
        slept
    }

    /// Records final results. Returns the events with a retryable error.
    fn record<'e>(
        &mut self,
        events: &[IndexedEvent<'e>],
        response: &HttpResponse,
        results: BatchResponse,
    ) -> Vec<(IndexedEvent<'e>, TransportError)> {
        self.batch_id.get_or_insert_with(|| results.batch_id.to_string());
        let response_time_ms = milliseconds(self.shared.clock.now() - self.started);
        let mut retryable = Vec::new();
        for (&(index, event), result) in events.iter().zip(results.results) {
            let event_id = event.event_id();
            if matches!(result.status, EventStatus::Accepted | EventStatus::Quarantined) {
                self.progress.quarantined += usize::from(result.status == EventStatus::Quarantined);
                self.progress.duplicates += usize::from(result.duplicate == Some(true));
                let server_event_id = result.server_event_id.map(|id| id.to_string());
                self.settle(index, SendResult::ok(event_id, Some(response_time_ms), server_event_id));
                continue;
            }
            let error = response.event_error(&result);
            if error.retryable {
                retryable.push(((index, event), error));
            } else {
                self.settle(index, SendResult::fail(event_id, error));
            }
        }
        retryable
    }

    /// Splits a chunk that is too large or too slow. Returns the later half first. The halves keep the remaining retries of the chunk,
    /// and its deadline if an earlier attempt possibly stored events.
    fn halve<'e>(&mut self, mut chunk: Chunk<'e>, error: TransportError) -> Vec<Chunk<'e>> {
        if let [(index, event)] = chunk.events[..] {
            self.settle(index, SendResult::fail(event.event_id(), error));
            self.report();
            return Vec::new();
        }
        let later = chunk.events.split_off(chunk.events.len() / 2);
        vec![Chunk { events: later, retries: chunk.retries.clone() }, chunk]
    }

    /// Records the final result of an event.
    fn settle(&mut self, index: usize, result: SendResult) {
        *if result.success { &mut self.progress.accepted } else { &mut self.progress.failed } += 1;
        self.results[index] = Some(result);
    }

    /// Records this error for the events without a result.
    fn fail_rest(&mut self, events: &[IndexedEvent<'_>], error: &TransportError) {
        for (index, event) in events {
            if self.results[*index].is_none() {
                self.settle(*index, SendResult::fail(event.event_id(), error.clone()));
            }
        }
    }

    /// Calls `on_change` if the progress has changed.
    fn report(&mut self) {
        if self.progress != self.reported {
            self.reported = self.progress;
            (self.on_change)(self.progress, &self.results);
        }
    }

    fn finish(mut self) -> BatchSendResult {
        self.report();
        let response_time = milliseconds(self.shared.clock.now() - self.started);
        // Every event of a request has a result: `post` returns one for each, or `fail_rest` records it.
        let results: Vec<_> = self.results.into_iter().flatten().collect();
        let response_time = self.progress.attempts.gt(&0).then_some(response_time);
        BatchSendResult::from_results(results, self.batch_id, response_time)
    }
}

/// Returns whether the body of a chunk did not arrive in time, and a smaller one can.
fn is_too_slow(error: &TransportError, chunk: &Chunk<'_>) -> bool {
    error.status == Some(408) && chunk.events.len() > 1
}

/// Splits events into as few requests as the limits of the service allow. An event above the limit is alone in its request, and
/// the service rejects it. An event that cannot be sent counts as one without a body.
struct Requests<'a, E> {
    events: std::slice::Iter<'a, E>,
    /// The event that did not fit into the previous request.
    next: Option<Prepared<'a>>,
}

impl<'a, E: Event> Requests<'a, E> {
    fn new(events: &'a [E]) -> Self {
        Self { events: events.iter(), next: None }
    }
}

impl<'a, E: Event> Iterator for Requests<'a, E> {
    type Item = Vec<Prepared<'a>>;

    fn next(&mut self) -> Option<Vec<Prepared<'a>>> {
        let mut request = Vec::new();
        let mut bytes = BRACKETS;
        while request.len() < MAX_REQUEST_EVENTS
            && let Some(event) = self.next.take().or_else(|| self.events.next().map(E::prepare))
        {
            bytes += event.as_ref().map_or(0, |event| event.body().len() + COMMA);
            if !request.is_empty() && bytes > MAX_BYTES {
                self.next = Some(event);
                break;
            }
            request.push(event);
        }
        (!request.is_empty()).then_some(request)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;
    use crate::new_event_id;

    fn event_of(bytes: usize) -> OutgoingEvent {
        let body = format!(r#"{{"event_id":"a","x":"{}"}}"#, "x".repeat(bytes));
        OutgoingEvent::from_json(RawValue::from_string(body).unwrap(), new_event_id).unwrap()
    }

    /// Sizes of the requests.
    fn split(events: &[OutgoingEvent]) -> Vec<usize> {
        Requests::new(events).map(|request| request.len()).collect()
    }

    #[test]
    fn splits_after_a_thousand_events() {
        let events = vec![event_of(1); 1001];
        assert_eq!(split(&events[..1000]), [1000]);
        assert_eq!(split(&events), [1000, 1]);
        assert!(split(&[]).is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn requests_cover_the_batch_in_order_within_the_limits(
            sizes in proptest::collection::vec(prop_oneof![8 => 0_usize..9, 1 => 0..MAX_BYTES + 9], 0..24),
        ) {
            let events: Vec<_> = sizes.iter().map(|bytes| event_of(*bytes)).collect();
            let mut rest = &events[..];
            for request in split(&events) {
                let (events, later) = rest.split_at(request);
                prop_assert!(!events.is_empty());
                let bytes: usize = events.iter().map(|event| event.body().len() + 1).sum::<usize>() + 1;
                prop_assert!(bytes <= MAX_BYTES || events.len() == 1);
                rest = later;
            }
            prop_assert!(rest.is_empty());
        }
    }
}
