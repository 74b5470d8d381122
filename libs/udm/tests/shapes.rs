//! Shapes of events as products and Google SecOps write them: all are accepted and typed in both spellings. Each line of
//! `shapes.ndjson` is an invented event with the fields of the published field list, its type, its time and its id.

use std::collections::HashSet;

use serde_json::{Value, json};
use udm::{UdmEvent, parse, values_at};

const SHAPES: &str = include_str!("shapes.ndjson");

/// Independent of the code: splits each name at `_`.
fn camel_case(value: Value) -> Value {
    let renamed = |name: String| {
        let mut words = name.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
    };
    match value {
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (renamed(name), camel_case(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(camel_case).collect(),
        value => value,
    }
}

/// Replaces each value by its kind, and each list by its first item.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), shape(value))).collect(),
        Value::Array(items) => items.iter().take(1).map(shape).collect(),
        Value::String(_) => json!("string"),
        Value::Number(_) => json!(0),
        Value::Bool(_) => json!(true),
        Value::Null => Value::Null,
    }
}

#[test]
fn at_least_120_shapes_of_events_are_accepted_and_typed_in_both_spellings() {
    let schema = jsonschema::options().should_validate_formats(true).build(udm::schema().as_value()).unwrap();
    let (mut shapes, mut event_types) = (HashSet::new(), HashSet::new());
    for line in SHAPES.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        shapes.insert(shape(&case["event"]).to_string());
        event_types.insert(case["type"].to_string());
        for event in [case["event"].clone(), camel_case(case["event"].clone())] {
            let text = format!(" {event:#}\r\n");
            let parsed = parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error:?}: {text}"));
            let time = parsed.event_timestamp.map(|time| time.to_rfc3339());
            let found = json!({"type": parsed.event_type, "time": time, "id": parsed.event_id});
            assert_eq!(
                found,
                json!({"type": case["type"], "time": case["time"], "id": case["id"]}),
                "{text}"
            );
            assert_eq!(parsed.raw, text.as_bytes());
            assert!(schema.is_valid(&event), "{text}");
            assert_eq!(values_at(text.as_bytes(), "source_id"), [&*parsed.source_id]);
            let typed: UdmEvent = serde_json::from_str(&text).unwrap();
            let metadata = typed.metadata.clone().unwrap();
            assert_eq!(metadata.event_timestamp, parsed.event_timestamp, "{text}");
            let written = serde_json::to_string(&typed).unwrap();
            let written = parse(written.as_bytes()).unwrap_or_else(|error| panic!("{error:?}: {written}"));
            assert_eq!(
                (written.event_type, written.event_id),
                (parsed.event_type, parsed.event_id),
                "{text}"
            );
        }
    }
    assert!(shapes.len() >= 120, "{} shapes", shapes.len());
    assert!(event_types.len() >= 90, "{} types", event_types.len());
}

/// Returns the first pipe table below a heading of the documentation, without its head: the cells of each row.
fn table(heading: &str) -> Vec<Vec<String>> {
    let document = include_str!("../../../docs/producers.md");
    let (_, section) = document.split_once(heading).unwrap_or_else(|| panic!("no heading {heading}"));
    let rows =
        section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    rows.skip(2)
        .map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// Returns the examples in a cell: JSON in backticks, such as `"port":"443"`.
fn examples(cell: &str) -> Vec<String> {
    let spans = cell.split('`').skip(1).step_by(2);
    spans.filter(|span| span.starts_with('"')).map(str::to_owned).collect()
}

/// Returns an event with the member of an example at the place where the model has it.
fn event_with(example: &str) -> String {
    let name = example.split('"').nth(1).unwrap_or_else(|| panic!("{example} is not a member"));
    let place = match name {
        "event_timestamp" | "event_type" | "id" => "metadata",
        "ip" | "mac" | "port" | "hostname" | "platform" => "principal",
        "client_identifier" => {
            return format!(r#"{{"source_id":"a","network":{{"dhcp":{{{example}}}}}}}"#);
        }
        "sent_bytes" | "total_bytes" | "session_duration" | "ipv6" | "direction" => "network",
        "region_latitude" => {
            return format!(r#"{{"source_id":"a","principal":{{"location":{{{example}}}}}}}"#);
        }
        _ => return format!(r#"{{"source_id":"a",{example}}}"#),
    };
    format!(r#"{{"source_id":"a","{place}":{{{example}}}}}"#)
}

#[test]
fn the_documented_forms_are_accepted() {
    let rows = table("### Forms of values");
    assert!(rows.len() >= 8);
    for example in rows.iter().flat_map(|row| examples(&row[1])) {
        let event = event_with(&example);
        parse(event.as_bytes()).unwrap_or_else(|error| panic!("{error:?}: {event}"));
    }
}

#[test]
fn the_documented_values_are_rejected() {
    let rows = table("### Rejected values");
    assert!(rows.len() >= 8);
    for example in rows.iter().flat_map(|row| examples(&row[0])) {
        let event = event_with(&example);
        assert!(parse(event.as_bytes()).is_err(), "{event}");
    }
}
