//! The durable in one stream: its deliveries, which it counts, because a lost one would break the order of a source.

use std::cell::{Cell, RefCell};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{Consumer, Info, pull};
use async_nats::jetstream::stream::ConsumerErrorKind;
use async_nats::jetstream::{AckKind, Context, ErrorCode, Message};
use futures::StreamExt as _;
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::event::has_type_of;
use crate::lanes::Delivery;
use crate::marks::unmarked;
use crate::{BoxError, ConsumerError};

/// Time that a request waits for events. A stopping consumer waits for the end of its last request, because the server can deliver
/// events to it until then.
pub(crate) const REQUEST_TIME: Duration = Duration::from_secs(2);
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
    /// Number of the last delivery.
    last: Cell<u64>,
    /// Unacknowledged events of an earlier session that have not arrived.
    due: Cell<usize>,
    /// Those that have arrived. The server delivers them in the order in which they became due, so they are sorted first.
    redelivered: RefCell<Vec<Delivery>>,
}

impl Source {
    pub(crate) fn new(index: usize, consumer: Consumer<pull::Config>) -> Self {
        let info = consumer.cached_info();
        let (last, due) = (Cell::new(info.delivered.consumer_sequence), Cell::new(info.num_ack_pending));
        let event_types = event_types(info);
        Self { index, consumer, event_types, last, due, redelivered: RefCell::default() }
    }

    /// Number of unacknowledged events of an earlier session that have not arrived.
    pub(crate) fn due(&self) -> usize {
        self.due.get()
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

    /// Returns the deliveries that can be handled now, in order. None of them is near a mark if all unacknowledged events have
    /// arrived: no request waits for events then.
    pub(crate) async fn sort(
        &self,
        delivery: Delivery,
        others: &mpsc::UnboundedSender<Delivery>,
    ) -> Vec<Delivery> {
        if self.due() > 0 && delivery.number > 1 {
            self.due.set(self.due() - 1);
            self.redelivered.borrow_mut().push(delivery);
            let mut deliveries = if self.due() == 0 { self.take_redelivered() } else { Vec::new() };
            for delivery in &mut deliveries {
                self.redeliver(delivery, unmarked(delivery.number), others).await;
            }
            return deliveries;
        }
        // The server delivers new events when no unacknowledged one is due.
        let mut deliveries = self.take_redelivered();
        deliveries.push(delivery);
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

/// Returns the durable of a stream.
pub(crate) async fn find(
    context: &Context,
    stream: &str,
    name: &str,
) -> Result<Consumer<pull::Config>, ConsumerError> {
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
