//! Typical events of 500 bytes, their messages, and the baseline publisher: the bare NATS client.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::PublishAckFuture;
use bus::{EventContext, Message};
use bytes::Bytes;
use chrono::DateTime;
use tenancy::TenantId;
use tokio::task::JoinSet;
use uuid::Uuid;

/// The size of each event.
const BYTES: usize = 500;
/// The number of event sources.
const SOURCES: usize = 32;

/// New events with unique ids.
pub(crate) fn events(count: usize) -> Vec<Bytes> {
    (0..count).map(|number| event(number % SOURCES, &[])).collect()
}

/// New events with unique ids and names in `lowerCamelCase`.
pub(crate) fn events_in_camel_case(count: usize) -> Vec<Bytes> {
    let names = ["source_id", "event_id", "event_timestamp", "event_type", "vendor_name", "product_name"];
    let spellings = ["sourceId", "eventId", "eventTimestamp", "eventType", "vendorName", "productName"];
    let names: Vec<_> = names.into_iter().zip(spellings).collect();
    (0..count).map(|number| event(number % SOURCES, &names)).collect()
}

/// New events with unique ids and random sources.
pub(crate) fn events_of(count: usize, sources: usize) -> Vec<Bytes> {
    // The lowest bits of the id are random.
    let source = || usize::try_from(Uuid::now_v7().as_u128() % sources as u128).unwrap_or_default();
    (0..count).map(|_| event(source(), &[])).collect()
}

/// Returns an event with other spellings of these names.
fn event(source: usize, names: &[(&str, &str)]) -> Bytes {
    let mut text = format!(
        concat!(
            r#"{{"source_id":"fw-{source:02}","event_id":"{id}","metadata":{{"event_timestamp":"2026-01-31T12:00:00.250Z","#,
            r#""event_type":"NETWORK_CONNECTION","vendor_name":"Example","product_name":"Firewall"}},"#,
            r#""principal":{{"hostname":"host-{source}","ip":["10.0.{network}.7"],"port":51234}},"#,
            r#""target":{{"ip":["192.0.2.10"],"port":443}},"additional":{{"rule":""#,
        ),
        source = source,
        network = source % 256,
        id = Uuid::now_v7(),
    );
    for (name, spelling) in names {
        text = text.replace(&format!("\"{name}\""), &format!("\"{spelling}\""));
    }
    let end = r#""}}"#;
    text.extend(std::iter::repeat_n('x', BYTES.saturating_sub(text.len() + end.len())));
    text.push_str(end);
    text.into()
}

/// The body of a batch request.
pub(crate) fn batch_body(events: &[Bytes]) -> Vec<u8> {
    [b"[", &*events.join(&b","[..]), b"]"].concat()
}

/// The messages that ingest publishes for these events, with the same subjects, ids, headers and bytes.
pub(crate) fn messages(tenant: &TenantId, events: &[Bytes]) -> anyhow::Result<Vec<Message>> {
    let request_id = "8e2f00700080c5d1";
    let credential = format!("session:{}", Uuid::now_v7());
    let context = EventContext::new(tenant.clone(), DateTime::UNIX_EPOCH, request_id, &credential, None);
    let message = |raw: &Bytes| {
        let event = udm::parse(raw)?;
        let id = event.event_id.as_deref().context("the event has no id")?;
        Ok(Message::event(&context, &event, id, raw.clone())?)
    };
    events.iter().map(message).collect()
}

/// Publishes the messages with the bare client library in `tasks` concurrent tasks. Each task awaits the acknowledgements of
/// one batch before it sends the next one.
pub(crate) async fn publish_baseline(
    context: &Context,
    mut messages: Vec<Message>,
    batch: usize,
    tasks: usize,
) -> anyhow::Result<Duration> {
    let share = messages.len().div_ceil(tasks);
    let mut running = JoinSet::new();
    let started = Instant::now();
    while !messages.is_empty() {
        let share_of_task = messages.split_off(messages.len().saturating_sub(share));
        running.spawn(publish_in_batches(context.clone(), share_of_task, batch));
    }
    while let Some(result) = running.join_next().await {
        result??;
    }
    Ok(started.elapsed())
}

async fn publish_in_batches(context: Context, messages: Vec<Message>, batch: usize) -> anyhow::Result<()> {
    let mut acks = Vec::with_capacity(batch);
    for messages in messages.chunks(batch) {
        for message in messages {
            acks.push(send(&context, message).await?);
        }
        for ack in acks.drain(..) {
            ack.await?;
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the baseline of the bus library")]
async fn send(context: &Context, message: &Message) -> anyhow::Result<PublishAckFuture> {
    let (subject, payload) = (message.subject().clone(), message.payload().clone());
    Ok(context.publish_with_headers(subject, message.headers(), payload).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_valid_and_unique_and_have_500_bytes() {
        let events = [events(20), events_in_camel_case(20), events_of(40, 100_000)].concat();
        assert!(events.iter().all(|event| event.len() == BYTES));
        let messages = messages(&"acme".parse().unwrap(), &events).unwrap();
        let mut ids: Vec<_> =
            messages.iter().map(|m| m.headers().get("Nats-Msg-Id").unwrap().to_string()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 80);
        let body = batch_body(&events);
        let items: Result<Vec<_>, _> = udm::split_list(&body).collect();
        assert_eq!(items.unwrap(), events);
    }
}
