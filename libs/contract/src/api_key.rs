//! API keys on the wire.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::KeyId;

use crate::{Scope, Secret};

/// `POST /api-keys`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "name": "firewalls", "scopes": ["events:write"], "source_ids": ["fw-1", "fw-2"] }))]
pub struct CreateApiKey {
    /// What people call the key, 1 to 100 characters.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// What it may be used for.
    #[serde(default = "events_write")]
    #[schemars(length(min = 1))]
    pub scopes: Vec<Scope>,
    /// When it ends, at most 365 days from now; 90 days from now when absent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_at: Option<DateTime<Utc>>,
    /// The only sources it may send for, at most 100; all when empty.
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
    /// Its id; it is no credential.
    pub id: KeyId,
    /// What people call it.
    pub name: String,
    /// What it may be used for.
    pub scopes: Vec<Scope>,
    /// The only sources it may send for; all when empty.
    pub source_ids: Vec<String>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it ends.
    pub expires_at: DateTime<Utc>,
    /// When it was last used, to the minute; absent when it never was.
    pub last_used_at: Option<DateTime<Utc>>,
    /// The raw key (`svc_ak_…`), to be sent as a bearer; in the answer to its creation only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<Secret>,
}
