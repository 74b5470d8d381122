//! Wire types of consumers: durable consumers of the event stream and the permissions of their NATS users, and
//! dead letters.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenancy::TenantId;

use crate::value;

/// Maximum number of event types of a consumer. Each is a filter of the broker.
pub const MAX_EVENT_TYPES: usize = 16;

/// Name of a consumer: 1 to 63 characters of `a-z`, `0-9` and `-`, without a leading or trailing hyphen. It is a token of NATS
/// subjects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(!try_from, !into, transparent)]
pub struct ConsumerName(#[schemars(pattern("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))] String);

/// The text is not a name of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidConsumerName;

impl fmt::Display for InvalidConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a consumer name has 1 to 63 characters of a-z, 0-9 and '-', without a leading or trailing hyphen",
        )
    }
}

impl std::error::Error for InvalidConsumerName {}

impl ConsumerName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ConsumerName {
    type Err = InvalidConsumerName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for ConsumerName {
    type Error = InvalidConsumerName;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        // The form of a tenant id.
        match text.parse::<TenantId>() {
            Ok(_) => Ok(Self(text)),
            Err(_) => Err(InvalidConsumerName),
        }
    }
}

impl From<ConsumerName> for String {
    fn from(name: ConsumerName) -> Self {
        name.0
    }
}

impl fmt::Display for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Partitions that a consumer reads. All events of a source are in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Partitions {
    /// First partition.
    #[schemars(range(min = 0, max = 63))]
    pub first: u8,
    /// Last partition, not less than `first`.
    #[schemars(range(min = 0, max = 63))]
    pub last: u8,
}

/// Request body of `POST /consumers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "name": "acme-logins", "tenant_id": "acme", "event_types": ["USER_LOGIN"] }))]
pub struct CreateConsumer {
    /// Name of the durable consumer, unique in the installation.
    pub name: ConsumerName,
    /// Tenant to read. Absent: the events of all tenants. The tenant need not exist yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tenant_id: Option<TenantId>,
    /// Event types to read, at most 16. Absent: all. The consumer also gets events of other types with the subject of
    /// `GENERIC_EVENT`, and checks the header `ce-type`.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "value::null_is_default")]
    #[schemars(with = "Option<Vec<String>>", length(max = MAX_EVENT_TYPES))]
    pub event_types: Vec<String>,
    /// Partitions to read, so that several consumers can share the events. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "value::optional_object")]
    pub partitions: Option<Partitions>,
}

/// A durable pull consumer of the event stream with explicit acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "name": "acme-logins", "tenant_id": "acme", "event_types": ["USER_LOGIN"], "streams": ["UDM"],
    "created_at": "2026-01-31T12:00:00Z", "pending": 12, "ack_pending": 3, "redelivered": 0,
    "last_delivered_at": "2026-01-31T12:10:00Z", "last_acknowledged_at": "2026-01-31T12:10:00Z",
    "nats": {
        "api_prefix": "JS.API", "inbox_prefix": "_INBOX.acme-logins",
        "publish": [
            "JS.API.CONSUMER.INFO.UDM.acme-logins", "JS.API.CONSUMER.MSG.NEXT.UDM.acme-logins",
            "$JS.ACK.UDM.acme-logins.>", "udm.dlq.v1.acme.acme-logins"
        ],
        "subscribe": ["_INBOX.acme-logins.>"],
    },
}))]
pub struct Consumer {
    /// Name of the durable consumer.
    pub name: ConsumerName,
    /// Tenant that it reads. Absent: the events of all tenants.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tenant_id: Option<TenantId>,
    /// Event types that it reads. Empty: all.
    pub event_types: Vec<String>,
    /// Partitions that it reads. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub partitions: Option<Partitions>,
    /// Streams that contain the durable consumer.
    pub streams: Vec<String>,
    /// Creation time.
    pub created_at: DateTime<Utc>,
    /// Events that were not delivered yet.
    pub pending: u64,
    /// Events that were delivered and not acknowledged yet.
    pub ack_pending: u64,
    /// Events that were delivered more than once and not acknowledged yet.
    pub redelivered: u64,
    /// Time of the last delivery.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_delivered_at: Option<DateTime<Utc>>,
    /// Time of the last acknowledgement.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_acknowledged_at: Option<DateTime<Utc>>,
    /// Permissions of the NATS user of the consumer.
    pub nats: NatsPermissions,
}

/// Permissions of the NATS user of one consumer in the account `CONSUMERS`. The administrator of the broker creates the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NatsPermissions {
    /// Prefix of the consumer API, in place of `$JS.API`.
    pub api_prefix: String,
    /// Prefix of the reply subjects of the client.
    pub inbox_prefix: String,
    /// Subjects that the user may publish.
    pub publish: Vec<String>,
    /// Subjects that the user may subscribe to.
    pub subscribe: Vec<String>,
}

/// Maximum number of dead letters that one request replays.
pub const MAX_DEAD_LETTER_SEQUENCES: usize = 100;

/// An event that a consumer could not handle, or an item that ingest has quarantined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "sequence": 17, "tenant_id": "acme", "source_id": "firewall-7", "event_id": "boot-42", "event_type": "USER_LOGIN",
    "failed_at": "2026-01-31T12:10:00Z", "reason": "no column for `principal.mac`", "attempts": 5,
    "event": { "source_id": "firewall-7", "event_id": "boot-42" },
}))]
pub struct DeadLetter {
    /// Number of the dead letter, ascending with the time.
    pub sequence: u64,
    /// Tenant of the event.
    pub tenant_id: TenantId,
    /// Source of the event. Absent if the consumer has not preserved it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source_id: Option<String>,
    /// Id of the event. Absent if the consumer has not preserved it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_id: Option<String>,
    /// Type of the event. Absent if the consumer has not preserved it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_type: Option<String>,
    /// Time at which the consumer gave up.
    pub failed_at: DateTime<Utc>,
    /// Why the consumer gave up, in its words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Number of attempts of the consumer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub attempts: Option<u32>,
    /// The event. Text if it is not JSON.
    pub event: Value,
    /// Only of a quarantined item: what ingest has found.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "value::optional_object")]
    pub quarantine: Option<QuarantineDetails>,
}

/// Why ingest has quarantined an item, and its original bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "code": "malformed_json", "request_id": "8e2f00700080c5d1", "credential": "key:AZwTcy8AcACAAAAAAAAABA",
    "truncated_from": 300_000, "payload": "eyJzb3VyY2VfaWQi",
}))]
pub struct QuarantineDetails {
    /// Code of the problem.
    pub code: String,
    /// The request that contained the item.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub request_id: Option<String>,
    /// The sender: `session:<id>`, `key:<id>` or `serviceaccount:<namespace>/<name>`. An `<id>` is a UUID in base64url.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub credential: Option<String>,
    /// Size of the item in bytes, if only its first 256 KiB are stored.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub truncated_from: Option<u64>,
    /// Number of this part and of all parts, as in `2/40`: a body that is not a batch is stored in parts of 256 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub part: Option<String>,
    /// The stored bytes in base64. Absent in a list.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub payload: Option<String>,
}

/// Query parameters of `GET /events/quarantine`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct QuarantineQuery {
    /// Tenant of the items. Absent: all tenants for the platform administrator, else the tenant of the caller.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tenant_id: Option<TenantId>,
}

/// Request body of `POST /consumers/{consumer_name}/dead-letters/replay` and `.../delete`, and of `POST /events/quarantine/delete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "sequences": [17, 18] }))]
pub struct DeadLetterSequences {
    /// Numbers of the dead letters, 1 to 100.
    #[schemars(length(min = 1, max = MAX_DEAD_LETTER_SEQUENCES))]
    pub sequences: Vec<u64>,
}

/// Response of `POST /consumers/{consumer_name}/dead-letters/replay`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "replayed": [17], "skipped": [18] }))]
pub struct ReplayedDeadLetters {
    /// Dead letters that were stored as events again, and deleted.
    pub replayed: Vec<u64>,
    /// Numbers that are no dead letter of the consumer, or of one that does not match its event. They are unchanged.
    pub skipped: Vec<u64>,
}

/// Response of `POST /consumers/{consumer_name}/dead-letters/delete` and `POST /events/quarantine/delete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "deleted": [17], "skipped": [18] }))]
pub struct DeletedDeadLetters {
    /// Dead letters that were deleted.
    pub deleted: Vec<u64>,
    /// Numbers that are no dead letter of the consumer, or no quarantined item of the tenant.
    pub skipped: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_token_of_a_subject() {
        assert_eq!("archive-2".parse::<ConsumerName>().unwrap().as_str(), "archive-2");
        for invalid in ["", "_ingest", "a.b", "*", ">", "A", "a b", "-a", &"x".repeat(64)] {
            assert_eq!(invalid.parse::<ConsumerName>(), Err(InvalidConsumerName), "{invalid}");
        }
    }

    #[test]
    fn null_of_an_optional_field_counts_as_absent() {
        let json = r#"{"name":"a","tenant_id":null,"event_types":null,"partitions":null}"#;
        let request: CreateConsumer = serde_json::from_str(json).unwrap();
        assert_eq!(request, serde_json::from_str(r#"{"name":"a"}"#).unwrap());
    }
}
