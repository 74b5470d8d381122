//! An event ready to be sent: its id and its JSON.

use std::str::FromStr;

use serde_json::value::{RawValue, to_raw_value};
use udm::{find_event_id, json_error, with_text};
use uuid::Uuid;

use crate::{TransportError, TransportErrorKind, UdmEvent};

/// An event ready to be sent. Keeps the bytes of the sender, except for a missing `event_id`.
#[derive(Clone, Debug)]
pub struct OutgoingEvent {
    event_id: String,
    body: Box<RawValue>,
}

/// Returns a new event id: a `UUIDv7`.
pub fn new_event_id() -> String {
    Uuid::now_v7().to_string()
}

impl OutgoingEvent {
    /// Creates an event from JSON. If `event_id` (or `eventId`, which is the same field) is missing or null, the id is
    /// `metadata.id` if that has the form of an event id; else `new_id` provides one, see [`new_event_id`]. The service validates the
    /// other fields.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::InvalidEvent`] if the JSON is not an object, or `event_id` is not a string, occurs twice or is
    /// misspelled, as in `Event_id`.
    pub fn from_json(body: Box<RawValue>, new_id: impl FnOnce() -> String) -> Result<Self, TransportError> {
        let found = find_event_id(body.get()).map_err(|error| invalid(json_error(&error)))?;
        if let Some(written) = found.event_id.filter(|id| id.get() != "null").or(found.metadata_id) {
            let event_id =
                serde_json::from_str(written.get()).map_err(|_| invalid("event_id is not a string"))?;
            return Ok(Self { event_id, body });
        }
        let event_id = new_id();
        let body = with_text(body.get(), "event_id", found.event_id, &event_id)
            .map_err(|error| invalid(error.to_string()))?;
        Ok(Self { event_id, body })
    }

    /// Id that the event is sent with.
    pub fn event_id(&self) -> &str {
        &self.event_id
    }

    /// JSON that is sent.
    pub fn body(&self) -> &str {
        self.body.get()
    }
}

/// An event that is JSON already:
///
/// ```
/// use transport::{MockTransport, OutgoingEvent, Transport, TransportError};
///
/// async fn report(transport: &dyn Transport) -> Result<(), TransportError> {
///     let event: OutgoingEvent = r#"{ "source_id": "firewall-7", "metadata": { "event_type": "USER_LOGIN" } }"#.parse()?;
///     transport.send_json(&[event]).await.into_result()?;
///     Ok(())
/// }
/// # tokio::runtime::Runtime::new().unwrap().block_on(report(&MockTransport::new(None))).unwrap();
/// ```
impl FromStr for OutgoingEvent {
    type Err = TransportError;

    /// Parses JSON, as [`from_json`](Self::from_json) does with [`new_event_id`].
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::InvalidEvent`], also if the text is not JSON.
    fn from_str(json: &str) -> Result<Self, TransportError> {
        let body = RawValue::from_string(json.to_owned()).map_err(|error| invalid(error.to_string()))?;
        Self::from_json(body, new_event_id)
    }
}

impl TryFrom<&UdmEvent> for OutgoingEvent {
    type Error = TransportError;

    /// # Errors
    ///
    /// [`TransportErrorKind::InvalidEvent`] if the event has an id and an unknown field named `event_id` or `eventId`.
    fn try_from(event: &UdmEvent) -> Result<Self, TransportError> {
        let body = to_raw_value(event).map_err(|error| invalid(error.to_string()))?;
        Self::from_json(body, new_event_id)
    }
}

fn invalid(message: impl Into<String>) -> TransportError {
    TransportError::new(TransportErrorKind::InvalidEvent, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn outgoing(text: &str) -> Result<OutgoingEvent, TransportError> {
        OutgoingEvent::from_json(RawValue::from_string(text.to_owned()).unwrap(), || "new".to_owned())
    }

    #[test]
    fn event_with_an_id_is_unchanged() {
        let text = "{ \"source_id\" : \"fw\",\n \"n\": 1.50, \"event_id\": \"a\\u0062\" }";
        let event = outgoing(text).unwrap();
        assert_eq!((event.event_id(), event.body()), ("ab", text));
    }

    #[test]
    fn id_has_either_spelling() {
        let text = r#"{"sourceId":"fw","eventId":"a"}"#;
        let event = outgoing(text).unwrap();
        assert_eq!((event.event_id(), event.body()), ("a", text));
        let event = outgoing(r#"{"eventId": null, "n": 1.50}"#).unwrap();
        assert_eq!((event.event_id(), event.body()), ("new", r#"{"eventId": "new", "n": 1.50}"#));
    }

    #[test]
    fn id_of_the_metadata_is_the_id_of_an_event_without_one() {
        for text in [
            r#"{"metadata":{"id":"AAAAAC4+eg=="}}"#,
            r#"{"eventId":null, "metadata" : {"id":"AAAAAC4+eg=="}}"#,
        ] {
            let event = outgoing(text).unwrap();
            assert_eq!((event.event_id(), event.body()), ("AAAAAC4+eg==", text));
        }
        let event = outgoing(r#"{"metadata":{"id":"a b"}}"#).unwrap();
        assert_eq!(
            (event.event_id(), event.body()),
            ("new", r#"{"event_id":"new","metadata":{"id":"a b"}}"#)
        );
        assert_eq!(outgoing(r#"{"event_id":"e","metadata":{"id":"m"}}"#).unwrap().event_id(), "e");
    }

    #[test]
    fn missing_id_is_inserted_and_nothing_else_changes() {
        for (text, written) in [
            (r#"{"source_id": "fw"}"#, r#"{"event_id":"new","source_id": "fw"}"#),
            (r#"{"event_id": null, "n": 1.50}"#, r#"{"event_id": "new", "n": 1.50}"#),
            (r#"{"a":{"event_id":"deep"},"event_id":null}"#, r#"{"a":{"event_id":"deep"},"event_id":"new"}"#),
            ("{ }", r#"{"event_id":"new" }"#),
        ] {
            let event = outgoing(text).unwrap();
            assert_eq!((event.event_id(), event.body()), ("new", written));
        }
    }

    #[test]
    fn rejects_json_that_cannot_have_an_id() {
        for (text, message) in [
            (r#"["a"]"#, "expected an event, which is a JSON object"),
            ("7", "expected an event, which is a JSON object"),
            ("null", "expected an event, which is a JSON object"),
            (r#"{"event_id":7}"#, "event_id is not a string"),
            (r#"{"eventId":7}"#, "event_id is not a string"),
            (r#"{"event_id":"a","event_id":"a"}"#, "the event has more than one event_id"),
            (r#"{"event_id":"a","eventId":"a"}"#, "the event has more than one event_id"),
            (r#"{"eventId":null,"event_id":"a"}"#, "the event has more than one event_id"),
            (r#"{"Event-ID":"a"}"#, "Event-ID: write this name as event_id or eventId"),
        ] {
            let error = outgoing(text).unwrap_err();
            assert_eq!(error.kind, TransportErrorKind::InvalidEvent, "{text}");
            assert!(error.message.starts_with(message), "{text}: {}", error.message);
        }
    }

    #[test]
    fn rejects_an_id_in_the_unknown_fields_of_a_typed_event() {
        for name in ["event_id", "eventId"] {
            let event = UdmEvent::new("fw").with_event_id("a").with_field(name, "b");
            let error = OutgoingEvent::try_from(&event).unwrap_err();
            assert_eq!(error.kind, TransportErrorKind::InvalidEvent, "{name}");
        }
    }

    proptest! {
        #[test]
        fn inserted_id_keeps_the_event_valid_json(
            id in ".*",
            fields in proptest::collection::btree_map("[a-d]{1,2}", ".*", 0..4),
            null in proptest::option::of(proptest::sample::select(vec!["event_id", "eventId"])),
        ) {
            let mut expected = json!(fields);
            if let Some(name) = null {
                expected[name] = Value::Null;
            }
            let event = OutgoingEvent::from_json(to_raw_value(&expected).unwrap(), || id.clone()).unwrap();
            expected[null.unwrap_or("event_id")] = json!(id);
            prop_assert_eq!(serde_json::from_str::<Value>(event.body()).unwrap(), expected);
            prop_assert_eq!(event.event_id(), id);
        }
    }
}
