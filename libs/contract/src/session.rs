//! Wire types of sessions and API keys.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use tenancy::{KeyId, SessionId, TenantId, UserId};

pub use crate::role::{AuthMethod, SessionMethod};
use crate::{Role, Scope, Secret, value};

/// Number of characters of a `User-Agent` that are kept.
pub const MAX_USER_AGENT: usize = 256;

/// Response of a login. No other response contains the raw session token.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "session_id": "svc_st_…", "token_type": "Bearer", "user_id": "019c1373-2f00-7000-8000-000000000002",
    "tenant_id": "acme", "role": "member", "expires_at": "2026-02-01T00:00:00Z",
    "idle_expires_at": "2026-01-31T13:00:00Z",
}))]
pub struct IssuedSession {
    /// The raw session token (`svc_st_…`), for `Authorization: Bearer`.
    pub session_id: Secret,
    /// Always `Bearer` (RFC 6750).
    pub token_type: TokenType,
    /// Id of the user.
    pub user_id: UserId,
    /// Tenant of the user.
    pub tenant_id: TenantId,
    /// Current role of the user.
    pub role: Role,
    /// Absolute expiry time.
    pub expires_at: DateTime<Utc>,
    /// Expiry time of the idle timeout. Each use extends it.
    pub idle_expires_at: DateTime<Utc>,
    /// Ten recovery codes. Only after a login that has set up a second factor, and only in this response.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recovery_codes: Option<Vec<Secret>>,
}

/// Response of a login on the page of own sessions. The token is in a cookie.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "user_id": "019c1373-2f00-7000-8000-000000000002", "tenant_id": "acme", "email": "ada@acme.example",
    "expires_at": "2026-01-31T12:15:00Z",
}))]
pub struct PageSession {
    /// Id of the user.
    pub user_id: UserId,
    /// Tenant of the user.
    pub tenant_id: TenantId,
    /// E-mail address of the user, normalized.
    pub email: String,
    /// Expiry time.
    pub expires_at: DateTime<Utc>,
    /// Ten recovery codes. Only after a login that has set up a second factor, and only in this response.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recovery_codes: Option<Vec<Secret>>,
}

/// Token type of an OAuth response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TokenType {
    /// Send the token as `Authorization: Bearer` (RFC 6750).
    Bearer,
}

/// A session.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "id": "019c1373-2f00-7000-8000-000000000003", "created_at": "2026-01-31T12:00:00Z",
    "last_seen_at": "2026-01-31T12:10:00Z", "expires_at": "2026-02-01T00:00:00Z",
    "idle_expires_at": "2026-01-31T13:10:00Z", "method": "password", "amr": ["pwd"], "ip": "192.0.2.7",
    "user_agent": "svc/0.1.0", "client_name": null, "current": true,
}))]
pub struct Session {
    /// Public id. It is not a credential.
    pub id: SessionId,
    /// Creation time.
    pub created_at: DateTime<Utc>,
    /// Time of last use, with a precision of one minute.
    pub last_seen_at: DateTime<Utc>,
    /// Absolute expiry time.
    pub expires_at: DateTime<Utc>,
    /// Expiry time of the idle timeout. Each use extends it.
    pub idle_expires_at: DateTime<Utc>,
    /// Login method.
    pub method: SessionMethod,
    /// How the person authenticated. A session of a device login has the methods of the session that approved it.
    #[serde(default)]
    pub amr: Vec<AuthMethod>,
    /// Client address at login.
    pub ip: Option<String>,
    /// `User-Agent` at login.
    pub user_agent: Option<String>,
    /// Name of the device that the user approved, of a session of a device login. The device chose it.
    pub client_name: Option<String>,
    /// Whether this session sent the request. Absent in an export.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<bool>,
}

/// Query parameters of `DELETE /auth/sessions`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RevokeSessions {
    /// Whether to keep the session that sends the request.
    #[serde(default)]
    pub keep_current: bool,
}

/// Kind of subject of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubjectType {
    /// A user with a session.
    User,
    /// An API key.
    ApiKey,
}

/// Response of `GET /auth/session`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "subject_type": "user", "user_id": "019c1373-2f00-7000-8000-000000000002", "tenant_id": "acme", "role": "member",
    "scopes": ["events:write"], "method": "password", "amr": ["pwd"], "expires_at": "2026-02-01T00:00:00Z",
    "idle_expires_at": "2026-01-31T13:10:00Z",
}))]
pub struct Whoami {
    /// Kind of subject.
    pub subject_type: SubjectType,
    /// Id of the user.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user_id: Option<UserId>,
    /// Id of the API key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key_id: Option<KeyId>,
    /// Tenant of the credential.
    pub tenant_id: TenantId,
    /// Current role of the user.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub role: Option<Role>,
    /// Scopes of the credential.
    pub scopes: Vec<Scope>,
    /// Login method of the session.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub method: Option<SessionMethod>,
    /// How the user of the session authenticated.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub amr: Vec<AuthMethod>,
    /// Absolute expiry time.
    pub expires_at: DateTime<Utc>,
    /// Expiry time of the idle timeout. Each use extends it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idle_expires_at: Option<DateTime<Utc>>,
}

/// Request body of `POST /api-keys`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "name": "firewalls", "scopes": ["events:write"], "source_ids": ["fw-1", "fw-2"] }))]
pub struct CreateApiKey {
    /// Display name, 1 to 100 characters.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// Scopes to grant.
    #[serde(default = "events_write", deserialize_with = "scopes")]
    #[schemars(with = "Option<Vec<Scope>>", length(min = 1))]
    pub scopes: Vec<Scope>,
    /// Expiry time, at most 365 days from now. Default: 90 days from now.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "value::optional_time")]
    pub expires_at: Option<DateTime<Utc>>,
    /// Allowed `source_id` values, 1 to 100. Absent: every source.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schemars(length(min = 1, max = 100))]
    pub source_ids: Option<Vec<String>>,
}

fn events_write() -> Vec<Scope> {
    vec![Scope::EventsWrite]
}

fn scopes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Scope>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_else(events_write))
}

/// An API key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "id": "019c1373-2f00-7000-8000-000000000006", "name": "firewalls", "scopes": ["events:write"],
    "source_ids": ["fw-1", "fw-2"], "created_by": "019c1373-2f00-7000-8000-000000000002",
    "created_at": "2026-01-31T12:00:00Z", "expires_at": "2026-05-01T12:00:00Z", "last_used_at": null,
}))]
pub struct ApiKey {
    /// Public id. It is not a credential.
    pub id: KeyId,
    /// Display name.
    pub name: String,
    /// Granted scopes.
    pub scopes: Vec<Scope>,
    /// Allowed `source_id` values. Empty: every source.
    pub source_ids: Vec<String>,
    /// Id of the administrator who created the key.
    pub created_by: UserId,
    /// Creation time.
    pub created_at: DateTime<Utc>,
    /// Expiry time.
    pub expires_at: DateTime<Utc>,
    /// Time of last use, with a precision of one minute. `null` if the key was never used.
    pub last_used_at: Option<DateTime<Utc>>,
    /// The key itself (`svc_ak_…`), for `Authorization: Bearer`. Only in the response that creates it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<Secret>,
}
