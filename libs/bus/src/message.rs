//! What is published: subject, headers, payload. Headers that a whole request has in common are made once.

use std::sync::Arc;

use async_nats::header::{HeaderName, NATS_EXPECTED_STREAM, NATS_MESSAGE_ID};
use async_nats::{HeaderMap, HeaderValue, Subject};
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tenancy::TenantId;
use udm::Event;

use crate::subject::{AuditSubject, EventSubject, InvalidSubject};
use crate::{AUDIT_STREAM, UDM_STREAM, digest};

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

/// A message id above this length is replaced by its digest: the broker keeps every id of the window in memory.
const MAX_MESSAGE_ID: usize = 128;
/// What a segment of a URI may hold as it stands (RFC 3986, unreserved).
const URI_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// What the headers of a message take, roughly; counted against the limits in flight.
const HEADER_BYTES: usize = 512;

type Headers = Vec<(HeaderName, HeaderValue)>;

/// What all events of one HTTP request have in common.
#[derive(Clone, Debug)]
pub struct Request {
    tenant: TenantId,
    received_at: DateTime<Utc>,
    headers: Arc<HeaderMap>,
}

impl Request {
    /// `credential` is `key:<id>` or `session:<id>`; `traceparent` as in W3C Trace Context, left out when it holds a
    /// line break, as are the others.
    pub fn new(
        tenant: TenantId,
        received_at: DateTime<Utc>,
        request_id: &str,
        credential: &str,
        traceparent: Option<&str>,
    ) -> Self {
        let received = rfc3339(received_at);
        let given = [
            (NATS_EXPECTED_STREAM, Some(UDM_STREAM)),
            (CE_SPECVERSION, Some("1.0")),
            (CE_TENANTID, Some(tenant.as_str())),
            (CE_DATACONTENTTYPE, Some("application/json")),
            (RECEIVED_AT, Some(received.as_str())),
            (REQUEST_ID, Some(request_id)),
            (CREDENTIAL, Some(credential)),
            (TRACEPARENT, traceparent),
        ];
        let headers = given
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?.parse::<HeaderValue>().ok()?)))
            .collect();
        Self { tenant, received_at, headers: Arc::new(headers) }
    }

    /// Whose request it is.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }
}

/// A message that is ready to be published, as often as it takes.
#[derive(Clone, Debug)]
pub struct Message {
    subject: Subject,
    own: Headers,
    shared: Arc<HeaderMap>,
    payload: Bytes,
}

impl Message {
    /// An event. `event_id` is the producer's or, when it set none, the one made for it; `payload` the event's bytes.
    ///
    /// An event that `udm::parse` let through always has a subject.
    pub fn event(
        request: &Request,
        event: &Event<'_>,
        event_id: &str,
        payload: Bytes,
    ) -> Result<Self, InvalidSubject> {
        let subject = EventSubject::new(&request.tenant, &event.event_type, &event.source_id)?;
        let time = rfc3339(event.event_timestamp.unwrap_or(request.received_at));
        let source = utf8_percent_encode(&event.source_id, URI_SEGMENT).to_string();
        Ok(Self {
            subject: subject.to_string().into(),
            own: vec![
                (NATS_MESSAGE_ID, value(&message_id(&request.tenant, &event.source_id, event_id))?),
                (CE_ID, value(event_id)?),
                (CE_SOURCE, value(&source)?),
                (CE_TYPE, value(&event.event_type)?),
                (CE_TIME, value(&time)?),
            ],
            shared: Arc::clone(&request.headers),
            payload,
        })
    }

    /// A fact for the audit stream. `outbox_id` makes its publication idempotent; `traceparent` as of an event.
    pub fn audit(
        subject: &AuditSubject,
        outbox_id: &str,
        traceparent: Option<&str>,
        payload: Bytes,
    ) -> Result<Self, InvalidSubject> {
        let trace = traceparent.and_then(|text| Some((TRACEPARENT, text.parse().ok()?)));
        Ok(Self {
            subject: subject.to_string().into(),
            own: [(NATS_MESSAGE_ID, value(outbox_id)?), (NATS_EXPECTED_STREAM, value(AUDIT_STREAM)?)]
                .into_iter()
                .chain(trace)
                .collect(),
            shared: Arc::default(),
            payload,
        })
    }

    /// Where it is published.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The bytes that a consumer receives.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// The headers in the client library's form.
    pub fn headers(&self) -> HeaderMap {
        // The shared ones are built once a request, and cloned as a whole: that is cheaper than inserting each.
        let mut headers = HeaderMap::clone(&self.shared);
        for (name, value) in &self.own {
            headers.insert(name.clone(), value.clone());
        }
        headers
    }

    /// What it counts against the bytes in flight.
    pub(crate) fn weight(&self) -> usize {
        self.payload.len() + HEADER_BYTES
    }
}

/// `<tenant>:<digest of the source>:<event id>`, so that no sender can suppress another's events.
fn message_id(tenant: &TenantId, source_id: &str, event_id: &str) -> String {
    let id = format!("{tenant}:{}:{event_id}", digest::short(source_id));
    if id.len() > MAX_MESSAGE_ID { digest::long(&id) } else { id }
}

/// A header's value ends at the line, so nothing with a line break in it can be one.
fn value(text: &str) -> Result<HeaderValue, InvalidSubject> {
    text.parse().map_err(|_| InvalidSubject)
}

fn rfc3339(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        let received_at = "2026-01-31T12:00:00.25Z".parse().unwrap();
        let traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        Request::new("acme".parse().unwrap(), received_at, "req-1", "key:k1", traceparent)
    }

    fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
        headers.get(name).map(HeaderValue::as_str)
    }

    #[test]
    fn an_event_bears_every_header_of_the_design() {
        let raw = br#"{"source_id":"fw 1/\u00e4","metadata":{"event_type":"NETWORK_DNS"}}"#;
        let event = udm::parse(raw).unwrap();
        let message = Message::event(&request(), &event, "e:1", Bytes::from_static(raw)).unwrap();
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
    fn the_time_of_an_event_is_its_own_when_it_says_one() {
        let raw = br#"{"source_id":"fw","metadata":{"event_timestamp":"2025-12-31T23:00:00-01:00"}}"#;
        let message = Message::event(&request(), &udm::parse(raw).unwrap(), "e", Bytes::new()).unwrap();
        assert_eq!(header(&message.headers(), "ce-time"), Some("2026-01-01T00:00:00Z"));
        assert_eq!(header(&message.headers(), "ce-type"), Some("GENERIC_EVENT"));
    }

    #[test]
    fn a_long_message_id_is_replaced_by_its_digest() {
        let acme = "acme".parse().unwrap();
        let longest_plain = message_id(&acme, "fw", &"e".repeat(106));
        assert_eq!(longest_plain.len(), 128);
        let digested = message_id(&acme, "fw", &"e".repeat(107));
        assert_eq!(digested.len(), 52);
        assert_ne!(digested, message_id(&acme, "fw", &"e".repeat(108)));
    }

    #[test]
    fn a_header_of_the_request_that_breaks_the_line_is_left_out() {
        let request = Request::new("acme".parse().unwrap(), DateTime::UNIX_EPOCH, "a\r\nb", "key:k", None);
        let event = udm::parse(br#"{"source_id":"fw"}"#).unwrap();
        let headers = Message::event(&request, &event, "e", Bytes::new()).unwrap().headers();
        assert_eq!(header(&headers, "Udm-Request-Id"), None);
        assert!(Message::event(&request, &event, "e\nf", Bytes::new()).is_err());
    }
}
