//! Delivers a batch of any length: several requests where it must be, again what can be helped, one result per event.
//!
//! The requests go one after the other, so the events of a source leave in order. A request that fails as a whole ends the
//! batch, because the next would fail the same way: what was not sent yet fails with the same error.

use std::ops::Range;
use std::time::Instant;

use contract::events::{BatchResponse, EventStatus};
use udm::MAX_BATCH_EVENTS;

use super::HttpTransport;
use super::answer::Answer;
use super::body::Body;
use super::retry::{Retries, milliseconds};
use super::session::Session;
use crate::{BatchSendResult, OutgoingEvent, SendResult, TransportError, TransportErrorKind};

/// What the service takes in one request, beside the number of events.
const MAX_BYTES: usize = 10 * 1024 * 1024;
/// What a list adds to its events.
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
    let outcome = delivery.run().await;
    delivery.finish(outcome)
}

struct Delivery<'a> {
    transport: &'a HttpTransport,
    events: &'a [OutgoingEvent],
    started: Instant,
    /// Parallel to `events`; `None` while the outcome is open.
    results: Vec<Option<SendResult>>,
    batch_id: Option<String>,
}

/// Places in the batch whose events travel in one request.
struct Part<'a> {
    places: Vec<usize>,
    retries: Retries<'a>,
}

impl<'a> Delivery<'a> {
    async fn run(&mut self) -> Result<(), TransportError> {
        let session = self.transport.session()?;
        for request in requests(self.events) {
            // The next one is the last.
            let mut parts = vec![Part { places: request.collect(), retries: self.transport.retries() }];
            while let Some(part) = parts.pop() {
                parts.extend(self.deliver_part(&session, part).await?);
            }
        }
        Ok(())
    }

    /// Sends a part until each of its events is accepted or given up. Gives back what it has to be split into, the later part
    /// first.
    async fn deliver_part(
        &mut self,
        session: &Session,
        mut part: Part<'a>,
    ) -> Result<Vec<Part<'a>>, TransportError> {
        loop {
            let (answer, results) = match self.post(session, &mut part).await {
                Ok(understood) => understood,
                Err(error) if error.status == Some(413) => return Ok(self.halve(part, error)),
                Err(error) => return Err(error),
            };
            let passing = self.settle(&part.places, &answer, results);
            let Some((_, first)) = passing.first() else {
                return Ok(Vec::new());
            };
            part.places = passing.iter().map(|(place, _)| *place).collect();
            if let Err(error) = part.retries.pause_after(first.clone()).await {
                for (place, error) in passing {
                    self.fail(place, error);
                }
                // Any other status than success says that all failed for one cause, which will meet the next part too.
                return if answer.status.is_success() { Ok(Vec::new()) } else { Err(error) };
            }
        }
    }

    /// Posts a part until there is an answer for each of its events.
    async fn post(
        &self,
        session: &Session,
        part: &mut Part<'a>,
    ) -> Result<(Answer, BatchResponse), TransportError> {
        let body = Body::list(part.places.iter().map(|place| &self.events[*place])).await;
        loop {
            part.retries.check_time()?;
            let understood = session
                .post("/events/batch", &body)
                .await
                .and_then(|answer| answer.batch(part.places.len()).map(|results| (answer, results)));
            match understood {
                Ok(understood) => return Ok(understood),
                Err(error) => part.retries.pause_after(error).await?,
            }
        }
    }

    /// Records what is final, and gives back what failed for a passing cause.
    fn settle(
        &mut self,
        places: &[usize],
        answer: &Answer,
        results: BatchResponse,
    ) -> Vec<(usize, TransportError)> {
        self.batch_id.get_or_insert_with(|| results.batch_id.to_string());
        let response_time_ms = milliseconds(self.transport.clock.now() - self.started);
        let mut passing = Vec::new();
        for (&place, result) in places.iter().zip(results.results) {
            if result.status == EventStatus::Accepted {
                let server_event_id = result.server_event_id.map(|id| id.to_string());
                let event_id = self.events[place].event_id();
                self.results[place] = Some(SendResult::ok(event_id, Some(response_time_ms), server_event_id));
                continue;
            }
            let error = answer.event_error(&result);
            if error.retryable {
                passing.push((place, error));
            } else {
                self.fail(place, error);
            }
        }
        passing
    }

    /// Two parts of one that is too large, the later first. They share its time, and each has the retries that it had left.
    fn halve(&mut self, mut part: Part<'a>, error: TransportError) -> Vec<Part<'a>> {
        if let [place] = part.places[..] {
            self.fail(place, error);
            return Vec::new();
        }
        let later = part.places.split_off(part.places.len() / 2);
        vec![Part { places: later, retries: part.retries.clone() }, part]
    }

    fn fail(&mut self, place: usize, error: TransportError) {
        self.results[place] = Some(SendResult::fail(self.events[place].event_id(), error));
    }

    /// What is still open was ended by the outcome.
    fn finish(self, outcome: Result<(), TransportError>) -> BatchSendResult {
        let error = outcome.err().unwrap_or_else(|| {
            TransportError::new(TransportErrorKind::Protocol, "no answer said what became of the event")
        });
        let results = self.results.into_iter().zip(self.events).map(|(result, event)| {
            result.unwrap_or_else(|| SendResult::fail(event.event_id(), error.clone()))
        });
        let response_time = milliseconds(self.transport.clock.now() - self.started);
        BatchSendResult::from_results(results.collect(), self.batch_id, Some(response_time))
    }
}

/// As few requests as the service's limits allow. An event that is too large by itself goes alone: the service says so.
fn requests(events: &[OutgoingEvent]) -> Vec<Range<usize>> {
    let mut requests = Vec::new();
    let mut start = 0;
    let mut bytes = BRACKETS;
    for (place, event) in events.iter().enumerate() {
        let needed = event.body().len() + COMMA;
        if place > start && (place - start == MAX_BATCH_EVENTS || bytes + needed > MAX_BYTES) {
            requests.push(start..place);
            start = place;
            bytes = BRACKETS;
        }
        bytes += needed;
    }
    if start < events.len() {
        requests.push(start..events.len());
    }
    requests
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
    fn a_thousand_small_events_are_one_request_and_one_more_makes_two() {
        let events = vec![event_of(1); 1001];
        assert_eq!(requests(&events[..1000]).len(), 1);
        assert_eq!(requests(&events), [0..1000, 1000..1001]);
        assert!(requests(&[]).is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn requests_cover_the_batch_in_order_within_the_limits(
            sizes in proptest::collection::vec(prop_oneof![8 => 0_usize..9, 1 => 0..MAX_BYTES + 9], 0..24),
        ) {
            let events: Vec<_> = sizes.iter().map(|bytes| event_of(*bytes)).collect();
            let mut next = 0;
            for request in requests(&events) {
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
