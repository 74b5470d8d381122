//! Typed ids, the actor and the tenant of a database transaction, and the names of the request headers that carry ids.
//!
//! An id of one kind cannot be used where another kind is expected. The crate has no server dependencies; the feature
//! `sqlx` adds the database encoding of the ids.

mod ids;

use http::HeaderName;
use serde::Serialize;

pub use ids::{
    DeviceGrantId, InvalidTenantId, InviteId, KeyId, OutboxId, ResetId, SessionId, TenantId, UserId,
};

/// Names the tenant that a request acts on.
pub const X_TENANT_ID: HeaderName = HeaderName::from_static("x-tenant-id");
/// Names the user that a request acts on.
pub const X_USER_ID: HeaderName = HeaderName::from_static("x-user-id");
/// Carries the raw session token to revoke.
pub const X_SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");

/// A tenant id with the reason for accessing its rows. A constructor documents the reason; it does not verify anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantScope(TenantId);

impl TenantScope {
    /// The tenant of a verified bearer credential.
    pub fn of_credential(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// The tenant of a single-use token that was found by its digest.
    pub fn of_token(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// The tenant of a user after a successful password check.
    pub fn of_password(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// The tenant named by an unauthenticated request. Use it only to record the attempt.
    pub fn of_unverified_header(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// The tenant named by the platform administrator, who may access every tenant.
    pub fn of_platform_admin(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// The tenant of a record of the services themselves: an outbox message, or an account status that identity pushed.
    pub fn of_internal_record(tenant_id: TenantId) -> Self {
        Self(tenant_id)
    }

    /// Returns the tenant id.
    pub fn tenant_id(&self) -> &TenantId {
        &self.0
    }
}

/// Who causes a change, as audit events name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Actor {
    /// An unauthenticated client.
    #[default]
    Anonymous,
    /// A user.
    User {
        /// The owner of the session, password or token.
        user_id: UserId,
    },
    /// An API key.
    ApiKey {
        /// The key.
        key_id: KeyId,
    },
    /// The platform administrator.
    PlatformAdmin,
    /// The service itself.
    System,
}
