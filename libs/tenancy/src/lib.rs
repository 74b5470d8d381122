//! Typed ids of tenants, users and what they own, and the request headers that name them.
//!
//! An id of one kind can never stand where another is meant. A header names something; it never grants anything.

mod headers;
mod ids;
mod scope;
mod tenant_id;

pub use headers::{
    HeaderError, SessionHeader, TenantHeader, UserHeader, X_SESSION_ID, X_TENANT_ID, X_USER_ID,
};
pub use ids::{InviteId, KeyId, SessionId, UserId};
pub use scope::TenantScope;
pub use tenant_id::{InvalidTenantId, TenantId};
