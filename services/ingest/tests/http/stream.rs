//! Reads the messages of the event stream.

use async_nats::jetstream::{self, message::StreamMessage};
use data_encoding::BASE64;
use serde_json::{Value, json};
use testsystem::TestSystem;

/// Returns every message of the stream in order.
pub(crate) async fn messages(system: &TestSystem) -> Vec<StreamMessage> {
    let client = system.nats.connect("administrator").await.unwrap();
    let mut stream = jetstream::new(client).get_stream("UDM").await.unwrap();
    let last = stream.info().await.unwrap().state.last_sequence;
    let mut messages = Vec::new();
    for sequence in 1..=last {
        messages.push(stream.get_raw_message(sequence).await.unwrap());
    }
    messages
}

/// Returns the size in bytes of the headers of a stored message, as the broker stores them.
pub(crate) async fn header_bytes(system: &TestSystem, sequence: u64) -> usize {
    let client = system.nats.connect("administrator").await.unwrap();
    let request = json!({ "seq": sequence }).to_string().into();
    let reply = client.request("$JS.API.STREAM.MSG.GET.UDM", request).await.unwrap();
    let reply: Value = serde_json::from_slice(&reply.payload).unwrap();
    BASE64.decode(reply["message"]["hdrs"].as_str().unwrap().as_bytes()).unwrap().len()
}

pub(crate) fn header<'m>(message: &'m StreamMessage, name: &str) -> &'m str {
    message.headers.get(name).map_or("", |value| value.as_str())
}
