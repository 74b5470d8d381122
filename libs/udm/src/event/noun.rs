//! A party to an event: a machine, a person, a process, a file, whatever took part.

use std::net::IpAddr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{Open, null_is_empty};

/// A machine, a person, a process, a file: whatever took part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Noun {
    /// The machine's name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hostname: Option<String>,
    /// What the producer calls the machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub asset_id: Option<String>,
    /// Its addresses, IPv4 or IPv6.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "null_is_empty")]
    #[schemars(schema_with = "addresses")]
    pub ip: Vec<IpAddr>,
    /// Its hardware addresses, six octets in hexadecimal with `:` or `-` between.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "null_is_empty")]
    #[schemars(
        with = "Option<Vec<String>>",
        inner(regex(pattern = r"^[0-9A-Fa-f]{2}([:\-][0-9A-Fa-f]{2}){5}$"))
    )]
    pub mac: Vec<String>,
    /// The port that it used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub port: Option<u16>,
    /// An address that the noun names.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub url: Option<String>,
    /// The person or account.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user: Option<Open>,
    /// The process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub process: Option<Open>,
    /// The file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file: Option<Open>,
    /// Anything else that has a name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub resource: Option<Open>,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub other: Open,
}

/// JSON Schema has a format for either kind of address and none for both.
fn addresses(_: &mut SchemaGenerator) -> Schema {
    let address = json_schema!({ "type": "string", "anyOf": [{ "format": "ipv4" }, { "format": "ipv6" }] });
    json_schema!({ "type": ["array", "null"], "items": address })
}
