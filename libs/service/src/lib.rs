//! Runtime of a service process. A module uses only those above it:
//!
//! - `clock`, `config`, `lifecycle`: time, variables, and tasks from start to shutdown
//! - `telemetry`: logs, metrics, traces, and the id of the current request
//! - `files`: atomic replacement of files
//! - `keyed_locks`: locks of tasks that do the same work
//! - `http`, `health`: listeners with limits of connections, the edge, bodies and extractors; health checks
//! - `process`: starts a service with all of these
//! - `operator`: the variables of the operator

pub mod clock;
pub mod config;
pub mod files;
pub mod health;
pub mod http;
mod keyed_locks;
pub mod lifecycle;
pub mod operator;
pub mod process;
pub mod telemetry;

pub use clock::Clock;
pub use http::problem::Problem;
pub use keyed_locks::KeyedLocks;
pub use lifecycle::Tasks;
pub use telemetry::{LogThrottle, chain};
