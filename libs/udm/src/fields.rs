//! The known fields of an event in one table: original name, type, whether it is repeated, and the object that it contains. The
//! second spelling of a name, the check of names, the validation and the JSON Schema are derived from it.

#![expect(non_upper_case_globals, reason = "the objects have the names of their messages")]

mod names;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use names::JsonName;
pub(crate) use names::{Meaning, Name, Spelling, find, is_same_name, json_name};

pub(crate) const MAX_SOURCE_ID_BYTES: usize = 256;
pub(crate) const MAX_EVENT_ID_BYTES: usize = 128;
pub(crate) const MAX_TYPE_BYTES: usize = 64;

/// Returns whether the text is an event type.
pub(crate) fn is_event_type(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    text.len() <= MAX_TYPE_BYTES
        && text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.bytes().all(is_allowed)
}

/// The names of the event types and their numbers, in ascending order.
pub(crate) const EVENT_TYPES: &[(i32, &str)] = &include!("fields/event_types.udm");

/// An object of the model.
pub(crate) struct Object {
    /// Name of its JSON Schema.
    pub(crate) name: &'static str,
    /// Empty for an object that the schema describes only by the names and types of its fields.
    pub(crate) description: &'static str,
    pub(crate) fields: &'static [Field],
    /// Where [`find`] finds a field by its name.
    slots: &'static [u8],
}

/// A known field of an object.
pub(crate) struct Field {
    /// Original name, in `snake_case`.
    pub(crate) name: &'static str,
    /// Second spelling, in `lowerCamelCase`. It equals the original name if that is one word.
    pub(crate) json_name: &'static str,
    /// Hash of every spelling of the name.
    hash: u32,
    /// The rule of the value, or of each value if the field is repeated.
    pub(crate) rule: Rule,
    pub(crate) is_repeated: bool,
    pub(crate) description: &'static str,
}

/// The rule of a value.
#[derive(Clone, Copy)]
pub(crate) enum Rule {
    /// Any JSON.
    Any,
    /// An object of the model. It can also have unknown fields.
    Object(&'static Object),
    /// An object of which no field is known.
    OpenObject,
    /// A string, or another form of the same value.
    Text(TextRule),
    /// An integer as number or decimal string.
    Integer(Integer),
    /// Any number, as number or string.
    Number,
    /// `true` or `false`.
    Boolean,
    /// The name or the number of a value, also of one that the model does not have.
    Enumeration,
}

/// The rule of a string.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextRule {
    Any,
    SourceId,
    EventId,
    /// Any string. It can be the id of the event.
    MetadataId,
    /// A name, or a number of [`EVENT_TYPES`].
    EventType,
    /// The time of the event. It has the same forms as [`Time`](Self::Time).
    EventTime,
    /// RFC 3339, or an [`INSTANT`].
    Time,
    /// Seconds, such as `1.5s`, or an [`INSTANT`].
    Duration,
    IpAddress,
    MacAddress,
    /// Bytes as base64 (RFC 4648), in one of its alphabets, with or without padding.
    Bytes,
}

/// The range of an integer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Integer {
    Int32,
    Int64,
    Uint32,
    Uint64,
    Port,
    /// The seconds of an [`INSTANT`].
    Seconds,
    /// The nanoseconds of an [`INSTANT`].
    Nanos,
}

impl Field {
    /// Returns whether an event without the field is invalid.
    pub(crate) fn is_required(&self) -> bool {
        matches!(self.rule, Rule::Text(TextRule::SourceId))
    }
}

impl TextRule {
    /// Returns whether the value can be an [`INSTANT`] instead of a string.
    pub(crate) const fn is_instant(self) -> bool {
        matches!(self, Self::EventTime | Self::Time | Self::Duration)
    }
}

impl Integer {
    pub(crate) fn range(self) -> RangeInclusive<i128> {
        match self {
            Self::Int32 | Self::Nanos => i32::MIN.into()..=i32::MAX.into(),
            Self::Int64 | Self::Seconds => i64::MIN.into()..=i64::MAX.into(),
            Self::Uint32 => 0..=u32::MAX.into(),
            Self::Uint64 => 0..=u64::MAX.into(),
            Self::Port => 0..=u16::MAX.into(),
        }
    }
}

/// Returns the rule of a type in the table.
#[rustfmt::skip]
macro_rules! rule {
    (string) => { Rule::Text(TextRule::Any) };
    (bytes) => { Rule::Text(TextRule::Bytes) };
    (SourceId) => { Rule::Text(TextRule::SourceId) };
    (EventId) => { Rule::Text(TextRule::EventId) };
    (MetadataId) => { Rule::Text(TextRule::MetadataId) };
    (EventType) => { Rule::Text(TextRule::EventType) };
    (EventTime) => { Rule::Text(TextRule::EventTime) };
    (Timestamp) => { Rule::Text(TextRule::Time) };
    (Duration) => { Rule::Text(TextRule::Duration) };
    (IpAddress) => { Rule::Text(TextRule::IpAddress) };
    (MacAddress) => { Rule::Text(TextRule::MacAddress) };
    (int32) => { Rule::Integer(Integer::Int32) };
    (int64) => { Rule::Integer(Integer::Int64) };
    (uint32) => { Rule::Integer(Integer::Uint32) };
    (uint64) => { Rule::Integer(Integer::Uint64) };
    (Port) => { Rule::Integer(Integer::Port) };
    (Seconds) => { Rule::Integer(Integer::Seconds) };
    (Nanos) => { Rule::Integer(Integer::Nanos) };
    (float) => { Rule::Number };
    (double) => { Rule::Number };
    (bool) => { Rule::Boolean };
    (enum) => { Rule::Enumeration };
    (Struct) => { Rule::OpenObject };
    ($object:ident) => { Rule::Object(&$object) };
}

/// Returns a field. The compiler derives the second spelling.
macro_rules! field {
    ($description:expr, $name:ident, [$rule:tt]) => {
        field!($description, $name, rule!($rule), true)
    };
    ($description:expr, $name:ident, $rule:tt) => {
        field!($description, $name, rule!($rule), false)
    };
    ($description:expr, $name:ident, $rule:expr, $is_repeated:expr) => {{
        const JSON_NAME: &JsonName = &JsonName::from_original(stringify!($name));
        Field {
            name: stringify!($name),
            json_name: JSON_NAME.as_str(),
            hash: names::hash(stringify!($name)),
            rule: $rule,
            is_repeated: $is_repeated,
            description: $description,
        }
    }};
}

/// Defines the objects of the table.
macro_rules! model {
    ($($(#[doc = $about:literal])* $object:ident {
        $($(#[doc = $description:literal])* $name:ident: $rule:tt),* $(,)?
    })*) => {$(
        pub(crate) static $object: Object = {
            const NAMES: &[&str] = &[$(stringify!($name)),*];
            const SLOTS: usize = (2 * NAMES.len()).next_power_of_two();
            Object {
                name: concat!("Udm", stringify!($object)),
                description: concat!($($about, "\n",)*),
                fields: &[$(field!(concat!($($description, "\n",)*), $name, $rule)),*],
                slots: &names::slots::<SLOTS>(NAMES),
            }
        };
    )*};
}

// A time or a duration as an object, as in the text form of protobuf and in exports of databases. Protobuf omits zeros, so one number is
// enough. An object without both is an error, because it more likely lacks its time than means 1970.
model! { Instant { seconds: Seconds, nanos: Nanos } }
include!("fields/model.udm");

pub(crate) use self::{Event as EVENT, Instant as INSTANT, Metadata as METADATA, Noun as NOUN};
