//! One event, compared with serde_json.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// The text of a field that has one of two names.
fn field<'a>(object: &'a Value, names: [&str; 2]) -> Option<&'a str> {
    let values = names.map(|name| object.get(name));
    assert!(values.iter().flatten().count() <= 1, "a valid event has one of {names:?}");
    values.into_iter().flatten().next()?.as_str()
}

fuzz_target!(|body: &[u8]| {
    let json = serde_json::from_slice::<Value>(body);
    let Ok(event) = udm::parse(body) else { return };
    let json = json.expect("a valid event is JSON");
    assert_eq!(event.raw, body);
    assert_eq!(json[event.source_id_name], *event.source_id);
    assert_eq!(field(&json, ["source_id", "sourceId"]), Some(&*event.source_id));
    assert_eq!(field(&json, ["event_id", "eventId"]), event.event_id.as_deref());
    let event_type = field(&json["metadata"], ["event_type", "eventType"]);
    assert_eq!(event_type.unwrap_or(udm::DEFAULT_EVENT_TYPE), event.event_type);
    let text = std::str::from_utf8(body).expect("a valid event is UTF-8");
    let id = udm::find_event_id(text).expect("a valid event has at most one id");
    let id = id.and_then(|id| serde_json::from_str::<Option<String>>(id.get()).expect("the id is text"));
    assert_eq!(id.as_deref(), event.event_id.as_deref());
    let typed = serde_json::from_slice::<udm::UdmEvent>(body).expect("the types accept a valid event");
    assert_eq!(typed.source_id, event.source_id);
});
