//! An event of the stream (docs/consumers.md, "Headers and payload").

use async_nats::HeaderMap;
use async_nats::jetstream::Message;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use percent_encoding::percent_decode_str;
use serde_json::Value;

const TYPE: &str = "ce-type";
/// Set by `svc events dlq replay`: the only consumer that needs the event again.
const REPLAY_FOR: &str = "Udm-Replay-For";

/// An event as the stream delivers it. The service has verified everything except for the payload's content.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// Tenant that owns the event.
    pub tenant_id: String,
    /// Source within the tenant.
    pub source_id: String,
    /// Id of the producer, or generated. Unique within the source.
    pub event_id: String,
    /// `metadata.event_type`, or `GENERIC_EVENT`. The subject of the message can contain `GENERIC_EVENT` for any type.
    pub event_type: String,
    /// `metadata.event_timestamp`, or the time of receipt. The header `ce-timeorigin` is `event` or `receipt`.
    pub time: DateTime<Utc>,
    /// Time of receipt by the service.
    pub received_at: DateTime<Utc>,
    /// The bytes of the producer, a JSON object. Its names can be in `snake_case` or `lowerCamelCase`; [`Event::values`] and
    /// [`UdmEvent`](crate::UdmEvent) read both.
    pub payload: Bytes,
    /// All headers of the message.
    pub headers: HeaderMap,
    /// Number of this delivery, starting at 1. After a crash of the process, each attempt can add 16.
    pub delivery: u64,
}

/// The message is not an event of the service.
#[derive(Debug, thiserror::Error)]
#[error("malformed message: {0} is missing or invalid")]
pub(crate) struct MalformedMessage(&'static str);

impl Event {
    /// An event for the test of a handler, of the tenant `test`. Its fields can be changed.
    ///
    /// ```
    /// let mut event = consumer::Event::for_test("fw-1", r#"{"source_id":"fw-1"}"#);
    /// event.delivery = 2;
    /// assert_eq!((event.source_id.as_str(), event.event_type.as_str()), ("fw-1", "GENERIC_EVENT"));
    /// ```
    pub fn for_test(source_id: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self {
            tenant_id: "test".to_owned(),
            source_id: source_id.into(),
            event_id: "1".to_owned(),
            event_type: "GENERIC_EVENT".to_owned(),
            time: DateTime::UNIX_EPOCH,
            received_at: DateTime::UNIX_EPOCH,
            payload: payload.into(),
            headers: HeaderMap::default(),
            delivery: 1,
        }
    }

    pub(crate) fn parse(message: &Message, delivery: u64) -> Result<Self, MalformedMessage> {
        let headers = message.headers.clone().unwrap_or_default();
        let text =
            |name| headers.get(name).map(|value| value.as_str().to_owned()).ok_or(MalformedMessage(name));
        let source = text("ce-source")?;
        let milliseconds = text("Udm-Received-At")?.parse().ok();
        Ok(Self {
            tenant_id: message.subject.split('.').nth(3).ok_or(MalformedMessage("subject"))?.to_owned(),
            source_id: percent_decode_str(&source)
                .decode_utf8()
                .map_err(|_| MalformedMessage("ce-source"))?
                .into_owned(),
            event_id: text("ce-id")?,
            event_type: text(TYPE)?,
            time: text("ce-time")?.parse().map_err(|_| MalformedMessage("ce-time"))?,
            received_at: milliseconds
                .and_then(DateTime::from_timestamp_millis)
                .ok_or(MalformedMessage("Udm-Received-At"))?,
            payload: message.payload.clone(),
            delivery,
            headers,
        })
    }

    /// Returns the values of a field of the payload, in order. The path has the original names, for example `principal.ip` or
    /// `security_result.action`; each name is found in `snake_case` and in `lowerCamelCase`.
    ///
    /// A list contributes each of its items, and one value counts as a list of one. An absent field and `null` have no values. Each call
    /// reads the whole payload.
    ///
    /// ```
    /// use consumer::{Event, UdmEvent, Value};
    ///
    /// let event = Event::for_test("fw-1", r#"{"sourceId":"fw-1","principal":{"ip":"192.0.2.1"}}"#);
    /// assert_eq!(event.values("principal.ip"), [Value::from("192.0.2.1")]);
    /// let parsed: UdmEvent = serde_json::from_slice(&event.payload)?;
    /// assert_eq!(parsed.source_id, "fw-1");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn values(&self, path: &str) -> Vec<Value> {
        udm::values_at(&self.payload, path)
    }

    /// Returns the key of its order: tenant and source.
    pub(crate) fn source_key(&self) -> String {
        format!("{} {}", self.tenant_id, self.source_id)
    }

    /// Returns the key that is unique among all events: tenant, event id (which contains no space) and source.
    pub(crate) fn unique_key(&self) -> String {
        format!("{} {} {}", self.tenant_id, self.event_id, self.source_id)
    }
}

/// Returns whether the message has one of these types; no types: all. A message without a type is selected, because the handler of
/// malformed messages must see it.
pub(crate) fn has_type_of(message: &Message, event_types: &[String]) -> bool {
    let event_type = message.headers.as_ref().and_then(|headers| headers.get(TYPE));
    event_types.is_empty() || event_type.is_none_or(|own| event_types.iter().any(|name| name == own.as_str()))
}

/// Returns whether the message is sent again for another consumer.
pub(crate) fn is_replay_for_other(message: &Message, consumer: &str) -> bool {
    let name = message.headers.as_ref().and_then(|headers| headers.get(REPLAY_FOR));
    name.is_some_and(|name| name.as_str() != consumer)
}
