//! Events in the form in which Google publishes UDM.

use serde_json::Value;
use udm::{UdmEvent, parse, split_list};

/// Invented events, one of them with both spellings in different objects.
const EVENTS: &str = include_str!("published.json");

#[test]
fn published_events_are_typed_and_keep_their_bytes() {
    let events: Vec<_> = split_list(EVENTS.as_bytes()).map(|item| parse(item.unwrap()).unwrap()).collect();
    let read: Vec<_> = events
        .iter()
        .map(|event| {
            let time = event.event_timestamp.map(|time| time.to_rfc3339());
            (&*event.source_id, event.event_id.as_deref(), &*event.event_type, time.unwrap_or_default())
        })
        .collect();
    let expected = [
        ("okta-prod", Some("okta:5c1d2e0a"), "USER_LOGIN", "2026-03-02T07:14:55.318+00:00"),
        ("paloalto-edge-2", None, "NETWORK_CONNECTION", "2026-03-02T06:15:01+00:00"),
        ("bind-1", None, "NETWORK_DNS", "2026-03-02T07:15:03.000000001+00:00"),
        ("edr-eu", Some("edr.0190-77"), "PROCESS_LAUNCH", "2026-03-02T07:16:40+00:00"),
        ("mail-gw", None, "EMAIL_TRANSACTION", "2026-03-02T07:18:00+00:00"),
        (
            "gcp-audit",
            Some("AAAAAMhXW0N1ZXN0aW9uYWJsZQAAAAAGAAAAAAAAAAA="),
            "RESOURCE_PERMISSIONS_CHANGE",
            "2026-03-02T07:20:11.900+00:00",
        ),
        ("proxy-3", None, "NETWORK_HTTP", "2026-03-02T07:21:09+00:00"),
        ("dhcp-core", None, "NETWORK_DHCP", "2026-03-02T07:22:00+00:00"),
        ("win-dc-1", Some("evtx:4625:771204"), "USER_LOGIN", "2026-03-02T07:23:41+00:00"),
        ("nac", None, "SCAN_VULN_HOST", "1999-12-31T23:59:59+00:00"),
        ("k8s-audit", None, "RESOURCE_READ", ""),
        ("dlp", None, "FILE_COPY", "2026-03-02T07:30:00+00:00"),
        ("radius", None, "GENERIC_EVENT", ""),
    ];
    let expected = expected.map(|(source, id, event_type, time)| (source, id, event_type, time.to_owned()));
    assert_eq!(read, expected);
    let items: Vec<Value> = serde_json::from_str(EVENTS).unwrap();
    for (event, item) in events.iter().zip(items) {
        assert_eq!(serde_json::from_slice::<Value>(event.raw).unwrap(), item);
    }
}

#[test]
fn published_events_match_the_schema_and_the_types_of_producers() {
    let schema = jsonschema::options().should_validate_formats(true).build(udm::schema().as_value()).unwrap();
    for item in split_list(EVENTS.as_bytes()) {
        let item = item.unwrap();
        let value: Value = serde_json::from_slice(item).unwrap();
        assert!(schema.is_valid(&value), "{value}");
        let typed: UdmEvent = serde_json::from_slice(item).unwrap();
        let written = serde_json::to_string(&typed).unwrap();
        let (sent, written) = (parse(item).unwrap(), parse(written.as_bytes()).unwrap());
        assert_eq!((&sent.source_id, &sent.event_id), (&written.source_id, &written.event_id));
        assert_eq!((&sent.event_type, sent.event_timestamp), (&written.event_type, written.event_timestamp));
        assert_eq!(written.source_id_name, "source_id");
        assert!(["event_id", "metadata/id"].contains(&written.event_id_path));
    }
}
