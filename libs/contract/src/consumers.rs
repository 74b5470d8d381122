//! Wire types of consumers: durable consumers of the event stream and their logins at the broker, and dead letters.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, SecondsFormat, Utc};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tenancy::{TenantId, serde_as_text};

use crate::value;

/// Maximum number of event types of a consumer. Each is a filter of the broker.
pub const MAX_EVENT_TYPES: usize = 16;
/// Maximum of `ack_wait_seconds`.
pub const MAX_ACK_WAIT_SECONDS: u32 = 3600;
/// Maximum of `max_ack_pending`.
pub const MAX_ACK_PENDING: u32 = 10_000;

/// Name of a consumer: 1 to 63 characters of `a-z`, `0-9` and `-`, without a leading or trailing hyphen. It is a token of NATS
/// subjects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(transparent)]
pub struct ConsumerName(#[schemars(pattern("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))] String);

/// The text is not a name of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a consumer name has 1 to 63 characters of a-z, 0-9 and '-', without a leading or trailing hyphen")]
pub struct InvalidConsumerName;

impl ConsumerName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ConsumerName {
    type Err = InvalidConsumerName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The form of a tenant id.
        match text.parse::<TenantId>() {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(_) => Err(InvalidConsumerName),
        }
    }
}

serde_as_text!(ConsumerName);

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

/// The first event that a consumer reads: `all`, `new`, or a time (RFC 3339).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConsumerStart {
    /// The oldest stored event.
    #[default]
    All,
    /// The first event after the request.
    New,
    /// The first event that was stored at this time or later.
    At(DateTime<Utc>),
}

/// The text is not a start of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `all`, `new`, or a time such as 2026-01-31T12:00:00Z")]
pub struct InvalidConsumerStart;

impl FromStr for ConsumerStart {
    type Err = InvalidConsumerStart;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::All),
            "new" => Ok(Self::New),
            // The broker has no earlier time.
            time => match time.parse::<DateTime<Utc>>() {
                Ok(time) => Ok(Self::At(time.max(DateTime::UNIX_EPOCH))),
                Err(_) => Err(InvalidConsumerStart),
            },
        }
    }
}

impl JsonSchema for ConsumerStart {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ConsumerStart".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "enum": ["all", "new"] }, { "type": "string", "format": "date-time" }] })
    }
}

serde_as_text!(ConsumerStart);

impl fmt::Display for ConsumerStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::New => f.write_str("new"),
            Self::At(time) => f.write_str(&time.to_rfc3339_opts(SecondsFormat::AutoSi, true)),
        }
    }
}

/// Request body of `POST /consumers`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "name": "acme-logins", "tenant_id": "acme", "event_types": ["USER_LOGIN"] }))]
pub struct CreateConsumer {
    /// Name of the durable consumer and of its user at the broker, unique in the installation.
    pub name: ConsumerName,
    /// Tenant to read. Required, unless `all_tenants` is true. The tenant need not exist yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tenant_id: Option<TenantId>,
    /// Whether to read the events of all tenants, instead of those of `tenant_id`.
    #[serde(
        skip_serializing_if = "std::ops::Not::not",
        default,
        deserialize_with = "value::null_is_default"
    )]
    #[schemars(with = "Option<bool>")]
    pub all_tenants: bool,
    /// Event types to read, at most 16. Absent: all. The consumer also gets events of other types with the subject of
    /// `GENERIC_EVENT`, and checks the header `ce-type`.
    #[serde(skip_serializing_if = "Vec::is_empty", default, deserialize_with = "value::null_is_default")]
    #[schemars(with = "Option<Vec<String>>", length(max = MAX_EVENT_TYPES))]
    pub event_types: Vec<String>,
    /// Partitions to read, so that several consumers can share the events. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "value::optional_object")]
    pub partitions: Option<Partitions>,
    /// The first event to read: `all` (default) stored events, `new` ones only, or those since a time, which must not be in the future.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub start: Option<ConsumerStart>,
    /// Seconds until an event without an acknowledgement is delivered again, 30 by default.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(range(min = 1, max = MAX_ACK_WAIT_SECONDS))]
    pub ack_wait_seconds: Option<u32>,
    /// Maximum number of delivered events without an acknowledgement, 1,000 by default. More are not delivered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(range(min = 1, max = MAX_ACK_PENDING))]
    pub max_ack_pending: Option<u32>,
}

/// Request body of `POST /consumers/{consumer_name}/reset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "to": "2026-01-31T12:00:00Z" }))]
pub struct ResetConsumer {
    /// The next event to read: `all` stored events, `new` ones only, or those since a time, which must not be in the future.
    pub to: ConsumerStart,
}

/// A time in which the broker rejects the login of a consumer, because it sent too many messages. The suspension ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "since": "2026-01-31T12:10:00Z", "until": "2026-01-31T12:11:00Z", "messages_per_second": 81_000,
}))]
pub struct ConsumerSuspension {
    /// Start.
    pub since: DateTime<Utc>,
    /// End.
    pub until: DateTime<Utc>,
    /// Messages per second that the login sent to a server.
    pub messages_per_second: u64,
}

impl ConsumerSuspension {
    /// Whether the broker rejects the login.
    pub fn is_active(&self, now: DateTime<Utc>) -> bool {
        now < self.until
    }
}

/// A durable pull consumer of the event stream with explicit acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "name": "acme-logins", "tenant_id": "acme", "event_types": ["USER_LOGIN"], "streams": ["UDM"],
    "created_at": "2026-01-31T12:00:00Z", "pending": 12, "ack_pending": 3, "redelivered": 0, "oldest_unread_seconds": 90,
    "last_delivered_at": "2026-01-31T12:10:00Z", "last_acknowledged_at": "2026-01-31T12:10:00Z",
    "ack_wait_seconds": 30, "max_ack_pending": 1000, "paused": false, "start": "all",
    "filter_subjects": ["udm.v1.*.acme.USER_LOGIN", "udm.v1.*.acme.GENERIC_EVENT"],
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
    /// Age of the oldest event that the consumer has not acknowledged, in seconds; 0 without such an event. Absent in responses that
    /// contain a login.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub oldest_unread_seconds: Option<u64>,
    /// Time of the last delivery.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_delivered_at: Option<DateTime<Utc>>,
    /// Time of the last acknowledgement.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_acknowledged_at: Option<DateTime<Utc>>,
    /// Seconds until an event without an acknowledgement is delivered again.
    pub ack_wait_seconds: u32,
    /// Maximum number of delivered events without an acknowledgement.
    pub max_ack_pending: u32,
    /// Whether the broker delivers no events until the consumer is resumed.
    pub paused: bool,
    /// The suspension of its login. Absent unless the login is suspended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub suspension: Option<ConsumerSuspension>,
    /// The first event to read, as requested at the creation or the last reset; as a resource of the operator requests it, if one
    /// manages the consumer.
    pub start: ConsumerStart,
    /// Subjects of the events that it reads, as a client sends them that creates its consumer.
    pub filter_subjects: Vec<String>,
}

/// Response of `POST /consumers` and `POST /consumers/{consumer_name}/rotate-login`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "name": "acme-logins", "tenant_id": "acme", "event_types": ["USER_LOGIN"], "streams": ["UDM"],
    "created_at": "2026-01-31T12:00:00Z", "pending": 12, "ack_pending": 0, "redelivered": 0,
    "ack_wait_seconds": 30, "max_ack_pending": 1000, "paused": false, "start": "all",
    "filter_subjects": ["udm.v1.*.acme.USER_LOGIN", "udm.v1.*.acme.GENERIC_EVENT"],
    "login": { "user": "acme-logins", "password": "svc_cl_…", "active": true },
}))]
pub struct CreatedConsumer {
    /// The consumer.
    #[serde(flatten)]
    pub consumer: Consumer,
    /// Its login. Null if the consumer existed with this definition, also after a lost response: replace a lost login.
    #[serde(default)]
    pub login: Option<ConsumerLogin>,
}

/// The login of a consumer at the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "user": "acme-logins", "password": "svc_cl_…", "active": true }))]
pub struct ConsumerLogin {
    /// User of NATS, the name of the consumer.
    pub user: String,
    /// Password. Only its hash is stored.
    pub password: String,
    /// Whether the broker accepts the login. If not, the administrator of the broker installs the accounts of consumers
    /// (`GET /consumers/_accounts`).
    pub active: bool,
}

/// Response of `GET /consumers/_accounts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "content": "CONSUMER_0 { … }\n" }))]
pub struct ConsumerAccounts {
    /// The complete file `consumers.conf` of the broker, with the hashes of all logins.
    pub content: String,
}

/// Maximum number of dead letters that one request replays.
pub const MAX_DEAD_LETTER_SEQUENCES: usize = 100;

/// An event that a consumer could not handle, or an item that ingest has quarantined.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "sequence": 17, "tenant_id": "acme", "source_id": "firewall-7", "event_id": "boot-42", "event_type": "USER_LOGIN",
    "failed_at": "2026-01-31T12:10:00Z", "reason": "no column for `principal.mac`", "attempts": 5,
    "event": { "source_id": "firewall-7", "event_id": "boot-42" },
}))]
pub struct DeadLetter {
    /// Number of the dead letter, ascending with the time for the platform administrator. A tenant has other numbers, without an order.
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
    /// The event as it is stored. Line breaks between its values are replaced by spaces. Text if it is not JSON, or if it has numbers or
    /// strings that not all parsers read; null if the dead letter refers to an event that is not stored any more.
    #[schemars(with = "Value")]
    pub event: Box<RawValue>,
    /// Only of a quarantined item: what ingest has found.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "value::optional_object")]
    pub quarantine: Option<QuarantineDetails>,
}

/// Why ingest has quarantined an item, and its original bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "code": "malformed_json", "request_id": "8e2f00700080c5d1", "credential": "key:AZwTcy8AcACAAAAAAAAABA",
    "part": "1/2", "payload": "eyJzb3VyY2VfaWQi",
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
    /// Number of this part and of all parts, as in `2/40`: an item of more than 256 KiB and a body that is not a batch are stored in parts
    /// of 256 KiB.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub part: Option<String>,
    /// The stored bytes in base64. Absent in a list.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub payload: Option<String>,
}

/// Query parameters of `GET /consumers`, `GET /consumers/{consumer_name}/dead-letters` and `GET /events/quarantine`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TenantQuery {
    /// Tenant of the items. Absent: all for the platform administrator, else the tenant of the caller. A consumer of all tenants is in
    /// the list of all only.
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
    /// Only those of this tenant; others are skipped. Absent: all tenants for the platform administrator, else the tenant of the caller.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tenant_id: Option<TenantId>,
}

/// Response of `POST /consumers/{consumer_name}/dead-letters/replay` and `.../delete`, and of `POST /events/quarantine/delete`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "handled": [17], "skipped": [18] }))]
pub struct HandledDeadLetters {
    /// Dead letters that were replayed or deleted. A replayed one was stored as an event again, and deleted.
    pub handled: Vec<u64>,
    /// Numbers that are no dead letter of the consumer, or no quarantined item of the tenant; in a replay also those of dead letters
    /// that do not match their event, or without a stored event. They are unchanged.
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
    fn a_start_is_all_or_new_or_a_time() {
        for text in ["all", "new", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00.250Z"] {
            assert_eq!(text.parse::<ConsumerStart>().unwrap().to_string(), text);
        }
        assert_eq!("0001-01-01T00:00:00Z".parse(), Ok(ConsumerStart::At(DateTime::UNIX_EPOCH)));
        for invalid in ["", "old", "2026-01-31"] {
            assert_eq!(invalid.parse::<ConsumerStart>(), Err(InvalidConsumerStart), "{invalid}");
        }
    }

    #[test]
    fn null_of_an_optional_field_counts_as_absent() {
        let json = r#"{"name":"a","tenant_id":null,"all_tenants":null,"event_types":null,"partitions":null,"start":null}"#;
        let request: CreateConsumer = serde_json::from_str(json).unwrap();
        assert_eq!(request, serde_json::from_str(r#"{"name":"a"}"#).unwrap());
    }
}
