//! Validates an event in place: one pass over the bytes per checked level, without a tree and without a copy.
//!
//! Collects several errors, each with a JSON Pointer. `null` counts as absent, except in a list.

mod sections;
mod value;

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use contract::FieldError;

use sections::{RoutingMetadata, metadata, noun, open_object};
use value::{Errors, Location, Object, Value, exceeds_depth};

/// Maximum size of an event in bytes.
pub const MAX_EVENT_BYTES: usize = 256 * 1024;
/// Maximum nesting of an event. The event itself is the first level.
pub const MAX_DEPTH: usize = 32;
/// Maximum number of nouns in `intermediary` and in `about`.
pub const MAX_NOUNS: usize = 64;
/// Type of an event without `event_type`.
pub const DEFAULT_EVENT_TYPE: &str = "GENERIC_EVENT";

const MAX_SOURCE_ID_BYTES: usize = 256;
const MAX_EVENT_ID_BYTES: usize = 128;

/// A valid event: the fields for routing, and its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Event<'a> {
    /// Source of the event.
    pub source_id: Cow<'a, str>,
    /// Id of the event, if the producer set one.
    pub event_id: Option<Cow<'a, str>>,
    /// Type of the event, [`DEFAULT_EVENT_TYPE`] by default.
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
    #[error("an event has at most {MAX_EVENT_BYTES} bytes")]
    TooLarge,
    /// Fields are invalid.
    #[error("the event is invalid")]
    Invalid {
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
    let text = str::from_utf8(bytes).map_err(|error| ParseError::NotJson(error.to_string()))?;
    let event = Object::from_event(text)?;
    let mut errors = Errors::default();
    let routing = validate(&event, &mut errors);
    if exceeds_depth(bytes, MAX_DEPTH) {
        errors.add(&Location::Root, "too_deep", format!("at most {MAX_DEPTH} levels of nesting"));
    }
    let errors = errors.into_vec();
    match routing.source_id {
        Some(source_id) if errors.is_empty() => Ok(Event {
            source_id,
            event_id: routing.event_id,
            event_type: routing.metadata.event_type.unwrap_or(Cow::Borrowed(DEFAULT_EVENT_TYPE)),
            event_timestamp: routing.metadata.event_timestamp,
            raw: bytes,
        }),
        _ => Err(ParseError::Invalid { event_id: routing.event_id.map(Cow::into_owned), errors }),
    }
}

/// The valid fields for routing.
#[derive(Default)]
struct Routing<'a> {
    source_id: Option<Cow<'a, str>>,
    event_id: Option<Cow<'a, str>>,
    metadata: RoutingMetadata<'a>,
}

fn validate<'a>(event: &Object<'a>, errors: &mut Errors) -> Routing<'a> {
    let mut routing = Routing::default();
    event.reject_duplicates(&Location::Root, errors);
    for (name, raw) in event.fields() {
        let value = Value { raw, at: &Location::Field(&Location::Root, name) };
        if value.is_null() {
            continue;
        }
        match name {
            "source_id" => routing.source_id = source_id(value, errors),
            "event_id" => routing.event_id = event_id(value, errors),
            "metadata" => routing.metadata = metadata(value, errors),
            "principal" | "src" | "target" | "observer" => noun(value, errors),
            "intermediary" | "about" => value.each(MAX_NOUNS, errors, noun),
            "network" | "extensions" | "additional" => open_object(value, errors),
            "security_result" => value.each(usize::MAX, errors, open_object),
            _ => {}
        }
    }
    if !event.fields().any(|(name, raw)| name == "source_id" && raw.get() != "null") {
        let at = Location::Field(&Location::Root, "source_id");
        errors.add(&at, "required", "an event must have a source_id");
    }
    routing
}

fn source_id<'a>(value: Value<'a, '_>, errors: &mut Errors) -> Option<Cow<'a, str>> {
    let text = value.text_within(MAX_SOURCE_ID_BYTES, errors)?;
    if !is_source_id(&text) {
        errors.add(value.at, "invalid_value", "1 to 256 bytes, not blank, no control characters");
        return None;
    }
    Some(text)
}

/// Returns whether the text is a valid `source_id`: 1 to 256 bytes, not blank, no control characters.
pub fn is_source_id(text: &str) -> bool {
    text.len() <= MAX_SOURCE_ID_BYTES && !text.trim().is_empty() && !text.chars().any(char::is_control)
}

fn event_id<'a>(value: Value<'a, '_>, errors: &mut Errors) -> Option<Cow<'a, str>> {
    let text = value.text_within(MAX_EVENT_ID_BYTES, errors)?;
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
    if text.is_empty() || !text.bytes().all(is_allowed) {
        errors.add(value.at, "invalid_value", "1 to 128 of A-Z, a-z, 0-9, '.', '_', ':' and '-'");
        return None;
    }
    Some(text)
}
