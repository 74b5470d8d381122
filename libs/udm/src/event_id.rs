//! The id of an event: its field in JSON that is not validated, and the server event id.

use std::fmt;

use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::fields::{EVENT, Field, Meaning, Name, Rule, TextRule, find};

/// Returns the value of the field `event_id`, in either spelling, of JSON that is not validated. The value can be `null`.
///
/// # Errors
/// The text is not a JSON object, contains the field more than once, or misspells its name.
pub fn find_event_id(json: &str) -> serde_json::Result<Option<&RawValue>> {
    let mut json = serde_json::Deserializer::from_str(json);
    let event_id = json.deserialize_map(EventIdVisitor)?;
    json.end()?;
    Ok(event_id)
}

struct EventIdVisitor;

impl<'a> Visitor<'a> for EventIdVisitor {
    type Value = Option<&'a RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event, which is a JSON object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let is_event_id = |field: &Field| matches!(field.rule, Rule::Text(TextRule::EventId));
        let mut event_id = None;
        while let Some(Name(name)) = map.next_key()? {
            match find(EVENT.fields, &name) {
                Meaning::Known(field, _) if is_event_id(field) => {
                    if event_id.replace(map.next_value()?).is_some() {
                        return Err(A::Error::custom("the event has more than one event_id"));
                    }
                }
                Meaning::Misspelled(field) if is_event_id(field) => {
                    return Err(A::Error::custom(format!("{name}: {}", field.correction())));
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(event_id)
    }
}

/// Namespace of server event ids: UUIDv5 of `udm.server_event_id` in the DNS namespace of RFC 9562.
const NAMESPACE: Uuid = Uuid::from_u128(0xdb67_7c08_a25e_543d_b842_fe9b_1c97_24ee);

/// Returns the server event id, which is the same at every retry and must never change. It is the UUIDv5 of tenant, source and event
/// id, separated by zero bytes, which none of the three can contain.
pub fn server_event_id(tenant: &str, source_id: &str, event_id: &str) -> Uuid {
    let mut name = Vec::with_capacity(tenant.len() + source_id.len() + event_id.len() + 2);
    name.extend_from_slice(tenant.as_bytes());
    name.push(0);
    name.extend_from_slice(source_id.as_bytes());
    name.push(0);
    name.extend_from_slice(event_id.as_bytes());
    Uuid::new_v5(&NAMESPACE, &name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_is_the_documented_uuid() {
        assert_eq!(NAMESPACE, Uuid::new_v5(&Uuid::NAMESPACE_DNS, b"udm.server_event_id"));
    }

    #[test]
    fn server_event_ids_never_change() {
        let id = server_event_id("acme", "fw-1", "0190a5c4-0000-7000-8000-000000000001");
        assert_eq!(id.to_string(), "2bc385df-ea93-586a-8810-2514e34a37b9");
    }

    #[test]
    fn parts_are_separated() {
        assert_ne!(server_event_id("ab", "c", "d"), server_event_id("a", "bc", "d"));
        assert_ne!(server_event_id("a", "bc", "d"), server_event_id("a", "b", "cd"));
    }
}
