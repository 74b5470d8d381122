//! The events in flight. Of each source, one is handled and later ones wait.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use async_nats::HeaderValue;
use async_nats::jetstream::{AckKind, Message};

/// The stream, and the number of a message in it.
pub(crate) type Position = (usize, u64);

/// A delivered message.
#[derive(Clone)]
pub(crate) struct Delivery {
    pub(crate) position: Position,
    /// Number of this delivery, starting at 1.
    pub(crate) number: u64,
    /// Whether the durable is for events of this type.
    pub(crate) is_selected: bool,
    pub(crate) message: Arc<Message>,
}

#[derive(Default)]
pub(crate) struct Lanes {
    /// Waiting deliveries of each source that has a running one.
    waiting: HashMap<String, VecDeque<Delivery>>,
    /// All deliveries.
    held: HashMap<Position, Arc<Message>>,
}

impl Delivery {
    /// Returns the key of the order: tenant and source. Messages without a source share a lane.
    fn lane(&self) -> String {
        format!("{} {}", self.tenant(), self.header("ce-source"))
    }

    /// Empty if the subject contains none.
    pub(crate) fn tenant(&self) -> &str {
        self.message.subject.split('.').nth(3).unwrap_or_default()
    }

    /// Empty if the message does not have this header.
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.message.headers.as_ref().and_then(|headers| headers.get(name));
        value.map(HeaderValue::as_str).unwrap_or_default()
    }
}

impl Lanes {
    /// Number of events in flight.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Adds a delivery. Returns it if it can be handled now. A repeated delivery of an event in flight is ignored.
    pub(crate) fn add(&mut self, delivery: Delivery) -> Option<Delivery> {
        if self.held.insert(delivery.position, Arc::clone(&delivery.message)).is_some() {
            return None;
        }
        match self.waiting.entry(delivery.lane()) {
            Entry::Occupied(mut lane) => {
                lane.get_mut().push_back(delivery);
                None
            }
            Entry::Vacant(lane) => {
                lane.insert(VecDeque::new());
                Some(delivery)
            }
        }
    }

    /// Removes handled events of one source. Returns its next ones, at most `max`.
    pub(crate) fn finish(&mut self, deliveries: Vec<Delivery>, max: usize) -> Vec<Delivery> {
        let Some(lane) = deliveries.first().map(Delivery::lane) else { return Vec::new() };
        for delivery in deliveries {
            self.held.remove(&delivery.position);
        }
        let waiting = self.waiting.get_mut(&lane);
        let next: Vec<_> =
            waiting.map(|waiting| waiting.drain(..max.min(waiting.len())).collect()).unwrap_or_default();
        if next.is_empty() {
            self.waiting.remove(&lane);
        }
        next
    }

    /// Removes the events that wait.
    pub(crate) fn clear_waiting(&mut self) {
        let waiting: HashSet<_> = self
            .waiting
            .values_mut()
            .flat_map(|lane| lane.drain(..))
            .map(|delivery| delivery.position)
            .collect();
        self.held.retain(|position, _| !waiting.contains(position));
    }

    /// Extends the time for an acknowledgement, so that the server does not deliver the events again.
    pub(crate) async fn extend_ack_time(&self) {
        answer_all(self.held.values(), AckKind::Progress).await;
    }

    /// Returns all events to the server, which delivers them at once to the next request.
    pub(crate) async fn return_all(&self) {
        answer_all(self.held.values(), AckKind::Nak(None)).await;
    }
}

/// Sends an answer for each message. It has no effect for those that are acknowledged.
pub(crate) async fn answer_all<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>, kind: AckKind) {
    for message in messages {
        if let Err(error) = message.ack_with(kind).await {
            tracing::debug!(error, ?kind, "failed to answer for an event");
        }
    }
}
