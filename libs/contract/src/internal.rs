//! The internal API between the contexts: its own listener, the shared service token, never routed from outside.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tenancy::{KeyId, SessionId, TenantId, UserId};

use crate::identity::Quota;
use crate::session::SessionMethod;
use crate::{Role, Scope, TenantStatus, UserStatus};

/// Path at which session issues.
pub const ISSUE_SESSION: &str = "/internal/v1/sessions";
/// Path at which session tells who stands behind a credential.
pub const INTROSPECT: &str = "/internal/v1/introspect";

/// Path at which session takes a user's standing: [`SubjectRecord`].
pub fn subject_path(user_id: UserId) -> String {
    format!("{SUBJECTS}/{user_id}")
}

/// Path at which session takes a tenant's standing: [`TenantRecord`].
pub fn tenant_path(tenant_id: &TenantId) -> String {
    format!("{TENANTS}/{tenant_id}")
}

/// Where users' standing lies.
pub const SUBJECTS: &str = "/internal/v1/subjects";
/// Where tenants' standing lies.
pub const TENANTS: &str = "/internal/v1/tenants";

/// A user's standing, whole. An older `version` never overwrites a newer one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectRecord {
    /// Who.
    pub user_id: UserId,
    /// Where.
    pub tenant_id: TenantId,
    /// What they may do.
    pub role: Role,
    /// Whether they may do it.
    pub status: UserStatus,
    /// Rises at password change, reset and disable; a session made under an older one is dead.
    pub credential_version: i64,
    /// The one session that outlives the last rise.
    pub kept_session_id: Option<SessionId>,
    /// Rises at every change of the record.
    pub version: i64,
}

/// A tenant's standing, whole. An older `version` never overwrites a newer one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRecord {
    /// Which.
    pub tenant_id: TenantId,
    /// Whether it is in use.
    pub status: TenantStatus,
    /// Rises at suspension; a session made under an older one is dead.
    pub session_version: i64,
    /// How much it may send.
    pub quota: Quota,
    /// Workloads that may send without a key.
    #[serde(default)]
    pub producers: Vec<Producer>,
    /// Rises at every change of the record.
    pub version: i64,
}

/// A workload that may send events with its service account's token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producer {
    /// The Kubernetes namespace.
    pub namespace: String,
    /// The service account in it.
    pub service_account: String,
    /// The sources it may send for; all when empty.
    #[serde(default)]
    pub source_ids: Vec<String>,
}

/// Asks for a session of a person who has just proven themselves. It carries both records, so that nothing depends on
/// whether an earlier delivery has arrived.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IssueSession {
    /// Whose.
    pub subject: SubjectRecord,
    /// Where.
    pub tenant: TenantRecord,
    /// How they proved themselves.
    pub method: SessionMethod,
    /// The address they came from.
    pub ip: Option<IpAddr>,
    /// What their client calls itself, at most 256 characters.
    pub user_agent: Option<String>,
}

/// Asks who stands behind credentials, by their SHA-256 digests in lower-case hex.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Introspect {
    /// At most 256 digests.
    pub digests: Vec<String>,
}

/// One answer a digest, in the question's order; `None` for a credential that is not live.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Introspected {
    /// The subjects.
    pub subjects: Vec<Option<Subject>>,
}

/// Who stands behind a live credential, and what they may do now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The credential itself.
    pub credential: Credential,
    /// The tenant that it belongs to.
    pub tenant_id: TenantId,
    /// How much the tenant may send.
    pub quota: Quota,
    /// When the credential ends in any case.
    pub expires_at: DateTime<Utc>,
}

/// The two kinds of credential that session knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Credential {
    /// A person's session.
    Session {
        /// Its listed id.
        session_id: SessionId,
        /// Whose.
        user_id: UserId,
        /// What they may do now.
        role: Role,
        /// How it came to be.
        method: SessionMethod,
        /// When it was made.
        created_at: DateTime<Utc>,
        /// When it ends if it is not used.
        idle_expires_at: DateTime<Utc>,
    },
    /// A tenant's API key.
    ApiKey {
        /// Its listed id.
        key_id: KeyId,
        /// What it may be used for.
        scopes: Vec<Scope>,
        /// The sources it may send for; all when empty.
        source_ids: Vec<String>,
    },
}
