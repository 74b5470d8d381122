//! Limits that all replicas of a service share: so many requests from one address in a time, and no more.
//!
//! A context that has limits brings the tables `limits` (see the migrations of identity). A request is counted by one statement,
//! with GCRA, the generic cell rate algorithm: a row keeps the one time at which everything that was let in would have been
//! let in at an even pace, and whoever is ahead of it by more than the burst is refused. Whoever is known here to be refused
//! is refused without a statement until their time comes.
//!
//! Most routes need no more than [`Limiter::wrap`]. A handler that has to look at the request first calls
//! [`Limiter::count`] with the limit and [`source`] of the client's address, or with whatever else is counted.

mod layer;
mod limit;
mod limiter;
mod metrics;
mod rate;
mod refused;
mod source;

pub use layer::class_of;
pub use limit::{DEFAULT, DEVICE, LOGIN, Limit, RESET, TOKEN};
pub use limiter::{Limiter, RateLimitError};
pub use metrics::Decisions;
pub use rate::{InvalidRate, Rate};
pub use source::source;
