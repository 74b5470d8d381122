//! Events like those that producers send, each of 500 bytes, and the messages that become of them.

use anyhow::Context as _;
use bus::{Message, Request};
use bytes::Bytes;
use chrono::DateTime;
use tenancy::TenantId;
use uuid::Uuid;

/// How long each is.
const BYTES: usize = 500;
/// How many sources send.
const SOURCES: usize = 32;

/// New events, no two with the same id.
pub(crate) fn events(count: usize) -> Vec<Bytes> {
    (0..count).map(event).collect()
}

fn event(number: usize) -> Bytes {
    let source = number % SOURCES;
    let mut text = format!(
        concat!(
            r#"{{"source_id":"fw-{source:02}","event_id":"{id}","metadata":{{"event_timestamp":"2026-01-31T12:00:00.250Z","#,
            r#""event_type":"NETWORK_CONNECTION","vendor_name":"Example","product_name":"Firewall"}},"#,
            r#""principal":{{"hostname":"host-{source}","ip":["10.0.{source}.7"],"port":51234}},"#,
            r#""target":{{"ip":["192.0.2.10"],"port":443}},"additional":{{"rule":""#,
        ),
        source = source,
        id = Uuid::now_v7(),
    );
    let end = r#""}}"#;
    text.extend(std::iter::repeat_n('x', BYTES.saturating_sub(text.len() + end.len())));
    text.push_str(end);
    text.into()
}

/// The body of a batch.
pub(crate) fn list(events: &[Bytes]) -> Vec<u8> {
    [b"[", &*events.join(&b","[..]), b"]"].concat()
}

/// What ingest would publish for these events: the same subjects, ids, headers and bytes.
pub(crate) fn messages(tenant: &TenantId, events: &[Bytes]) -> anyhow::Result<Vec<Message>> {
    let request_id = Uuid::now_v7().simple().to_string();
    let credential = format!("session:{}", Uuid::now_v7());
    let request = Request::new(tenant.clone(), DateTime::UNIX_EPOCH, &request_id, &credential, None);
    let message = |raw: &Bytes| {
        let event = udm::parse(raw)?;
        let id = event.event_id.as_deref().context("each has an id")?;
        Ok(Message::event(&request, &event, id, raw.clone())?)
    };
    events.iter().map(message).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_valid_as_long_as_said_and_different() {
        let events = events(40);
        assert!(events.iter().all(|event| event.len() == BYTES));
        let messages = messages(&"acme".parse().unwrap(), &events).unwrap();
        let mut ids: Vec<_> =
            messages.iter().map(|m| m.headers().get("Nats-Msg-Id").unwrap().to_string()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 40);
        assert_eq!(udm::split_list(&list(&events)).unwrap(), events);
    }
}
