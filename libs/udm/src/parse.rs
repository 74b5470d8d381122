//! Validates an event in place: one pass over the bytes, without a tree and without a copy.
//!
//! Collects several errors, each with a JSON Pointer. `null` counts as absent, except in a list. A valid event can be read
//! by every JSON parser with the same result: it has no duplicate names, no unpaired surrogates and no numbers that exceed
//! a 64-bit float.

mod check;
mod errors;
mod rules;

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use contract::FieldError;

use check::CheckedEvent;

pub use rules::is_source_id;
pub(crate) use rules::{event_type, instant, integer, integral, is_event_id, timestamp};

/// Maximum size of an event in bytes.
pub const MAX_EVENT_BYTES: usize = 256 * 1024;
/// Maximum nesting of an event. The event itself is the first level.
pub const MAX_DEPTH: usize = 32;
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
    let text = str::from_utf8(bytes).map_err(|error| ParseError::NotJson(error.to_string()))?;
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
