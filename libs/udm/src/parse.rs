//! Validates an event in place: one pass over the bytes, without a tree and without a copy.
//!
//! Collects several errors, each with a JSON Pointer. `null` counts as absent, except in a list. A valid event can be read
//! by every JSON parser with the same result: it has no duplicate names, no unpaired surrogates and no numbers that exceed
//! a 64-bit float.

mod check;
mod errors;
mod rules;

use std::borrow::Cow;
use std::fmt;
use std::str::Utf8Error;

use chrono::{DateTime, Utc};
use contract::FieldError;
use serde::de::IgnoredAny;

use check::CheckedEvent;

pub use rules::is_source_id;
pub(crate) use rules::{event_type, instant, integer, integral, is_event_id, timestamp};

/// Maximum size of an event in bytes.
pub const MAX_EVENT_BYTES: usize = 256 * 1024;
/// Maximum nesting of an event. The event itself is the first level.
pub const MAX_DEPTH: usize = 32;
/// Text of [`json_error`] for bytes of another encoding.
pub const NOT_UTF_8: &str = "text that is not UTF-8";
/// Type of an event without `event_type`.
pub const DEFAULT_EVENT_TYPE: &str = "GENERIC_EVENT";

/// A valid event: the fields for routing, and its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Event<'a> {
    /// Source of the event.
    pub source_id: Cow<'a, str>,
    /// Name of the field `source_id` in the spelling of the producer.
    pub source_id_name: &'static str,
    /// Id of the event: `event_id`, or `metadata.id` if it has the form of an event id.
    pub event_id: Option<Cow<'a, str>>,
    /// Path of the field with the id: `event_id` in the spelling of the producer, or `metadata/id`.
    pub event_id_path: &'static str,
    /// Name of the type of the event, [`DEFAULT_EVENT_TYPE`] by default.
    pub event_type: Cow<'a, str>,
    /// Time of the event, if the producer set one.
    pub event_timestamp: Option<DateTime<Utc>>,
    /// The validated bytes, unchanged.
    pub raw: &'a [u8],
}

/// The bytes are not a valid event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The bytes are not JSON.
    #[error("the event is not JSON: {0}")]
    NotJson(String),
    /// The event has more than [`MAX_EVENT_BYTES`].
    #[error("an event has at most {MAX_EVENT_BYTES} bytes; of a document with events, send the events")]
    TooLarge,
    /// Fields are invalid.
    #[error("the event is invalid")]
    Invalid {
        /// Source of the event, if it is valid.
        source_id: Option<String>,
        /// Id of the event, if it is valid.
        event_id: Option<String>,
        /// The errors in the order of the event: 1 to 16.
        errors: Vec<FieldError>,
    },
}

/// Validates the bytes of one event and returns the fields for routing.
pub fn parse(bytes: &[u8]) -> Result<Event<'_>, ParseError> {
    if bytes.len() > MAX_EVENT_BYTES {
        return Err(ParseError::TooLarge);
    }
    let text = str::from_utf8(bytes).map_err(|error| ParseError::NotJson(not_json(bytes, error)))?;
    let event = CheckedEvent::read(text)?;
    let (routing, errors) = (event.routing, event.errors.into_vec());
    let (event_id, event_id_path) = match (routing.event_id, routing.metadata_id) {
        (None, Some(id)) => (Some(id), "metadata/id"),
        (id, _) => (id, routing.event_id_path),
    };
    match routing.source_id {
        Some(source_id) if errors.is_empty() => Ok(Event {
            source_id,
            source_id_name: routing.source_id_name,
            event_id,
            event_id_path,
            event_type: routing.event_type.unwrap_or(Cow::Borrowed(DEFAULT_EVENT_TYPE)),
            event_timestamp: routing.event_timestamp,
            raw: bytes,
        }),
        _ => Err(ParseError::Invalid {
            source_id: routing.source_id.map(Cow::into_owned),
            event_id: event_id.map(Cow::into_owned),
            errors,
        }),
    }
}

/// Returns whether a JSON object follows the first value, as in lines.
pub fn is_followed_by_object(text: &[u8]) -> bool {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<IgnoredAny>();
    matches!(values.next(), Some(Ok(_))) && text[values.byte_offset()..].trim_ascii_start().starts_with(b"{")
}

/// Returns the text of an error of the JSON parser without its position.
pub fn json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    let plain = match text {
        "expected ident" | "expected value" => {
            "expected a value (NaN, Infinity, None and single quotes are not JSON)"
        }
        "invalid number" => "invalid number (leading zeros, NaN and Infinity are not JSON)",
        "invalid unicode code point" => NOT_UTF_8,
        "key must be a string" => "a name must be text in double quotes",
        "trailing characters" => "characters after the end of the value",
        _ if error.is_eof() => return text.replace("EOF while parsing", "it ends inside of"),
        _ => text.rfind("expected an event").map_or(text, |start| &text[start..]),
    };
    plain.to_owned()
}

/// Returns the text of an error of the JSON parser with its position.
pub(crate) fn located_error(error: &serde_json::Error) -> String {
    format!("{} at line {} column {}", json_error(error), error.line(), error.column())
}

/// Returns why bytes are not JSON: their encoding if it is not UTF-8, else the error of the parser.
pub(crate) fn not_json(bytes: &[u8], error: impl fmt::Display) -> String {
    let has_mark = bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff");
    // JSON in UTF-16 begins with a character of ASCII, which has a zero byte. The text can be valid UTF-8.
    let zero = bytes.iter().take(2).position(|byte| *byte == 0);
    let invalid = str::from_utf8(bytes).err();
    if zero.is_none() && invalid.is_some_and(|invalid| invalid.error_len().is_none()) {
        return "it ends inside of a character, so it is not complete".to_owned();
    }
    let invalid = invalid.as_ref().map(Utf8Error::valid_up_to);
    let Some(at) = zero.into_iter().chain(invalid).min() else { return error.to_string() };
    let form = if has_mark || zero.is_some() { ", and looks like UTF-16" } else { "" };
    format!("it is not UTF-8 at byte {}{form}; send UTF-8", at + 1)
}
