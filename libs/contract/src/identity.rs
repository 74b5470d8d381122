//! Wire types of tenants, users, invites and passwords.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::{InviteId, OutboxId, TenantId, UserId};

use crate::factors::Factor;
pub use crate::role::{InviteStatus, MailKind, MailStatus, SecondFactorPolicy};
use crate::session::{ApiKey, Session};
use crate::{Role, Secret, TenantStatus, UserStatus, value};

/// Delivery of an invite token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// By e-mail. The response contains no token.
    #[default]
    Email,
    /// In the response; no e-mail is sent. Not available to API keys. An administrator needs a recent login.
    Response,
}

/// Request body of `POST /tenants`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "tenant_id": "acme", "display_name": "Acme", "admin_email": "ada@acme.example", "delivery": "response",
}))]
pub struct CreateTenant {
    /// Id of the tenant, immutable.
    pub tenant_id: TenantId,
    /// Display name, 1 to 200 characters.
    #[schemars(length(min = 1, max = 200))]
    pub display_name: String,
    /// The e-mail address of the first administrator to invite.
    #[schemars(email)]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub admin_email: Option<String>,
    /// Delivery of that invite.
    #[serde(default, deserialize_with = "value::null_is_default")]
    #[schemars(with = "Option<Delivery>")]
    pub delivery: Delivery,
    /// Ingestion limits.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "value::optional_object")]
    pub quota: Option<Quota>,
    /// Which users must have a second factor.
    #[serde(default, deserialize_with = "value::null_is_default")]
    #[schemars(with = "Option<SecondFactorPolicy>")]
    pub second_factor: SecondFactorPolicy,
    /// Minimum number of characters of a new password, from the minimum of the installation to 128. Absent: that of the installation.
    #[schemars(range(min = 12, max = 128))]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub password_min_length: Option<u32>,
    /// Whether users can log in with a passkey alone. Absent: yes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub passkey_login: Option<bool>,
}

/// Largest minimum length of a password.
pub const MAX_PASSWORD_MIN_LENGTH: u32 = 128;

/// Maximum of each limit of a quota: fits the database column, and exceeds the capacity of a broker.
pub const MAX_QUOTA: u32 = i32::MAX.cast_unsigned();

/// Ingestion limits of a tenant, enforced by all replicas of ingest together. Events above them are rejected with
/// `quota_exceeded`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Quota {
    /// Events per second. Absent: the default of the installation, which is unlimited unless it is configured.
    #[schemars(range(min = 1, max = i32::MAX))]
    pub events_per_second: Option<u32>,
    /// Bytes of events per second, before compression. Absent: the default of the installation, as above.
    #[schemars(range(min = 1, max = i32::MAX))]
    pub bytes_per_second: Option<u32>,
}

/// A tenant.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "tenant_id": "acme", "display_name": "Acme", "status": "active",
    "quota": { "events_per_second": 500, "bytes_per_second": null }, "second_factor": "administrators",
    "password_min_length": 12, "passkey_login": true, "created_at": "2026-01-31T12:00:00Z",
}))]
pub struct Tenant {
    /// Id.
    pub tenant_id: TenantId,
    /// Display name.
    pub display_name: String,
    /// Status.
    pub status: TenantStatus,
    /// Ingestion limits.
    pub quota: Quota,
    /// Which users must have a second factor.
    pub second_factor: SecondFactorPolicy,
    /// Minimum number of characters of a new password: the larger one of those of the tenant and of the installation.
    pub password_min_length: u32,
    /// Whether users can log in with a passkey alone.
    pub passkey_login: bool,
    /// Creation time.
    pub created_at: DateTime<Utc>,
    /// Invite of the first administrator. Only in the response that creates the tenant.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub invite: Option<Invite>,
}

/// Request body of `POST /users/invite`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "email": "ben@acme.example", "role": "member" }))]
pub struct InviteUser {
    /// The e-mail address to invite.
    #[schemars(email)]
    pub email: String,
    /// Role to assign.
    #[serde(default, deserialize_with = "value::null_is_default")]
    #[schemars(with = "Option<Role>")]
    pub role: Role,
    /// Delivery of the invite token.
    #[serde(default, deserialize_with = "value::null_is_default")]
    #[schemars(with = "Option<Delivery>")]
    pub delivery: Delivery,
}

/// An invite.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "invite_id": "019c1373-2f00-7000-8000-000000000001", "email": "ben@acme.example", "role": "member",
    "status": "pending", "expires_at": "2026-02-03T12:00:00Z", "created_at": "2026-01-31T12:00:00Z",
    "mail": { "status": "failed", "error": "the mail server rejected the mail: 550 5.1.1 no such user" },
}))]
pub struct Invite {
    /// Id.
    pub invite_id: InviteId,
    /// Invited e-mail address, as entered.
    pub email: String,
    /// Role that the user will have.
    pub role: Role,
    /// Status.
    pub status: InviteStatus,
    /// Expiry time of the token.
    pub expires_at: DateTime<Utc>,
    /// Creation time.
    pub created_at: DateTime<Utc>,
    /// The last mail with the token. Absent if a response contained the token instead.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mail: Option<InviteMail>,
    /// The token (`svc_iv_…`). Only with `delivery: response`, and only in this response.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub token: Option<Secret>,
}

/// The mail of an invite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InviteMail {
    /// Status.
    pub status: MailStatus,
    /// Why the last attempt failed: the reply of the mail server, or that it is not available.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// A mail that the mail server has not accepted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "mail_id": "019c1373-2f00-7000-8000-000000000009", "tenant_id": "acme", "kind": "reset", "status": "waiting",
    "user_id": "019c1373-2f00-7000-8000-000000000002", "created_at": "2026-01-31T12:00:00Z", "attempts": 3,
    "next_attempt_at": "2026-01-31T12:00:42Z", "error": "mail server unavailable: connection refused",
}))]
pub struct UndeliveredMail {
    /// Id of the outbox message, as in `svc-identity outbox list`.
    pub mail_id: OutboxId,
    /// The tenant. A client can request a reset for a tenant that does not exist.
    pub tenant_id: TenantId,
    /// Kind.
    pub kind: MailKind,
    /// `waiting` or `failed`.
    pub status: MailStatus,
    /// The recipient. Absent for a reset of an account that does not exist.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user_id: Option<UserId>,
    /// Creation time.
    pub created_at: DateTime<Utc>,
    /// Number of attempts.
    pub attempts: u32,
    /// Time of the next attempt, or the end of the current one. Absent if the mail failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// Why the last attempt failed, as in the log.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// Request body of `POST /users/invites/{invite_id}/resend`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "delivery": "response" }))]
pub struct ResendInvite {
    /// Delivery of the new token.
    #[serde(default, deserialize_with = "value::null_is_default")]
    #[schemars(with = "Option<Delivery>")]
    pub delivery: Delivery,
}

/// Query parameters of `GET /users/invites`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct InviteFilter {
    /// Only invites with this status.
    pub status: Option<InviteStatus>,
}

/// Request body of `POST /users/accept-invite`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "token": "svc_iv_…", "password": "correct-horse-battery-9" }))]
pub struct AcceptInvite {
    /// Invite token (`svc_iv_…`).
    pub token: Secret,
    /// New password.
    pub password: Secret,
}

/// Request body of `POST /users/accept-invite/inspect`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "token": "svc_iv_…" }))]
pub struct InspectInvite {
    /// Invite token (`svc_iv_…`).
    pub token: Secret,
}

/// Response of `POST /users/accept-invite/inspect`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "tenant_id": "acme", "tenant_name": "Acme", "email": "ben@acme.example", "role": "member",
    "invited_by": "ada@acme.example", "expires_at": "2026-02-03T12:00:00Z", "password_min_length": 12,
}))]
pub struct InspectedInvite {
    /// Tenant that the invite is for.
    pub tenant_id: TenantId,
    /// Display name of the tenant.
    pub tenant_name: String,
    /// Invited e-mail address, as entered.
    pub email: String,
    /// Role that the user will have.
    pub role: Role,
    /// E-mail address of the administrator who created the invite. Absent if an API key or the platform administrator
    /// created it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub invited_by: Option<String>,
    /// Expiry time of the token.
    pub expires_at: DateTime<Utc>,
    /// Minimum number of characters of a password.
    pub password_min_length: usize,
}

/// Response of `POST /users/accept-invite`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "user_id": "019c1373-2f00-7000-8000-000000000002", "tenant_id": "acme", "email": "ben@acme.example",
    "role": "member",
}))]
pub struct AcceptedInvite {
    /// Id of the created user.
    pub user_id: UserId,
    /// Tenant of the user.
    pub tenant_id: TenantId,
    /// E-mail address for logins.
    pub email: String,
    /// Role.
    pub role: Role,
}

/// A user.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "user_id": "019c1373-2f00-7000-8000-000000000002", "email": "ben@acme.example", "role": "member",
    "status": "active", "locked": false, "factors_locked_until": null, "created_at": "2026-01-31T12:00:00Z",
    "updated_at": "2026-01-31T12:05:00Z",
}))]
pub struct User {
    /// Id.
    pub user_id: UserId,
    /// E-mail address, as entered in the invite.
    pub email: String,
    /// Role.
    pub role: Role,
    /// Status.
    pub status: UserStatus,
    /// Whether 100 consecutive failed logins have locked the account. It stays locked until the password is reset, or an administrator sets
    /// the status to `active`. Addresses with a login in the last 30 days are exempt.
    pub locked: bool,
    /// Time until which codes of an authenticator app and passkeys are rejected after the password, because 50 were wrong within 24 hours;
    /// null if they are accepted. Recovery codes are accepted. An administrator ends the lock by setting the status to `active`, or by
    /// `DELETE /users/{user_id}/factors`.
    pub factors_locked_until: Option<DateTime<Utc>>,
    /// Time of the first invite.
    pub created_at: DateTime<Utc>,
    /// Time of the last change.
    pub updated_at: DateTime<Utc>,
}

/// Response of `GET /users/{user_id}/export`: the stored data about a user. It contains no credentials.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "tenant_id": "acme",
    "user": {
        "user_id": "019c1373-2f00-7000-8000-000000000002", "email": "ben@acme.example", "role": "member",
        "status": "active", "locked": false, "factors_locked_until": null, "created_at": "2026-01-31T12:00:00Z",
        "updated_at": "2026-01-31T12:05:00Z",
    },
    "factors": [], "invites": [], "sessions": [], "api_keys": [],
}))]
pub struct UserExport {
    /// Tenant of the user.
    pub tenant_id: TenantId,
    /// The user.
    pub user: User,
    /// Second factors, without their secrets.
    #[serde(default)]
    pub factors: Vec<Factor>,
    /// Invites of the e-mail address, oldest first.
    pub invites: Vec<Invite>,
    /// Stored sessions, oldest first, at most 1,000. Revoked and expired ones are stored for a day, except that a login deletes the oldest
    /// of them if the user has more than 100.
    pub sessions: Vec<Session>,
    /// Stored API keys that the user created, oldest first, at most 1,000.
    pub api_keys: Vec<ApiKey>,
}

/// Query parameters of `GET /users`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct UserFilter {
    /// Only the user with this e-mail address. Case and Unicode form are ignored.
    pub email: Option<String>,
    /// Only users with this status.
    pub status: Option<UserStatus>,
}

/// Request body of `POST /auth/password/login`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "email": "ben@acme.example", "password": "correct-horse-battery-9" }))]
pub struct Login {
    /// E-mail address of the account.
    pub email: String,
    /// Password of the account.
    pub password: Secret,
}

/// Request body of `PATCH /tenants/{tenant_id}`. Absent fields are unchanged.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "status": "suspended" }))]
pub struct PatchTenant {
    /// New display name, 1 to 200 characters.
    #[schemars(length(min = 1, max = 200))]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub display_name: Option<String>,
    /// New status. `suspended` revokes the sessions of the tenant and rejects its API keys until it is `active` again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<TenantStatus>,
    /// New ingestion limits. They replace the previous ones: `{}` removes both.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "value::optional_object")]
    pub quota: Option<Quota>,
    /// Which users must have a second factor. A user who has none sets one up at the next login. Existing sessions stay valid.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub second_factor: Option<SecondFactorPolicy>,
    /// New minimum number of characters of a new password, from the minimum of the installation to 128. With that minimum, the tenant
    /// has no own one. Existing passwords stay valid.
    #[schemars(range(min = 12, max = 128))]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub password_min_length: Option<u32>,
    /// Whether users can log in with a passkey alone. If not, a passkey is only a second factor. Existing sessions stay valid.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub passkey_login: Option<bool>,
}

/// Request body of `PATCH /users/{user_id}`. Absent fields are unchanged.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "role": "admin" }))]
pub struct PatchUser {
    /// New role.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub role: Option<Role>,
    /// New status. `disabled` revokes the sessions of the user; `active` enables logins and ends a lockout and a
    /// lock of the second factor.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<UserStatus>,
    /// Whether to revoke the API keys that the user created, and the sessions of the user.
    #[serde(
        skip_serializing_if = "std::ops::Not::not",
        default,
        deserialize_with = "value::null_is_default"
    )]
    #[schemars(with = "Option<bool>")]
    pub revoke_api_keys: bool,
}

/// Request body of `POST /auth/password/change`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "current_password": "correct-horse-battery-9", "new_password": "brisk-otter-lantern-4",
}))]
pub struct ChangePassword {
    /// Current password.
    pub current_password: Secret,
    /// New password.
    pub new_password: Secret,
}

/// Request body of `POST /auth/password/reset`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "email": "ben@acme.example" }))]
pub struct RequestReset {
    /// E-mail address of the account.
    pub email: String,
}

/// Request body of `POST /auth/password/reset/confirm`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "token": "svc_pr_…", "new_password": "brisk-otter-lantern-4" }))]
pub struct ConfirmReset {
    /// Reset token (`svc_pr_…`).
    pub token: Secret,
    /// New password.
    pub new_password: Secret,
    /// Whether to revoke the API keys that the user created.
    #[serde(default, deserialize_with = "value::null_is_default")]
    #[schemars(with = "Option<bool>")]
    pub revoke_api_keys: bool,
}

/// Request body of `POST /auth/password/reset/inspect`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "token": "svc_pr_…" }))]
pub struct InspectReset {
    /// Reset token (`svc_pr_…`).
    pub token: Secret,
}

/// Response of `POST /auth/password/reset/inspect`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "tenant_id": "acme", "tenant_name": "Acme", "email": "ben@acme.example", "expires_at": "2026-01-31T12:30:00Z",
    "password_min_length": 12,
}))]
pub struct InspectedReset {
    /// Tenant of the account.
    pub tenant_id: TenantId,
    /// Display name of the tenant.
    pub tenant_name: String,
    /// E-mail address of the account, as entered.
    pub email: String,
    /// Expiry time of the token.
    pub expires_at: DateTime<Utc>,
    /// Minimum number of characters of a password.
    pub password_min_length: usize,
}

/// Response of `GET /version`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Version {
    /// Version of the server.
    pub version: String,
}

/// Query parameters of pages.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PageLanguage {
    /// Language of this page and of the pages that the browser opens next, such as `de`. An unknown language has no effect.
    pub lang: Option<String>,
}
