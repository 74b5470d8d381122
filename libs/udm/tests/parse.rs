//! Valid and invalid events, and their errors.

use std::borrow::Cow;

use proptest::prelude::*;
use udm::{MAX_EVENT_BYTES, ParseError, parse};

/// Returns pointer and code of each error.
fn errors(event: &str) -> Vec<(String, String)> {
    match parse(event.as_bytes()) {
        Err(ParseError::Invalid { errors, .. }) => {
            errors.into_iter().map(|error| (error.pointer, error.code.into_owned())).collect()
        }
        other => panic!("{event}: {other:?}"),
    }
}

fn expect(event: &str, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected.iter().map(|(at, code)| (at.to_string(), code.to_string())).collect();
    assert_eq!(errors(event), expected, "{event}");
}

#[test]
fn parse_returns_routing_fields_and_unchanged_bytes() {
    let raw = br#" {"source_id" : "fw-1","event_id":"e:1","metadata":{"event_type":"NETWORK_DNS","event_timestamp":"2026-01-31T12:00:00+02:00"},"n":1.0} "#;
    let event = parse(raw).unwrap();
    assert_eq!(event.source_id, "fw-1");
    assert_eq!(event.event_id.as_deref(), Some("e:1"));
    assert_eq!(event.event_type, "NETWORK_DNS");
    assert_eq!(event.event_timestamp.unwrap().to_rfc3339(), "2026-01-31T10:00:00+00:00");
    assert_eq!(event.raw, raw);
    assert!(matches!(event.source_id, Cow::Borrowed(_)));
}

#[test]
fn event_without_metadata_has_the_default_type() {
    let event = parse(br#"{"source_id":"fw"}"#).unwrap();
    assert_eq!((event.event_id, &*event.event_type, event.event_timestamp), (None, "GENERIC_EVENT", None));
}

#[test]
fn several_errors_are_reported_with_their_locations() {
    expect(
        r#"{"event_id":"a b","metadata":{"event_type":"x","description":7},"about":[{},{"ip":["::1","x"]}],"src":{"port":70000}}"#,
        &[
            ("/event_id", "invalid_value"),
            ("/metadata/event_type", "invalid_value"),
            ("/metadata/description", "invalid_type"),
            ("/about/1/ip/1", "invalid_value"),
            ("/src/port", "invalid_value"),
            ("/source_id", "required"),
        ],
    );
}

#[test]
fn a_value_of_another_type_is_rejected_with_the_expected_type() {
    for (value, expectation) in [
        (r#""metadata":true"#, "expected an object"),
        (r#""about":true"#, "expected a list"),
        (r#""event_id":true"#, "expected a string"),
        (r#""src":{"port":true}"#, "expected an integer from 0 to 65535"),
    ] {
        let event = format!(r#"{{"source_id":"fw",{value}}}"#);
        let Err(ParseError::Invalid { errors, .. }) = parse(event.as_bytes()) else { panic!("{event}") };
        assert_eq!(errors.iter().map(|error| &*error.message).collect::<Vec<_>>(), [expectation], "{event}");
    }
    assert!(parse(br#"{"source_id":"fw","unknown":true}"#).is_ok());
}

#[test]
fn a_list_of_nouns_has_at_most_64_items_and_those_above_are_not_checked() {
    let of_length = |length: usize, last: &str| {
        format!(r#"{{"source_id":"fw","about":[{}{last}]}}"#, "{},".repeat(length - 1))
    };
    assert!(parse(of_length(64, "{}").as_bytes()).is_ok());
    expect(&of_length(64, "7"), &[("/about/63", "invalid_type")]);
    expect(&of_length(65, "7"), &[("/about", "too_many")]);
}

#[test]
fn number_of_errors_is_limited() {
    let event = format!(r#"{{"source_id":"fw","src":{{"ip":[{}0]}}}}"#, "0,".repeat(1000));
    assert_eq!(errors(&event).len(), 16);
}

#[test]
fn duplicate_names_are_rejected() {
    expect(r#"{"source_id":"a","x/~":1,"source_id":"b"}"#, &[("/source_id", "duplicate_field")]);
    expect(r#"{"source_id":"a","source\u005fid":"b"}"#, &[("/source_id", "duplicate_field")]);
    expect(r#"{"source_id":"a","x/~":1,"x/~":2}"#, &[("/x~1~0", "duplicate_field")]);
    expect(
        r#"{"source_id":"a","metadata":{"event_type":"A","event_type":"B"}}"#,
        &[("/metadata/event_type", "duplicate_field")],
    );
    expect(
        r#"{"source_id":"a","additional":{"x":[{"y":1,"y":2}]}}"#,
        &[("/additional/x/0/y", "duplicate_field")],
    );
    assert!(parse(br#"{"source_id":"a","x":{"y":{"y":1}},"y":1}"#).is_ok());
}

#[test]
fn both_spellings_of_a_name_are_the_same_field() {
    let event = parse(br#"{"sourceId":"fw","event_id":"e","metadata":{"eventType":"A","event_timestamp":"2026-01-31T12:00:00Z"}}"#);
    let event = event.unwrap();
    assert_eq!((&*event.source_id, event.event_id.as_deref(), &*event.event_type), ("fw", Some("e"), "A"));
    assert_eq!((event.source_id_name, event.event_id_name), ("sourceId", "event_id"));
    assert_eq!(event.event_timestamp.unwrap().to_rfc3339(), "2026-01-31T12:00:00+00:00");
    assert!(parse(br#"{"source\u0049d":"fw"}"#).is_ok());
    expect(
        r#"{"sourceId":"a b","eventId":"a b","metadata":{"eventTimestamp":"garbage"},"securityResult":"oops","principal":{"assetId":7}}"#,
        &[
            ("/eventId", "invalid_value"),
            ("/metadata/eventTimestamp", "invalid_value"),
            ("/securityResult", "invalid_type"),
            ("/principal/assetId", "invalid_type"),
        ],
    );
    expect(
        r#"{"sourceId":"a","about":[{"asset_id":"a","assetId":"a"}],"source_id":"a"}"#,
        &[
            ("/about/0/asset_id", "duplicate_field"),
            ("/about/0/assetId", "duplicate_field"),
            ("/source_id", "duplicate_field"),
            ("/sourceId", "duplicate_field"),
        ],
    );
    expect(r#"{"sourceId":"a","sourceId":"a"}"#, &[("/sourceId", "duplicate_field")]);
    expect(r#"{"sourceId":" "}"#, &[("/sourceId", "invalid_value")]);
    expect(r#"{"sourceId":null}"#, &[("/sourceId", "required")]);
}

#[test]
fn names_that_differ_from_a_known_name_only_in_case_and_separators_are_rejected() {
    expect(r#"{"source_id":"a","Source_id":"b"}"#, &[("/Source_id", "invalid_name")]);
    expect(r#"{"source_id":"a","\u017fource_id":"b"}"#, &[("/ſource_id", "invalid_name")]);
    expect(r#"{"source_id":"a","networ\u212a":{}}"#, &[("/networ\u{212a}", "invalid_name")]);
    expect(r#"{"source_id":"a","metadata":{"eVent_type":"A"}}"#, &[("/metadata/eVent_type", "invalid_name")]);
    expect(r#"{"source_id":"a","about":[{"IP":[]}]}"#, &[("/about/0/IP", "invalid_name")]);
    for name in
        ["EventType", "eventtype", "event-type", "EVENT_TYPE", "event_Type", "_event_type", "eventType_"]
    {
        let at = format!("/metadata/{name}");
        expect(&format!(r#"{{"source_id":"a","metadata":{{"{name}":"A"}}}}"#), &[(&at, "invalid_name")]);
    }
    expect(r#"{"SOURCE_ID":"a"}"#, &[("/SOURCE_ID", "invalid_name"), ("/source_id", "required")]);
    assert!(parse(br#"{"source_id":"a","x":{"Source_id":1},"network":{"IP":1,"ip":2}}"#).is_ok());
}

#[test]
fn a_wrapped_event_is_rejected_with_the_pointer_of_the_inner_object() {
    expect(
        r#"{"source_id":"a","udm":{"metadata":{"event_type":"USER_LOGIN"}}}"#,
        &[("/udm", "wrapped_event")],
    );
    expect(r#"{"Event_id":7,"event":{"source_id":"a"}}"#, &[("/event", "wrapped_event")]);
    let items = r#"{"udm":{"metadata":{}}},"#.repeat(20);
    let import = format!(r#"{{"inlineSource":{{"events":[{items}{{}}]}}}}"#);
    let found = errors(&import);
    assert_eq!(found.len(), 16);
    assert_eq!(found[15], ("/inlineSource/events/15/udm".to_owned(), "wrapped_event".to_owned()));
    for event in [
        r#"{"source_id":"a","metadata":{},"udm":{"metadata":{}}}"#,
        r#"{"source_id":"a","event":{"kind":"alert"},"idm":7,"events":[]}"#,
        r#"{"source_id":"a","additional":{"udm":{"metadata":{}}}}"#,
    ] {
        assert!(parse(event.as_bytes()).is_ok(), "{event}");
    }
}

#[test]
fn values_that_strict_parsers_cannot_read_are_rejected() {
    for (value, at) in [
        (r#""\ud800""#, "/x"),
        (r#"["ok","\udc00\ud800"]"#, "/x/1"),
        (r#"{"y":{"\ud800":1}}"#, "/x/y"),
        ("1e999", "/x"),
        (r#"{"y":[0,-1E400]}"#, "/x/y/1"),
    ] {
        let event = format!(r#"{{"source_id":"a","x":{value}}}"#);
        expect(&event, &[(at, "invalid_value")]);
        assert!(serde_json::from_str::<serde_json::Value>(&event).is_err(), "{event}");
    }
    assert!(parse(br#"{"source_id":"a","x":["\ud83d\ude00",1e308,123456789012345678901234567890]}"#).is_ok());
    assert!(matches!(parse(br#"{"source_id":"a","x":1e999"#), Err(ParseError::NotJson(_))));
}

#[test]
fn times_are_rfc_3339_in_four_digit_years() {
    let event = |time: &str| format!(r#"{{"source_id":"a","metadata":{{"event_timestamp":"{time}"}}}}"#);
    for valid in ["2026-01-31T12:00:00Z", "0001-01-01t00:00:00.123456789z", "9999-12-31T23:59:60-00:00"] {
        assert!(parse(event(valid).as_bytes()).is_ok(), "{valid}");
    }
    for invalid in [
        "2026-01-31 12:00:00Z",
        "2026-01-31_12:00:00Z",
        "2026-01-31T12:00:00",
        "2026-01-31T12:00:00\u{2212}01:00",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
    ] {
        expect(&event(invalid), &[("/metadata/event_timestamp", "invalid_value")]);
    }
}

#[test]
fn a_port_is_an_integer_in_any_notation() {
    let event = |port: &str| format!(r#"{{"source_id":"a","src":{{"port":{port}}}}}"#);
    for (valid, port) in [("80", 80), ("80.0", 80), ("8e1", 80), ("65535", 65535), ("0", 0)] {
        assert!(parse(event(valid).as_bytes()).is_ok(), "{valid}");
        let typed: udm::UdmEvent = serde_json::from_str(&event(valid)).unwrap();
        assert_eq!(typed.src.unwrap().port, Some(port), "{valid}");
    }
    for (invalid, code) in [
        ("80.5", "invalid_value"),
        ("65536", "invalid_value"),
        ("-1", "invalid_value"),
        (r#""80""#, "invalid_type"),
    ] {
        expect(&event(invalid), &[("/src/port", code)]);
        assert!(serde_json::from_str::<udm::UdmEvent>(&event(invalid)).is_err(), "{invalid}");
    }
}

#[test]
fn malformed_json_is_distinguished_from_an_invalid_event() {
    for malformed in
        ["", "{", "{'source_id':1}", r#"{"source_id":"fw"}}"#, "[1", "\"\n\"", "nul", "{\"a\":01}"]
    {
        assert!(matches!(parse(malformed.as_bytes()), Err(ParseError::NotJson(_))), "{malformed}");
    }
    assert!(matches!(parse(b"{\"source_id\":\"\xff\"}"), Err(ParseError::NotJson(_))));
    for other in ["[]", "null", "1", "\"fw\""] {
        expect(other, &[("", "invalid_type")]);
    }
}

#[test]
fn error_contains_the_event_id_if_it_is_valid() {
    let id = |event: &str| match parse(event.as_bytes()) {
        Err(ParseError::Invalid { event_id, .. }) => event_id,
        other => panic!("{other:?}"),
    };
    assert_eq!(id(r#"{"event_id":"e1"}"#).as_deref(), Some("e1"));
    assert_eq!(id(r#"{"event_id":"e 1"}"#), None);
}

#[test]
fn event_has_at_most_256_kib() {
    let of_size = |size: usize| {
        let frame = r#"{"source_id":"fw","x":""}"#.len();
        format!(r#"{{"source_id":"fw","x":"{}"}}"#, "x".repeat(size - frame))
    };
    assert!(parse(of_size(MAX_EVENT_BYTES).as_bytes()).is_ok());
    assert_eq!(parse(of_size(MAX_EVENT_BYTES + 1).as_bytes()), Err(ParseError::TooLarge));
}

#[test]
fn a_description_has_at_most_8_kib() {
    let of_length = |length: usize| {
        format!(r#"{{"source_id":"fw","metadata":{{"description":"{}"}}}}"#, "x".repeat(length))
    };
    assert!(parse(of_length(8192).as_bytes()).is_ok());
    expect(&of_length(8193), &[("/metadata/description", "too_long")]);
}

#[test]
fn event_has_at_most_32_levels() {
    let of_depth = |depth: usize| {
        format!(r#"{{"source_id":"fw","x":{}{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1))
    };
    assert!(parse(of_depth(32).as_bytes()).is_ok());
    expect(&of_depth(33), &[("", "too_deep")]);
    expect(&of_depth(100_000), &[("", "too_deep")]);
}

#[test]
fn lengths_of_ids_are_in_bytes() {
    assert!(parse(format!(r#"{{"source_id":"{}"}}"#, "ä".repeat(128)).as_bytes()).is_ok());
    expect(&format!(r#"{{"source_id":"{}"}}"#, "ä".repeat(129)), &[("/source_id", "too_long")]);
    expect(r#"{"source_id":"a\u0000b"}"#, &[("/source_id", "invalid_value")]);
    expect(r#"{"source_id":"\ud800"}"#, &[("/source_id", "invalid_value")]);
}

/// Returns arbitrary JSON.
#[expect(clippy::unwrap_used, reason = "a fixture of tests")]
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        "[ -~äß]{0,8}".prop_map(|s| serde_json::to_string(&s).unwrap()),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..4).prop_map(|fields| {
                let fields: Vec<_> =
                    fields.iter().map(|(name, value)| format!("\"{name}\" : {value}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn valid_source_and_unknown_field_pass_unchanged(source in "[a-zA-Z0-9 äß/.*>-]{0,60}[a-z]", value in json()) {
        let raw = format!(r#"{{ "unknown" :{value}, "source_id": {} }}"#, serde_json::to_string(&source).unwrap());
        let event = parse(raw.as_bytes()).unwrap();
        prop_assert_eq!(&*event.source_id, source.as_str());
        prop_assert_eq!(event.raw, raw.as_bytes());
    }

    #[test]
    fn accepted_events_are_read_by_a_strict_parser(
        escapes in prop::collection::vec(r"\\u[dD][89a-fA-F][0-9]{2}|\\u00[4-6][0-9]|[a-z]", 0..4),
        number in "-?[1-9](\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,3})?",
    ) {
        let text = escapes.concat();
        let event = format!(r#"{{"source_id":"fw","x":{{"{text}":{number},"y":"{text}"}}}}"#);
        let strict = serde_json::from_str::<serde_json::Value>(&event);
        prop_assert_eq!(parse(event.as_bytes()).is_ok(), strict.is_ok() && text != "y", "{}", event);
    }

    #[test]
    fn known_field_of_any_type_never_panics(
        name in prop::sample::select(vec!["source_id", "event_id", "metadata", "src", "about", "network", "security_result"]),
        value in json(),
    ) {
        let _ = parse(format!(r#"{{"{name}":{value}}}"#).as_bytes());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&bytes);
    }
}
