//! The id and the source of an event in JSON that is not validated, and the server event id.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::fields::{EVENT, Field, Meaning, Name, Rule, TextRule, find};
use crate::parse::is_event_id;

/// The id in the JSON of an event that is not validated.
#[derive(Clone, Copy, Debug, Default)]
pub struct FoundEventId<'a> {
    /// Value of the field `event_id` in either spelling. It can be `null`.
    pub event_id: Option<&'a RawValue>,
    /// Value of `metadata.id`, if it has the form of an event id. It is the id if `event_id` is absent or `null`.
    pub metadata_id: Option<&'a RawValue>,
}

/// Returns the id of JSON that is not validated.
///
/// # Errors
/// The text is not a JSON object, or it contains the field `event_id` more than once or misspells its name.
pub fn find_event_id(json: &str) -> serde_json::Result<FoundEventId<'_>> {
    find_text(json, TextRule::EventId)
}

/// Returns the value of the field `source_id`, in either spelling, of JSON that is not validated. The value can be `null`.
///
/// # Errors
/// Those of [`find_event_id`], about `source_id`.
pub fn find_source_id(json: &str) -> serde_json::Result<Option<&RawValue>> {
    Ok(find_text(json, TextRule::SourceId)?.event_id)
}

fn find_text(json: &str, rule: TextRule) -> serde_json::Result<FoundEventId<'_>> {
    let mut json = serde_json::Deserializer::from_str(json);
    let value = json.deserialize_map(TextVisitor(rule))?;
    json.end()?;
    Ok(value)
}

/// Returns a JSON object with a string in a field that it does not have: in place of `null`, if the field has this value, or before
/// the other fields. The other bytes are unchanged.
///
/// # Errors
/// The text is not a JSON object.
pub fn with_text(
    object: &str,
    name: &str,
    null: Option<&RawValue>,
    text: &str,
) -> serde_json::Result<Box<RawValue>> {
    let text = serde_json::to_string(text)?;
    let written = if let Some(null) = null {
        let start = null.get().as_ptr().addr() - object.as_ptr().addr();
        format!("{}{text}{}", &object[..start], &object[start + null.get().len()..])
    } else {
        let fields = object.get(1..).unwrap_or_default();
        let comma = if fields.trim_start().starts_with('}') { "" } else { "," };
        format!(r#"{{"{name}":{text}{comma}{fields}"#)
    };
    RawValue::from_string(written)
}

/// Finds the value of the field of an event with this rule, and the id of the metadata.
struct TextVisitor(TextRule);

impl<'a> Visitor<'a> for TextVisitor {
    type Value = FoundEventId<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event, which is a JSON object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let is_wanted = |field: &Field| matches!(field.rule, Rule::Text(rule) if rule == self.0);
        let mut found = FoundEventId::default();
        while let Some(Name(name)) = map.next_key()? {
            match find(&EVENT, &name) {
                Meaning::Known(field, _) if is_wanted(field) => {
                    if found.event_id.replace(map.next_value()?).is_some() {
                        return Err(A::Error::custom(format!("the event has more than one {}", field.name)));
                    }
                }
                Meaning::Known(field, _) if field.name == "metadata" => {
                    let metadata: &RawValue = map.next_value()?;
                    found.metadata_id = find_metadata_id(metadata.get());
                }
                Meaning::Misspelled(field) if is_wanted(field) => {
                    return Err(A::Error::custom(format!("{name}: {}", field.correction())));
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// Returns the value of `id` in the JSON of `metadata`, if it has the form of an event id.
fn find_metadata_id(metadata: &str) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct MetadataId<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    let id = serde_json::from_str::<MetadataId<'_>>(metadata).ok()?.id?;
    serde_json::from_str::<Name<'_>>(id.get()).is_ok_and(|Name(id)| is_event_id(&id)).then_some(id)
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
    fn id_of_the_metadata_is_found_if_it_has_the_form_of_an_event_id() {
        for (event, expected) in [
            (r#"{"metadata":{"id":"AAAAAC4+egHJ1IF+/w==","id2":{}}}"#, Some("AAAAAC4+egHJ1IF+/w==")),
            (r#"{"metadata":{"\u0069d":"a\u0062"}}"#, Some("ab")),
            (r#"{"metadata":{"id":"a b"}}"#, None),
            (r#"{"metadata":{"id":7}}"#, None),
            (r#"{"metadata":{"id":"a","id":"b"}}"#, None),
            (r#"{"metadata":[{"id":"a"}],"additional":{"id":"a"},"id":"a"}"#, None),
        ] {
            let found = find_event_id(event).unwrap().metadata_id;
            let id = found.map(|id| serde_json::from_str::<String>(id.get()).unwrap());
            assert_eq!(id.as_deref(), expected, "{event}");
        }
    }

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
