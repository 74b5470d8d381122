//! Listens to invalidations, and tells when some may have been missed.

use async_nats::{Event, Subscriber};
use futures::StreamExt as _;
use tokio::sync::mpsc;

use super::{INVALIDATION_SUBJECT, InvalidationMessage};
use crate::connect::{self, Config, ConnectError};

/// What a listener learns.
#[derive(Debug)]
pub enum FeedEvent {
    /// There is a connection: from now on invalidations are heard.
    Connected,
    /// A hint.
    InvalidationMessage(InvalidationMessage),
    /// Hints may have been missed: the connection broke, too much came at once, or a message cannot be understood.
    Missed,
}

/// A subscription to invalidations, which connects again by itself.
pub struct InvalidationListener {
    messages: Subscriber,
    changes: mpsc::UnboundedReceiver<FeedEvent>,
}

impl InvalidationListener {
    /// Subscribes. The broker need not be there.
    ///
    /// # Errors
    /// A configuration that can never work.
    pub async fn start(config: &Config) -> Result<Self, ConnectError> {
        let (tell, changes) = mpsc::unbounded_channel();
        let on_event = move |event| {
            let heard = match event {
                Event::Connected => Some(FeedEvent::Connected),
                Event::Disconnected | Event::SlowConsumer(_) | Event::Closed => Some(FeedEvent::Missed),
                _ => None,
            };
            // A listener that is gone needs no news.
            let _ = heard.map(|heard| tell.send(heard));
            std::future::ready(())
        };
        let (options, servers) = connect::dial(config)?;
        let client = options
            .retry_on_initial_connect()
            .reconnect_delay_callback(connect::back_off)
            .event_callback(on_event)
            .connect(servers)
            .await?;
        let messages = client.subscribe(INVALIDATION_SUBJECT).await.map_err(|_| ConnectError::Address)?;
        Ok(Self { messages, changes })
    }

    /// The next thing to know. Cancelling it loses nothing.
    pub async fn next(&mut self) -> FeedEvent {
        tokio::select! {
            // In this order: what was missed must not be forgotten behind what was not.
            biased;
            Some(heard) = self.changes.recv() => heard,
            Some(message) = self.messages.next() => {
                serde_json::from_slice(&message.payload).map_or(FeedEvent::Missed, FeedEvent::InvalidationMessage)
            }
            // The client ended, which it never does by itself.
            else => std::future::pending().await,
        }
    }
}
