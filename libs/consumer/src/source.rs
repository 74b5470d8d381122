//! The durable in one stream: its deliveries, which it counts, because a lost one would break the order of a source.

use std::cell::{Cell, RefCell};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{Consumer, Info, pull};
use async_nats::jetstream::stream::ConsumerErrorKind;
use async_nats::jetstream::{AckKind, Context, ErrorCode, Message};
use futures::StreamExt as _;
use futures::future::try_join_all;
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::event::has_type_of;
use crate::lanes::{Delivery, answer_all};
use crate::marks::unmarked;
use crate::{BoxError, Config, ConsumerError};

/// Time that a request waits for events. A stopping consumer waits for the end of its last request, because the server can deliver
/// events to it until then.
pub(crate) const REQUEST_TIME: Duration = Duration::from_secs(2);
/// The same for events that can be due already.
const DUE_REQUEST_TIME: Duration = Duration::from_millis(200);
/// Largest size of the events that are requested at once, in all streams. The client library waits for them for 7 s, and the broker closes
/// a connection that does not read for 2 s.
const REQUEST_BYTES: usize = 1 << 20;
/// Largest size of one event with its headers.
const EVENT_BYTES: usize = udm::MAX_EVENT_BYTES + (16 << 10);
/// What the broker answers if the next event does not fit the rest of a request.
const REQUEST_IS_FULL: &str = "Message Size Exceeds MaxBytes";
/// Number of requests until an event that was returned to the server is not awaited any more.
const MAX_REDELIVERY_REQUESTS: u32 = 5;

/// Key of the metadata in which the service keeps the definition of a durable.
const DEFINITION: &str = "svc-definition";

/// The durable in one stream.
pub(crate) struct Source {
    /// Number of the stream in the configuration.
    index: usize,
    pub(crate) consumer: Consumer<pull::Config>,
    /// The event types that the durable is for; empty: all. It also delivers other events with the subject of `GENERIC_EVENT`.
    event_types: Vec<String>,
    /// Largest size of the events that are requested at once.
    request_bytes: usize,
    /// Number of the last delivery.
    last: Cell<u64>,
    /// Unacknowledged events of an earlier session that have not arrived.
    due: Cell<usize>,
    /// Those that have arrived, and new events that have arrived before them. The server delivers them in the order in which they became
    /// due, so they are sorted first.
    redelivered: RefCell<Vec<Delivery>>,
}

impl Source {
    /// The durable in one of several streams.
    pub(crate) fn new(index: usize, consumer: Consumer<pull::Config>, streams: usize) -> Self {
        let info = consumer.cached_info();
        let (last, due) = (Cell::new(info.delivered.consumer_sequence), Cell::new(info.num_ack_pending));
        let event_types = event_types(info);
        let request_bytes = (REQUEST_BYTES / streams).max(EVENT_BYTES);
        Self { index, consumer, event_types, request_bytes, last, due, redelivered: RefCell::default() }
    }

    /// When the durable was created. A text, because the features of the client library determine the type.
    pub(crate) fn created(&self) -> String {
        self.consumer.cached_info().created.to_string()
    }

    /// Number of unacknowledged events of an earlier session that have not arrived.
    pub(crate) fn due(&self) -> usize {
        self.due.get()
    }

    /// Requests unacknowledged events of an earlier session if some have not arrived, and otherwise up to `size` new ones.
    pub(crate) async fn request(&self, size: usize) -> Result<pull::Batch, BoxError> {
        let request = self.consumer.batch().expires(REQUEST_TIME);
        let request = match self.due_size() {
            0 => request.max_messages(size).max_bytes(self.request_bytes),
            size => request.max_messages(size),
        };
        Ok(request.messages().await?)
    }

    /// Number of unacknowledged events for one request. No more than those that have not arrived: an open request would receive an event
    /// that is returned. Not a limit in bytes, because the server counts an event that exceeds it as delivered.
    fn due_size(&self) -> usize {
        self.due().min(self.request_bytes / EVENT_BYTES)
    }

    /// Receives the unacknowledged events of an earlier session that are due already, for example because a process returned them when it
    /// stopped. Returns whether these are all.
    pub(crate) async fn receive_due(&self) -> Result<bool, BoxError> {
        while self.due() > 0 {
            let (mut missing, mut has_new) = (self.due_size(), false);
            let request = self.consumer.batch().max_messages(missing).expires(DUE_REQUEST_TIME);
            let mut batch = request.messages().await?;
            while let Some(message) = batch.next().await {
                missing -= 1;
                has_new |= !self.hold(self.receive(message?)?);
            }
            if missing > 0 || has_new {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Corrects the number of unacknowledged events: acknowledgements have arrived since.
    pub(crate) fn update(&self, info: &Info) {
        self.due.set(info.num_ack_pending.saturating_sub(self.redelivered.borrow().len()));
    }

    /// Extends the time for an acknowledgement of the events that wait for others.
    pub(crate) async fn extend_ack_time(&self) {
        let messages: Vec<_> =
            self.redelivered.borrow().iter().map(|delivery| Arc::clone(&delivery.message)).collect();
        answer_all(&messages, AckKind::Progress).await;
    }

    /// Checks that no delivery is missing.
    pub(crate) fn receive(&self, message: Message) -> Result<Delivery, BoxError> {
        let info = message.info()?;
        self.last.set(self.last.get() + 1);
        if info.consumer_sequence != self.last.get() {
            let text = "a delivery is missing: it was lost, this process was paused, or another process reads the same consumer";
            return Err(text.into());
        }
        Ok(Delivery {
            position: (self.index, info.stream_sequence),
            number: u64::try_from(info.delivered).unwrap_or_default(),
            is_selected: has_type_of(&message, &self.event_types),
            message: Arc::new(message),
        })
    }

    /// Keeps an event until all unacknowledged ones have arrived. Returns whether it is one of them.
    fn hold(&self, delivery: Delivery) -> bool {
        let is_unacknowledged = delivery.number > 1;
        let mut redelivered = self.redelivered.borrow_mut();
        // It is delivered again if the time for its acknowledgement could not be extended.
        if redelivered.iter().all(|held| held.position != delivery.position) {
            self.due.set(self.due().saturating_sub(usize::from(is_unacknowledged)));
            redelivered.push(delivery);
        }
        is_unacknowledged
    }

    /// Returns the deliveries that can be handled now, in order.
    pub(crate) async fn sort(
        &self,
        delivery: Delivery,
        others: &mpsc::UnboundedSender<Delivery>,
    ) -> Vec<Delivery> {
        if self.due() > 0 && delivery.number > 1 {
            self.hold(delivery);
            return self.release(others).await;
        }
        // The server delivers new events when no unacknowledged one is due.
        let mut deliveries = self.take_redelivered();
        deliveries.push(delivery);
        deliveries
    }

    /// Returns the events that were held, in the order of the stream, if all unacknowledged ones have arrived. None of them is near a mark:
    /// no request waits for events then.
    pub(crate) async fn release(&self, others: &mpsc::UnboundedSender<Delivery>) -> Vec<Delivery> {
        if self.due() > 0 {
            return Vec::new();
        }
        let mut deliveries = self.take_redelivered();
        for delivery in &mut deliveries {
            self.redeliver(delivery, unmarked(delivery.number), others).await;
        }
        deliveries
    }

    /// Ends the wait for unacknowledged events. Returns those that have arrived, in the order of the stream.
    pub(crate) fn take_redelivered(&self) -> Vec<Delivery> {
        self.due.set(0);
        let mut redelivered = take(&mut *self.redelivered.borrow_mut());
        redelivered.sort_by_key(|delivery| delivery.position);
        redelivered
    }

    /// Returns an event to the server and receives it again, until it was delivered this number of times. Passes on other events
    /// that arrive meanwhile. No other request may wait for events. After an error, a crash is not counted.
    pub(crate) async fn redeliver(
        &self,
        delivery: &mut Delivery,
        number: u64,
        others: &mpsc::UnboundedSender<Delivery>,
    ) {
        if let Err(error) = self.try_redeliver(delivery, number, others).await {
            tracing::debug!(error, "failed to receive an event again");
        }
    }

    async fn try_redeliver(
        &self,
        delivery: &mut Delivery,
        number: u64,
        others: &mpsc::UnboundedSender<Delivery>,
    ) -> Result<(), BoxError> {
        let mut requests = 0;
        while delivery.number < number {
            if requests == MAX_REDELIVERY_REQUESTS {
                return Err("the event was not delivered again".into());
            }
            requests += 1;
            // The server delivers the event to the next request after it has confirmed the return.
            delivery.message.double_ack_with(AckKind::Nak(None)).await?;
            let mut batch = self.consumer.batch().max_messages(1).expires(REQUEST_TIME).messages().await?;
            while let Some(message) = batch.next().await {
                let received = self.receive(message?)?;
                if received.position == delivery.position {
                    *delivery = received;
                    requests = 0;
                } else {
                    // Fails only after the session has ended.
                    let _ = others.send(received);
                }
            }
        }
        Ok(())
    }
}

/// Returns the next message of a request, until it ends.
pub(crate) async fn next_message(batch: &mut pull::Batch) -> Option<Result<Message, BoxError>> {
    batch
        .next()
        .await
        .filter(|next| !matches!(next, Err(error) if error.to_string().contains(REQUEST_IS_FULL)))
}

/// Returns the event types of the definition of a durable; empty: all.
fn event_types(info: &Info) -> Vec<String> {
    #[derive(Default, Deserialize)]
    struct Definition {
        #[serde(default)]
        event_types: Vec<String>,
    }

    let definition = info.config.metadata.get(DEFINITION);
    let definition: Option<Definition> = definition.and_then(|text| serde_json::from_str(text).ok());
    definition.unwrap_or_default().event_types
}

/// Returns the durable of each stream.
pub(crate) async fn find_all(
    config: &Config,
    context: &Context,
) -> Result<Vec<Consumer<pull::Config>>, ConsumerError> {
    try_join_all(config.streams.iter().map(|stream| find(context, stream, &config.name))).await
}

async fn find(context: &Context, stream: &str, name: &str) -> Result<Consumer<pull::Config>, ConsumerError> {
    let (stream, name) = (stream.to_owned(), name.to_owned());
    let found = context.get_consumer_from_stream(&name, &stream).await;
    let consumer: Consumer<pull::Config> = found.map_err(|source| match source.kind() {
        ConsumerErrorKind::JetStream(error)
            if [ErrorCode::CONSUMER_NOT_FOUND, ErrorCode::STREAM_NOT_FOUND].contains(&error.error_code()) =>
        {
            ConsumerError::NotFound { stream: stream.clone(), name: name.clone() }
        }
        _ => ConsumerError::Unavailable { stream: stream.clone(), name: name.clone(), source },
    })?;
    if consumer.cached_info().config.max_deliver > 0 {
        return Err(ConsumerError::DeliveryLimit { stream, name });
    }
    Ok(consumer)
}
