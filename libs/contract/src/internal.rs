//! The internal APIs of session and identity. Each has its own listener, requires the service token, and is never exposed by the
//! ingress.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tenancy::{Actor, KeyId, SessionId, TenantId, UserId};

use crate::consumers::ConsumerName;
use crate::identity::{Quota, SecondFactorPolicy};
use crate::managed::ServiceAccount;
use crate::role::{UnknownValue, vocabulary};
use crate::session::{ApiKey, AuthMethod, Session, SessionMethod};
use crate::{Role, Scope, TenantStatus, UserStatus};

/// Path of session that creates a session.
pub const ISSUE_SESSION: &str = "/internal/v1/sessions";
/// Path of session that introspects credentials.
pub const INTROSPECT: &str = "/internal/v1/introspect";

/// Path of session that returns the stored data about a user: [`ExportSubject`].
pub const EXPORT_SUBJECT: &str = "/internal/v1/exports";

/// Path of session that records a change in ingest as an audit event: [`RecordChange`].
pub const RECORD_CHANGE: &str = "/internal/v1/changes";

/// Path of session that stores the account status of a user: [`SubjectRecord`].
pub fn subject_path(user_id: UserId) -> String {
    format!("{SUBJECTS}/{user_id}")
}

/// Path of session that stores the status of a tenant: [`TenantRecord`].
pub fn tenant_path(tenant_id: &TenantId) -> String {
    format!("{TENANTS}/{tenant_id}")
}

/// Path prefix of [`subject_path`].
pub const SUBJECTS: &str = "/internal/v1/subjects";
/// Path prefix of [`tenant_path`].
pub const TENANTS: &str = "/internal/v1/tenants";

/// Path of identity that reports a new API key: [`ApiKeyNotice`].
pub fn api_key_notice_path(key_id: KeyId) -> String {
    format!("{API_KEY_NOTICES}/{key_id}")
}

/// Path prefix of [`api_key_notice_path`].
pub const API_KEY_NOTICES: &str = "/internal/v1/api-key-notices";

/// A new API key, for the notice to the administrators of its tenant. It contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyNotice {
    /// Id of the key.
    pub key_id: KeyId,
    /// Tenant of the key.
    pub tenant_id: TenantId,
    /// Display name.
    pub name: String,
    /// Granted scopes.
    pub scopes: Vec<Scope>,
    /// The administrator who created the key.
    pub created_by: UserId,
    /// Time of the creation.
    pub created_at: DateTime<Utc>,
    /// Expiry time of the key.
    pub expires_at: DateTime<Utc>,
}

/// The account status of a user. A record never overwrites one with a higher `version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectRecord {
    /// Id of the user.
    pub user_id: UserId,
    /// Tenant of the user.
    pub tenant_id: TenantId,
    /// Role of the user.
    pub role: Role,
    /// Account status.
    pub status: UserStatus,
    /// Increases when the password changes, the user is disabled, or must log in again for a new role. Sessions with a lower version are
    /// revoked.
    pub credential_version: i64,
    /// Session that stays active in spite of its lower credential version.
    pub kept_session_id: Option<SessionId>,
    /// API keys that the user created under a lower credential version are revoked.
    pub api_key_version: i64,
    /// Whether the user has a second factor: a session without `mfa` is not created, and is no recent login. Required, so that a
    /// service that does not send it cannot log in their users.
    pub has_factor: bool,
    /// Whether the user is deleted: the personal data of the sessions is erased.
    #[serde(default)]
    pub is_deleted: bool,
    /// Increases with every change of the record.
    pub version: i64,
}

/// The status of a tenant. A record never overwrites one with a higher `version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRecord {
    /// Id of the tenant.
    pub tenant_id: TenantId,
    /// Status of the tenant.
    pub status: TenantStatus,
    /// Increases when the tenant is suspended. Sessions with a lower version are revoked.
    pub session_version: i64,
    /// Ingestion limits.
    pub quota: Quota,
    /// Which users must have a second factor: a session without `mfa` is not created for them. Required, as
    /// [`SubjectRecord::has_factor`].
    pub second_factor: SecondFactorPolicy,
    /// Whether the tenant is deleted: all of its sessions and API keys are erased.
    #[serde(default)]
    pub is_deleted: bool,
    /// Increases with every change of the record.
    pub version: i64,
}

/// Request for a session of an authenticated user. It contains both records, so that the session does not depend on an
/// earlier delivery.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IssueSession {
    /// Account status of the user.
    pub subject: SubjectRecord,
    /// Status of the tenant.
    pub tenant: TenantRecord,
    /// Login method.
    pub method: SessionMethod,
    /// How the user authenticated. Required, as [`SubjectRecord::has_factor`].
    pub amr: Vec<AuthMethod>,
    /// Client address.
    pub ip: Option<IpAddr>,
    /// `User-Agent` of the client, at most [`MAX_USER_AGENT`](crate::session::MAX_USER_AGENT) characters.
    pub user_agent: Option<String>,
}

/// Request for the stored data about a user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExportSubject {
    /// Tenant of the user.
    pub tenant_id: TenantId,
    /// The user.
    pub user_id: UserId,
}

/// The stored data about a user, without credentials. At most 1,000 objects of each kind, oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SubjectExport {
    /// Sessions in any state.
    pub sessions: Vec<Session>,
    /// API keys that the user created, in any state.
    pub api_keys: Vec<ApiKey>,
}

vocabulary! {
    /// A change of a consumer or of dead letters: `about` of its audit event.
    IngestChange {
        /// A consumer was created.
        ConsumerCreated = "consumer_created",
        /// The operator changed the filter, the limits or the owner of a consumer.
        ConsumerChanged = "consumer_changed",
        /// The login of a consumer was replaced.
        ConsumerLoginReplaced = "consumer_login_replaced",
        /// The operator removed the login of a consumer, which remains.
        ConsumerLoginRemoved = "consumer_login_removed",
        /// The delivery of a consumer was paused.
        ConsumerPaused = "consumer_paused",
        /// The delivery of a consumer was resumed.
        ConsumerResumed = "consumer_resumed",
        /// A consumer reads from another event.
        ConsumerReset = "consumer_reset",
        /// A consumer was deleted.
        ConsumerDeleted = "consumer_deleted",
        /// Dead letters of a consumer were sent again.
        DeadLettersReplayed = "dead_letters_replayed",
        /// Dead letters of a consumer were deleted.
        DeadLettersDeleted = "dead_letters_deleted",
        /// Quarantined items were deleted.
        QuarantinedDeleted = "quarantined_deleted",
    }
}

/// Request to record a change in ingest, before it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordChange {
    /// Tenant of the consumer or of the dead letters.
    pub tenant_id: TenantId,
    /// Who makes the change.
    pub actor: Actor,
    /// The change.
    pub change: IngestChange,
    /// The consumer. `None` for quarantined items.
    pub consumer: Option<ConsumerName>,
    /// Client address.
    pub ip: Option<IpAddr>,
}

/// Request to introspect credentials by their SHA-256 digests in lower-case hex.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Introspect {
    /// At most 256 digests.
    pub digests: Vec<String>,
}

/// One result per digest, in the order of the request. `None` if the credential is not active.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Introspected {
    /// Subjects of the credentials.
    pub subjects: Vec<Option<Subject>>,
}

/// The subject of an active credential and its current permissions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Kind and attributes of the credential.
    pub credential: Credential,
    /// Tenant of the credential.
    pub tenant_id: TenantId,
    /// Ingestion limits of the tenant.
    pub quota: Quota,
    /// Absolute expiry time.
    pub expires_at: DateTime<Utc>,
}

/// A credential that the session service manages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Credential {
    /// A session of a user.
    Session {
        /// Public id.
        session_id: SessionId,
        /// Id of the user.
        user_id: UserId,
        /// Current role of the user.
        role: Role,
        /// Login method.
        method: SessionMethod,
        /// How the user authenticated.
        amr: Vec<AuthMethod>,
        /// Whether the user has a second factor now.
        has_factor: bool,
        /// Creation time.
        created_at: DateTime<Utc>,
        /// Expiry time of the idle timeout.
        idle_expires_at: DateTime<Utc>,
    },
    /// An API key of a tenant.
    ApiKey {
        /// Public id.
        key_id: KeyId,
        /// Granted scopes.
        scopes: Vec<Scope>,
        /// Allowed `source_id` values. Empty: every source.
        source_ids: Vec<String>,
    },
    /// A Kubernetes service account that may send events for a tenant.
    ServiceAccount {
        /// The service account.
        service_account: ServiceAccount,
        /// Allowed `source_id` values, at least one.
        source_ids: Vec<String>,
    },
}
