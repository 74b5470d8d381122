//! One event, compared with serde_json.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use serde_json::value::RawValue;

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
    let id = field(&json, ["event_id", "eventId"]);
    assert!(id.is_none() || id == event.event_id.as_deref());
    let text = std::str::from_utf8(body).expect("a valid event is UTF-8");
    let found = udm::find_event_id(text).expect("a valid event has at most one id");
    let read = |id: &RawValue| serde_json::from_str::<Option<String>>(id.get()).expect("the id is text");
    let id = found.event_id.and_then(read).or_else(|| found.metadata_id.and_then(read));
    assert_eq!(id.as_deref(), event.event_id.as_deref());
    if let Some(id) = event.event_id.as_deref() {
        let path = format!("/{}", event.event_id_path);
        assert_eq!(json.pointer(&path).and_then(Value::as_str), Some(id));
        assert_eq!(udm::values_at(body, &path[1..].replace("eventId", "event_id").replace('/', ".")), [id]);
    }
    assert!(
        !matches!(udm::unwrap_events(text), udm::Document::Wrapper(..) | udm::Document::Mixed(_)),
        "a valid event is not wrapped"
    );
    let typed = serde_json::from_slice::<udm::UdmEvent>(body).expect("the types accept a valid event");
    assert_eq!(typed.source_id, event.source_id);
    let metadata = typed.metadata.unwrap_or_default();
    assert_eq!(metadata.event_type.as_deref().unwrap_or(udm::DEFAULT_EVENT_TYPE), event.event_type);
    assert_eq!(metadata.event_timestamp, event.event_timestamp);
});
