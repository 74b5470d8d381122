//! The event types of producers. They are read in both spellings and in all forms of the JSON of protobuf, and written in the original
//! spelling. Unknown fields are kept at every level.

use std::fmt;

use chrono::{DateTime, SecondsFormat, Utc};
use contract::null_is_default;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::fields::{EVENT, Field, METADATA, Meaning, NOUN, Object, Rule, TextRule, find};
use crate::parse::{event_type, instant, integer, integral, timestamp};

/// A JSON object with unknown fields.
type OpenObject = Map<String, Value>;

/// A UDM event: what happened, the participants, and the reporting product.
///
/// Names and nesting follow the Unified Data Model of Google Security Operations. Unknown fields pass through unchanged.
/// [`schema`](crate::schema) describes the limits of all fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct UdmEvent {
    /// Source of the event: 1 to 256 bytes, not blank, no control characters.
    pub source_id: String,
    /// Id of the event. Tenant, source and id are the idempotency key. Without it, the id is `metadata.id` if that has the same form; else
    /// the server generates one, and a retry creates a second event.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_id: Option<String>,
    /// Time, type and reporting product.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub metadata: Option<Metadata>,
    /// Participant that acted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub principal: Option<Noun>,
    /// Source that the principal acted on or through.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub src: Option<Noun>,
    /// Participant that was acted on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target: Option<Noun>,
    /// Observer that did not take part.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub observer: Option<Noun>,
    /// Intermediaries, in order.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "null_is_default")]
    pub intermediary: Vec<Noun>,
    /// Other participants that the event refers to.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "null_is_default")]
    pub about: Vec<Noun>,
    /// Network details, for example protocol and bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub network: Option<OpenObject>,
    /// Results of security products.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "null_is_default")]
    pub security_result: Vec<OpenObject>,
    /// Extensions of the model for the event type.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub extensions: Option<OpenObject>,
    /// Additional details.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub additional: Option<OpenObject>,
    /// Unknown fields. They pass through unchanged.
    #[serde(flatten)]
    pub other: OpenObject,
}

impl UdmEvent {
    /// Returns an event with a source only. The transport sets `event_id` if it is absent.
    pub fn new(source_id: impl Into<String>) -> Self {
        Self { source_id: source_id.into(), ..Self::default() }
    }

    /// Sets the id.
    #[must_use]
    pub fn with_event_id(mut self, event_id: impl Into<String>) -> Self {
        self.event_id = Some(event_id.into());
        self
    }

    /// Sets the metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// Sets the participant that acted.
    #[must_use]
    pub fn with_principal(mut self, principal: Noun) -> Self {
        self.principal = Some(principal);
        self
    }

    /// Sets the participant that was acted on.
    #[must_use]
    pub fn with_target(mut self, target: Noun) -> Self {
        self.target = Some(target);
        self
    }

    /// Adds an unknown field.
    #[must_use]
    pub fn with_field(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.other.insert(name.into(), value.into());
        self
    }
}

/// Time, type and reporting product of an event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Metadata {
    /// Time of the event (RFC 3339), in the years 0001 to 9999. Default: the time of receipt.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_timestamp: Option<DateTime<Utc>>,
    /// Type of the event, for example `USER_LOGIN`. Default: `GENERIC_EVENT`. Unknown types are accepted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_type: Option<String>,
    /// Vendor of the product that reported the event.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub vendor_name: Option<String>,
    /// Product that reported the event.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub product_name: Option<String>,
    /// Version of the product.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub product_version: Option<String>,
    /// Type of the event in the terms of the product.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub product_event_type: Option<String>,
    /// Id of the event in the product.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub product_log_id: Option<String>,
    /// Installation of the product that reported the event.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub product_deployment_id: Option<String>,
    /// URL of the event in the product.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub url_back_to_product: Option<String>,
    /// Description in natural language.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub description: Option<String>,
    /// Unknown fields. They pass through unchanged.
    #[serde(flatten)]
    pub other: OpenObject,
}

impl Metadata {
    /// Returns metadata with an event type only.
    pub fn new(event_type: impl Into<String>) -> Self {
        Self { event_type: Some(event_type.into()), ..Self::default() }
    }

    /// Sets the time of the event.
    #[must_use]
    pub fn at(mut self, event_timestamp: DateTime<Utc>) -> Self {
        self.event_timestamp = Some(event_timestamp);
        self
    }
}

/// A participant of an event, for example a machine, a user, a process or a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Noun {
    /// Host name of the machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hostname: Option<String>,
    /// Id of the machine in the inventory of the producer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub asset_id: Option<String>,
    /// IPv4 addresses, or IPv6 addresses with or without a zone.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "null_is_default")]
    pub ip: Vec<String>,
    /// Hardware addresses: EUI-48 or EUI-64, in groups of two or four hexadecimal digits with `:`, `-` or `.`.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "null_is_default")]
    pub mac: Vec<String>,
    /// Network port.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port: Option<u16>,
    /// URL, for example of a requested page.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub url: Option<String>,
    /// User or account.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user: Option<OpenObject>,
    /// Process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub process: Option<OpenObject>,
    /// File.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<OpenObject>,
    /// Any other resource.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resource: Option<OpenObject>,
    /// Unknown fields. They pass through unchanged.
    #[serde(flatten)]
    pub other: OpenObject,
}

/// Reads the fields of an object under their original names and in their plain forms, so that the derived code needs no other ones.
struct OriginalNames(&'static Object);

impl<'de> Visitor<'de> for OriginalNames {
    type Value = OpenObject;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OpenObject, A::Error> {
        let mut fields = OpenObject::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            let (name, value) = match find(self.0, &name) {
                Meaning::Known(field, _) => (field.name.to_owned(), field.plain(value)),
                Meaning::Misspelled(_) | Meaning::Unknown => (name, value),
            };
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format!("duplicate field `{name}`")));
            }
            fields.insert(name, value);
        }
        Ok(fields)
    }
}

/// Implements the traits of serde for types with `remote = "Self"`, which have the derived code in functions of the same names.
macro_rules! with_both_spellings {
    ($($type:ident: $object:ident;)+) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let fields = deserializer.deserialize_map(OriginalNames(&$object))?;
                Self::deserialize(Value::Object(fields)).map_err(D::Error::custom)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, serializer)
            }
        }
    )+};
}

with_both_spellings! {
    UdmEvent: EVENT;
    Metadata: METADATA;
    Noun: NOUN;
}

impl Field {
    /// Returns a value in the form that the derived code reads. A value without such a form is returned unchanged.
    fn plain(&self, value: Value) -> Value {
        match value {
            Value::Null => Value::Null,
            Value::Array(items) if self.is_repeated => {
                items.into_iter().map(|item| self.rule.plain(item)).collect()
            }
            value if self.is_repeated => Value::Array(vec![self.rule.plain(value)]),
            Value::Array(items) if items.is_empty() && self.rule.is_object() => Value::Null,
            value => self.rule.plain(value),
        }
    }
}

impl Rule {
    const fn is_object(self) -> bool {
        matches!(self, Self::Object(_) | Self::OpenObject)
    }

    fn plain(self, value: Value) -> Value {
        let plain = match (self, &value) {
            (rule, Value::Array(items)) if rule.is_object() && items.is_empty() => {
                Some(OpenObject::new().into())
            }
            (Self::Integer(_), value) => integer_of(value).and_then(plain_integer),
            (Self::Text(TextRule::EventType), value) => {
                integer_of(value).and_then(event_type).map(Value::from)
            }
            (Self::Text(TextRule::EventTime), Value::String(text)) => timestamp(text).map(rfc3339),
            (Self::Text(TextRule::EventTime), Value::Object(time)) => time_of(time).map(rfc3339),
            _ => None,
        };
        plain.unwrap_or(value)
    }
}

fn integer_of(value: &Value) -> Option<i128> {
    match value {
        Value::String(text) => integer(text),
        Value::Number(number) => number.as_i128().or_else(|| number.as_f64().and_then(integral)),
        _ => None,
    }
}

/// Returns the time of an [`INSTANT`](crate::fields::INSTANT).
fn time_of(object: &OpenObject) -> Option<DateTime<Utc>> {
    let number = |name: &str| object.get(name).filter(|value| !value.is_null()).map(integer_of);
    match (number("seconds"), number("nanos")) {
        (None, None) => None,
        (seconds, nanos) => instant(seconds.unwrap_or(Some(0))?, nanos.unwrap_or(Some(0))?),
    }
}

fn plain_integer(number: i128) -> Option<Value> {
    i64::try_from(number).map(Value::from).or_else(|_| u64::try_from(number).map(Value::from)).ok()
}

fn rfc3339(time: DateTime<Utc>) -> Value {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_kept_at_every_level() {
        let text = r#"{"source_id":"fw","metadata":{"event_type":"NETWORK_DNS","later":1},"principal":{"hostname":"a","cloud":{"x":[1]}},"tomorrow":{"deep":[true]}}"#;
        let event: UdmEvent = serde_json::from_str(text).unwrap();
        let written: Value = serde_json::to_value(&event).unwrap();
        assert_eq!(written, serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn each_method_sets_its_field() {
        let time = DateTime::from_timestamp(1_767_225_600, 0).unwrap();
        let host = |name: &str| Noun { hostname: Some(name.to_owned()), ..Noun::default() };
        let event = UdmEvent::new("fw")
            .with_event_id("e-1")
            .with_metadata(Metadata::new("NETWORK_DNS").at(time))
            .with_principal(host("a"))
            .with_target(host("b"))
            .with_field("severity", 3);
        let expected = serde_json::json!({
            "source_id": "fw",
            "event_id": "e-1",
            "metadata": { "event_timestamp": "2026-01-01T00:00:00Z", "event_type": "NETWORK_DNS" },
            "principal": { "hostname": "a" },
            "target": { "hostname": "b" },
            "severity": 3,
        });
        assert_eq!(serde_json::to_value(&event).unwrap(), expected);
    }

    #[test]
    fn both_spellings_are_read_and_the_original_one_is_written() {
        let read = serde_json::from_str::<UdmEvent>;
        let event = read(r#"{"sourceId":"fw","about":[{"assetId":"a","otherName":[]}]}"#).unwrap();
        let written = r#"{"source_id":"fw","about":[{"asset_id":"a","otherName":[]}]}"#;
        assert_eq!(serde_json::to_string(&event).unwrap(), written);
        for (text, expected) in [
            (r#"{"source_id":"fw","sourceId":"fw"}"#, "duplicate field `source_id`"),
            (r#"{"source_id":"fw","x":1,"x":2}"#, "duplicate field `x`"),
            ("[]", "expected an object"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn other_forms_of_values_are_read_and_plain_ones_are_written() {
        let text = r#"{"sourceId":"fw","metadata":{"eventType":"16001","eventTimestamp":{"seconds":"1767225600","nanos":5e8}},
            "principal":{"ip":"fe80::1%eth0","port":"443","user":[]},"target":[],"about":{"port":80.0},"securityResult":{"action":"BLOCK"}}"#;
        let event: UdmEvent = serde_json::from_str(text).unwrap();
        let expected = serde_json::json!({
            "source_id": "fw",
            "metadata": { "event_timestamp": "2026-01-01T00:00:00.500Z", "event_type": "NETWORK_FLOW" },
            "principal": { "ip": ["fe80::1%eth0"], "port": 443 },
            "about": [{ "port": 80 }],
            "security_result": [{ "action": "BLOCK" }],
        });
        assert_eq!(serde_json::to_value(&event).unwrap(), expected);
    }

    #[test]
    fn a_time_as_an_object_has_one_of_its_numbers() {
        let event = |time: &str| format!(r#"{{"source_id":"fw","metadata":{{"event_timestamp":{time}}}}}"#);
        for time in [r#"{"nanos":5}"#, r#"{"seconds":null,"nanos":5}"#] {
            let event: UdmEvent = serde_json::from_str(&event(time)).unwrap();
            let expected = DateTime::from_timestamp(0, 5);
            assert_eq!(event.metadata.unwrap().event_timestamp, expected, "{time}");
        }
        for time in
            ["{}", r#"{"seconds":null}"#, r#"{"seconds":"x","nanos":5}"#, r#"{"seconds":5,"nanos":"x"}"#]
        {
            assert!(serde_json::from_str::<UdmEvent>(&event(time)).is_err(), "{time}");
        }
    }

    #[test]
    fn absent_fields_are_omitted() {
        assert_eq!(serde_json::to_string(&UdmEvent::new("fw")).unwrap(), r#"{"source_id":"fw"}"#);
    }

    #[test]
    fn null_counts_as_absent() {
        let event: UdmEvent =
            serde_json::from_str(r#"{"source_id":"fw","about":null,"target":null}"#).unwrap();
        assert_eq!(event, UdmEvent::new("fw"));
    }
}
