//! Fixtures of the cross-service tests: the binaries as processes, and their clients.
//!
//! Each process stops with its test, also if the test panics, and soon after the test run is killed.

#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a failed setup fails the test")]

mod api;
mod clock;
mod consumers;
mod environment;
mod events;
mod postgres;
mod process;
mod proxy;
mod services;
mod standalone;
mod svc;

pub use api::{ApiUser, api_client, expect_no_internals, token_in, wait_for_mail};
pub use clock::WrongClock;
pub use consumers::{KeptAccounts, accounts, flood};
pub use environment::{installed, program, program_path, required_variable, tools, variable};
pub use events::{EventStream, Producers, expect_rejected_events};
pub use postgres::{PostgresServer, ReplicatedPostgres};
pub use process::{Process, StoppedProcesses, descendants, is_alive, kill, output_of};
pub use proxy::{Proxy, free_address};
pub use services::{ALL_SERVICES, Broker, Instance, Service, Services};
pub use standalone::{BlockedServer, Installation, Pids, Run, RunFile, Server};
pub use svc::{Svc, SvcOutput};
