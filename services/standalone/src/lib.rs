//! All services in one process, over a private Postgres and nats-server.
//!
//! The services run the same code, SQL and broker as in a cluster, on one machine and without root. `make up` starts the whole
//! system; `make test` uses the servers only.

pub mod command;
pub mod run_file;
pub mod services;
mod wiring;
