//! One value of an event, with its place: read as what it should be, or a fault.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::object::{Name, Object};
use super::place::{Faults, Place};

/// A value that is known to be JSON, and where it stands.
#[derive(Clone, Copy)]
pub(super) struct Value<'a, 'p> {
    pub(super) raw: &'a RawValue,
    pub(super) at: &'p Place<'p>,
}

impl<'a> Value<'a, '_> {
    pub(super) fn is_null(self) -> bool {
        self.raw.get() == "null"
    }

    /// The text of a string.
    pub(super) fn text(self, faults: &mut Faults) -> Option<Cow<'a, str>> {
        match serde_json::from_str::<Name<'a>>(self.raw.get()) {
            Ok(Name(text)) => Some(text),
            Err(_) if self.raw.get().starts_with('"') => {
                faults.add(self.at, "invalid_value", "an escape in this string names no character");
                None
            }
            Err(_) => {
                faults.add(self.at, "invalid_type", "expected a string");
                None
            }
        }
    }

    /// The text of a string of at most so many bytes.
    pub(super) fn text_within(self, max_bytes: usize, faults: &mut Faults) -> Option<Cow<'a, str>> {
        let text = self.text(faults)?;
        if text.len() > max_bytes {
            faults.add(self.at, "too_long", format!("at most {max_bytes} bytes"));
            return None;
        }
        Some(text)
    }

    /// The fields of an object, no name twice.
    pub(super) fn object(self, faults: &mut Faults) -> Option<Object<'a>> {
        if let Ok(object) = serde_json::from_str::<Object<'a>>(self.raw.get()) {
            object.refuse_duplicates(self.at, faults);
            Some(object)
        } else {
            faults.add(self.at, "invalid_type", "expected an object");
            None
        }
    }

    /// Checks each item of a list.
    pub(super) fn each(self, max: usize, faults: &mut Faults, check: impl Fn(Value<'a, '_>, &mut Faults)) {
        let Ok(items) = serde_json::from_str::<Vec<&'a RawValue>>(self.raw.get()) else {
            faults.add(self.at, "invalid_type", "expected a list");
            return;
        };
        if items.len() > max {
            faults.add(self.at, "too_many", format!("at most {max} items"));
            return;
        }
        for (index, raw) in items.into_iter().enumerate() {
            check(Value { raw, at: &Place::Item(self.at, index) }, faults);
        }
    }
}
