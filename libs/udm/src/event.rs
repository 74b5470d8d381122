//! The event as a producer builds it. Unknown fields are kept, at every level.

mod metadata;
mod noun;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

pub use metadata::Metadata;
pub use noun::Noun;

/// A JSON object whose fields nobody here knows.
type Open = Map<String, Value>;

/// A UDM event: what happened, who did it, to what, and who saw it.
///
/// Names and nesting follow Google's Unified Data Model (Security Operations). Fields that are not listed pass through untouched.
/// At most 256 KiB as JSON, nested at most 32 deep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UdmEvent {
    /// Where the event comes from: 1 to 256 bytes, not blank, no control characters.
    #[schemars(
        length(min = 1, max = 256),
        regex(pattern = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$")
    )]
    pub source_id: String,
    /// With tenant and source the idempotency key. Absent: the server makes one, and sending again makes a second event.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(regex(pattern = r"^[A-Za-z0-9._:\-]{1,128}$"))]
    pub event_id: Option<String>,
    /// When and what kind; which product said so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub metadata: Option<Metadata>,
    /// Who acted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub principal: Option<Noun>,
    /// What the actor used or took from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub src: Option<Noun>,
    /// What was acted on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target: Option<Noun>,
    /// Who saw it without taking part.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub observer: Option<Noun>,
    /// What stood between, in order.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "null_is_empty")]
    #[schemars(with = "Option<Vec<Noun>>", length(max = 64))]
    pub intermediary: Vec<Noun>,
    /// What else the event mentions.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "null_is_empty")]
    #[schemars(with = "Option<Vec<Noun>>", length(max = 64))]
    pub about: Vec<Noun>,
    /// Protocols, bytes, sessions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub network: Option<Open>,
    /// Verdicts of security products.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "null_is_empty")]
    #[schemars(with = "Option<Vec<Open>>")]
    pub security_result: Vec<Open>,
    /// Additions to the model by event type.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub extensions: Option<Open>,
    /// What fits nowhere else.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub additional: Option<Open>,
    /// Fields that are not known here; they pass through untouched.
    #[serde(flatten)]
    pub other: Open,
}

impl UdmEvent {
    /// An event of this source, with nothing else said. The transport sets `event_id` when it is absent.
    pub fn new(source_id: impl Into<String>) -> Self {
        Self { source_id: source_id.into(), ..Self::default() }
    }

    /// The same event with this id.
    #[must_use]
    pub fn with_event_id(mut self, event_id: impl Into<String>) -> Self {
        self.event_id = Some(event_id.into());
        self
    }

    /// The same event with this metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// The same event with this actor.
    #[must_use]
    pub fn with_principal(mut self, principal: Noun) -> Self {
        self.principal = Some(principal);
        self
    }

    /// The same event with this object of the action.
    #[must_use]
    pub fn with_target(mut self, target: Noun) -> Self {
        self.target = Some(target);
        self
    }

    /// The same event with one more field that is not known here.
    #[must_use]
    pub fn with_field(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.other.insert(name.into(), value.into());
        self
    }
}

/// Producers that write every field send `null` for an absent list.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_kept_at_every_level() {
        let text = r#"{"source_id":"fw","metadata":{"event_type":"NETWORK_DNS","later":1},"principal":{"hostname":"a","cloud":{"x":[1]}},"tomorrow":{"deep":[true]}}"#;
        let event: UdmEvent = serde_json::from_str(text).unwrap();
        let again: Value = serde_json::to_value(&event).unwrap();
        assert_eq!(again, serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn an_event_of_a_source_alone_writes_nothing_else() {
        assert_eq!(serde_json::to_string(&UdmEvent::new("fw")).unwrap(), r#"{"source_id":"fw"}"#);
    }

    #[test]
    fn null_is_absent() {
        let event: UdmEvent =
            serde_json::from_str(r#"{"source_id":"fw","about":null,"target":null}"#).unwrap();
        assert_eq!(event, UdmEvent::new("fw"));
    }
}
