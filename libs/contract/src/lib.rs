//! The HTTP API as data: the shapes that go over the wire, the problems it answers, its routes, and who serves which path.
//!
//! Servers and clients both depend on this crate, so it holds no code of either.

pub mod api_key;
pub mod device;
pub mod events;
pub mod identity;
pub mod internal;
mod object;
mod page;
pub mod paths;
pub mod problem;
mod role;
pub mod routes;
mod secret;
pub mod session;
mod trace;

pub use object::Object;
pub use page::{Page, PageQuery};
pub use problem::{FieldError, Problem, ProblemKind};
pub use role::{Role, Scope, TenantStatus, UserStatus};
pub use secret::Secret;
pub use trace::TraceContext;

/// Path prefix of the public API.
pub const API_PREFIX: &str = "/api/v1";
