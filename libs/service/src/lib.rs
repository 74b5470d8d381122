//! Runtime of a service process: configuration, logs, metrics, traces, lifecycle, health checks and the HTTP edge.

pub mod clock;
pub mod config;
pub mod health;
pub mod http;
pub mod lifecycle;
pub mod operator;
pub mod process;
pub mod telemetry;

pub use clock::Clock;
pub use http::problem::Problem;
pub use lifecycle::Tasks;
pub use telemetry::{LogThrottle, chain};
