//! The HTTP API as data: wire types, problem kinds, routes, and the assignment of paths to services.
//!
//! Servers and clients depend on this crate, so it has no server or client dependencies.

pub mod audit;
pub mod consumers;
pub mod device;
pub mod events;
pub mod factors;
pub mod identity;
pub mod internal;
pub mod managed;
pub mod names;
pub mod paths;
pub mod problem;
mod role;
pub mod routes;
pub mod session;
mod trace;
mod value;

pub use problem::{FieldError, Problem, ProblemKind, escape_pointer_token};
pub use role::{Role, Scope, TenantStatus, UserStatus};
pub use trace::TraceContext;
pub use value::{Object, Page, PageQuery, Secret, null_is_default};

/// Path prefix of the public API.
pub const API_PREFIX: &str = "/api/v1";
