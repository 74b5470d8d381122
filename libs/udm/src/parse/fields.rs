//! The two fields that identify an event, and those that are open.

use std::borrow::Cow;

use super::place::Faults;
use super::value::Value;

const MAX_SOURCE_ID_BYTES: usize = 256;
const MAX_EVENT_ID_BYTES: usize = 128;

pub(super) fn source_id<'a>(value: Value<'a, '_>, faults: &mut Faults) -> Option<Cow<'a, str>> {
    let text = value.text_within(MAX_SOURCE_ID_BYTES, faults)?;
    if !is_source_id(&text) {
        faults.add(value.at, "invalid_value", "1 to 256 bytes, not blank, no control characters");
        return None;
    }
    Some(text)
}

/// Whether an event can name this as its source: 1 to 256 bytes, not blank, no control characters.
pub fn is_source_id(text: &str) -> bool {
    text.len() <= MAX_SOURCE_ID_BYTES && !text.trim().is_empty() && !text.chars().any(char::is_control)
}

pub(super) fn event_id<'a>(value: Value<'a, '_>, faults: &mut Faults) -> Option<Cow<'a, str>> {
    let text = value.text_within(MAX_EVENT_ID_BYTES, faults)?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
    if text.is_empty() || !text.bytes().all(fits) {
        faults.add(value.at, "invalid_value", "1 to 128 of A-Z, a-z, 0-9, '.', '_', ':' and '-'");
        return None;
    }
    Some(text)
}

/// An object; what is in it is nobody's business.
pub(super) fn open_object(value: Value<'_, '_>, faults: &mut Faults) {
    if !value.raw.get().starts_with('{') {
        faults.add(value.at, "invalid_type", "expected an object");
    }
}
