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
        (r#""about":true"#, "expected an object, or a list of such values"),
        (r#""event_id":true"#, "expected a string"),
        (r#""src":{"port":true}"#, "expected an integer from 0 to 65535"),
        (r#""src":{"ip":true}"#, "expected a string, or a list of such values"),
        (r#""src":{"platform":true}"#, "expected the name or the number of a value"),
        (r#""src":{"location":{"region_latitude":true}}"#, "expected a number"),
        (r#""network":{"ipv6":"true"}"#, "expected true or false"),
        (
            r#""network":{"totalBytes":true}"#,
            "expected an integer from -9223372036854775808 to 9223372036854775807",
        ),
        (r#""metadata":{"eventType":true}"#, "expected the name or the number of an event type"),
    ] {
        let event = format!(r#"{{"source_id":"fw",{value}}}"#);
        let Err(ParseError::Invalid { errors, .. }) = parse(event.as_bytes()) else { panic!("{event}") };
        assert_eq!(errors.iter().map(|error| &*error.message).collect::<Vec<_>>(), [expectation], "{event}");
    }
    assert!(parse(br#"{"source_id":"fw","unknown":true}"#).is_ok());
}

#[test]
fn only_the_size_of_the_event_bounds_the_values_of_known_fields() {
    let (nouns, text) = ("{},".repeat(1000), "x".repeat(100_000));
    let event = format!(
        r#"{{"source_id":"fw","about":[{nouns}{{}}],"metadata":{{"description":"{text}","urlBackToProduct":"{text}"}}}}"#
    );
    assert!(parse(event.as_bytes()).is_ok());
    expect(&format!(r#"{{"source_id":"fw","about":[{nouns}7]}}"#), &[("/about/1000", "invalid_type")]);
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
    assert_eq!((event.source_id_name, event.event_id_path), ("sourceId", "event_id"));
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
    // Generators of Python add `_` to names that are words of the language.
    for (name, place) in [
        ("type_", r#"{"source_id":"a","principal":{"resource":{"type_":"a"}}}"#),
        ("from_", r#"{"source_id":"a","network":{"email":{"from_":"a"}}}"#),
        ("class_", r#"{"source_id":"a","network":{"dns":{"questions":{"class_":1}}}}"#),
    ] {
        let Err(ParseError::Invalid { errors, .. }) = parse(place.as_bytes()) else { panic!("{place}") };
        assert!(errors[0].pointer.ends_with(name) && errors[0].code == "invalid_name", "{errors:?}");
        assert_eq!(errors[0].message, format!("write this name as {}", name.trim_end_matches('_')));
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
    expect(r#"{"source_id":"a","host":"h","event":{"network":{}}}"#, &[("/event", "wrapped_event")]);
    for event in [
        r#"{"metadata":{"eventType":"USER_LOGIN"}}"#,
        r#"{"Metadata":{"EVENT_TIMESTAMP":"2026-01-01T00:00:00Z"},"principal":{}}"#,
    ] {
        for (member, pointer) in
            [(event.to_owned(), "/record"), (format!(r#"[{{"n":1}},{event}]"#), "/record/1")]
        {
            expect(&format!(r#"{{"source_id":"a","n":1,"record":{member}}}"#), &[(pointer, "wrapped_event")]);
        }
    }
    let items = r#"{"udm":{"metadata":{}}},"#.repeat(20);
    let import = format!(r#"{{"inlineSource":{{"events":[{items}{{}}]}}}}"#);
    let found = errors(&import);
    assert_eq!(found.len(), 16);
    assert_eq!(found[15], ("/inlineSource/events/15/udm".to_owned(), "wrapped_event".to_owned()));
    for event in [
        r#"{"source_id":"a","metadata":{},"udm":{"metadata":{}}}"#,
        r#"{"source_id":"a","principal":{},"event":{"target":{}},"detections":[{"security_result":{}}]}"#,
        r#"{"source_id":"a","event":{"kind":"alert"},"idm":7,"events":[]}"#,
        r#"{"source_id":"a","additional":{"udm":{"metadata":{}}}}"#,
        r#"{"source_id":"a","additional":{"metadata":{"event_type":"USER_LOGIN"}}}"#,
        r#"{"source_id":"a","principal":{},"cause":{"metadata":{"event_type":"USER_LOGIN"}}}"#,
        r#"{"source_id":"a","case":{"evidence":{"metadata":{"event_type":"USER_LOGIN"}}}}"#,
        r#"{"source_id":"a","pod":{"metadata":{"name":"web-1"}},"items":[{"metadata":{"labels":{}}}]}"#,
        r#"{"source_id":"a","data":{"metadata":{"event_type":"push"}}}"#,
        r#"{"source_id":"a","message":{"metadata":{"eventType":"DetectionSummaryEvent","eventTimestamp":7}}}"#,
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
fn a_leap_second_becomes_the_last_nanosecond_before_it() {
    let time = |time: &str| {
        let event = format!(r#"{{"source_id":"a","metadata":{{"eventTimestamp":"{time}"}}}}"#);
        parse(event.as_bytes()).ok().map(|event| event.event_timestamp.unwrap().to_rfc3339())
    };
    for leap in ["2016-12-31T23:59:60Z", "2016-12-31T23:59:60.999999999Z", "2017-01-01T00:59:60.5+01:00"] {
        assert_eq!(time(leap).as_deref(), Some("2016-12-31T23:59:59.999999999+00:00"), "{leap}");
    }
    assert_eq!(time("2016-12-31T12:30:60Z"), None);
    assert_eq!(time("2016-12-31T23:59:61Z"), None);
}

#[test]
fn a_time_can_be_an_object_of_seconds_and_nanoseconds() {
    let event = |time: &str| format!(r#"{{"source_id":"a","metadata":{{"eventTimestamp":{time}}}}}"#);
    for (valid, expected) in [
        (r#"{"seconds":1735824379}"#, "2025-01-02T13:26:19+00:00"),
        (r#"{"seconds":"1735824379","nanos":500}"#, "2025-01-02T13:26:19.000000500+00:00"),
        (r#"{"nanos":"7","seconds":-1.0,"other":{}}"#, "1969-12-31T23:59:59.000000007+00:00"),
        (r#"{"seconds":253402300799,"nanos":null}"#, "9999-12-31T23:59:59+00:00"),
        (r#"{"nanos":7}"#, "1970-01-01T00:00:00.000000007+00:00"),
        (r#"{"seconds":null,"nanos":7}"#, "1970-01-01T00:00:00.000000007+00:00"),
    ] {
        let event = event(valid);
        assert_eq!(
            parse(event.as_bytes()).unwrap().event_timestamp.unwrap().to_rfc3339(),
            expected,
            "{valid}"
        );
    }
    for (invalid, at, code) in [
        ("{}", "", "invalid_value"),
        (r#"{"seconds":null}"#, "", "invalid_value"),
        (r#"{"nanos":null}"#, "", "invalid_value"),
        (r#"{"nanos":-1}"#, "", "invalid_value"),
        (r#"{"seconds":"x","nanos":1}"#, "/seconds", "invalid_value"),
        (r#"{"seconds":253402300800}"#, "", "invalid_value"),
        (r#"{"seconds":0,"nanos":1000000000}"#, "", "invalid_value"),
        (r#"{"seconds":0,"nanos":-1}"#, "", "invalid_value"),
        (r#"{"seconds":1.5}"#, "/seconds", "invalid_value"),
        (r#"{"Seconds":1,"seconds":1}"#, "/Seconds", "invalid_name"),
        (r#"{"seconds":1,"seconds":1}"#, "/seconds", "duplicate_field"),
        ("1735824379", "", "invalid_type"),
        ("[]", "", "invalid_type"),
        (r#""""#, "", "invalid_value"),
    ] {
        let found = errors(&event(invalid));
        assert_eq!(found[0], (format!("/metadata/eventTimestamp{at}"), code.to_owned()), "{invalid}");
    }
}

#[test]
fn a_duration_is_seconds_in_text_or_an_object() {
    let event = |value: &str| format!(r#"{{"source_id":"a","network":{{"session_duration":{value}}}}}"#);
    for valid in [
        r#""61.5s""#,
        r#""-0.000000001s""#,
        r#""315576000000s""#,
        r#"{"seconds":"5","nanos":7}"#,
        r#"{"seconds":0,"nanos":-7}"#,
        r#"{"seconds":-5,"nanos":-7}"#,
        r#"{"nanos":500000000}"#,
        r#"{"seconds":null,"nanos":-7}"#,
    ] {
        assert!(parse(event(valid).as_bytes()).is_ok(), "{valid}");
    }
    for invalid in [
        r#""61.5""#,
        r#""1m""#,
        r#""s""#,
        r#"".5s""#,
        r#""1.0000000001s""#,
        r#""315576000001s""#,
        r#"{"seconds":5,"nanos":-7}"#,
        r#"{"seconds":315576000001}"#,
        "{}",
    ] {
        expect(&event(invalid), &[("/network/session_duration", "invalid_value")]);
    }
    expect(&event("61.5"), &[("/network/session_duration", "invalid_type")]);
}

#[test]
fn an_integer_is_a_number_or_a_decimal_string() {
    let event = |port: &str| format!(r#"{{"source_id":"a","src":{{"port":{port}}}}}"#);
    for (valid, port) in [
        ("80", 80),
        ("80.0", 80),
        ("8e1", 80),
        ("65535", 65535),
        ("0", 0),
        (r#""80""#, 80),
        (r#""080.00""#, 80),
        (r#""-0""#, 0),
    ] {
        assert!(parse(event(valid).as_bytes()).is_ok(), "{valid}");
        let typed: udm::UdmEvent = serde_json::from_str(&event(valid)).unwrap();
        assert_eq!(typed.src.unwrap().port, Some(port), "{valid}");
    }
    for invalid in [
        "80.5",
        "65536",
        "-1",
        "1e300",
        r#""""#,
        r#"" 80""#,
        r#""+80""#,
        r#""8e1""#,
        r#""80.""#,
        r#""https""#,
        r#""65536""#,
    ] {
        expect(&event(invalid), &[("/src/port", "invalid_value")]);
        assert!(serde_json::from_str::<udm::UdmEvent>(&event(invalid)).is_err(), "{invalid}");
    }
    for (name, valid, invalid) in [
        ("sent_bytes", r#""18446744073709551615""#, r#""18446744073709551616""#),
        ("total_bytes", r#""-9223372036854775808""#, "9223372036854775808"),
        // A 64-bit float has the same value for both.
        ("total_bytes", "-9223372036854775808", "-9223372036854775809"),
        ("total_bytes", "9223372036854775807", "-9223372036854776000"),
        ("sent_bytes", "18446744073709551615", "18446744073709551616"),
        ("dns", r#"{"id":4294967295}"#, r#"{"id":4294967296}"#),
        ("http", r#"{"response_code":-2147483648}"#, r#"{"response_code":"2147483648"}"#),
    ] {
        let event = |value: &str| format!(r#"{{"source_id":"a","network":{{"{name}":{value}}}}}"#);
        assert!(parse(event(valid).as_bytes()).is_ok(), "{valid}");
        assert_eq!(errors(&event(invalid)).len(), 1, "{invalid}");
    }
}

#[test]
fn an_enumeration_is_a_name_or_a_number() {
    let event = |value: &str| format!(r#"{{"source_id":"a","securityResult":{{"severity":{value}}}}}"#);
    for valid in [r#""HIGH""#, r#""A_NEW_NAME""#, "300", "-1", "300.0", r#""300""#] {
        assert!(parse(event(valid).as_bytes()).is_ok(), "{valid}");
    }
    for (invalid, code) in [("2147483648", "invalid_value"), ("0.5", "invalid_value"), ("{}", "invalid_type")]
    {
        expect(&event(invalid), &[("/securityResult/severity", code)]);
    }
    let event = |value: &str| format!(r#"{{"source_id":"a","metadata":{{"event_type":{value}}}}}"#);
    for (valid, name) in [
        ("15001", "USER_LOGIN"),
        (r#""16002""#, "NETWORK_CONNECTION"),
        ("0", "EVENTTYPE_UNSPECIFIED"),
        (r#""A1""#, "A1"),
    ] {
        assert_eq!(parse(event(valid).as_bytes()).unwrap().event_type, name);
    }
    for invalid in ["15999", "-1", "1.5", r#""15999""#, r#""15001x""#, "1e30"] {
        expect(&event(invalid), &[("/metadata/event_type", "invalid_value")]);
    }
}

#[test]
fn addresses_have_the_forms_of_vendors() {
    let event =
        |name: &str, value: &str| format!(r#"{{"source_id":"a","principal":{{"{name}":"{value}"}}}}"#);
    for (name, valid) in [
        ("ip", "192.0.2.1"),
        ("ip", "fe80::1%eth0"),
        ("ip", "fe80::1%25"),
        ("ip", "::ffff:192.0.2.1"),
        ("nat_ip", "2001:db8::1"),
        ("mac", "00:1b:44:11:3A:b7"),
        ("mac", "00-1b-44-11-3a-b7"),
        ("mac", "00.1b.44.11.3a.b7"),
        ("mac", "2880.230b.c9b2"),
        ("mac", "2880:230b:c9b2"),
        ("mac", "00:1b:44:ff:fe:11:3a:b7"),
        ("mac", "001b-44ff-fe11-3ab7"),
    ] {
        assert!(parse(event(name, valid).as_bytes()).is_ok(), "{valid}");
    }
    for (name, invalid) in [
        ("ip", ""),
        ("ip", "10.0.XX.XX"),
        ("ip", "10.0.0.0/8"),
        ("ip", "[::1]"),
        ("ip", "10.0.0.1:443"),
        ("ip", "10.0.0.1%eth0"),
        ("ip", "fe80::1%"),
        ("ip", "fe80::1%a b"),
        ("mac", ""),
        ("mac", "001b44113ab7"),
        ("mac", "00:1b-44:11-3a:b7"),
        ("mac", "00:1b:44:11:3a"),
        ("mac", "0:1b:44:11:3a:b7"),
        ("mac", "00:1b:44:11:3a:b7:00"),
        ("mac", "XX:XX:44:11:3a:b7"),
        ("mac", "001b.44113ab7"),
    ] {
        expect(&event(name, invalid), &[(&format!("/principal/{name}"), "invalid_value")]);
    }
}

#[test]
fn bytes_are_base64_in_one_alphabet_with_or_without_padding() {
    let event =
        |value: &str| format!(r#"{{"source_id":"a","network":{{"dhcp":{{"clientIdentifier":"{value}"}}}}}}"#);
    for valid in ["", "AAE=", "AAE", "AA==", "AA", "AAEC", "+/8=", "-_8", "-_8="] {
        assert!(parse(event(valid).as_bytes()).is_ok(), "{valid}");
    }
    for invalid in
        ["not base64!", "A", "AA=", "A===", "AAEC=", "AAEC==", "=", "====", "+_8", "AA E", "AA=E", "ä="]
    {
        expect(&event(invalid), &[("/network/dhcp/clientIdentifier", "invalid_value")]);
    }
}

#[test]
fn one_value_is_a_list_of_one_and_an_empty_list_is_an_absent_object() {
    for valid in [
        r#""principal":{"ip":"192.168.1.100","labels":{"key":"a","value":"b"}},"intermediary":{"hostname":"h"}"#,
        r#""security_result":{"action":"BLOCK","category":["A"],"about":[]}"#,
        r#""network":[],"extensions":[],"additional":[],"metadata":[],"target":[],"about":[[],{}]"#,
    ] {
        let event = format!(r#"{{"source_id":"a",{valid}}}"#);
        assert!(parse(event.as_bytes()).is_ok(), "{event}");
        let typed: udm::UdmEvent = serde_json::from_str(&event).unwrap();
        assert!(parse(serde_json::to_string(&typed).unwrap().as_bytes()).is_ok(), "{event}");
    }
    for (invalid, at) in [
        (r#""network":[{}]"#, "/network"),
        (r#""principal":{"hostname":[]}"#, "/principal/hostname"),
        (r#""principal":{"hostname":["a"]}"#, "/principal/hostname"),
        (r#""principal":{"ip":{}}"#, "/principal/ip"),
        (r#""principal":{"ip":[null]}"#, "/principal/ip/0"),
        (r#""principal":{"ip":[["::1"]]}"#, "/principal/ip/0"),
        (r#""about":"a""#, "/about"),
    ] {
        expect(&format!(r#"{{"source_id":"a",{invalid}}}"#), &[(at, "invalid_type")]);
    }
    expect("[]", &[("", "invalid_type")]);
}

#[test]
fn id_of_the_metadata_is_the_id_of_an_event_without_one() {
    let id = |event: &str| {
        let event = parse(event.as_bytes()).unwrap();
        (event.event_id.map(Cow::into_owned), event.event_id_path)
    };
    let google = r#"{"source_id":"a","metadata":{"id":"AAAAAC4+egHJ1IF+/w=="}}"#;
    assert_eq!(id(google), (Some("AAAAAC4+egHJ1IF+/w==".to_owned()), "metadata/id"));
    let both = r#"{"source_id":"a","metadata":{"id":"m"},"eventId":"e"}"#;
    assert_eq!(id(both), (Some("e".to_owned()), "eventId"));
    let null = r#"{"source_id":"a","metadata":{"id":"m"},"eventId":null}"#;
    assert_eq!(id(null), (Some("m".to_owned()), "metadata/id"));
    for other in ["a b", "", "ä", &"x".repeat(129)] {
        let event = format!(r#"{{"source_id":"a","event_id":null,"metadata":{{"id":"{other}"}}}}"#);
        assert_eq!(id(&event), (None, "event_id"));
    }
    expect(r#"{"source_id":"a","metadata":{"id":7}}"#, &[("/metadata/id", "invalid_type")]);
}

#[test]
fn malformed_json_is_distinguished_from_an_invalid_event() {
    for malformed in
        ["", "{", "{'source_id':1}", r#"{"source_id":"fw"}}"#, "[1", "\"\n\"", "nul", "{\"a\":01}"]
    {
        assert!(matches!(parse(malformed.as_bytes()), Err(ParseError::NotJson(_))), "{malformed}");
    }
    for other in ["[]", "null", "1", "\"fw\""] {
        expect(other, &[("", "invalid_type")]);
    }
}

#[test]
fn the_error_of_text_that_is_not_json_has_no_words_of_the_parser() {
    let value = "expected a value (NaN, Infinity, None and single quotes are not JSON)";
    for (text, expected) in [
        (r#"{"a":NaN}"#, value),
        (r#"{"a":Infinity}"#, value),
        ("nan", value),
        ("{\"a\":'x'}", value),
        (r#"{"a":-Infinity}"#, "invalid number (leading zeros, NaN and Infinity are not JSON)"),
        (r"{'a':1}", "a name must be text in double quotes"),
        (r#"{"a":1}}"#, "characters after the end of the value"),
        (r#"{"a":[1"#, "it ends inside of a list"),
        (r#"{"a":"#, "it ends inside of a value"),
    ] {
        let Err(ParseError::NotJson(error)) = parse(text.as_bytes()) else { panic!("{text}") };
        let message = error.rsplit_once(" at line 1 column ").map(|(message, _)| message);
        assert_eq!(message, Some(expected), "{text}: {error}");
    }
}

#[test]
fn bytes_that_are_not_utf_8_are_named_by_their_position() {
    let utf_16 = |big_endian: bool, text: &str| -> Vec<u8> {
        text.encode_utf16()
            .flat_map(|unit| if big_endian { unit.to_be_bytes() } else { unit.to_le_bytes() })
            .collect()
    };
    let (little, big) = (utf_16(false, "{\"a\":\"ü\"}"), utf_16(true, "{\"a\":\"ü\"}"));
    for (bytes, expected) in [
        (b"{\"source_id\":\"M\xfcller\"}".to_vec(), "it is not UTF-8 at byte 16; send UTF-8"),
        (b"\xff".to_vec(), "it is not UTF-8 at byte 1; send UTF-8"),
        (little.clone(), "it is not UTF-8 at byte 2, and looks like UTF-16; send UTF-8"),
        (big.clone(), "it is not UTF-8 at byte 1, and looks like UTF-16; send UTF-8"),
        (
            [&b"\xff\xfe"[..], &little].concat(),
            "it is not UTF-8 at byte 1, and looks like UTF-16; send UTF-8",
        ),
        ([&b"\xfe\xff"[..], &big].concat(), "it is not UTF-8 at byte 1, and looks like UTF-16; send UTF-8"),
        (utf_16(false, "{}"), "it is not UTF-8 at byte 2, and looks like UTF-16; send UTF-8"),
    ] {
        assert_eq!(parse(&bytes), Err(ParseError::NotJson(expected.to_owned())), "{bytes:?}");
    }
    let error = parse(b"{\"a\":\"\0\"}").unwrap_err().to_string();
    assert!(error.contains("control character"), "UTF-8, which JSON must escape: {error}");
}

#[test]
fn error_contains_the_event_id_if_it_is_valid() {
    let id = |event: &str| match parse(event.as_bytes()) {
        Err(ParseError::Invalid { event_id, .. }) => event_id,
        other => panic!("{other:?}"),
    };
    assert_eq!(id(r#"{"event_id":"e1"}"#).as_deref(), Some("e1"));
    assert_eq!(id(r#"{"event_id":"e 1"}"#), None);
    assert_eq!(id(r#"{"metadata":{"id":"m+/="}}"#).as_deref(), Some("m+/="));
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
fn event_has_at_most_32_levels() {
    let of_depth = |depth: usize| {
        format!(r#"{{"source_id":"fw","x":{}{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1))
    };
    assert!(parse(of_depth(32).as_bytes()).is_ok());
    // The event is the first level, and the list in `x` the second.
    let deepest = format!("/x{}", "/0".repeat(31));
    expect(&of_depth(33), &[(&*deepest, "too_deep")]);
    expect(&of_depth(100_000), &[(&*deepest, "too_deep")]);
    let objects = format!(r#"{{"source_id":"fw","a":1,"x":{}1{}}}"#, r#"{"y":"#.repeat(32), "}".repeat(32));
    expect(&objects, &[(&*format!("/x{}", "/y".repeat(31)), "too_deep")]);
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
