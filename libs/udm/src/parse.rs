//! Checks an event where it lies: one pass over the bytes per level that is looked into, no tree, no copy.
//!
//! Finds several faults at once, each with its place. `null` counts as absent, except in a list.

mod depth;
mod fields;
mod metadata;
mod noun;
mod object;
mod place;
mod value;

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use contract::FieldError;

pub use fields::is_source_id;
use object::Object;
use place::{Faults, Place};
use value::Value;

/// The most bytes of one event.
pub const MAX_EVENT_BYTES: usize = 256 * 1024;
/// The deepest nesting of an event; the event itself is the first level.
pub const MAX_DEPTH: usize = 32;
/// The most nouns in `intermediary` and in `about`.
pub const MAX_NOUNS: usize = 64;
/// The type of an event that names none.
pub const DEFAULT_EVENT_TYPE: &str = "GENERIC_EVENT";

/// An event that passed every check, and what routing it needs to know of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event<'a> {
    /// Where it comes from.
    pub source_id: Cow<'a, str>,
    /// The producer's id, when it set one.
    pub event_id: Option<Cow<'a, str>>,
    /// [`DEFAULT_EVENT_TYPE`] when the producer named none.
    pub event_type: Cow<'a, str>,
    /// When it happened, when the producer said so.
    pub event_timestamp: Option<DateTime<Utc>>,
    /// The bytes that were checked, unchanged.
    pub raw: &'a [u8],
}

/// Why the bytes are no event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A JSON parser refuses them.
    #[error("the event is not JSON: {0}")]
    NotJson(String),
    /// More than [`MAX_EVENT_BYTES`].
    #[error("an event is at most {MAX_EVENT_BYTES} bytes")]
    TooLarge,
    /// JSON, but not of an event's shape.
    #[error("the event has the wrong shape")]
    WrongShape {
        /// The event's id, when that at least could be read.
        event_id: Option<String>,
        /// What is wrong, in the order of the event; at least one, at most 16.
        faults: Vec<FieldError>,
    },
}

/// Checks the bytes of one event and reads what routing needs.
pub fn parse(bytes: &[u8]) -> Result<Event<'_>, Invalid> {
    if bytes.len() > MAX_EVENT_BYTES {
        return Err(Invalid::TooLarge);
    }
    let text = str::from_utf8(bytes).map_err(|fault| Invalid::NotJson(fault.to_string()))?;
    let event = Object::from_event(text)?;
    let mut faults = Faults::default();
    let found = check(&event, &mut faults);
    if depth::exceeds(bytes, MAX_DEPTH) {
        faults.add(&Place::Root, "too_deep", format!("nested at most {MAX_DEPTH} deep"));
    }
    let faults = faults.into_vec();
    match found.source_id {
        Some(source_id) if faults.is_empty() => Ok(Event {
            source_id,
            event_id: found.event_id,
            event_type: found.about.event_type.unwrap_or(Cow::Borrowed(DEFAULT_EVENT_TYPE)),
            event_timestamp: found.about.event_timestamp,
            raw: bytes,
        }),
        _ => Err(Invalid::WrongShape { event_id: found.event_id.map(Cow::into_owned), faults }),
    }
}

/// What an event says that routing needs.
#[derive(Default)]
struct Found<'a> {
    source_id: Option<Cow<'a, str>>,
    event_id: Option<Cow<'a, str>>,
    about: metadata::About<'a>,
}

fn check<'a>(event: &Object<'a>, faults: &mut Faults) -> Found<'a> {
    let mut found = Found::default();
    event.refuse_duplicates(&Place::Root, faults);
    for (name, raw) in event.fields() {
        let at = Place::Field(&Place::Root, name);
        let value = Value { raw, at: &at };
        if value.is_null() {
            continue;
        }
        match name {
            "source_id" => found.source_id = fields::source_id(value, faults),
            "event_id" => found.event_id = fields::event_id(value, faults),
            "metadata" => found.about = metadata::check(value, faults),
            "principal" | "src" | "target" | "observer" => noun::check(value, faults),
            "intermediary" | "about" => value.each(MAX_NOUNS, faults, noun::check),
            "network" | "extensions" | "additional" => fields::open_object(value, faults),
            "security_result" => value.each(usize::MAX, faults, fields::open_object),
            _ => {}
        }
    }
    if !event.fields().any(|(name, raw)| name == "source_id" && raw.get() != "null") {
        faults.add(&Place::Field(&Place::Root, "source_id"), "required", "an event names its source");
    }
    found
}
