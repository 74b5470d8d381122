//! Wire types of the audit events of tenants.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::{Actor, InviteId, KeyId, SessionId, TenantId, UserId};
use uuid::Uuid;

use crate::value;

/// Query parameters of `GET /audit`, in addition to those of every list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AuditQuery {
    /// `sequence` of the last record of an earlier response. The first record is the next one. Absent: the first stored record.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after: Option<u64>,
    /// Time from which records were stored. Ignored with `after` and `cursor`.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "value::optional_time")]
    pub since: Option<DateTime<Utc>>,
    /// Name of the event, such as `authn_login_fail`. Absent: all events.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(pattern("^[a-z0-9_]{1,64}$"))]
    pub kind: Option<String>,
    /// User who is affected or who caused the event. Absent: all users.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user_id: Option<UserId>,
    /// Tenant of the records. Absent: the tenant of the credential, or all tenants for the platform administrator.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tenant_id: Option<TenantId>,
}

/// An audit event of a tenant. Fields that do not apply are absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "sequence": 17, "id": "019c1373-2f00-7000-8000-000000000007", "occurred_at": "2026-01-31T12:00:00Z",
    "tenant_id": "acme", "context": "identity", "event": "user_updated", "about": "disabled",
    "actor": { "type": "user", "user_id": "019c1373-2f00-7000-8000-000000000001" },
    "user_id": "019c1373-2f00-7000-8000-000000000002", "ip": "192.0.2.1",
}))]
pub struct AuditRecord {
    /// Number of the record in the stream, ascending. A repeated delivery of the same event has another number.
    pub sequence: u64,
    /// Id of the event. Ids sort by time.
    pub id: Uuid,
    /// Time of the event.
    pub occurred_at: DateTime<Utc>,
    /// Tenant of the event.
    pub tenant_id: TenantId,
    /// Service that recorded the event.
    pub context: String,
    /// Name of the event, from the OWASP Logging Vocabulary.
    pub event: String,
    /// The affected kind of object, or its new state.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub about: Option<String>,
    /// Who caused the event.
    pub actor: Actor,
    /// The affected user.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user_id: Option<UserId>,
    /// The affected session.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session_id: Option<SessionId>,
    /// The affected invite.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub invite_id: Option<InviteId>,
    /// The affected API key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key_id: Option<KeyId>,
    /// The first 8 hex digits of the SHA-256 of the credential.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub credential: Option<String>,
    /// Number of failures, in an event of repeated failures.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub count: Option<u64>,
    /// Number of source addresses, in an event of repeated failures.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sources: Option<u64>,
    /// Address of the client that sent the request, if `SVC_AUDIT_PERSONAL` keeps it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ip: Option<IpAddr>,
    /// E-mail address of the request, if `SVC_AUDIT_PERSONAL` keeps it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub email: Option<String>,
}
