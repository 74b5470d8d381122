//! Listens to hints, and tells when some may have been missed.

use async_nats::{Event, Subscriber};
use futures::StreamExt as _;
use tokio::sync::mpsc;

use super::{Hint, REVOKED_SUBJECT};
use crate::connect::{self, Config, ConnectError};

/// What a listener learns.
#[derive(Debug)]
pub enum Heard {
    /// There is a connection: from now on hints are heard.
    Connected,
    /// A hint.
    Hint(Hint),
    /// Hints may have been missed: the connection broke, too much came at once, or a message cannot be understood.
    Missed,
}

/// A subscription to hints, which connects again by itself.
pub struct HintListener {
    messages: Subscriber,
    changes: mpsc::UnboundedReceiver<Heard>,
}

impl HintListener {
    /// Subscribes. The broker need not be there.
    ///
    /// # Errors
    /// A configuration that can never work.
    pub async fn start(config: &Config) -> Result<Self, ConnectError> {
        let (tell, changes) = mpsc::unbounded_channel();
        let on_event = move |event| {
            let heard = match event {
                Event::Connected => Some(Heard::Connected),
                Event::Disconnected | Event::SlowConsumer(_) | Event::Closed => Some(Heard::Missed),
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
        let messages = client.subscribe(REVOKED_SUBJECT).await.map_err(|_| ConnectError::Address)?;
        Ok(Self { messages, changes })
    }

    /// The next thing to know. Cancelling it loses nothing.
    pub async fn next(&mut self) -> Heard {
        tokio::select! {
            // In this order: what was missed must not be forgotten behind what was not.
            biased;
            Some(heard) = self.changes.recv() => heard,
            Some(message) = self.messages.next() => {
                serde_json::from_slice(&message.payload).map_or(Heard::Missed, Heard::Hint)
            }
            // The client ended, which it never does by itself.
            else => std::future::pending().await,
        }
    }
}
