//! Reads the messages of the event stream.

use async_nats::jetstream::{self, message::StreamMessage};
use testsystem::TestSystem;

/// Returns every message of the stream in order.
pub(crate) async fn messages(system: &TestSystem) -> Vec<StreamMessage> {
    let client = async_nats::connect(&system.nats.url).await.unwrap();
    let mut stream = jetstream::new(client).get_stream("UDM").await.unwrap();
    let last = stream.info().await.unwrap().state.last_sequence;
    let mut messages = Vec::new();
    for sequence in 1..=last {
        messages.push(stream.get_raw_message(sequence).await.unwrap());
    }
    messages
}

pub(crate) fn header<'m>(message: &'m StreamMessage, name: &str) -> &'m str {
    message.headers.get(name).map_or("", |value| value.as_str())
}
