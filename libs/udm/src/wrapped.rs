//! Events inside of another document, such as the result of a search, the body of an import, or a line of `svc events tail`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use chrono::DateTime;
use contract::escape_pointer_token;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::fields::{EVENT, Field, Meaning, Name, Rule, TextRule, find, is_event_type, is_same_name};

/// The members that contain events in the documents of Google SecOps and of this service, and the other members that the same objects have
/// in these documents. The other members are no part of an event.
const WRAPPERS: [(&str, &[&str]); 14] = [
    ("udm", &["name", "display_name", "raw_log"]),
    ("event", &["timestamp"]),
    (
        "events",
        &[
            "more_data_available",
            "next_page_token",
            "progress",
            "complete",
            "customer_id",
            "forwarder",
            "queried_time_range",
            "valid_baseline_query",
            "valid_snapshot_query",
            "baseline_events_count",
            "filtered_events_count",
            "too_many_events",
            "runtime_errors",
            "timeline",
            "field_aggregations",
            "grouped_fields",
        ],
    ),
    ("idm", &["timestamp"]),
    ("read_only_udm", &["is_significant", "is_alert"]),
    ("inline_source", &[]),
    ("run_parser_results", &[]),
    ("parsed_events", &["log", "statedump_results", "validation_report"]),
    (
        "collection_elements",
        &[
            "id",
            "type",
            "detection",
            "detection_time",
            "created_time",
            "last_updated_time",
            "time_window",
            "tags",
            "detection_timing_details",
        ],
    ),
    ("references", &["label"]),
    ("detections", &["next_page_token", "continuation_token", "next_page_start_time"]),
    ("rule_detections", &["next_page_token", "continuation_token", "next_page_start_time"]),
    ("udm_event", &[]),
    ("udm_events", &[]),
];
/// The members that each line of `svc events tail` has in addition to the ids and the event.
const TAIL: [&str; 3] = ["server_event_id", "event_type", "received_at"];
/// The position in a line of `svc events tail`. An event of the HTTP stream has none.
const POSITION: &str = "id";
/// Maximum number of objects and lists around an event.
const MAX_LEVELS: usize = 16;

/// What a JSON document is.
#[derive(Clone, Debug)]
pub enum Document<'a> {
    /// An event, valid or not, or not an object.
    Event,
    /// An object without a known field of an event. It can be an event with unknown fields.
    Other,
    /// An object that is no event: `{}`, or the error message of an API.
    NoEvent,
    /// An object that contains these events, in their order, and other members with these names next to them, which are no part of an
    /// event and that no known document has there. The result of a search that has found nothing contains no event.
    Wrapper(Vec<WrappedEvent<'a>>, BTreeSet<Cow<'a, str>>),
    /// An object that contains these events, and other members that can be a part of an event: it has a field of an event, or an event in
    /// it has no event type, and no known document has these members.
    Mixed(Vec<WrappedEvent<'a>>),
}

/// An event that another document contains.
#[derive(Clone, Debug)]
pub struct WrappedEvent<'a> {
    /// JSON Pointer (RFC 6901) of the event in the document, for example `/inlineSource/events/0/udm`.
    pub pointer: String,
    /// The bytes of the event, as in the document.
    pub event: &'a RawValue,
    /// The `source_id` of the nearest object around the event that has one.
    pub source_id: Option<&'a RawValue>,
    /// The `event_id` of the nearest object around the event that has one, unless there is a list between them.
    pub event_id: Option<&'a RawValue>,
    /// False for an item of a list that contains no event, while another item of the list does.
    pub is_event: bool,
}

/// Returns the events that a JSON object contains. They are objects with known fields in members such as `udm`, `event` or `events`, and
/// objects with `metadata.event_type` or `metadata.event_timestamp` in any other member: at any depth, or, if the document has a
/// `source_id` or an `event_id`, as its value or as an item of it.
///
/// An object with a known field other than `source_id`, `event_id` and `additional` is an event itself, whatever its other members are.
pub fn unwrap_events(document: &str) -> Document<'_> {
    let Ok(members) = serde_json::from_str::<Members<'_>>(document) else { return Document::Event };
    if members.is_event() {
        return Document::Event;
    }
    let mut search = Search::default();
    if search.members(&members, &Place::default()) {
        return if search.has_others {
            Document::Mixed(search.events)
        } else {
            Document::Wrapper(search.events, search.others)
        };
    }
    if members.has_field() {
        return Document::Event;
    }
    match members.0.as_slice() {
        [] => Document::NoEvent,
        [error] if error.name == "error" && error.value.get().starts_with('{') => Document::NoEvent,
        _ if members.is_empty_result() => Document::Wrapper(Vec::new(), BTreeSet::new()),
        _ => Document::Other,
    }
}

/// Returns whether a member with this name can contain an event.
pub(crate) fn is_wrapper(name: &str) -> bool {
    WRAPPERS.iter().any(|(wrapper, _)| is_same_name(wrapper, name))
}

/// The members of an object.
struct Members<'a>(Vec<Member<'a>>);

struct Member<'a> {
    name: Cow<'a, str>,
    value: &'a RawValue,
    /// The field of an event, if the name and the kind of value are its own.
    field: Option<&'static Field>,
}

impl Member<'_> {
    /// Whether nothing is lost without the member next to these members with events: it is empty, or known documents have it there.
    fn is_neighbor(&self, wrappers: &[&Self]) -> bool {
        let json = self.value.get();
        let is_empty = json == "null"
            || serde_json::from_str::<[(); 0]>(json).is_ok()
            || serde_json::from_str::<Members<'_>>(json).is_ok_and(|members| members.0.is_empty());
        is_empty
            || WRAPPERS.iter().any(|(wrapper, neighbors)| {
                neighbors.iter().any(|neighbor| is_same_name(neighbor, &self.name))
                    && wrappers.iter().any(|found| is_same_name(wrapper, &found.name))
            })
    }
}

impl<'a> Members<'a> {
    /// Whether the object is an event itself. Other documents have the ids and `additional` too.
    fn is_event(&self) -> bool {
        let is_own = |field: &Field| !matches!(field.rule, Rule::Text(_)) && field.name != "additional";
        self.0.iter().any(|member| member.field.is_some_and(is_own))
    }

    /// Whether the object has a field of an event. Other documents have `additional` too.
    fn has_field(&self) -> bool {
        self.0.iter().any(|member| member.field.is_some_and(|field| field.name != "additional"))
    }

    /// Whether `metadata` has a field that is wanted.
    fn has_metadata(&self, is_wanted: impl Fn(&Member<'_>) -> bool) -> bool {
        let metadata = self.0.iter().filter(|member| is_same_name("metadata", &member.name));
        let mut objects =
            metadata.filter_map(|member| serde_json::from_str::<Members<'_>>(member.value.get()).ok());
        objects.any(|object| object.0.iter().any(&is_wanted))
    }

    /// Whether the type of an event is known.
    fn has_event_type(&self) -> bool {
        self.has_metadata(|field| is_same_name("event_type", &field.name))
    }

    /// Whether the object is an event in a member with any name: `metadata` has a type or a time as UDM defines them. Logs of other
    /// products have `metadata` too.
    fn is_marked(&self) -> bool {
        self.has_metadata(|field| {
            let text: String = serde_json::from_str(field.value.get()).unwrap_or_default();
            is_same_name("event_type", &field.name) && is_event_type(&text)
                || is_same_name("event_timestamp", &field.name)
                    && (DateTime::parse_from_rfc3339(&text).is_ok() || field.value.get().starts_with('{'))
        })
    }

    /// The text of a field.
    fn text(&self, rule: TextRule) -> Option<&'a RawValue> {
        let is_wanted = |field: &Field| matches!(field.rule, Rule::Text(known) if known == rule);
        self.0.iter().find(|member| member.field.is_some_and(is_wanted)).map(|member| member.value)
    }

    /// Whether the object is a line of `svc events tail`.
    fn is_tail(&self) -> bool {
        TAIL.iter().all(|name| self.0.iter().any(|member| member.name == *name))
    }

    /// Whether each member that can contain events has an empty list and nothing else is lost, or the members are only those of the
    /// progress of a search.
    fn is_empty_result(&self) -> bool {
        let is_progress = |member: &Member<'_>| match &*member.name {
            "complete" => matches!(member.value.get(), "true" | "false"),
            "progress" => serde_json::from_str::<f64>(member.value.get()).is_ok(),
            _ => false,
        };
        if !self.0.is_empty() && self.0.iter().all(is_progress) {
            return true;
        }
        let (wrappers, others): (Vec<_>, Vec<_>) = self.0.iter().partition(|member| is_wrapper(&member.name));
        !wrappers.is_empty()
            && others.iter().all(|other| other.is_neighbor(&wrappers))
            && wrappers.iter().all(|member| match serde_json::from_str::<Members<'_>>(member.value.get()) {
                Ok(members) => members.is_empty_result(),
                Err(_) => serde_json::from_str::<[(); 0]>(member.value.get()).is_ok(),
            })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    let field = field(&name, value);
                    members.push(Member { name, value, field });
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

/// Returns the field of an event with this name, if its value is an object or a list, or the text of an id.
fn field(name: &str, value: &RawValue) -> Option<&'static Field> {
    let Meaning::Known(field, _) = find(&EVENT, name) else { return None };
    let starts = match field.rule {
        Rule::Text(TextRule::SourceId | TextRule::EventId) => &['"'][..],
        _ => &['{', '['],
    };
    value.get().starts_with(starts).then_some(field)
}

/// Where a value is in the document.
#[derive(Clone, Default)]
struct Place<'a> {
    pointer: String,
    levels: usize,
    /// Whether the last name on the way is that of a wrapper.
    is_named: bool,
    source_id: Option<&'a RawValue>,
    event_id: Option<&'a RawValue>,
}

impl Place<'_> {
    fn below(&self, token: impl fmt::Display) -> Self {
        Self { pointer: format!("{}/{token}", self.pointer), levels: self.levels + 1, ..self.clone() }
    }
}

/// The events that were found.
#[derive(Default)]
struct Search<'a> {
    events: Vec<WrappedEvent<'a>>,
    /// Whether one of them has no event type, so that it can be a part of another one.
    has_untyped: bool,
    /// The other members of the objects around them that would be lost.
    others: BTreeSet<Cow<'a, str>>,
    /// Whether one of these can be a part of an event.
    has_others: bool,
}

impl<'a> Search<'a> {
    /// Adds the events of a value, and returns whether there is any.
    fn value(&mut self, value: &'a RawValue, place: Place<'a>) -> bool {
        if place.levels > MAX_LEVELS {
            return false;
        }
        match serde_json::from_str::<Members<'a>>(value.get()) {
            Ok(members) => self.object(value, &members, place),
            Err(_) => self.list(value, &place),
        }
    }

    fn list(&mut self, list: &'a RawValue, place: &Place<'a>) -> bool {
        let items = serde_json::from_str::<Vec<&RawValue>>(list.get()).unwrap_or_default();
        if !items.iter().any(|item| can_contain(item)) {
            return false;
        }
        let first = self.events.len();
        let mut found = false;
        for (index, item) in items.into_iter().enumerate() {
            let place = Place { event_id: None, ..place.below(index) };
            if self.value(item, place.clone()) {
                found = true;
            } else {
                self.push(item, place, false);
            }
        }
        if !found {
            self.events.truncate(first);
        }
        // One id cannot be that of several events.
        self.has_others |= found && place.event_id.is_some();
        found
    }

    fn object(&mut self, object: &'a RawValue, members: &Members<'a>, place: Place<'a>) -> bool {
        let is_event = members.is_marked() || place.is_named && members.is_event();
        if !is_event && self.members(members, &place) {
            return true;
        }
        let is_event = is_event || place.is_named && members.has_field();
        if is_event {
            self.has_untyped |= !members.has_event_type();
            self.push(object, place, true);
        }
        is_event
    }

    fn members(&mut self, members: &Members<'a>, place: &Place<'a>) -> bool {
        let (has_field, is_tail) = (members.has_field(), members.is_tail());
        let ids = [TextRule::SourceId, TextRule::EventId].map(|rule| members.text(rule));
        let (source_id, event_id) = (ids[0].or(place.source_id), ids[1].or(place.event_id));
        let (wrappers, others): (Vec<_>, Vec<_>) = members.0.iter().partition(|member| {
            let is_named = is_wrapper(&member.name);
            if !can_contain(member.value)
                || member.field.is_some()
                || !is_named && has_field && !contains_event(member.value)
            {
                return false;
            }
            let below = place.below(escape_pointer_token(&member.name));
            self.value(member.value, Place { is_named, source_id, event_id, ..below })
        });
        // The ids are added to the events.
        let is_kept = |member: &Member<'a>| {
            ids.into_iter().flatten().any(|id| std::ptr::eq(id, member.value))
                || is_tail && (TAIL.contains(&&*member.name) || member.name == POSITION)
                || member.is_neighbor(&wrappers)
        };
        let can_be_event = self.has_untyped || others.iter().any(|member| member.field.is_some());
        if !wrappers.is_empty() {
            let lost: Vec<_> = others.iter().filter(|member| !is_kept(member)).collect();
            self.has_others |= can_be_event && !lost.is_empty();
            self.others.extend(lost.into_iter().map(|member| member.name.clone()));
        }
        !wrappers.is_empty()
    }

    fn push(&mut self, event: &'a RawValue, place: Place<'a>, is_event: bool) {
        let Place { pointer, source_id, event_id, .. } = place;
        self.events.push(WrappedEvent { pointer, event, source_id, event_id, is_event });
    }
}

fn can_contain(value: &RawValue) -> bool {
    value.get().starts_with(['{', '['])
}

/// Whether the value, or an item of it, is an event in a member with any name.
fn contains_event(value: &RawValue) -> bool {
    let items = serde_json::from_str::<Vec<&RawValue>>(value.get()).unwrap_or_else(|_| vec![value]);
    let mut objects = items.iter().filter_map(|item| serde_json::from_str::<Members<'_>>(item.get()).ok());
    objects.any(|members| members.is_marked())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unwrapped(document: &str) -> Vec<(String, &str)> {
        let (Document::Wrapper(events, _) | Document::Mixed(events)) = unwrap_events(document) else {
            return Vec::new();
        };
        events.into_iter().map(|found| (found.pointer, found.event.get())).collect()
    }

    const EVENT: &str = r#"{ "metadata" : {"eventType":"USER_LOGIN"} }"#;

    #[test]
    fn events_are_found_in_the_documents_of_secops_and_of_this_service() {
        for (document, pointers) in [
            (r#"{"udm":EVENT}"#, &["/udm"][..]),
            (r#"{"source_id":"fw","UDM":EVENT}"#, &["/UDM"]),
            (r#"{"name":"projects/1","udm":EVENT,"rawLog":"x"}"#, &["/udm"]),
            (r#"{"event":{"timestamp":"x","idm":{"readOnlyUdm":EVENT}}}"#, &["/event/idm/readOnlyUdm"]),
            (r#"{"idm":{"read_only_udm":EVENT}}"#, &["/idm/read_only_udm"]),
            (
                r#"{"events":[{"event":EVENT},{"event":EVENT}],"moreDataAvailable":true}"#,
                &["/events/0/event", "/events/1/event"],
            ),
            (r#"{"events":{"events":[{"name":"a","udm":EVENT}]}}"#, &["/events/events/0/udm"]),
            (r#"{"customer_id":"c","events":[EVENT]}"#, &["/events/0"]),
            (
                r#"{"inline_source":{"events":[{"udm":EVENT},{"udm":EVENT}],"forwarder":"f"}}"#,
                &["/inline_source/events/0/udm", "/inline_source/events/1/udm"],
            ),
            (r#"{"inlineSource":{"events":[{"udm":EVENT}]}}"#, &["/inlineSource/events/0/udm"]),
            (
                r#"{"runParserResults":[{"parsedEvents":{"events":[{"event":{"idm":{"readOnlyUdm":EVENT}}}]}}]}"#,
                &["/runParserResults/0/parsedEvents/events/0/event/idm/readOnlyUdm"],
            ),
            (
                r#"{"type":"RULE_DETECTION","collectionElements":[{"references":[{"event":EVENT}]}]}"#,
                &["/collectionElements/0/references/0/event"],
            ),
            (
                r#"{"detections":[{"collectionElements":[{"references":[{"event":EVENT},{"event":EVENT}]}]}],"nextPageToken":"x"}"#,
                &[
                    "/detections/0/collectionElements/0/references/0/event",
                    "/detections/0/collectionElements/0/references/1/event",
                ],
            ),
            (r#"{"data":{"events":[{"udm":EVENT}]}}"#, &["/data/events/0/udm"]),
            (r#"{"hits":{"total":1,"hits":[{"_id":"x","_source":EVENT}]}}"#, &["/hits/hits/0/_source"]),
            (r#"{"results":[EVENT,EVENT],"additional":{}}"#, &["/results/0", "/results/1"]),
            (r#"{"a~/b":[[EVENT]]}"#, &["/a~0~1b/0/0"]),
            (r#"{"source_id":"fw","record":EVENT}"#, &["/record"]),
            (r#"{"event_id":"7","records":[EVENT,EVENT]}"#, &["/records/0", "/records/1"]),
        ] {
            let document = document.replace("EVENT", EVENT);
            let found = unwrapped(&document);
            assert_eq!(
                found.iter().map(|(pointer, _)| &**pointer).collect::<Vec<_>>(),
                pointers,
                "{document}"
            );
            assert!(found.iter().all(|(_, event)| *event == EVENT), "{document}");
        }
    }

    #[test]
    fn a_line_of_the_tail_contains_the_stored_event() {
        let event = r#"{"source_id":"fw","n":1.0}"#;
        let line = format!(
            r#"{{"event_id":"7","server_event_id":"u","source_id":"fw","event_type":"GENERIC_EVENT","received_at":"t","event":{event}}}"#
        );
        assert_eq!(unwrapped(&line), [("/event".to_owned(), event)]);
    }

    #[test]
    fn events_and_other_documents_contain_no_event() {
        for document in [
            r#"{"metadata":{},"event":{"metadata":{}}}"#,
            r#"{"source_id":"edr","principal":{},"security_result":[],"event":{"target":{}}}"#,
            r#"{"source_id":"edr","principal":{},"detections":[{"security_result":[]}]}"#,
            r#"{"source_id":"fw","event":{"kind":"alert","id":"7"}}"#,
            r#"{"source_id":"fw","event":{"src":"10.0.0.1","additional":{}}}"#,
            r#"{"source_id":"fw","udm":null,"events":[1,{}],"idm":{}}"#,
            r#"{"source_id":"soar","case":{"evidence":{"metadata":{"event_type":"USER_LOGIN"}}}}"#,
            r#"{"principal":{},"cause":{"metadata":{"event_type":"USER_LOGIN"}}}"#,
            r#"{"object":{"metadata":{"name":"pod"}},"data":{"network":{},"source_id":"x"}}"#,
            r#"{"additional":{"udm":{"metadata":{}}}}"#,
            r#"[{"udm":{"metadata":{}}}]"#,
            "7",
            "{",
            "",
        ] {
            assert_eq!(unwrapped(document), [], "{document}");
        }
    }

    #[test]
    fn the_other_members_of_a_wrapper_can_be_no_part_of_an_event() {
        for (document, is_wrapper) in [
            (r#"{"name":"a","udm":EVENT,"rawLog":"x","host":null,"tags":[],"labels":{}}"#, true),
            (r#"{"source_id":"fw","event_id":"7","udm":EVENT}"#, true),
            (r#"{"source_id":"fw","source_id":"fw-2","udm":EVENT}"#, false),
            (r#"{"source_id":"fw","event_id":7,"udm":EVENT}"#, false),
            (r#"{"source_id":"fw","event_id":"7","events":[EVENT]}"#, false),
            (r#"{"source_id":"fw","host":"web-1","event":{"network":{}}}"#, false),
            (r#"{"source_id":"fw","record":EVENT}"#, true),
            (r#"{"source_id":"fw","host":"web-1","record":EVENT}"#, false),
            (r#"{"host":"web-1","record":{"Metadata":{"EventTimestamp":"2026-01-01T00:00:00Z"}}}"#, false),
            (r#"{"source_id":"fw","event_type":"USER_LOGIN","event":{"network":{}}}"#, false),
            (r#"{"events":[{"udm":EVENT},{"udm":EVENT,"host":"web-1"}]}"#, true),
            (r#"{"events":[{"udm":{"network":{}}},{"udm":{"network":{}},"host":"web-1"}]}"#, false),
            (r#"{"events":[{"network":{}}],"detections":["x"]}"#, false),
            (r#"{"hits":{"total":1,"hits":[{"_id":"a","_source":EVENT}]}}"#, true),
            (r#"{"name":"a","results":[EVENT]}"#, true),
            (r#"{"udm":EVENT,"additional":{"a":1}}"#, false),
        ] {
            let document = document.replace("EVENT", EVENT);
            let found = unwrap_events(&document);
            assert_eq!(matches!(found, Document::Wrapper(..)), is_wrapper, "{document}");
            assert_eq!(matches!(found, Document::Mixed(_)), !is_wrapper, "{document}");
        }
    }

    #[test]
    fn the_names_of_members_next_to_events_are_returned_unless_known_documents_have_them() {
        for (document, names) in [
            (
                r#"{"time":1,"sourcetype":"x","host":"web-1","event":EVENT}"#,
                &["host", "sourcetype", "time"][..],
            ),
            (
                r#"{"hits":{"total":2,"hits":[{"_id":"a","_source":EVENT},{"_id":"b","_source":EVENT}]}}"#,
                &["_id", "total"],
            ),
            (
                r#"{"source_id":"fw","events":[{"name":"a","udm":EVENT,"tags":[]}],"moreDataAvailable":true}"#,
                &[],
            ),
        ] {
            let document = document.replace("EVENT", EVENT);
            let Document::Wrapper(_, found) = unwrap_events(&document) else { panic!("{document}") };
            assert!(found.iter().eq(names), "{document}: {found:?}");
        }
    }

    #[test]
    fn items_of_a_list_with_events_are_not_lost_and_are_no_events() {
        let Document::Wrapper(found, _) =
            unwrap_events(r#"{"events":[{"udm":{"metadata":{}}},{"other":1},null]}"#)
        else {
            panic!("no event");
        };
        let found: Vec<_> =
            found.iter().map(|item| (&*item.pointer, item.event.get(), item.is_event)).collect();
        assert_eq!(
            found,
            [
                ("/events/0/udm", r#"{"metadata":{}}"#, true),
                ("/events/1", r#"{"other":1}"#, false),
                ("/events/2", "null", false),
            ]
        );
    }

    #[test]
    fn the_nearest_source_counts_and_the_nearest_id_that_is_not_around_a_list() {
        for (document, source_id, event_id) in [
            (r#"{"source_id":"a","event_id":"1","udm":EVENT}"#, Some("\"a\""), Some("\"1\"")),
            (r#"{"sourceId":"a","events":[{"eventId":"2","udm":EVENT}]}"#, Some("\"a\""), Some("\"2\"")),
            (
                r#"{"source_id":"a","event_id":"1","events":[{"source_id":"b","event":EVENT}]}"#,
                Some("\"b\""),
                None,
            ),
            (r#"{"event_id":7,"source_id":null,"event":EVENT}"#, None, None),
        ] {
            let document = document.replace("EVENT", EVENT);
            let (Document::Wrapper(found, _) | Document::Mixed(found)) = unwrap_events(&document) else {
                panic!("{document}")
            };
            let text = |value: Option<&RawValue>| value.map(|value| value.get().to_owned());
            let found = found.into_iter().next().unwrap();
            let found = (text(found.source_id), text(found.event_id));
            assert_eq!((found.0.as_deref(), found.1.as_deref()), (source_id, event_id), "{document}");
        }
    }

    #[test]
    fn a_result_without_events_is_empty_and_an_object_without_content_is_no_event() {
        for document in [
            r#"{"events":[]}"#,
            r#"{"events":[ ],"moreDataAvailable":false,"progress":1}"#,
            r#"{"detections":[],"nextPageToken":""}"#,
            r#"{"events":{"events":[]}}"#,
            r#"{"complete":false,"progress":0.2}"#,
            r#"{"complete":true}"#,
        ] {
            assert!(
                matches!(unwrap_events(document), Document::Wrapper(events, _) if events.is_empty()),
                "{document}"
            );
        }
        for document in ["{}", r#"{"error":{"code":403,"message":"Permission denied"}}"#] {
            assert!(matches!(unwrap_events(document), Document::NoEvent), "{document}");
        }
        for document in [
            r#"{"events":[1]}"#,
            r#"{"udm":{}}"#,
            r#"{"events":[],"event":{"a":1}}"#,
            r#"{"error":"x"}"#,
            r#"{"host":"web-1","events":[]}"#,
            r#"{"events":{"events":[],"host":"web-1"}}"#,
            r#"{"a":[]}"#,
            r#"{"progress":1,"n":1}"#,
            r#"{"complete":"yes"}"#,
        ] {
            assert!(matches!(unwrap_events(document), Document::Other), "{document}");
        }
        for document in [r#"{"source_id":"a","events":[]}"#, r#"{"network":{}}"#, "[]", "7", "{"] {
            assert!(matches!(unwrap_events(document), Document::Event), "{document}");
        }
    }

    #[test]
    fn the_number_of_levels_is_limited() {
        let document =
            |wrappers: usize| format!("{}{EVENT}{}", r#"{"udm":"#.repeat(wrappers), "}".repeat(wrappers));
        assert_eq!(unwrapped(&document(16)).len(), 1);
        assert_eq!(unwrapped(&document(17)), []);
        let lists = format!(r#"{{"events":{}{EVENT}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(unwrapped(&lists), []);
    }
}
