//! What every service process shares: configuration from the environment, JSON logs, the lifecycle of a process, health
//! for the platform, and the edge of HTTP, where requests get an id and errors become problem documents.

mod chain;
pub mod clock;
pub mod config;
pub mod health;
pub mod http;
pub mod lifecycle;
mod log_throttle;
pub mod process;
pub mod telemetry;

pub use chain::chain;
pub use clock::Clock;
pub use http::problem::Problem;
pub use lifecycle::Tasks;
pub use log_throttle::LogThrottle;
