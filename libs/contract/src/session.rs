//! Sessions on the wire.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::{KeyId, SessionId, TenantId, UserId};

use crate::{Role, Scope, Secret};

/// What a login is answered with: the only place where the raw session token stands.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "session_id": "svc_st_…", "token_type": "Bearer", "user_id": "019c1373-2f00-7000-8000-000000000002",
    "tenant_id": "acme", "role": "member", "expires_at": "2026-02-01T00:00:00Z",
    "idle_expires_at": "2026-01-31T13:00:00Z",
}))]
pub struct IssuedSession {
    /// The raw session token (`svc_st_…`), to be sent as a bearer.
    pub session_id: Secret,
    /// Always `Bearer` (RFC 6750).
    pub token_type: TokenType,
    /// Whose session it is.
    pub user_id: UserId,
    /// In which tenant.
    pub tenant_id: TenantId,
    /// What the user may do now.
    pub role: Role,
    /// When it ends in any case.
    pub expires_at: DateTime<Utc>,
    /// When it ends if it is not used.
    pub idle_expires_at: DateTime<Utc>,
}

/// How the token is to be presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TokenType {
    /// In `Authorization: Bearer` (RFC 6750).
    Bearer,
}

/// How a session came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionMethod {
    /// With e-mail and password.
    Password,
    /// With a device code (RFC 8628).
    Device,
}

/// An entry of the list of sessions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "id": "019c1373-2f00-7000-8000-000000000003", "created_at": "2026-01-31T12:00:00Z",
    "last_seen_at": "2026-01-31T12:10:00Z", "expires_at": "2026-02-01T00:00:00Z",
    "idle_expires_at": "2026-01-31T13:10:00Z", "method": "password", "ip": "192.0.2.7", "user_agent": "svc/0.1.0",
    "current": true,
}))]
pub struct Session {
    /// The listed id; it is no credential.
    pub id: SessionId,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was last used, to the minute.
    pub last_seen_at: DateTime<Utc>,
    /// When it ends in any case.
    pub expires_at: DateTime<Utc>,
    /// When it ends if it is not used.
    pub idle_expires_at: DateTime<Utc>,
    /// How it came to be.
    pub method: SessionMethod,
    /// The address it was made from.
    pub ip: Option<String>,
    /// What the client called itself when it was made.
    pub user_agent: Option<String>,
    /// Whether it is the one that asks.
    pub current: bool,
}

/// `DELETE /auth/sessions`: which ones.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RevokeSessions {
    /// Whether the session that asks stays.
    #[serde(default)]
    pub keep_current: bool,
}

/// What kind of caller stands behind a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubjectType {
    /// A person with a session.
    User,
    /// An API key.
    ApiKey,
}

/// `GET /auth/session`: who the credential is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "subject_type": "user", "user_id": "019c1373-2f00-7000-8000-000000000002", "tenant_id": "acme", "role": "member",
    "scopes": ["events:write"], "method": "password", "expires_at": "2026-02-01T00:00:00Z",
    "idle_expires_at": "2026-01-31T13:10:00Z",
}))]
pub struct Whoami {
    /// Person or key.
    pub subject_type: SubjectType,
    /// The person's id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user_id: Option<UserId>,
    /// The key's id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key_id: Option<KeyId>,
    /// The tenant that the credential belongs to.
    pub tenant_id: TenantId,
    /// What the person may do now.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub role: Option<Role>,
    /// What the credential may be used for.
    pub scopes: Vec<Scope>,
    /// How the session came to be.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub method: Option<SessionMethod>,
    /// When the credential ends in any case.
    pub expires_at: DateTime<Utc>,
    /// When it ends if it is not used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub idle_expires_at: Option<DateTime<Utc>>,
}
