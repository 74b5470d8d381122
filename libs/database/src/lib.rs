//! Postgres for a context that owns one schema: the pool, transactions bound to one tenant, migrations, the outbox.
//!
//! Rows of a tenant are reached in two ways only: inside a [`TenantTx`], which row-level security confines to that tenant,
//! or through one of the few `security definer` functions that the schema's migrations list with their reasons.

mod error;
mod metrics;
pub mod migrations;
pub mod outbox;
mod pool;
mod tenant_tx;

pub use error::{Constraint, Error};
pub use pool::{DATABASE_URL, Database};
pub use tenant_tx::TenantTx;
