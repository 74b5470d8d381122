//! What passes, what is refused, and how faults are told.

use std::borrow::Cow;

use proptest::prelude::*;
use udm::{Invalid, MAX_EVENT_BYTES, parse};

/// Pointer and code of each fault.
fn faults(event: &str) -> Vec<(String, String)> {
    match parse(event.as_bytes()) {
        Err(Invalid::WrongShape { faults, .. }) => {
            faults.into_iter().map(|fault| (fault.pointer, fault.code.into_owned())).collect()
        }
        other => panic!("{event}: {other:?}"),
    }
}

fn expect(event: &str, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected.iter().map(|(at, code)| (at.to_string(), code.to_string())).collect();
    assert_eq!(faults(event), expected, "{event}");
}

#[test]
fn an_event_gives_what_routing_needs_and_its_own_bytes() {
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
fn an_event_of_a_source_alone_is_generic() {
    let event = parse(br#"{"source_id":"fw"}"#).unwrap();
    assert_eq!((event.event_id, &*event.event_type, event.event_timestamp), (None, "GENERIC_EVENT", None));
}

#[test]
fn several_faults_are_told_at_once_with_their_places() {
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
fn a_list_of_faults_has_an_end() {
    let event = format!(r#"{{"source_id":"fw","src":{{"ip":[{}0]}}}}"#, "0,".repeat(1000));
    assert_eq!(faults(&event).len(), 16);
}

#[test]
fn a_name_that_stands_twice_is_refused_however_it_is_written() {
    expect(r#"{"source_id":"a","x/~":1,"source_id":"b"}"#, &[("/source_id", "duplicate")]);
    expect(r#"{"source_id":"a","source\u005fid":"b"}"#, &[("/source_id", "duplicate")]);
    expect(r#"{"source_id":"a","x/~":1,"x/~":2}"#, &[("/x~1~0", "duplicate")]);
    expect(
        r#"{"source_id":"a","metadata":{"event_type":"A","event_type":"B"}}"#,
        &[("/metadata/event_type", "duplicate")],
    );
    assert!(parse(br#"{"source_id":"a","x":{"y":1,"y":2}}"#).is_ok(), "what nobody reads nobody judges");
}

#[test]
fn what_is_no_json_is_told_apart_from_what_is_no_event() {
    for broken in ["", "{", "{'source_id':1}", r#"{"source_id":"fw"}}"#, "[1", "\"\n\"", "nul", "{\"a\":01}"]
    {
        assert!(matches!(parse(broken.as_bytes()), Err(Invalid::NotJson(_))), "{broken}");
    }
    assert!(matches!(parse(b"{\"source_id\":\"\xff\"}"), Err(Invalid::NotJson(_))));
    for other in ["[]", "null", "1", "\"fw\""] {
        expect(other, &[("", "invalid_type")]);
    }
}

#[test]
fn the_id_of_a_refused_event_is_told_when_it_could_be_read() {
    let id = |event: &str| match parse(event.as_bytes()) {
        Err(Invalid::WrongShape { event_id, .. }) => event_id,
        other => panic!("{other:?}"),
    };
    assert_eq!(id(r#"{"event_id":"e1"}"#).as_deref(), Some("e1"));
    assert_eq!(id(r#"{"event_id":"e 1"}"#), None);
}

#[test]
fn size_ends_at_256_kib() {
    let of_size = |size: usize| {
        let frame = r#"{"source_id":"fw","x":""}"#.len();
        format!(r#"{{"source_id":"fw","x":"{}"}}"#, "x".repeat(size - frame))
    };
    assert!(parse(of_size(MAX_EVENT_BYTES).as_bytes()).is_ok());
    assert_eq!(parse(of_size(MAX_EVENT_BYTES + 1).as_bytes()), Err(Invalid::TooLarge));
}

#[test]
fn depth_ends_at_32() {
    let of_depth = |depth: usize| {
        format!(r#"{{"source_id":"fw","x":{}{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1))
    };
    assert!(parse(of_depth(32).as_bytes()).is_ok());
    expect(&of_depth(33), &[("", "too_deep")]);
    expect(&of_depth(100_000), &[("", "too_deep")]);
}

#[test]
fn lengths_of_ids_count_bytes() {
    assert!(parse(format!(r#"{{"source_id":"{}"}}"#, "ä".repeat(128)).as_bytes()).is_ok());
    expect(&format!(r#"{{"source_id":"{}"}}"#, "ä".repeat(129)), &[("/source_id", "too_long")]);
    expect(r#"{"source_id":"a\u0000b"}"#, &[("/source_id", "invalid_value")]);
    expect(r#"{"source_id":"\ud800"}"#, &[("/source_id", "invalid_value")]);
}

/// JSON as producers write it, and as they should not.
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
    fn any_source_and_any_unknown_field_pass_untouched(source in "[a-zA-Z0-9 äß/.*>-]{0,60}[a-z]", value in json()) {
        let raw = format!(r#"{{ "unknown" :{value}, "source_id": {} }}"#, serde_json::to_string(&source).unwrap());
        let event = parse(raw.as_bytes()).unwrap();
        prop_assert_eq!(&*event.source_id, source.as_str());
        prop_assert_eq!(event.raw, raw.as_bytes());
    }

    #[test]
    fn a_known_field_of_any_shape_never_panics(
        name in prop::sample::select(vec!["source_id", "event_id", "metadata", "src", "about", "network", "security_result"]),
        value in json(),
    ) {
        let _ = parse(format!(r#"{{"{name}":{value}}}"#).as_bytes());
    }

    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&bytes);
    }
}
