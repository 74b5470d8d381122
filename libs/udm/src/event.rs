//! The event types of producers, their JSON Schema, and the server event id. Unknown fields are kept at every level.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::parse::port;

/// A JSON object with unknown fields.
type OpenObject = Map<String, Value>;

/// A UDM event: what happened, the participants, and the reporting product.
///
/// Names and nesting follow the Unified Data Model of Google Security Operations. Unknown fields pass through unchanged.
/// At most 256 KiB as JSON, nested at most 32 deep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UdmEvent {
    /// Source of the event: 1 to 256 bytes, not blank, no control characters.
    #[schemars(
        length(min = 1, max = 256),
        regex(pattern = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$")
    )]
    pub source_id: String,
    /// Id of the event. Tenant, source and id are the idempotency key. Without an id the server generates one, and a retry
    /// creates a second event.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(regex(pattern = r"^[A-Za-z0-9._:\-]{1,128}$"))]
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
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "null_is_empty")]
    #[schemars(with = "Option<Vec<Noun>>", length(max = 64))]
    pub intermediary: Vec<Noun>,
    /// Other participants that the event refers to.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "null_is_empty")]
    #[schemars(with = "Option<Vec<Noun>>", length(max = 64))]
    pub about: Vec<Noun>,
    /// Network details, for example protocol and bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub network: Option<OpenObject>,
    /// Results of security products.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "null_is_empty")]
    #[schemars(with = "Option<Vec<OpenObject>>")]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metadata {
    /// Time of the event (RFC 3339), in the years 0001 to 9999. Default: the time of receipt.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_timestamp: Option<DateTime<Utc>>,
    /// Type of the event, for example `USER_LOGIN`. Default: `GENERIC_EVENT`. Unknown types are accepted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(regex(pattern = r"^[A-Z][A-Z0-9_]{0,63}$"))]
    pub event_type: Option<String>,
    /// Vendor of the product that reported the event. At most 1 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(max = 1024))]
    pub vendor_name: Option<String>,
    /// Product that reported the event. At most 1 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(max = 1024))]
    pub product_name: Option<String>,
    /// Version of the product. At most 1 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(max = 1024))]
    pub product_version: Option<String>,
    /// Type of the event in the terms of the product. At most 1 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(max = 1024))]
    pub product_event_type: Option<String>,
    /// Id of the event in the product. At most 1 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(max = 1024))]
    pub product_log_id: Option<String>,
    /// Installation of the product that reported the event. At most 1 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(max = 1024))]
    pub product_deployment_id: Option<String>,
    /// URL of the event in the product. At most 1 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(max = 1024))]
    pub url_back_to_product: Option<String>,
    /// Description in natural language. At most 8 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(max = 8192))]
    pub description: Option<String>,
    /// Unknown fields. They pass through unchanged.
    #[serde(flatten)]
    pub other: OpenObject,
}

impl Metadata {
    /// Returns metadata with an event type only.
    pub fn of_type(event_type: impl Into<String>) -> Self {
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Noun {
    /// Host name of the machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hostname: Option<String>,
    /// Id of the machine in the inventory of the producer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub asset_id: Option<String>,
    /// IPv4 or IPv6 addresses.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "null_is_empty")]
    #[schemars(schema_with = "addresses")]
    pub ip: Vec<IpAddr>,
    /// Hardware addresses: six hexadecimal octets separated by `:` or `-`.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "null_is_empty")]
    #[schemars(
        with = "Option<Vec<String>>",
        inner(regex(pattern = r"^[0-9A-Fa-f]{2}([:\-][0-9A-Fa-f]{2}){5}$"))
    )]
    pub mac: Vec<String>,
    /// Network port.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "read_port")]
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

/// Returns the JSON Schema (draft 2020-12) of an event.
///
/// It is slightly weaker than `parse`: it counts lengths in characters instead of bytes, has no limits of size and depth, and
/// allows year 0000 and names that differ from a known name only in case.
pub fn schema() -> Schema {
    schemars::schema_for!(UdmEvent)
}

/// Returns the schema as indented text with a final newline, as it is checked in.
pub fn pretty_schema() -> String {
    format!("{:#}\n", schema().as_value())
}

/// Returns the schema of a list of addresses. JSON Schema has no format that includes both kinds of addresses.
fn addresses(_: &mut SchemaGenerator) -> Schema {
    let address = json_schema!({ "type": "string", "anyOf": [{ "format": "ipv4" }, { "format": "ipv6" }] });
    json_schema!({ "type": ["array", "null"], "items": address })
}

/// Reads a list. Some producers send `null` for an absent one.
fn null_is_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads a port like `parse`, which accepts `80.0`.
fn read_port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    let number = Option::<f64>::deserialize(deserializer)?;
    let read = |number| port(number).ok_or_else(|| D::Error::custom("expected an integer from 0 to 65535"));
    number.map(read).transpose()
}

/// Namespace of server event ids: UUIDv5 of `udm.server_event_id` in the DNS namespace of RFC 9562.
const NAMESPACE: Uuid = Uuid::from_u128(0xdb67_7c08_a25e_543d_b842_fe9b_1c97_24ee);

/// Returns the server event id, which is the same at every retry and must never change: the UUIDv5 of tenant, source and event id, separated by zero bytes: none of the three can contain one.
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
            .with_metadata(Metadata::of_type("NETWORK_DNS").at(time))
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
    fn absent_fields_are_omitted() {
        assert_eq!(serde_json::to_string(&UdmEvent::new("fw")).unwrap(), r#"{"source_id":"fw"}"#);
    }

    #[test]
    fn null_counts_as_absent() {
        let event: UdmEvent =
            serde_json::from_str(r#"{"source_id":"fw","about":null,"target":null}"#).unwrap();
        assert_eq!(event, UdmEvent::new("fw"));
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
