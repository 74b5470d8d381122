//! Events inside of another document, such as the result of a search, the body of an import, or a line of `svc events tail`.

use std::collections::BTreeMap;

use contract::escape_pointer_token;
use serde_json::value::RawValue;

use crate::fields::{EVENT, Meaning, Rule, TextRule, find, is_same_name};

/// Names of the members that contain events in the documents of Google SecOps and of this service.
const WRAPPERS: [&str; 10] = [
    "udm",
    "event",
    "events",
    "idm",
    "read_only_udm",
    "inline_source",
    "run_parser_results",
    "parsed_events",
    "collection_elements",
    "references",
];
/// Maximum number of objects and lists around an event.
const MAX_LEVELS: usize = 16;

/// An event that another document contains.
#[derive(Clone, Debug)]
pub struct WrappedEvent<'a> {
    /// JSON Pointer (RFC 6901) of the event in the document, for example `/inlineSource/events/0/udm`.
    pub pointer: String,
    /// The bytes of the event, as in the document.
    pub event: &'a RawValue,
}

/// Returns the events that a JSON object contains in members such as `udm`, `event` or `events`, in the order of the document. Returns
/// nothing if the text is not a JSON object, is an event itself, or contains no event.
///
/// An object with `metadata` is an event itself, whatever its other members are. An item of a list that contains no event is returned
/// unchanged, if another item contains one, so that the caller loses nothing.
pub fn unwrap_events(document: &str) -> Vec<WrappedEvent<'_>> {
    let mut events = Vec::new();
    match serde_json::from_str::<&RawValue>(document) {
        Ok(value) if value.get().starts_with('{') => {
            search(value, String::new(), 0, &mut events);
        }
        _ => {}
    }
    events
}

/// Returns whether a member with this name can contain an event.
pub(crate) fn is_wrapper(name: &str) -> bool {
    WRAPPERS.iter().any(|wrapper| is_same_name(wrapper, name))
}

/// Adds the events of a value, and returns whether there is any. The value itself counts if it is inside of a wrapper.
fn search<'a>(
    value: &'a RawValue,
    pointer: String,
    levels: usize,
    events: &mut Vec<WrappedEvent<'a>>,
) -> bool {
    if levels > MAX_LEVELS {
        return false;
    }
    if let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(value.get()) {
        let first = events.len();
        let mut has_event = false;
        for (index, item) in items.into_iter().enumerate() {
            let pointer = format!("{pointer}/{index}");
            if search(item, pointer.clone(), levels + 1, events) {
                has_event = true;
            } else {
                events.push(WrappedEvent { pointer, event: item });
            }
        }
        if !has_event {
            events.truncate(first);
        }
        return has_event;
    }
    let Ok(members) = serde_json::from_str::<BTreeMap<String, &RawValue>>(value.get()) else { return false };
    let mut has_event = false;
    if !members.iter().any(|(name, value)| is_field("metadata", name, value)) {
        for (name, value) in members.iter().filter(|(name, _)| is_wrapper(name)) {
            let pointer = format!("{pointer}/{}", escape_pointer_token(name));
            has_event |= search(value, pointer, levels + 1, events);
        }
    }
    let fields = EVENT.fields.iter().map(|field| field.name).filter(|name| *name != "additional");
    let mut fields = fields.filter(|field| members.iter().any(|(name, value)| is_field(field, name, value)));
    if !has_event && levels > 0 && fields.next().is_some() {
        events.push(WrappedEvent { pointer, event: value });
        return true;
    }
    has_event
}

/// Returns whether a member is this field of an event: an object or a list, or the text of `source_id`.
fn is_field(field: &str, name: &str, value: &RawValue) -> bool {
    match find(&EVENT, name) {
        Meaning::Known(known, _) if known.name == field => match known.rule {
            Rule::Text(TextRule::SourceId) => value.get().starts_with('"'),
            _ => value.get().starts_with(['{', '[']),
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unwrapped(document: &str) -> Vec<(String, &str)> {
        unwrap_events(document).into_iter().map(|found| (found.pointer, found.event.get())).collect()
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
            r#"{"source_id":"fw","event":{"kind":"alert","id":"7"}}"#,
            r#"{"source_id":"fw","event":{"src":"10.0.0.1","additional":{}}}"#,
            r#"{"source_id":"fw","udm":null,"events":[1,{}],"idm":{}}"#,
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
    fn items_of_a_list_with_events_are_not_lost() {
        let found = unwrapped(r#"{"events":[{"udm":{"metadata":{}}},{"other":1},null]}"#);
        let found: Vec<_> = found.iter().map(|(pointer, event)| (&**pointer, *event)).collect();
        assert_eq!(
            found,
            [("/events/0/udm", r#"{"metadata":{}}"#), ("/events/1", r#"{"other":1}"#), ("/events/2", "null")]
        );
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
