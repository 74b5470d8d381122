//! Raw JSON values with their location, and the errors found in them.

use std::borrow::Cow;
use std::fmt;

use contract::{FieldError, escape_pointer_token};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::ParseError;

/// Enough for a sender to correct an event; more would only enlarge the response.
const MAX_ERRORS: usize = 16;

/// A location in an event. It is formatted as a JSON Pointer (RFC 6901) only for an error.
#[derive(Clone, Copy)]
pub(super) enum Location<'p> {
    Root,
    Field(&'p Location<'p>, &'p str),
    Item(&'p Location<'p>, usize),
}

impl fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(parent, name) => write!(f, "{parent}/{}", escape_pointer_token(name)),
            Self::Item(parent, index) => write!(f, "{parent}/{index}"),
        }
    }
}

/// The errors found so far.
#[derive(Default)]
pub(super) struct Errors(Vec<FieldError>);

impl Errors {
    /// Adds an error, unless there are [`MAX_ERRORS`].
    pub(super) fn add(&mut self, at: &Location<'_>, code: &'static str, message: impl Into<String>) {
        if self.0.len() < MAX_ERRORS {
            self.0.push(FieldError {
                pointer: at.to_string(),
                code: Cow::Borrowed(code),
                message: message.into(),
            });
        }
    }

    pub(super) fn into_vec(self) -> Vec<FieldError> {
        self.0
    }
}

/// A JSON value and its location.
#[derive(Clone, Copy)]
pub(super) struct Value<'a, 'p> {
    pub(super) raw: &'a RawValue,
    pub(super) at: &'p Location<'p>,
}

impl<'a> Value<'a, '_> {
    pub(super) fn is_null(self) -> bool {
        self.raw.get() == "null"
    }

    /// Returns the text of a string.
    pub(super) fn text(self, errors: &mut Errors) -> Option<Cow<'a, str>> {
        match serde_json::from_str::<Text<'a>>(self.raw.get()) {
            Ok(Text(text)) => Some(text),
            Err(_) if self.raw.get().starts_with('"') => {
                errors.add(self.at, "invalid_value", "the string contains an invalid escape sequence");
                None
            }
            Err(_) => {
                errors.add(self.at, "invalid_type", "expected a string");
                None
            }
        }
    }

    /// Returns the text of a string of at most `max_bytes`.
    pub(super) fn text_within(self, max_bytes: usize, errors: &mut Errors) -> Option<Cow<'a, str>> {
        let text = self.text(errors)?;
        if text.len() > max_bytes {
            errors.add(self.at, "too_long", format!("at most {max_bytes} bytes"));
            return None;
        }
        Some(text)
    }

    /// Returns the fields of an object.
    pub(super) fn object(self, errors: &mut Errors) -> Option<Object<'a>> {
        if let Ok(object) = serde_json::from_str::<Object<'a>>(self.raw.get()) {
            object.reject_duplicates(self.at, errors);
            Some(object)
        } else {
            errors.add(self.at, "invalid_type", "expected an object");
            None
        }
    }

    /// Validates each item of a list of at most `max` items.
    pub(super) fn each(self, max: usize, errors: &mut Errors, validate: impl Fn(Value<'a, '_>, &mut Errors)) {
        let Ok(items) = serde_json::from_str::<Vec<&'a RawValue>>(self.raw.get()) else {
            errors.add(self.at, "invalid_type", "expected a list");
            return;
        };
        if items.len() > max {
            errors.add(self.at, "too_many", format!("at most {max} items"));
            return;
        }
        for (index, raw) in items.into_iter().enumerate() {
            validate(Value { raw, at: &Location::Item(self.at, index) }, errors);
        }
    }
}

/// A string. It is copied only if it contains escape sequences.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The names and raw values of one object, in order.
pub(super) struct Object<'a>(Vec<(Text<'a>, &'a RawValue)>);

impl<'a> Object<'a> {
    /// Parses the text of an event.
    pub(super) fn from_event(text: &'a str) -> Result<Self, ParseError> {
        serde_json::from_str(text).map_err(|error| {
            if serde_json::from_str::<IgnoredAny>(text).is_err() {
                return ParseError::NotJson(error.to_string());
            }
            let mut errors = Errors::default();
            errors.add(&Location::Root, "invalid_type", "an event must be an object");
            ParseError::Invalid { event_id: None, errors: errors.into_vec() }
        })
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (&*name.0, *value))
    }

    /// Rejects duplicate names, because JSON parsers disagree on which value counts.
    pub(super) fn reject_duplicates(&self, at: &Location<'_>, errors: &mut Errors) {
        let mut names: Vec<&str> = self.fields().map(|(name, _)| name).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            if let [first, second] = pair
                && first == second
            {
                errors.add(&Location::Field(at, first), "duplicate", "duplicate field");
            }
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::with_capacity(8);
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Object(fields))
    }
}

/// Returns whether lists and objects are nested deeper than `limit`. The bytes must be valid JSON.
pub(super) fn exceeds_depth(json: &[u8], limit: usize) -> bool {
    let mut depth = 0_usize;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' if depth == limit => return true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    false
}

/// Skips the rest of a string, after its opening quote.
fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::exceeds_depth;

    #[test]
    fn depth_ignores_brackets_in_strings() {
        assert!(!exceeds_depth(br#"{"a":[{}]}"#, 3));
        assert!(exceeds_depth(br#"{"a":[{}]}"#, 2));
        assert!(!exceeds_depth(br#"{"[[[{\"[[":"\\","b":"[\\\"["}"#, 1));
        assert!(!exceeds_depth(b"[[],[],[],{}]", 2));
    }
}
