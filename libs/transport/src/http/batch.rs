//! Delivery of a batch of any length: splits it into requests, retries retryable events, returns one result per event.
//!
//! Requests are sequential, so that events are sent in order. If a request fails as a whole, the rest of the batch fails
//! with the same error, because further requests would fail too.

use std::ops::Range;
use std::time::Instant;

use contract::events::{BatchResponse, EventStatus};
use contract::routes;
use udm::MAX_BATCH_EVENTS;

use super::HttpTransport;
use super::client::{HttpClient, RequestBody};
use super::response::HttpResponse;
use super::retry::{RetryState, milliseconds};
use crate::{BatchSendResult, OutgoingEvent, SendResult, TransportError, TransportErrorKind};

/// Maximum body size of the service, before compression.
const MAX_BYTES: usize = 10 * 1024 * 1024;
/// Bytes of a JSON list in addition to its items.
const BRACKETS: usize = 2;
const COMMA: usize = 1;

pub(super) async fn deliver(transport: &HttpTransport, events: &[OutgoingEvent]) -> BatchSendResult {
    if events.is_empty() {
        return BatchSendResult::from_results(Vec::new(), None, None);
    }
    let mut delivery = Delivery {
        transport,
        events,
        started: transport.clock.now(),
        results: vec![None; events.len()],
        batch_id: None,
    };
    let result = delivery.run().await;
    delivery.finish(result)
}

struct Delivery<'a> {
    transport: &'a HttpTransport,
    events: &'a [OutgoingEvent],
    started: Instant,
    /// Parallel to `events`; `None` without a final result.
    results: Vec<Option<SendResult>>,
    batch_id: Option<String>,
}

/// Events of one request, as indexes into the batch.
struct Chunk<'a> {
    indexes: Vec<usize>,
    retries: RetryState<'a>,
}

impl<'a> Delivery<'a> {
    async fn run(&mut self) -> Result<(), TransportError> {
        let client = self.transport.client()?;
        for range in split_into_requests(self.events) {
            // A stack: the last chunk is sent next.
            let mut chunks = vec![Chunk { indexes: range.collect(), retries: self.transport.retry_state() }];
            while let Some(chunk) = chunks.pop() {
                chunks.extend(self.deliver_chunk(&client, chunk).await?);
            }
        }
        Ok(())
    }

    /// Sends a chunk until each event has a final result. Returns the two halves, the later first, if the chunk is too large.
    async fn deliver_chunk(
        &mut self,
        client: &HttpClient,
        mut chunk: Chunk<'a>,
    ) -> Result<Vec<Chunk<'a>>, TransportError> {
        loop {
            let (response, results) = match self.post(client, &mut chunk).await {
                Ok(response) => response,
                Err(error) if error.status == Some(413) => return Ok(self.halve(chunk, error)),
                Err(error) => return Err(error),
            };
            let retryable = self.record(&chunk.indexes, &response, results);
            let Some((_, first)) = retryable.first() else {
                return Ok(Vec::new());
            };
            chunk.indexes = retryable.iter().map(|(index, _)| *index).collect();
            if let Err(error) = chunk.retries.pause_or_fail(first.clone()).await {
                for (index, error) in retryable {
                    self.fail(index, error);
                }
                // Without a success status, all events failed for one cause, which affects the next chunk too.
                return if response.status.is_success() { Ok(Vec::new()) } else { Err(error) };
            }
        }
    }

    /// Posts a chunk until there is a result for each event.
    async fn post(
        &self,
        client: &HttpClient,
        chunk: &mut Chunk<'a>,
    ) -> Result<(HttpResponse, BatchResponse), TransportError> {
        let body = RequestBody::list(chunk.indexes.iter().map(|index| &self.events[*index])).await;
        loop {
            chunk.retries.check_deadline()?;
            let response = client.post(routes::SEND_EVENTS.path, &body).await;
            let parsed = response.and_then(|response| {
                let results = response.batch_results(chunk.indexes.len())?;
                Ok((response, results))
            });
            match parsed {
                Ok(parsed) => return Ok(parsed),
                Err(error) => chunk.retries.pause_or_fail(error).await?,
            }
        }
    }

    /// Records final results. Returns the retryable errors.
    fn record(
        &mut self,
        indexes: &[usize],
        response: &HttpResponse,
        results: BatchResponse,
    ) -> Vec<(usize, TransportError)> {
        self.batch_id.get_or_insert_with(|| results.batch_id.to_string());
        let response_time_ms = milliseconds(self.transport.clock.now() - self.started);
        let mut retryable = Vec::new();
        for (&index, result) in indexes.iter().zip(results.results) {
            if result.status == EventStatus::Accepted {
                let server_event_id = result.server_event_id.map(|id| id.to_string());
                let event_id = self.events[index].event_id();
                self.results[index] = Some(SendResult::ok(event_id, Some(response_time_ms), server_event_id));
                continue;
            }
            let error = response.event_error(&result);
            if error.retryable {
                retryable.push((index, error));
            } else {
                self.fail(index, error);
            }
        }
        retryable
    }

    /// Splits a chunk that is too large. Returns the later half first. The halves keep the deadline and the remaining retries
    /// of the chunk.
    fn halve(&mut self, mut chunk: Chunk<'a>, error: TransportError) -> Vec<Chunk<'a>> {
        if let [index] = chunk.indexes[..] {
            self.fail(index, error);
            return Vec::new();
        }
        let later = chunk.indexes.split_off(chunk.indexes.len() / 2);
        vec![Chunk { indexes: later, retries: chunk.retries.clone() }, chunk]
    }

    fn fail(&mut self, index: usize, error: TransportError) {
        self.results[index] = Some(SendResult::fail(self.events[index].event_id(), error));
    }

    /// Results of all events. Events without a result fail with the error of the delivery.
    fn finish(self, delivered: Result<(), TransportError>) -> BatchSendResult {
        let error = delivered.err().unwrap_or_else(|| {
            TransportError::new(TransportErrorKind::Protocol, "the service returned no result for the event")
        });
        let results = self.results.into_iter().zip(self.events).map(|(result, event)| {
            result.unwrap_or_else(|| SendResult::fail(event.event_id(), error.clone()))
        });
        let response_time = milliseconds(self.transport.clock.now() - self.started);
        BatchSendResult::from_results(results.collect(), self.batch_id, Some(response_time))
    }
}

/// Splits a batch into as few requests as the limits of the service allow. An event above the limit is sent alone, and the
/// service rejects it.
fn split_into_requests(events: &[OutgoingEvent]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    let mut bytes = BRACKETS;
    for (index, event) in events.iter().enumerate() {
        let needed = event.body().len() + COMMA;
        if index > start && (index - start == MAX_BATCH_EVENTS || bytes + needed > MAX_BYTES) {
            ranges.push(start..index);
            start = index;
            bytes = BRACKETS;
        }
        bytes += needed;
    }
    if start < events.len() {
        ranges.push(start..events.len());
    }
    ranges
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

    #[test]
    fn splits_after_a_thousand_events() {
        let events = vec![event_of(1); 1001];
        assert_eq!(split_into_requests(&events[..1000]).len(), 1);
        assert_eq!(split_into_requests(&events), [0..1000, 1000..1001]);
        assert!(split_into_requests(&[]).is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn requests_cover_the_batch_in_order_within_the_limits(
            sizes in proptest::collection::vec(prop_oneof![8 => 0_usize..9, 1 => 0..MAX_BYTES + 9], 0..24),
        ) {
            let events: Vec<_> = sizes.iter().map(|bytes| event_of(*bytes)).collect();
            let mut next = 0;
            for request in split_into_requests(&events) {
                prop_assert_eq!(request.start, next);
                prop_assert!(!request.is_empty());
                let bytes: usize = events[request.clone()].iter().map(|event| event.body().len() + 1).sum::<usize>() + 1;
                prop_assert!(bytes <= MAX_BYTES || request.len() == 1);
                next = request.end;
            }
            prop_assert_eq!(next, events.len());
        }
    }
}
