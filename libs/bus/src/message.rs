//! A message for a stream: subject, headers and payload.

use std::sync::Arc;

use async_nats::header::{HeaderName, NATS_EXPECTED_STREAM, NATS_MESSAGE_ID};
use async_nats::{HeaderMap, HeaderValue, Subject};
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tenancy::TenantId;
use udm::Event;

use crate::streams::{ANONYMOUS_AUDIT_STREAM, AUDIT_STREAM, UDM_STREAM};
use crate::subject::{AuditSubject, EventSubject, InvalidSubject, long_digest, short_digest};

const CE_SPECVERSION: HeaderName = HeaderName::from_static("ce-specversion");
const CE_ID: HeaderName = HeaderName::from_static("ce-id");
const CE_SOURCE: HeaderName = HeaderName::from_static("ce-source");
const CE_TYPE: HeaderName = HeaderName::from_static("ce-type");
const CE_TIME: HeaderName = HeaderName::from_static("ce-time");
const CE_TENANTID: HeaderName = HeaderName::from_static("ce-tenantid");
const CE_DATACONTENTTYPE: HeaderName = HeaderName::from_static("ce-datacontenttype");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const RECEIVED_AT: HeaderName = HeaderName::from_static("Udm-Received-At");
const REQUEST_ID: HeaderName = HeaderName::from_static("Udm-Request-Id");
const CREDENTIAL: HeaderName = HeaderName::from_static("Udm-Credential");

/// A longer message id is replaced by its digest, because the server keeps all ids of the duplicate window in memory.
const MAX_MESSAGE_ID: usize = 128;
/// Characters that need no escaping in a URI segment (RFC 3986, unreserved).
const URI_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Approximate size of the headers of a message, counted against the memory budget.
const HEADER_BYTES: usize = 512;

type Headers = Vec<(HeaderName, HeaderValue)>;

/// The part of the messages that all events of one HTTP request share. Its headers are built once per request.
#[derive(Clone, Debug)]
pub struct EventContext {
    tenant: TenantId,
    received_at: DateTime<Utc>,
    headers: Arc<HeaderMap>,
}

impl EventContext {
    /// Builds the shared headers. `credential` is `key:<id>` or `session:<id>`, `traceparent` is a W3C Trace Context. A
    /// value that contains a line break is omitted.
    pub fn new(
        tenant: TenantId,
        received_at: DateTime<Utc>,
        request_id: &str,
        credential: &str,
        traceparent: Option<&str>,
    ) -> Self {
        let received = rfc3339(received_at);
        let values = [
            (NATS_EXPECTED_STREAM, Some(UDM_STREAM)),
            (CE_SPECVERSION, Some("1.0")),
            (CE_TENANTID, Some(tenant.as_str())),
            (CE_DATACONTENTTYPE, Some("application/json")),
            (RECEIVED_AT, Some(received.as_str())),
            (REQUEST_ID, Some(request_id)),
            (CREDENTIAL, Some(credential)),
            (TRACEPARENT, traceparent),
        ];
        let headers = values
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?.parse::<HeaderValue>().ok()?)))
            .collect();
        Self { tenant, received_at, headers: Arc::new(headers) }
    }

    /// The tenant of the request.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }
}

/// A message that can be published repeatedly; its id makes repetition idempotent.
#[derive(Clone, Debug)]
pub struct Message {
    subject: Subject,
    own: Headers,
    shared: Arc<HeaderMap>,
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
        let time = rfc3339(event.event_timestamp.unwrap_or(context.received_at));
        let source = utf8_percent_encode(&event.source_id, URI_SEGMENT).to_string();
        Ok(Self {
            subject: subject.to_string().into(),
            own: vec![
                (NATS_MESSAGE_ID, value(&message_id(&context.tenant, &event.source_id, event_id))?),
                (CE_ID, value(event_id)?),
                (CE_SOURCE, value(&source)?),
                (CE_TYPE, value(&event.event_type)?),
                (CE_TIME, value(&time)?),
            ],
            shared: Arc::clone(&context.headers),
            payload,
        })
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
        let trace = traceparent.and_then(|text| Some((TRACEPARENT, text.parse().ok()?)));
        let stream = if subject.tenant().is_some() { AUDIT_STREAM } else { ANONYMOUS_AUDIT_STREAM };
        Ok(Self {
            subject: subject.to_string().into(),
            own: [(NATS_MESSAGE_ID, value(outbox_id)?), (NATS_EXPECTED_STREAM, value(stream)?)]
                .into_iter()
                .chain(trace)
                .collect(),
            shared: Arc::default(),
            payload,
        })
    }

    /// The subject to publish to.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The bytes for consumers.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// All headers.
    pub fn headers(&self) -> HeaderMap {
        // Cloning the shared headers as a whole is cheaper than inserting each.
        let mut headers = HeaderMap::clone(&self.shared);
        for (name, value) in &self.own {
            headers.insert(name.clone(), value.clone());
        }
        headers
    }

    /// Approximate size in memory.
    pub(crate) fn size(&self) -> usize {
        self.payload.len() + HEADER_BYTES
    }
}

/// Returns `<tenant>:<digest of the source>:<event id>`. A sender cannot suppress events of another tenant or source.
fn message_id(tenant: &TenantId, source_id: &str, event_id: &str) -> String {
    let id = format!("{tenant}:{}:{event_id}", short_digest(source_id));
    if id.len() > MAX_MESSAGE_ID { long_digest(&id) } else { id }
}

/// Returns a header value. Text with a line break is rejected.
fn value(text: &str) -> Result<HeaderValue, InvalidSubject> {
    text.parse().map_err(|_| InvalidSubject)
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
            ("Nats-Msg-Id", "acme:33NIFW2E323R76WV:e:1"),
            ("Nats-Expected-Stream", "UDM"),
            ("ce-specversion", "1.0"),
            ("ce-id", "e:1"),
            ("ce-source", "fw%201%2F%C3%A4"),
            ("ce-type", "NETWORK_DNS"),
            ("ce-time", "2026-01-31T12:00:00.250Z"),
            ("ce-tenantid", "acme"),
            ("ce-datacontenttype", "application/json"),
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ("Udm-Received-At", "2026-01-31T12:00:00.250Z"),
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
        assert_eq!(header(&message.headers(), "ce-type"), Some("GENERIC_EVENT"));
    }

    #[test]
    fn long_message_id_is_replaced_by_its_digest() {
        let acme = "acme".parse().unwrap();
        let longest_unchanged = message_id(&acme, "fw", &"e".repeat(106));
        assert_eq!(longest_unchanged.len(), 128);
        let digested = message_id(&acme, "fw", &"e".repeat(107));
        assert_eq!(digested.len(), 52);
        assert_ne!(digested, message_id(&acme, "fw", &"e".repeat(108)));
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
