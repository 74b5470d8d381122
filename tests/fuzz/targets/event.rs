//! One event, compared with serde_json.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|body: &[u8]| {
    let json = serde_json::from_slice::<Value>(body);
    let Ok(event) = udm::parse(body) else { return };
    let json = json.expect("a valid event is JSON");
    assert_eq!(event.raw, body);
    assert_eq!(json["source_id"], *event.source_id);
    assert_eq!(json["event_id"].as_str(), event.event_id.as_deref());
    let event_type = json["metadata"]["event_type"].as_str();
    assert_eq!(event_type.unwrap_or(udm::DEFAULT_EVENT_TYPE), event.event_type);
});
