//! An event as it leaves: its id, and its bytes, which nothing changes any more.

use serde::{Deserialize, Deserializer};
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use crate::{TransportError, TransportErrorKind, UdmEvent};

/// An event ready to be sent. The bytes are the sender's; only an absent `event_id` is written into them.
#[derive(Clone, Debug)]
pub struct OutgoingEvent {
    event_id: String,
    body: Box<RawValue>,
}

/// A new id for an event: a `UUIDv7`.
pub fn new_event_id() -> String {
    Uuid::now_v7().to_string()
}

impl OutgoingEvent {
    /// Takes an event that is JSON already. `id_when_absent` is asked when it has no `event_id`, or null for one;
    /// [`new_event_id`] will do where nothing better is known. What else the event says is the service's to judge.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::InvalidEvent`] when it is not an object, or its `event_id` is not a string or stands there twice.
    pub fn from_json(
        body: Box<RawValue>,
        id_when_absent: impl FnOnce() -> String,
    ) -> Result<Self, TransportError> {
        // A list would do for the derived `Deserialize` below.
        if !body.get().starts_with('{') {
            return Err(invalid("an event is a JSON object"));
        }
        let Sought { event_id } =
            serde_json::from_str(body.get()).map_err(|error| invalid(error.to_string()))?;
        match event_id {
            Some(written) if written.get() != "null" => {
                let event_id =
                    serde_json::from_str(written.get()).map_err(|_| invalid("event_id is not a string"))?;
                Ok(Self { event_id, body })
            }
            written => {
                let event_id = id_when_absent();
                let body = with_id(body.get(), written.map(RawValue::get), &event_id)
                    .map_err(|error| invalid(error.to_string()))?;
                Ok(Self { event_id, body })
            }
        }
    }

    /// The id that it is sent with.
    pub fn event_id(&self) -> &str {
        &self.event_id
    }

    /// The JSON that is sent.
    pub fn body(&self) -> &str {
        self.body.get()
    }
}

impl TryFrom<&UdmEvent> for OutgoingEvent {
    type Error = TransportError;

    /// # Errors
    ///
    /// [`TransportErrorKind::InvalidEvent`] when an unknown field of the event bears the name `event_id`.
    fn try_from(event: &UdmEvent) -> Result<Self, TransportError> {
        let body = to_raw_value(event).map_err(|error| invalid(error.to_string()))?;
        Self::from_json(body, new_event_id)
    }
}

/// The one field that matters here. A second one is an error, as it is for the service.
#[derive(Deserialize)]
struct Sought<'a> {
    #[serde(borrow, default, deserialize_with = "null_too")]
    event_id: Option<&'a RawValue>,
}

/// `Option` takes null for absent; here it must be found, to be replaced.
fn null_too<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The object with this id, in the place of `null` (a slice of `object`) or else before the first field.
fn with_id(object: &str, null: Option<&str>, id: &str) -> serde_json::Result<Box<RawValue>> {
    let id = serde_json::to_string(id)?;
    let written = if let Some(null) = null {
        let start = null.as_ptr().addr() - object.as_ptr().addr();
        format!("{}{id}{}", &object[..start], &object[start + null.len()..])
    } else {
        let fields = &object[1..];
        let comma = if fields.trim_start().starts_with('}') { "" } else { "," };
        format!(r#"{{"event_id":{id}{comma}{fields}"#)
    };
    RawValue::from_string(written)
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
        OutgoingEvent::from_json(RawValue::from_string(text.to_owned()).unwrap(), || "made".to_owned())
    }

    #[test]
    fn an_event_with_an_id_keeps_every_byte() {
        let text = "{ \"source_id\" : \"fw\",\n \"n\": 1.50, \"event_id\": \"a\\u0062\" }";
        let event = outgoing(text).unwrap();
        assert_eq!((event.event_id(), event.body()), ("ab", text));
    }

    #[test]
    fn an_absent_id_is_written_and_nothing_else_changes() {
        for (text, written) in [
            (r#"{"source_id": "fw"}"#, r#"{"event_id":"made","source_id": "fw"}"#),
            (r#"{"event_id": null, "n": 1.50}"#, r#"{"event_id": "made", "n": 1.50}"#),
            (
                r#"{"a":{"event_id":"deep"},"event_id":null}"#,
                r#"{"a":{"event_id":"deep"},"event_id":"made"}"#,
            ),
            ("{ }", r#"{"event_id":"made" }"#),
        ] {
            let event = outgoing(text).unwrap();
            assert_eq!((event.event_id(), event.body()), ("made", written));
        }
    }

    #[test]
    fn what_cannot_carry_an_id_is_refused() {
        for text in [r#"["a"]"#, "7", "null", r#"{"event_id":7}"#, r#"{"event_id":"a","event_id":"a"}"#] {
            assert_eq!(outgoing(text).unwrap_err().kind, TransportErrorKind::InvalidEvent, "{text}");
        }
    }

    #[test]
    fn an_id_among_the_unknown_fields_of_a_typed_event_is_refused() {
        let event = UdmEvent::new("fw").with_event_id("a").with_field("event_id", "b");
        assert_eq!(OutgoingEvent::try_from(&event).unwrap_err().kind, TransportErrorKind::InvalidEvent);
    }

    proptest! {
        #[test]
        fn whatever_the_id_the_event_stays_json_and_carries_it(
            id in ".*",
            fields in proptest::collection::btree_map("[a-d]{1,2}", ".*", 0..4),
            null in any::<bool>(),
        ) {
            let mut expected = json!(fields);
            if null {
                expected["event_id"] = Value::Null;
            }
            let event = OutgoingEvent::from_json(to_raw_value(&expected).unwrap(), || id.clone()).unwrap();
            expected["event_id"] = json!(id);
            prop_assert_eq!(serde_json::from_str::<Value>(event.body()).unwrap(), expected);
            prop_assert_eq!(event.event_id(), id);
        }
    }
}
