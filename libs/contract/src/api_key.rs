//! Wire types of API keys.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::KeyId;

use crate::{Scope, Secret};

/// Request body of `POST /api-keys`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "name": "firewalls", "scopes": ["events:write"], "source_ids": ["fw-1", "fw-2"] }))]
pub struct CreateApiKey {
    /// Display name, 1 to 100 characters.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// Scopes to grant.
    #[serde(default = "events_write")]
    #[schemars(length(min = 1))]
    pub scopes: Vec<Scope>,
    /// Expiry time, at most 365 days from now. Default: 90 days from now.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_at: Option<DateTime<Utc>>,
    /// Allowed `source_id` values, at most 100. Empty: every source.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    #[schemars(length(max = 100))]
    pub source_ids: Vec<String>,
}

fn events_write() -> Vec<Scope> {
    vec![Scope::EventsWrite]
}

/// An API key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "id": "019c1373-2f00-7000-8000-000000000006", "name": "firewalls", "scopes": ["events:write"],
    "source_ids": ["fw-1", "fw-2"], "created_at": "2026-01-31T12:00:00Z", "expires_at": "2026-05-01T12:00:00Z",
    "last_used_at": null,
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
