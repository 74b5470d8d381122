//! The validation of an event, compared with serde_json and a second reading of the table of known fields.

#![no_main]

use std::collections::HashMap;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};
use udm::{MAX_DEPTH, MAX_EVENT_BYTES, ParseError};

/// The fields of each message: name in both spellings, and type.
static MODEL: LazyLock<HashMap<&str, HashMap<String, &str>>> = LazyLock::new(|| {
    let lines = include_str!("../../../libs/udm/src/fields/model.udm").lines().map(str::trim);
    let lines: Vec<_> = lines.filter(|line| !line.starts_with("//") && !line.is_empty()).collect();
    let text: &'static str = lines.join(" ").leak();
    let (_, body) = text.split_once("model! {").expect("the table has a head");
    let messages = body.split('}').filter_map(|message| message.split_once('{'));
    messages.map(|(name, fields)| (name.trim(), fields_of(fields))).collect()
});

fn fields_of(text: &'static str) -> HashMap<String, &'static str> {
    let fields = text.split(", ").map(|field| field.trim().trim_end_matches(','));
    let fields = fields.filter_map(|field| field.split_once(": "));
    fields.flat_map(|(name, kind)| [(name.to_owned(), kind), (camel_case(name), kind)]).collect()
}

fn camel_case(name: &str) -> String {
    let (mut spelled, mut is_upper) = (String::new(), false);
    for letter in name.chars() {
        if letter != '_' {
            spelled.push(if is_upper { letter.to_ascii_uppercase() } else { letter });
        }
        is_upper = letter == '_';
    }
    spelled
}

/// Returns whether all known fields of a message have valid values.
fn is_message(message: &str, members: &Map<String, Value>) -> bool {
    let Some(fields) = MODEL.get(message) else { panic!("no message {message}") };
    members.iter().all(|(name, value)| fields.get(name).is_none_or(|kind| is_field(kind, value)))
}

fn is_field(kind: &str, value: &Value) -> bool {
    let Some(item) = kind.strip_prefix('[') else { return value.is_null() || is_value(kind, value) };
    let item = item.trim_end_matches(']');
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().all(|value| is_value(item, value)),
        value => is_value(item, value),
    }
}

fn is_value(kind: &str, value: &Value) -> bool {
    match kind {
        "string" | "MetadataId" => value.is_string(),
        "bool" => value.is_boolean(),
        "enum" => value.is_string() || is_integer(value, i32::MIN.into(), i32::MAX.into()),
        "int32" => is_integer(value, i32::MIN.into(), i32::MAX.into()),
        "uint32" => is_integer(value, 0, u32::MAX.into()),
        "int64" => is_integer(value, i64::MIN.into(), i64::MAX.into()),
        "uint64" => is_integer(value, 0, u64::MAX.into()),
        "Port" => is_integer(value, 0, 65_535),
        "Struct" => value.is_object() || is_empty_list(value),
        // The rules of these have separate tests.
        "float" | "double" => value.is_number() || value.is_string(),
        "bytes" | "SourceId" | "EventId" | "IpAddress" | "MacAddress" => value.is_string(),
        "EventType" => value.is_string() || value.is_number(),
        "EventTime" | "Timestamp" | "Duration" => {
            value.as_object().map_or_else(|| value.is_string(), is_instant)
        }
        message => {
            value.as_object().map_or_else(|| is_empty_list(value), |members| is_message(message, members))
        }
    }
}

fn is_instant(members: &Map<String, Value>) -> bool {
    let kinds = [("seconds", "int64"), ("nanos", "int32")];
    kinds.into_iter().all(|(name, kind)| members.get(name).is_none_or(|value| is_field(kind, value)))
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

fn is_integer(value: &Value, min: i128, max: i128) -> bool {
    let number = match value {
        Value::String(text) => {
            let (digits, zeros) = text.split_once('.').unwrap_or((text, "0"));
            let is_decimal =
                !digits.starts_with('+') && !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0');
            digits.parse().ok().filter(|_| is_decimal && digits.trim_start_matches('-').len() <= 20)
        }
        Value::Number(number) => {
            #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
            let float = || {
                // A float of -2^63 can be a smaller integer.
                let float =
                    number.as_f64().filter(|float| float.fract() == 0.0 && *float > -(2.0_f64.powi(63)));
                float.map(|float| float as i128)
            };
            number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from)).or_else(float)
        }
        _ => None,
    };
    number.is_some_and(|number| (min..=max).contains(&number))
}

/// Codes of errors that the second reading finds too, if the type has no special rule.
const CODES: [&str; 2] = ["invalid_type", "invalid_value"];

fuzz_target!(|body: &[u8]| {
    let Ok(Value::Object(event)) = serde_json::from_slice(body) else { return };
    match udm::parse(body) {
        Ok(event_of_parser) => {
            assert!(body.len() <= MAX_EVENT_BYTES && depth(&Value::Object(event.clone())) <= MAX_DEPTH);
            assert!(is_message("Event", &event), "accepted, although a value has another type");
            assert_eq!(event_of_parser.raw, body);
        }
        Err(ParseError::Invalid { errors, .. }) => {
            let is_special_rule = errors.iter().any(|error| {
                error.code == "invalid_value" && !error.message.starts_with("expected an integer")
                    || !CODES.contains(&&*error.code)
            });
            assert!(
                is_special_rule || !is_message("Event", &event),
                "rejected, although all values are valid: {errors:?}"
            );
        }
        Err(ParseError::TooLarge) => assert!(body.len() > MAX_EVENT_BYTES),
        Err(ParseError::NotJson(error)) => panic!("serde_json reads it: {error}"),
    }
});

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
