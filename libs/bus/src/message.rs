//! A message for a stream: subject, headers and payload.

use std::sync::Arc;

use async_nats::{HeaderMap, HeaderName, HeaderValue, Subject};
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use data_encoding::BASE64URL_NOPAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest as _, Sha256};
use tenancy::TenantId;
use udm::Event;
use uuid::Uuid;

use crate::subject::{AuditSubject, EventSubject, InvalidSubject};

pub(crate) const MESSAGE_ID: &str = "Nats-Msg-Id";
const CE_SPECVERSION: &str = "ce-specversion";
pub(crate) const CE_ID: &str = "ce-id";
pub(crate) const CE_SOURCE: &str = "ce-source";
pub(crate) const CE_TYPE: &str = "ce-type";
const CE_TIME: &str = "ce-time";
/// Whether `ce-time` is the time of the event or of the receipt: an extension attribute of CloudEvents.
const CE_TIME_ORIGIN: &str = "ce-timeorigin";
const TRACEPARENT: &str = "traceparent";
pub(crate) const RECEIVED_AT: &str = "Udm-Received-At";
pub(crate) const REQUEST_ID: &str = "Udm-Request-Id";
pub(crate) const CREDENTIAL: &str = "Udm-Credential";

/// Headers of an event, without its message id.
pub(crate) const EVENT_HEADERS: [&str; 10] = [
    CE_SPECVERSION,
    CE_ID,
    CE_SOURCE,
    CE_TYPE,
    CE_TIME,
    CE_TIME_ORIGIN,
    TRACEPARENT,
    RECEIVED_AT,
    REQUEST_ID,
    CREDENTIAL,
];

/// Bytes of the digest in a message id. The server keeps all ids of the duplicate window in memory, so they are short.
const MESSAGE_ID_BYTES: usize = 16;
/// Characters that need no escaping in a URI segment (RFC 3986, unreserved).
const URI_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Approximate size of subject and headers of a message in memory, counted against the memory budget.
const HEADER_BYTES: usize = 512;
/// Capacity for the headers of an event, so that they are written without moving.
const HEADER_CAPACITY: usize = 256;

/// Headers as they are sent: lines of name and value.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderLines(Vec<u8>);

impl HeaderLines {
    /// Adds a header.
    ///
    /// # Errors
    /// The value contains a line break.
    pub(crate) fn push(&mut self, name: &str, value: &str) -> Result<(), InvalidSubject> {
        if value.bytes().any(|byte| matches!(byte, b'\r' | b'\n')) {
            return Err(InvalidSubject);
        }
        for part in [name, ": ", value, "\r\n"] {
            self.0.extend_from_slice(part.as_bytes());
        }
        Ok(())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The part of the messages that all events of one HTTP request share. Its headers are built once per request.
#[derive(Clone, Debug)]
pub struct EventContext {
    tenant: TenantId,
    received_at: DateTime<Utc>,
    headers: Arc<HeaderLines>,
}

impl EventContext {
    /// Builds the shared headers. `credential` is `<kind>:<id>`; an id that is a UUID is written in 22 characters of base64url.
    /// `traceparent` is a W3C Trace Context. A value that contains a line break is omitted.
    pub fn new(
        tenant: TenantId,
        received_at: DateTime<Utc>,
        request_id: &str,
        credential: &str,
        traceparent: Option<&str>,
    ) -> Self {
        let received = received_at.timestamp_millis().to_string();
        let credential = short_credential(credential);
        let values = [
            (CE_SPECVERSION, Some("1.0")),
            (RECEIVED_AT, Some(received.as_str())),
            (REQUEST_ID, Some(request_id)),
            (CREDENTIAL, Some(credential.as_str())),
            (TRACEPARENT, traceparent),
        ];
        let mut headers = HeaderLines(Vec::with_capacity(HEADER_CAPACITY));
        for (name, value) in values {
            // An error means that the value is omitted.
            let _ = value.map(|value| headers.push(name, value));
        }
        Self { tenant, received_at, headers: Arc::new(headers) }
    }

    /// The tenant of the request.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Returns a message of the tenant that is not an event, with the headers of the request.
    pub(crate) fn message(&self, subject: String, own: HeaderLines, payload: Bytes) -> Message {
        Message::new(subject, 0, own, Arc::clone(&self.headers), payload)
    }
}

/// A message that can be published repeatedly; its id makes repetition idempotent. Clones share the content.
#[derive(Clone, Debug)]
pub struct Message(Arc<Content>);

#[derive(Clone, Debug)]
struct Content {
    subject: Subject,
    partition: u8,
    own: HeaderLines,
    shared: Arc<HeaderLines>,
    payload: Bytes,
}

impl Message {
    /// Returns the message of an event. `event_id` is the id set by the producer or generated for the event, `payload`
    /// the bytes of the event.
    ///
    /// # Errors
    /// The event was not validated by `udm::parse`.
    pub fn event(
        context: &EventContext,
        event: &Event<'_>,
        event_id: &str,
        payload: Bytes,
    ) -> Result<Self, InvalidSubject> {
        let subject = EventSubject::new(&context.tenant, &event.event_type, &event.source_id)?;
        let (time, origin) =
            event.event_timestamp.map_or((context.received_at, "receipt"), |time| (time, "event"));
        let source = source_uri(&event.source_id);
        let mut own = HeaderLines(Vec::with_capacity(HEADER_CAPACITY));
        own.push(MESSAGE_ID, &message_id(&context.tenant, &event.source_id, event_id))?;
        own.push(CE_ID, event_id)?;
        own.push(CE_SOURCE, &source)?;
        own.push(CE_TYPE, &event.event_type)?;
        own.push(CE_TIME, &rfc3339(time))?;
        own.push(CE_TIME_ORIGIN, origin)?;
        Ok(Self::new(subject.to_string(), subject.partition(), own, Arc::clone(&context.headers), payload))
    }

    /// Returns an audit event. `outbox_id` makes publishing idempotent; `traceparent` is a W3C Trace Context.
    ///
    /// # Errors
    /// The id contains a line break.
    pub fn audit(
        subject: &AuditSubject,
        outbox_id: &str,
        traceparent: Option<&str>,
        payload: Bytes,
    ) -> Result<Self, InvalidSubject> {
        let mut own = HeaderLines::default();
        own.push(MESSAGE_ID, outbox_id)?;
        // An error means that the value is omitted.
        let _ = traceparent.map(|value| own.push(TRACEPARENT, value));
        Ok(Self::with_headers(subject.to_string(), 0, own, payload))
    }

    /// Returns a message with these headers. `partition` is 0 if the message is not an event.
    pub(crate) fn with_headers(subject: String, partition: u8, headers: HeaderLines, payload: Bytes) -> Self {
        Self::new(subject, partition, headers, Arc::default(), payload)
    }

    fn new(
        subject: String,
        partition: u8,
        own: HeaderLines,
        shared: Arc<HeaderLines>,
        payload: Bytes,
    ) -> Self {
        Self(Arc::new(Content { subject: subject.into(), partition, own, shared, payload }))
    }

    /// The event type in the subject, or `None` for an audit event.
    pub(crate) fn event_type(&self) -> Option<&str> {
        EventSubject::event_type_in(&self.0.subject)
    }

    /// Replaces the event type in the subject by that of events without a type. The header `ce-type` remains.
    pub(crate) fn use_generic_subject(&mut self) {
        if let Some(event_type) = self.event_type() {
            let prefix = self.0.subject.strip_suffix(event_type).unwrap_or_default();
            let subject = format!("{prefix}{}", udm::DEFAULT_EVENT_TYPE);
            Arc::make_mut(&mut self.0).subject = subject.into();
        }
    }

    /// The subject to publish to.
    pub fn subject(&self) -> &Subject {
        &self.0.subject
    }

    /// The bytes for consumers.
    pub fn payload(&self) -> &Bytes {
        &self.0.payload
    }

    /// All headers, for a client that is not a [`Publisher`](crate::Publisher).
    pub fn headers(&self) -> HeaderMap {
        let lines = self.header_lines().concat();
        let lines = str::from_utf8(&lines).unwrap_or_default();
        lines.lines().filter_map(|line| line.split_once(": ")).filter_map(parse_header).collect()
    }

    /// The headers as they are sent.
    pub(crate) fn header_lines(&self) -> [&[u8]; 2] {
        [self.0.own.as_bytes(), self.0.shared.as_bytes()]
    }

    /// The partition, 0 to 63. It is 0 for an audit event, which has one stream only.
    pub(crate) fn partition(&self) -> u8 {
        self.0.partition
    }

    /// Approximate size in memory.
    pub(crate) fn size(&self) -> usize {
        self.0.payload.len() + HEADER_BYTES
    }
}

fn parse_header((name, value): (&str, &str)) -> Option<(HeaderName, HeaderValue)> {
    Some((name.parse().ok()?, value.parse().ok()?))
}

/// Returns the source as a reference of a URI, the form of `ce-source`.
pub(crate) fn source_uri(source_id: &str) -> String {
    utf8_percent_encode(source_id, URI_SEGMENT).to_string()
}

/// Returns the id of the message of an event, which follows from tenant, source and event id. A sender cannot suppress events of
/// another tenant or source.
pub(crate) fn message_id(tenant: &TenantId, source_id: &str, event_id: &str) -> String {
    digest_id([tenant.as_str().as_bytes(), source_id.as_bytes(), event_id.as_bytes()])
}

/// Returns 22 characters: base64url of the first 16 bytes of the SHA-256 of the parts, which are separated by zero bytes. Only the last
/// part can contain one.
pub(crate) fn digest_id<const N: usize>(parts: [&[u8]; N]) -> String {
    let mut hasher = Sha256::new();
    for (index, part) in parts.into_iter().enumerate() {
        if index > 0 {
            hasher.update([0]);
        }
        hasher.update(part);
    }
    let digest = hasher.finalize();
    BASE64URL_NOPAD.encode(digest.get(..MESSAGE_ID_BYTES).unwrap_or(&digest))
}

/// Returns `<kind>:<id>` with an id in base64url if it is a UUID.
fn short_credential(credential: &str) -> String {
    match credential.split_once(':').map(|(kind, id)| (kind, Uuid::try_parse(id))) {
        Some((kind, Ok(id))) => format!("{kind}:{}", BASE64URL_NOPAD.encode(id.as_bytes())),
        _ => credential.to_owned(),
    }
}

fn rfc3339(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> EventContext {
        let received_at = "2026-01-31T12:00:00.25Z".parse().unwrap();
        let traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        EventContext::new("acme".parse().unwrap(), received_at, "req-1", "key:k1", traceparent)
    }

    fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
        headers.get(name).map(HeaderValue::as_str)
    }

    #[test]
    fn event_has_all_headers() {
        let raw = br#"{"source_id":"fw 1/\u00e4","metadata":{"event_type":"NETWORK_DNS"}}"#;
        let event = udm::parse(raw).unwrap();
        let message = Message::event(&context(), &event, "e:1", Bytes::from_static(raw)).unwrap();
        let headers = message.headers();
        let expected = [
            ("Nats-Msg-Id", "MqvEJdXWqhTlWGP_ZtmW1w"),
            ("ce-specversion", "1.0"),
            ("ce-id", "e:1"),
            ("ce-source", "fw%201%2F%C3%A4"),
            ("ce-type", "NETWORK_DNS"),
            ("ce-time", "2026-01-31T12:00:00.250Z"),
            ("ce-timeorigin", "receipt"),
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ("Udm-Received-At", "1769860800250"),
            ("Udm-Request-Id", "req-1"),
            ("Udm-Credential", "key:k1"),
        ];
        for (name, value) in expected {
            assert_eq!(header(&headers, name), Some(value), "{name}");
        }
        assert_eq!(headers.len(), expected.len());
        assert_eq!(message.payload().as_ref(), raw);
    }

    #[test]
    fn event_time_is_the_timestamp_of_the_event() {
        let raw = br#"{"source_id":"fw","metadata":{"event_timestamp":"2025-12-31T23:00:00-01:00"}}"#;
        let message = Message::event(&context(), &udm::parse(raw).unwrap(), "e", Bytes::new()).unwrap();
        assert_eq!(header(&message.headers(), "ce-time"), Some("2026-01-01T00:00:00Z"));
        assert_eq!(header(&message.headers(), "ce-timeorigin"), Some("event"));
        assert_eq!(header(&message.headers(), "ce-type"), Some("GENERIC_EVENT"));
    }

    #[test]
    fn a_leap_second_and_an_event_type_by_number_are_in_the_headers_as_standard_text() {
        let raw = br#"{"source_id":"fw","metadata":{"id":"AAAAAC4+egHJ1IF+/w==","eventType":16001,"eventTimestamp":"2016-12-31T23:59:60Z"}}"#;
        let event = udm::parse(raw).unwrap();
        let id = event.event_id.as_deref().unwrap();
        let message = Message::event(&context(), &event, id, Bytes::from_static(raw)).unwrap();
        let headers = message.headers();
        assert_eq!(header(&headers, "ce-time"), Some("2016-12-31T23:59:59.999999999Z"));
        assert_eq!(header(&headers, "ce-type"), Some("NETWORK_FLOW"));
        assert_eq!(header(&headers, "ce-id"), Some("AAAAAC4+egHJ1IF+/w=="));
        assert_eq!(header(&headers, "Nats-Msg-Id").map(str::len), Some(22));
        assert!(message.subject().ends_with(".acme.NETWORK_FLOW"));
    }

    #[test]
    fn message_id_depends_on_tenant_source_and_event_id() {
        let (acme, globex) = ("acme".parse().unwrap(), "globex".parse().unwrap());
        let ids = [
            message_id(&acme, "fw", "e1"),
            message_id(&acme, "fw", "e2"),
            message_id(&acme, "fw-e", "1"),
            message_id(&globex, "fw", "e1"),
            message_id(&acme, "fw", &"e".repeat(128)),
        ];
        assert!(ids.iter().all(|id| id.len() == 22), "{ids:?}");
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), ids.len());
    }

    #[test]
    fn id_of_the_credential_is_shortened_if_it_is_a_uuid() {
        for (label, expected) in [
            ("key:00112233-4455-6677-8899-aabbccddeeff", "key:ABEiM0RVZneImaq7zN3u_w"),
            ("workload:agents/collector", "workload:agents/collector"),
        ] {
            assert_eq!(short_credential(label), expected);
        }
    }

    #[test]
    fn header_value_with_a_line_break_is_omitted() {
        let context =
            EventContext::new("acme".parse().unwrap(), DateTime::UNIX_EPOCH, "a\r\nb", "key:k", None);
        let event = udm::parse(br#"{"source_id":"fw"}"#).unwrap();
        let headers = Message::event(&context, &event, "e", Bytes::new()).unwrap().headers();
        assert_eq!(header(&headers, "Udm-Request-Id"), None);
        assert!(Message::event(&context, &event, "e\nf", Bytes::new()).is_err());
    }
}
