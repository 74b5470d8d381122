//! The checked-in JSON Schema is current, and agrees with `parse`.

use serde_json::{Value, json};

#[test]
fn checked_in_schema_is_current() {
    let checked_in = include_str!("../event.schema.json");
    assert!(checked_in == udm::pretty_schema(), "event.schema.json is out of date: run `make gen`");
}

fn valid() -> Vec<Value> {
    vec![
        json!({"source_id": "fw"}),
        json!({"source_id": " ä fw ", "event_id": "a.B_9:-", "whatever": [1, {"x": null}]}),
        json!({"source_id": "fw", "event_id": null, "metadata": null, "about": null}),
        json!({"source_id": "fw", "metadata": {"event_timestamp": "2026-01-31T12:00:00.5+02:00", "event_type": "USER_LOGIN", "future": 7}}),
        json!({"source_id": "fw", "principal": {"ip": ["10.0.0.1", "::1"], "mac": ["00:1b:44:11:3A:b7"], "port": 65535, "user": {"userid": "x"}, "new": []}}),
        json!({"source_id": "fw", "principal": {"port": 80.0}}),
        json!({"sourceId": "fw", "eventId": "a", "metadata": {"eventType": "USER_LOGIN", "product_name": "x"}}),
        json!({"sourceId": "fw", "eventId": null, "additional": {"event_id": 1, "eventId": 2}, "securityResult": null}),
        json!({"source_id": "fw", "about": [{}, {"hostname": "h"}], "security_result": [{"action": ["BLOCK"]}], "network": {}, "additional": {"a": 1}}),
        json!({"source_id": "fw", "event_id": "AAAAAC4+egHJ1IF+/w==", "target": {"ip": "fe80::1%eth0", "mac": "001b.4411.3ab7"}}),
        json!({"source_id": "fw", "principal": {"port": "443", "user": []}, "network": [], "metadata": []}),
        json!({"source_id": "fw", "intermediary": {}, "securityResult": {"action": "BLOCK"}}),
        json!({"source_id": "fw", "metadata": {"event_type": 16001, "event_timestamp": {"seconds": "1735824379", "nanos": 5}}}),
        json!({"source_id": "fw", "metadata": {"event_timestamp": {"nanos": 5}}}),
        json!({"source_id": "fw", "network": {"sent_bytes": "18446744073709551615", "session_duration": "1.5s", "direction": 2, "ip_protocol": "TCP"}}),
    ]
}

fn invalid() -> Vec<Value> {
    vec![
        json!({}),
        json!({"source_id": null}),
        json!({"source_id": 7}),
        json!({"source_id": ""}),
        json!({"source_id": "  "}),
        json!({"source_id": "a\nb"}),
        json!({"source_id": "x".repeat(257)}),
        json!({"source_id": "fw", "event_id": ""}),
        json!({"source_id": "fw", "event_id": "a b"}),
        json!({"source_id": "fw", "event_id": "x".repeat(129)}),
        json!({"source_id": "fw", "metadata": [{}]}),
        json!({"source_id": "fw", "network": {"sent_bytes": -1, "http": {"responseCode": "x"}}}),
        json!({"source_id": "fw", "network": {"dns": {"questions": [{"type": 28, "name": 7}]}}}),
        json!({"source_id": "fw", "extensions": {"auth": {"mechanism": [true]}}}),
        json!({"source_id": "fw", "metadata": {"event_timestamp": {"seconds": null, "nanos": null}}}),
        json!({"source_id": "fw", "metadata": {"event_timestamp": "2026-01-31T12:00:00.0123456789Z"}}),
        json!({"source_id": "fw", "metadata": {"event_timestamp": "2026-01-31T12:00:60Z"}}),
        json!({"source_id": "fw", "metadata": {"event_type": "lower"}}),
        json!({"source_id": "fw", "metadata": {"event_type": "_A"}}),
        json!({"source_id": "fw", "metadata": {"event_type": "A".repeat(65)}}),
        json!({"source_id": "fw", "metadata": {"event_timestamp": "yesterday"}}),
        json!({"source_id": "fw", "metadata": {"event_timestamp": "2026-01-31 12:00:00Z"}}),
        json!({"source_id": "fw", "metadata": {"event_timestamp": 1_700_000_000}}),
        json!({"source_id": "fw", "src": "10.0.0.1"}),
        json!({"source_id": "fw", "target": {"ip": ["10.0.0.256"]}}),
        json!({"source_id": "fw", "observer": {"mac": ["00:1b:44:11:3a"]}}),
        json!({"source_id": "fw", "principal": {"port": 65536}}),
        json!({"source_id": "fw", "principal": {"port": 80.5}}),
        json!({"source_id": "fw", "principal": {"port": -1}}),
        json!({"source_id": "fw", "principal": {"hostname": {}}}),
        json!({"source_id": "fw", "principal": {"user": "bob"}}),
        json!({"source_id": "fw", "intermediary": [null]}),
        json!({"source_id": "fw", "security_result": [1]}),
        json!({"sourceId": null}),
        json!({"sourceId": ""}),
        json!({"source_id": "fw", "sourceId": "fw"}),
        json!({"source_id": "fw", "eventId": "a b"}),
        json!({"source_id": "fw", "metadata": {"eventType": "lower"}}),
        json!({"source_id": "fw", "metadata": {"event_type": "A", "eventType": "A"}}),
        json!({"source_id": "fw", "metadata": {"eventTimestamp": "yesterday"}}),
        json!({"source_id": "fw", "about": [{"assetId": 7}]}),
        json!({"source_id": "fw", "about": [{"assetId": "a", "asset_id": "a"}]}),
        json!([]),
        json!("fw"),
    ]
}

#[test]
fn parse_and_schema_agree() {
    let schema = jsonschema::options().should_validate_formats(true).build(udm::schema().as_value()).unwrap();
    for (events, expected) in [(valid(), true), (invalid(), false)] {
        for event in events {
            let text = event.to_string();
            assert_eq!(udm::parse(text.as_bytes()).is_ok(), expected, "parse: {text}");
            assert_eq!(schema.is_valid(&event), expected, "schema: {text}");
        }
    }
}

#[test]
fn events_built_from_the_types_are_valid() {
    for event in valid() {
        let built: udm::UdmEvent = serde_json::from_value(event).unwrap();
        udm::parse(serde_json::to_string(&built).unwrap().as_bytes()).unwrap();
    }
}
