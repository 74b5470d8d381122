//! Tenants, users, invites and passwords on the wire.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::{InviteId, TenantId, UserId};

pub use crate::role::InviteStatus;
use crate::{Role, Secret, TenantStatus, UserStatus, object};

/// How an invite reaches the person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// By mail; the answer holds no token.
    #[default]
    Email,
    /// In the answer; no mail is sent. Not for an API key, which gets to see no token.
    Response,
}

/// `POST /tenants`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "tenant_id": "acme", "display_name": "Acme", "admin_email": "ada@acme.example", "delivery": "response",
}))]
pub struct CreateTenant {
    /// A DNS label, immutable.
    pub tenant_id: TenantId,
    /// What people call the tenant, 1 to 200 characters.
    #[schemars(length(min = 1, max = 200))]
    pub display_name: String,
    /// The e-mail address of the first administrator to invite.
    #[schemars(email)]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub admin_email: Option<String>,
    /// How that invite is delivered.
    #[serde(default)]
    pub delivery: Delivery,
    /// Limits on ingestion, per ingest replica; none when absent.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "object::optional")]
    pub quota: Option<Quota>,
}

/// How much a tenant may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Quota {
    /// Events a second; no limit when absent.
    #[schemars(range(min = 1, max = i32::MAX))]
    pub events_per_second: Option<u32>,
    /// Bytes a second; no limit when absent.
    #[schemars(range(min = 1, max = i32::MAX))]
    pub bytes_per_second: Option<u32>,
}

/// A tenant.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "tenant_id": "acme", "display_name": "Acme", "status": "active",
    "quota": { "events_per_second": 500, "bytes_per_second": null }, "created_at": "2026-01-31T12:00:00Z",
}))]
pub struct Tenant {
    /// Its id.
    pub tenant_id: TenantId,
    /// Its name.
    pub display_name: String,
    /// Its standing.
    pub status: TenantStatus,
    /// How much it may send.
    pub quota: Quota,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// The first administrator's invite, in the answer to its creation only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub invite: Option<Invite>,
}

/// `POST /users/invite`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "email": "ben@acme.example", "role": "member" }))]
pub struct InviteUser {
    /// The e-mail address to invite.
    #[schemars(email)]
    pub email: String,
    /// What they may do.
    #[serde(default = "member")]
    pub role: Role,
    /// How the invite is delivered.
    #[serde(default)]
    pub delivery: Delivery,
}

const fn member() -> Role {
    Role::Member
}

/// An invite.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "invite_id": "019c1373-2f00-7000-8000-000000000001", "email": "ben@acme.example", "role": "member",
    "status": "pending", "expires_at": "2026-02-03T12:00:00Z", "created_at": "2026-01-31T12:00:00Z",
}))]
pub struct Invite {
    /// Its id.
    pub invite_id: InviteId,
    /// Who is invited, as typed.
    pub email: String,
    /// What they will be.
    pub role: Role,
    /// Its state.
    pub status: InviteStatus,
    /// When its token ends.
    pub expires_at: DateTime<Utc>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// The raw token (`svc_iv_…`), only with `delivery: response`, only once.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub token: Option<Secret>,
}

/// `POST /users/invites/{invite_id}/resend`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "delivery": "response" }))]
pub struct ResendInvite {
    /// How the invite is delivered this time.
    #[serde(default)]
    pub delivery: Delivery,
}

/// `GET /users/invites`: which ones.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct InviteFilter {
    /// Those in this state; all when absent.
    pub status: Option<InviteStatus>,
}

/// `POST /users/accept-invite`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "token": "svc_iv_…", "password": "correct-horse-battery-9" }))]
pub struct AcceptInvite {
    /// The raw invite token.
    pub token: Secret,
    /// The password to set.
    pub password: Secret,
}

/// The answer to an accepted invite.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "user_id": "019c1373-2f00-7000-8000-000000000002", "tenant_id": "acme", "email": "ben@acme.example",
    "role": "member",
}))]
pub struct AcceptedInvite {
    /// The user that now exists.
    pub user_id: UserId,
    /// Where.
    pub tenant_id: TenantId,
    /// The address to log in with.
    pub email: String,
    /// What they may do.
    pub role: Role,
}

/// A user.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "user_id": "019c1373-2f00-7000-8000-000000000002", "email": "ben@acme.example", "role": "member",
    "status": "active", "created_at": "2026-01-31T12:00:00Z", "updated_at": "2026-01-31T12:05:00Z",
}))]
pub struct User {
    /// Its id.
    pub user_id: UserId,
    /// The address, as typed when invited.
    pub email: String,
    /// What they may do.
    pub role: Role,
    /// Their standing.
    pub status: UserStatus,
    /// When they were first invited.
    pub created_at: DateTime<Utc>,
    /// When the record last changed.
    pub updated_at: DateTime<Utc>,
}

/// `GET /users`: which ones.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct UserFilter {
    /// The one with this address, however it is written; all when absent.
    pub email: Option<String>,
    /// Those who stand so; all when absent.
    pub status: Option<UserStatus>,
}

/// `POST /auth/password/login`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "email": "ben@acme.example", "password": "correct-horse-battery-9" }))]
pub struct Login {
    /// The address of the account.
    pub email: String,
    /// Its password.
    pub password: Secret,
}

/// `PATCH /tenants/{id}`: what is absent stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "status": "suspended" }))]
pub struct PatchTenant {
    /// A new name, 1 to 200 characters.
    #[schemars(length(min = 1, max = 200))]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub display_name: Option<String>,
    /// `suspended` ends the tenant's sessions and refuses its keys until it is `active` again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<TenantStatus>,
    /// A new quota, whole.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "object::optional")]
    pub quota: Option<Quota>,
}

/// `PATCH /users/{id}`: what is absent stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "role": "admin" }))]
pub struct PatchUser {
    /// A new role.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub role: Option<Role>,
    /// `disabled` ends the user's sessions; `active` lets them log in again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<UserStatus>,
}

/// `POST /auth/password/change`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({
    "current_password": "correct-horse-battery-9", "new_password": "brisk-otter-lantern-4",
}))]
pub struct ChangePassword {
    /// The password as it is: the proof.
    pub current_password: Secret,
    /// The password as it shall be.
    pub new_password: Secret,
}

/// `POST /auth/password/reset`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "email": "ben@acme.example" }))]
pub struct RequestReset {
    /// The address of the account.
    pub email: String,
}

/// `POST /auth/password/reset/confirm`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(example = json!({ "token": "svc_pr_…", "new_password": "brisk-otter-lantern-4" }))]
pub struct ConfirmReset {
    /// The raw reset token (`svc_pr_…`).
    pub token: Secret,
    /// The password to set.
    pub new_password: Secret,
}

/// `GET /version`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Version {
    /// The version of the build that answers.
    pub version: String,
}
