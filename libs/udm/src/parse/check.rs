//! The pass over an event: checks every value against its rule, and collects the errors and the fields for routing.

use std::borrow::Cow;
use std::fmt;

use chrono::{DateTime, Utc};
use contract::{FieldError, escape_pointer_token};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::rules::{port, timestamp};
use super::{MAX_DEPTH, ParseError};
use crate::fields::{EVENT, Field, Meaning, Name, Rule, Spelling, TextRule, find};
use crate::wrapped::{WrappedEvent, is_wrapper, unwrap_events};

/// Enough for a sender to correct an event; more would only enlarge the response.
const MAX_ERRORS: usize = 16;

/// A location in an event. It is formatted as a JSON Pointer (RFC 6901) only for an error.
#[derive(Clone, Copy)]
enum Location<'p> {
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
    fn add(&mut self, pointer: impl fmt::Display, code: &'static str, message: impl Into<String>) {
        if self.0.len() < MAX_ERRORS {
            let (pointer, message) = (pointer.to_string(), message.into());
            self.0.push(FieldError { pointer, code: Cow::Borrowed(code), message });
        }
    }

    /// Adds the errors of a field that occurs twice.
    fn add_duplicate(
        &mut self,
        name: &str,
        spellings: [Spelling; 2],
        known: &'static [Field],
        at: &Location<'_>,
    ) {
        let Meaning::Known(field, _) = find(known, name) else {
            return self.add(Location::Field(at, name), "duplicate_field", "duplicate field");
        };
        let [first, second] = spellings.map(|spelling| Location::Field(at, field.spelled(spelling)));
        if spellings[0] == spellings[1] {
            return self.add(first, "duplicate_field", "duplicate field");
        }
        for (location, other) in [(first, second), (second, first)] {
            self.add(
                location,
                "duplicate_field",
                format!("the same field as {other}; send only one of them"),
            );
        }
    }

    pub(super) fn into_vec(self) -> Vec<FieldError> {
        self.0
    }
}

/// The valid fields for routing, and the names of those that errors of the service refer to.
pub(super) struct Routing<'a> {
    pub(super) source_id: Option<Cow<'a, str>>,
    pub(super) source_id_name: &'static str,
    pub(super) event_id: Option<Cow<'a, str>>,
    pub(super) event_id_name: &'static str,
    pub(super) event_type: Option<Cow<'a, str>>,
    pub(super) event_timestamp: Option<DateTime<Utc>>,
}

impl Default for Routing<'_> {
    fn default() -> Self {
        Self {
            source_id: None,
            source_id_name: "source_id",
            event_id: None,
            event_id_name: "event_id",
            event_type: None,
            event_timestamp: None,
        }
    }
}

impl Routing<'_> {
    /// Records how the sender writes a name.
    fn set_name(&mut self, field: &Field, spelling: Spelling) {
        match field.rule {
            Rule::Text(TextRule::SourceId) => self.source_id_name = field.spelled(spelling),
            Rule::Text(TextRule::EventId) => self.event_id_name = field.spelled(spelling),
            _ => {}
        }
    }
}

/// The result of the pass.
#[derive(Default)]
pub(super) struct CheckedEvent<'a> {
    pub(super) routing: Routing<'a>,
    pub(super) errors: Errors,
    /// The original names of the fields of the open objects, outermost first, and how the sender spells them.
    names: Vec<(Cow<'a, str>, Spelling)>,
    is_too_deep: bool,
    /// Whether the event has a member that can contain an event.
    has_wrapper: bool,
    /// The innermost location at which the JSON parser failed.
    failed_at: Option<String>,
}

impl<'a> CheckedEvent<'a> {
    /// Reads an event.
    ///
    /// # Errors
    /// The text is not JSON. All other errors are in the result.
    pub(super) fn read(text: &'a str) -> Result<Self, ParseError> {
        let mut event = Self { names: Vec::with_capacity(32), ..Self::default() };
        let rule = Rule::Object(&EVENT);
        let check = Check { rule, at: Location::Root, depth: 0, is_optional: false, event: &mut event };
        let mut json = serde_json::Deserializer::from_str(text);
        if let Err(error) = check.deserialize(&mut json).and_then(|()| json.end()) {
            event.add_unreadable(text, &error)?;
        }
        if event.is_too_deep {
            let message = format!("at most {MAX_DEPTH} levels of nesting");
            event.errors.add(Location::Root, "too_deep", message);
        }
        if event.has_wrapper {
            event.reject_wrapped(text);
        }
        Ok(event)
    }

    /// Adds the error of a value that matches the grammar of JSON but that parsers cannot represent.
    fn add_unreadable(&mut self, text: &str, error: &serde_json::Error) -> Result<(), ParseError> {
        // Checks the grammar only.
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| ParseError::NotJson(error.to_string()))?;
        let message = if error.to_string().starts_with("number out of range") {
            "the number exceeds the range of a 64-bit float"
        } else {
            "the string contains an escape sequence of an unpaired surrogate"
        };
        self.errors.add(self.failed_at.take().unwrap_or_default(), "invalid_value", message);
        Ok(())
    }

    /// Reports only the events that the document contains, because other errors would be those of the wrapper.
    fn reject_wrapped(&mut self, text: &str) {
        let wrapped = unwrap_events(text);
        if !wrapped.is_empty() {
            self.errors = Errors::default();
        }
        for WrappedEvent { pointer, .. } in wrapped {
            let message = "the event is inside of another object; send only the value at this pointer, with a source_id";
            self.errors.add(pointer, "wrapped_event", message);
        }
    }

    /// Records the location of an error of the JSON parser, and returns the error.
    fn failed<E>(&mut self, at: &Location<'_>, error: E) -> E {
        self.failed_at.get_or_insert_with(|| at.to_string());
        error
    }

    /// Ends an object. Rejects duplicate fields, because JSON parsers disagree on which value counts.
    fn end_object(&mut self, first: usize, known: &'static [Field], at: &Location<'_>) {
        let names = &mut self.names[first..];
        // The length excludes most comparisons of texts.
        names.sort_unstable_by(|a, b| a.0.len().cmp(&b.0.len()).then_with(|| a.cmp(b)));
        for pair in names.windows(2) {
            if pair[0].0 == pair[1].0 {
                self.errors.add_duplicate(&pair[0].0, [pair[0].1, pair[1].1], known, at);
            }
        }
        self.names.truncate(first);
    }

    fn require_source_id(&mut self) {
        if self.routing.source_id.is_some() {
            return;
        }
        let pointer = format!("/{}", self.routing.source_id_name);
        if self.errors.0.iter().all(|error| error.pointer != pointer) {
            self.errors.add(pointer, "required", "an event must have a source_id");
        }
    }
}

/// The check of one value.
struct Check<'c, 'a> {
    rule: Rule,
    at: Location<'c>,
    /// Number of objects and lists around the value.
    depth: usize,
    /// Whether `null` counts as absent.
    is_optional: bool,
    event: &'c mut CheckedEvent<'a>,
}

impl<'a> Check<'_, 'a> {
    fn reject_type(&mut self) {
        self.event.errors.add(self.at, "invalid_type", self.rule.expectation());
    }

    /// Returns whether the value is nested too deep.
    fn is_too_deep(&mut self) -> bool {
        self.event.is_too_deep |= self.depth == MAX_DEPTH;
        self.depth == MAX_DEPTH
    }

    fn number(mut self, is_port: impl FnOnce() -> bool) {
        match self.rule {
            Rule::Any => {}
            Rule::Port if is_port() => {}
            Rule::Port => self.event.errors.add(self.at, "invalid_value", self.rule.expectation()),
            _ => self.reject_type(),
        }
    }

    fn text(mut self, text: &str, keep: impl FnOnce() -> Cow<'a, str>) {
        let rule = match self.rule {
            Rule::Any => return,
            Rule::Text(rule) => rule,
            _ => return self.reject_type(),
        };
        if let Err((code, message)) = rule.check(text) {
            return self.event.errors.add(self.at, code, message);
        }
        let routing = &mut self.event.routing;
        match rule {
            TextRule::SourceId => routing.source_id = Some(keep()),
            TextRule::EventId => routing.event_id = Some(keep()),
            TextRule::EventType => routing.event_type = Some(keep()),
            TextRule::Timestamp => routing.event_timestamp = timestamp(text),
            _ => {}
        }
    }

    /// Checks a field of an object with these known ones. Returns its original name if it differs from the name.
    fn field<A: MapAccess<'a>>(
        &mut self,
        name: &str,
        known: &'static [Field],
        map: &mut A,
    ) -> Result<Option<&'static str>, A::Error> {
        let at = Location::Field(&self.at, name);
        let mut original = None;
        let rule = match find(known, name) {
            Meaning::Known(field, spelling) => {
                if self.depth == 0 {
                    self.event.routing.set_name(field, spelling);
                }
                original = (spelling == Spelling::Json).then_some(field.name);
                field.rule
            }
            Meaning::Misspelled(field) => {
                self.event.errors.add(at, "invalid_name", field.correction());
                Rule::Any
            }
            Meaning::Unknown => {
                self.event.has_wrapper |= self.depth == 0 && is_wrapper(name);
                Rule::Any
            }
        };
        let check = Check { rule, at, depth: self.depth + 1, is_optional: true, event: self.event };
        map.next_value_seed(check).map_err(|error| self.event.failed(&at, error))?;
        Ok(original)
    }
}

impl<'a> DeserializeSeed<'a> for Check<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Check<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(mut self, _: bool) -> Result<(), E> {
        if !matches!(self.rule, Rule::Any) {
            self.reject_type();
        }
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.number(|| u16::try_from(number).is_ok());
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.number(|| u16::try_from(number).is_ok());
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.number(|| port(number).is_some());
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.text(text, || Cow::Owned(text.to_owned()));
        Ok(())
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<(), E> {
        self.text(text, || Cow::Borrowed(text));
        Ok(())
    }

    fn visit_unit<E>(mut self) -> Result<(), E> {
        if !self.is_optional && !matches!(self.rule, Rule::Any) {
            self.reject_type();
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(mut self, mut list: A) -> Result<(), A::Error> {
        let (items, max) = match self.rule {
            Rule::List { items, max } => (*items, max),
            Rule::Any => (Rule::Any, usize::MAX),
            _ => {
                self.reject_type();
                (Rule::Any, usize::MAX)
            }
        };
        if self.is_too_deep() {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        }
        for index in 0.. {
            let at = Location::Item(&self.at, index);
            let rule = if index < max { items } else { Rule::Any };
            let check = Check { rule, at, depth: self.depth + 1, is_optional: false, event: self.event };
            match list.next_element_seed(check) {
                Ok(Some(())) if index == max => {
                    self.event.errors.add(self.at, "too_many", format!("at most {max} items"));
                }
                Ok(Some(())) => {}
                Ok(None) => break,
                Err(error) => return Err(self.event.failed(&at, error)),
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<(), A::Error> {
        let known: &'static [Field] = match self.rule {
            Rule::Object(object) => object.fields,
            Rule::OpenObject | Rule::Any => &[],
            _ => {
                self.reject_type();
                &[]
            }
        };
        if self.is_too_deep() {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(());
        }
        let first = self.event.names.len();
        while let Some(Name(name)) = map.next_key().map_err(|error| self.event.failed(&self.at, error))? {
            let original = self.field(&name, known, &mut map)?;
            self.event.names.push(match original {
                Some(original) => (Cow::Borrowed(original), Spelling::Json),
                None => (name, Spelling::Original),
            });
        }
        self.event.end_object(first, known, &self.at);
        if self.depth == 0 {
            self.event.require_source_id();
        }
        Ok(())
    }
}
