//! What the stream of events holds, as the broker's administrator sees it.

use std::collections::HashMap;

use async_nats::jetstream::{self, stream::Stream};

/// The stream `UDM`.
pub struct Broker(Stream);

impl Broker {
    /// Connects.
    pub async fn connect(nats_url: &str) -> Self {
        let client = bus::connect(&bus::Config::new(nats_url, "e2e")).await.unwrap();
        Self(jetstream::new(client).get_stream("UDM").await.unwrap())
    }

    /// How many messages there are.
    pub async fn count(&mut self) -> u64 {
        self.0.info().await.unwrap().state.messages
    }

    /// How often each `Nats-Msg-Id` stands in it.
    pub async fn message_ids(&mut self) -> HashMap<String, usize> {
        let state = self.0.info().await.unwrap().state.clone();
        let mut ids = HashMap::new();
        for sequence in state.first_sequence..=state.last_sequence {
            let message = self.0.get_raw_message(sequence).await.unwrap();
            let id = message.headers.get("Nats-Msg-Id").unwrap().to_string();
            *ids.entry(id).or_default() += 1;
        }
        ids
    }
}
