//! Typed ids, and the names of the request headers that carry them.
//!
//! An id of one kind cannot be used where another kind is expected. The crate has no server dependencies; the feature
//! `sqlx` adds the database encoding of the ids.

mod actor;
mod ids;
mod scope;
mod tenant_id;

use http::HeaderName;

pub use actor::Actor;
pub use ids::{DeviceGrantId, InviteId, KeyId, OutboxId, ResetId, SessionId, UserId};
pub use scope::TenantScope;
pub use tenant_id::{InvalidTenantId, TenantId};

/// Names the tenant that a request acts on.
pub const X_TENANT_ID: HeaderName = HeaderName::from_static("x-tenant-id");
/// Names the user that a request acts on.
pub const X_USER_ID: HeaderName = HeaderName::from_static("x-user-id");
/// Carries the raw session token to revoke.
pub const X_SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");
