//! An object as its names and the raw bytes of its values, in order.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Invalid;
use super::place::{Faults, Place};

/// An object, read one level deep.
pub(super) struct Object<'a>(Vec<(Name<'a>, &'a RawValue)>);

/// A name, or any string; copied only when it is written with escapes.
#[derive(serde::Deserialize)]
pub(super) struct Name<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

impl<'a> Object<'a> {
    /// Reads the text of a whole event.
    pub(super) fn from_event(text: &'a str) -> Result<Self, Invalid> {
        serde_json::from_str(text).map_err(|fault| {
            if serde_json::from_str::<IgnoredAny>(text).is_err() {
                return Invalid::NotJson(fault.to_string());
            }
            let mut faults = Faults::default();
            faults.add(&Place::Root, "invalid_type", "an event is an object");
            Invalid::WrongShape { event_id: None, faults: faults.into_vec() }
        })
    }

    /// Names, decoded, and values, raw, in the order in which they were sent.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (&*name.0, *value))
    }

    /// A name that stands twice means one thing to this reader and another to the next.
    pub(super) fn refuse_duplicates(&self, at: &Place<'_>, faults: &mut Faults) {
        let mut names: Vec<&str> = self.fields().map(|(name, _)| name).collect();
        names.sort_unstable();
        for pair in names.windows(2) {
            if let [first, second] = pair
                && first == second
            {
                faults.add(&Place::Field(at, first), "duplicate", "this field stands twice");
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
