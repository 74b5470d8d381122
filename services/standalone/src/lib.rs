//! All services in one process, over a private Postgres and nats-server that it starts itself.
//!
//! It runs the same code, SQL and broker as a cluster does, on one machine and without root: `make up` tries the system
//! out with it, and `make test` gets its servers from it. Whatever it starts it also stops, and what an earlier run had
//! to leave behind (it was killed) the next one finds and stops.

#[cfg(feature = "services")]
pub mod contexts;
pub mod data_dir;
#[cfg(feature = "services")]
mod first_tenant;
#[cfg(feature = "services")]
mod greeting;
pub mod run_file;
mod say;
mod secret;
pub mod servers;
mod signals;
mod tools;
#[cfg(feature = "services")]
mod wiring;

pub mod command;

pub use tools::Tools;
