//! The pass over an event: checks every value against its rule, and collects the errors and the fields for routing.

use std::borrow::Cow;
use std::fmt;

use chrono::{DateTime, Utc};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::errors::{Errors, Location};
use super::rules::{self, UNKNOWN_EVENT_TYPE};
use super::{MAX_DEPTH, ParseError, located_error, not_json};
use crate::fields::{
    EVENT, Field, INSTANT, Integer, Meaning, Name, Object, Rule, Spelling, TextRule, find, is_same_name,
};
use crate::wrapped::{Document, is_wrapper, unwrap_events};

/// The valid fields for routing, and the names of those that errors of the service refer to.
pub(super) struct Routing<'a> {
    pub(super) source_id: Option<Cow<'a, str>>,
    pub(super) source_id_name: &'static str,
    pub(super) event_id: Option<Cow<'a, str>>,
    pub(super) event_id_path: &'static str,
    /// `metadata.id`, if it has the form of an event id.
    pub(super) metadata_id: Option<Cow<'a, str>>,
    pub(super) event_type: Option<Cow<'a, str>>,
    pub(super) event_timestamp: Option<DateTime<Utc>>,
}

impl Default for Routing<'_> {
    fn default() -> Self {
        Self {
            source_id: None,
            source_id_name: "source_id",
            event_id: None,
            event_id_path: "event_id",
            metadata_id: None,
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
            Rule::Text(TextRule::EventId) => self.event_id_path = field.spelled(spelling),
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
    /// Seconds and nanoseconds of the innermost instant.
    instant: (Option<i128>, Option<i128>),
    /// The first value that is nested too deep.
    too_deep_at: Option<String>,
    /// Whether the event has a member that can contain an event: one with the name of a wrapper, or an unknown one with `metadata`.
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
        let (rule, at) = (Rule::Object(&EVENT), Location::Root);
        let check = Check { rule, is_repeated: false, at, depth: 0, is_optional: false, event: &mut event };
        let mut json = serde_json::Deserializer::from_str(text);
        if let Err(error) = check.deserialize(&mut json).and_then(|()| json.end()) {
            event.add_unreadable(text, &error)?;
        }
        if let Some(pointer) = event.too_deep_at.take() {
            event.errors.add(pointer, "too_deep", format!("at most {MAX_DEPTH} levels of nesting"));
        }
        if event.has_wrapper {
            event.reject_wrapped(text);
        }
        Ok(event)
    }

    /// Adds the error of a value that matches the grammar of JSON but that parsers cannot represent.
    fn add_unreadable(&mut self, text: &str, error: &serde_json::Error) -> Result<(), ParseError> {
        // Checks the grammar only.
        serde_json::from_str::<IgnoredAny>(text)
            .map_err(|error| ParseError::NotJson(not_json(text.as_bytes(), located_error(&error))))?;
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
        let (Document::Wrapper(wrapped, _) | Document::Mixed(wrapped)) = unwrap_events(text) else { return };
        if !wrapped.is_empty() {
            self.errors = Errors::default();
        }
        for event in wrapped.into_iter().filter(|event| event.is_event) {
            let message = "the event is inside of another object; send only the value at this pointer, with a source_id";
            self.errors.add(event.pointer, "wrapped_event", message);
        }
    }

    /// Records the location of an error of the JSON parser, and returns the error.
    fn failed<E>(&mut self, at: &Location<'_>, error: E) -> E {
        self.failed_at.get_or_insert_with(|| at.to_string());
        error
    }

    /// Ends an object. Rejects duplicate fields, because JSON parsers disagree on which value counts.
    fn end_object(&mut self, first: usize, object: Option<&'static Object>, at: &Location<'_>) {
        let names = &mut self.names[first..];
        // The length excludes most comparisons of texts.
        names.sort_unstable_by(|a, b| a.0.len().cmp(&b.0.len()).then_with(|| a.cmp(b)));
        for pair in names.windows(2) {
            if pair[0].0 == pair[1].0 {
                self.errors.add_duplicate(&pair[0].0, [pair[0].1, pair[1].1], object, at);
            }
        }
        self.names.truncate(first);
    }

    fn require_source_id(&mut self) {
        if self.routing.source_id.is_some() {
            return;
        }
        let pointer = format!("/{}", self.routing.source_id_name);
        if !self.errors.has(&pointer) {
            self.errors.add(pointer, "required", "an event must have a source_id");
        }
    }
}

/// The check of one value.
struct Check<'c, 'a> {
    rule: Rule,
    is_repeated: bool,
    at: Location<'c>,
    /// Number of objects and lists around the value.
    depth: usize,
    /// Whether `null` counts as absent.
    is_optional: bool,
    event: &'c mut CheckedEvent<'a>,
}

impl<'a> Check<'_, 'a> {
    fn reject(&mut self, code: &'static str, message: impl Into<String>) {
        self.event.errors.add(self.at, code, message);
    }

    fn reject_type(&mut self) {
        let list = if self.is_repeated { ", or a list of such values" } else { "" };
        self.reject("invalid_type", format!("{}{list}", self.rule.expectation()));
    }

    /// Returns whether the value is nested too deep.
    fn is_too_deep(&mut self) -> bool {
        let (is_too_deep, at) = (self.depth == MAX_DEPTH, self.at);
        if is_too_deep {
            self.event.too_deep_at.get_or_insert_with(|| at.to_string());
        }
        is_too_deep
    }

    /// Checks a number. One with a fraction is `None`.
    fn number(mut self, number: Option<i128>) {
        match (self.rule, number) {
            (Rule::Any | Rule::Number, _) => {}
            (Rule::Integer(integer), _) => self.integer(integer, number),
            (Rule::Enumeration, _) => self.integer(Integer::Int32, number),
            (Rule::Text(TextRule::EventType), _) => self.event_type(number),
            _ => self.reject_type(),
        }
    }

    fn integer(&mut self, integer: Integer, number: Option<i128>) {
        let Some(number) = number.filter(|number| integer.range().contains(number)) else {
            return self.reject("invalid_value", self.rule.expectation());
        };
        match integer {
            Integer::Seconds => self.event.instant.0 = Some(number),
            Integer::Nanos => self.event.instant.1 = Some(number),
            _ => {}
        }
    }

    fn event_type(&mut self, number: Option<i128>) {
        match number.and_then(rules::event_type) {
            Some(name) => self.event.routing.event_type = Some(Cow::Borrowed(name)),
            None => self.reject("invalid_value", UNKNOWN_EVENT_TYPE),
        }
    }

    fn text(mut self, text: &str, keep: impl FnOnce() -> Cow<'a, str>) {
        let rule = match self.rule {
            Rule::Any | Rule::Enumeration => return,
            Rule::Text(rule) => rule,
            Rule::Integer(integer) => return self.integer(integer, rules::integer(text)),
            Rule::Number if rules::is_number(text) => return,
            Rule::Number => return self.reject("invalid_value", self.rule.expectation()),
            _ => return self.reject_type(),
        };
        if rule == TextRule::EventType && text.starts_with(|first: char| first.is_ascii_digit()) {
            return self.event_type(rules::integer(text));
        }
        if let Err((code, message)) = rule.check(text) {
            return self.reject(code, message);
        }
        let routing = &mut self.event.routing;
        match rule {
            TextRule::SourceId => routing.source_id = Some(keep()),
            TextRule::EventId => routing.event_id = Some(keep()),
            TextRule::MetadataId if rules::is_event_id(text) => routing.metadata_id = Some(keep()),
            TextRule::EventType => routing.event_type = Some(keep()),
            TextRule::EventTime => routing.event_timestamp = rules::timestamp(text),
            _ => {}
        }
    }

    /// Checks the time or the duration that an object contained.
    fn end_instant(&mut self, rule: TextRule) {
        let (seconds, nanos) = self.event.instant;
        let instant = seconds.or(nanos).map(|_| (seconds.unwrap_or(0), nanos.unwrap_or(0)));
        let time = instant.and_then(|(seconds, nanos)| rules::instant(seconds, nanos));
        let is_valid = match rule {
            TextRule::Duration => {
                instant.is_some_and(|(seconds, nanos)| rules::is_instant_of_duration(seconds, nanos))
            }
            _ => time.is_some(),
        };
        if rule == TextRule::EventTime {
            self.event.routing.event_timestamp = time;
        }
        if !is_valid {
            self.reject("invalid_value", self.rule.expectation());
        }
    }

    /// Checks a field of an object. Returns its original name if it differs from the name.
    fn field<A: MapAccess<'a>>(
        &mut self,
        name: &str,
        object: Option<&'static Object>,
        map: &mut A,
    ) -> Result<Option<&'static str>, A::Error> {
        let at = Location::Field(&self.at, name);
        let mut original = None;
        let (rule, is_repeated) = match object.map_or(Meaning::Unknown, |object| find(object, name)) {
            Meaning::Known(field, spelling) => {
                if self.depth == 0 {
                    self.event.routing.set_name(field, spelling);
                }
                original = (spelling == Spelling::Json).then_some(field.name);
                (field.rule, field.is_repeated)
            }
            Meaning::Misspelled(field) => {
                self.event.errors.add(at, "invalid_name", field.correction());
                (Rule::Any, false)
            }
            Meaning::Unknown => {
                self.event.has_wrapper |= match self.depth {
                    0 => is_wrapper(name),
                    // In the value of a member of the event, or in an item of it.
                    1 | 2 => object.is_none() && is_same_name("metadata", name),
                    _ => false,
                };
                (Rule::Any, false)
            }
        };
        let depth = self.depth + 1;
        let check = Check { rule, is_repeated, at, depth, is_optional: true, event: self.event };
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
        if !matches!(self.rule, Rule::Any | Rule::Boolean) {
            self.reject_type();
        }
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.number(Some(number.into()));
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.number(Some(number.into()));
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.number(rules::integral(number));
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

    /// Checks the values of a repeated field. An empty list can also be an object: some languages do not distinguish them.
    fn visit_seq<A: SeqAccess<'a>>(mut self, mut list: A) -> Result<(), A::Error> {
        let is_object = matches!(self.rule, Rule::Object(_) | Rule::OpenObject);
        let is_list = self.is_repeated || matches!(self.rule, Rule::Any);
        let rule = if is_list { self.rule } else { Rule::Any };
        if self.is_too_deep() {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        }
        let mut items = 0;
        loop {
            let at = Location::Item(&self.at, items);
            let depth = self.depth + 1;
            let check = Check { rule, is_repeated: false, at, depth, is_optional: false, event: self.event };
            match list.next_element_seed(check) {
                Ok(Some(())) => items += 1,
                Ok(None) => break,
                Err(error) => return Err(self.event.failed(&at, error)),
            }
        }
        if !is_list && (items > 0 || !is_object || self.depth == 0) {
            self.reject_type();
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<(), A::Error> {
        let (object, instant) = match self.rule {
            Rule::Object(object) => (Some(object), None),
            Rule::OpenObject | Rule::Any => (None, None),
            Rule::Text(rule) if rule.is_instant() => (Some(&INSTANT), Some(rule)),
            _ => {
                self.reject_type();
                (None, None)
            }
        };
        if self.is_too_deep() {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(());
        }
        let first = self.event.names.len();
        if instant.is_some() {
            self.event.instant = (None, None);
        }
        while let Some(Name(name)) = map.next_key().map_err(|error| self.event.failed(&self.at, error))? {
            let original = self.field(&name, object, &mut map)?;
            self.event.names.push(match original {
                Some(original) => (Cow::Borrowed(original), Spelling::Json),
                None => (name, Spelling::Original),
            });
        }
        self.event.end_object(first, object, &self.at);
        if let Some(rule) = instant {
            self.end_instant(rule);
        }
        if self.depth == 0 {
            self.event.require_source_id();
        }
        Ok(())
    }
}
