//! Postgres for a context that owns one schema: the pool, the unit of work, migrations and the outbox.
//!
//! A context reads and writes rows of a tenant in two ways only: inside a [`TenantTx`] or a [`TenantCall`], which row-level security
//! confines to that tenant, or through one of the `security definer` functions that the migrations of its schema list with reasons.

mod access;
pub mod audit;
mod database;
mod error;
pub mod migrations;
pub mod outbox;
mod parts;
mod pool;
mod rotation;
mod unit_of_work;

pub use access::DatabaseAccess;
pub use database::{Database, DatabaseSettings};
pub use error::Error;
pub use parts::Parts;
pub use pool::{Connection, Pool};
pub use unit_of_work::{TenantCall, TenantTx, UnitOfWork};
