//! Wire types of the audit events of tenants.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::{Actor, InviteId, KeyId, SessionId, TenantId, UserId};
use uuid::Uuid;

use crate::role::{UnknownValue, vocabulary};
use crate::session::AuthMethod;
use crate::value;

vocabulary! {
    /// The name of an event, from the OWASP Logging Vocabulary. It is also the last token of the subject.
    EventName {
        /// A login succeeded.
        AuthnLoginSuccess = "authn_login_success",
        /// A login failed. The event does not contain the reason.
        AuthnLoginFail = "authn_login_fail",
        /// A right password needs a second factor, or its set-up. The login is not complete.
        AuthnLoginChallenge = "authn_login_challenge",
        /// An account was locked after too many failures. A reset or an administrator unlocks it.
        AuthnLoginLock = "authn_login_lock",
        /// A password was changed or reset.
        AuthnPasswordChange = "authn_password_change",
        /// A password change failed.
        AuthnPasswordChangeFail = "authn_password_change_fail",
        /// A second factor was added, removed or used up.
        AuthnFactorChange = "authn_factor_change",
        /// A wrong code or passkey was used after the right password.
        AuthnFactorFail = "authn_factor_fail",
        /// The codes and passkeys of a user were locked after too many wrong ones.
        AuthnFactorLock = "authn_factor_lock",
        /// An invite or an API key was created, or a device grant approved.
        AuthnTokenCreated = "authn_token_created",
        /// An invite, an API key or a session was revoked, or a device grant denied.
        AuthnTokenRevoked = "authn_token_revoked",
        /// A session was created.
        SessionCreated = "session_created",
        /// A session expired. The database function of session's expiry task writes this event.
        SessionExpired = "session_expired",
        /// An invited user set a password.
        UserCreated = "user_created",
        /// A user was disabled or enabled.
        UserUpdated = "user_updated",
        /// A user was deleted and the personal data erased.
        UserDeleted = "user_deleted",
        /// The role of a user was changed.
        PrivilegePermissionsChanged = "privilege_permissions_changed",
        /// The platform administrator or the operator changed a tenant, a producer, a consumer or its dead letters, or an
        /// administrator deleted quarantined items.
        AuthzAdmin = "authz_admin",
    }
}

/// Query parameters of `GET /audit`, in addition to those of every list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AuditQuery {
    /// `position` of the last record of an earlier response. The first record is the next one. Absent: the first stored record.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after: Option<String>,
    /// Time from which records were stored. Ignored with `after` and `cursor`.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "value::optional_time")]
    pub since: Option<DateTime<Utc>>,
    /// Name of the event, such as `authn_login_fail`. Absent: all events.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kind: Option<EventName>,
    /// User who is affected or who caused the event. Absent: all users.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user_id: Option<UserId>,
    /// API key that is affected or that caused the event. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key_id: Option<KeyId>,
    /// Tenant of the records. Absent: the tenant of the credential, or all tenants for the platform administrator.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tenant_id: Option<TenantId>,
}

/// An audit event of a tenant. Fields that do not apply are absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "position": "q1fHhX0kSlZK0Yc2sUuKQ8xYtO3rJpZb", "id": "019c1373-2f00-7000-8000-000000000007", "occurred_at": "2026-01-31T12:00:00Z",
    "tenant_id": "acme", "context": "identity", "event": "user_updated", "about": "disabled",
    "actor": { "type": "user", "user_id": "019c1373-2f00-7000-8000-000000000001" },
    "user_id": "019c1373-2f00-7000-8000-000000000002", "ip": "192.0.2.1",
}))]
pub struct AuditRecord {
    /// Position of the record in the stream, as opaque text for `after`. It is valid for requests about the same tenant. A repeated
    /// delivery of the same event has another position.
    pub position: String,
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
    /// The affected consumer of the event stream.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub consumer: Option<String>,
    /// Id of the request, in an event about consumers, dead letters or quarantined items.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub request_id: Option<String>,
    /// The first 8 hex digits of the SHA-256 of the credential.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub credential: Option<String>,
    /// How the user of a created session authenticated.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub amr: Vec<AuthMethod>,
    /// Number of failures, in an event of repeated failures.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub count: Option<u64>,
    /// Number of source addresses, in an event of repeated failures.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sources: Option<u64>,
    /// Address of the client that sent the request, if `SVC_AUDIT_PERSONAL` keeps it. A member does not get the one of another person.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ip: Option<IpAddr>,
    /// E-mail address of the request, if `SVC_AUDIT_PERSONAL` keeps it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub email: Option<String>,
}
