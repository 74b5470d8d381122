//! Rate limits that all replicas of a service share, and limits of one replica.
//!
//! One rule decides ([`Gcra`]), with two stores of its state: the table `limits` of the service's schema (see the migrations of
//! identity), which all replicas share, and memory. The table counts a request in one statement. A replica rejects further
//! requests of the same subject without a statement until the limit allows one.
//!
//! A handler that verifies a password calls [`Limiter::count`] with the limit and the [`source`] of the client address, or with another
//! subject. One that looks up a single-use token or a user code calls [`Limiter::count_wrong`], which counts only wrong ones.
//! [`Limiter::count_in`] counts in a transaction, for example mails: they count only if it commits. [`LocalLimiter`] counts in
//! memory only: for all other routes ([`Limiter::wrap`]), and for a service without a database.

mod gcra;
mod layer;
mod limit;
mod limiter;
mod local;
mod memory;
mod postgres;
mod source;

pub use gcra::Gcra;
pub use layer::class_of;
pub use limit::{
    AUDIT, CREDENTIAL, DEFAULT, DEVICE, EVENT_STREAM, INVITE, InvalidRate, LOGIN, Limit, RESET, Rate, TOKEN,
};
pub use limiter::{Limiter, LimiterMetrics, RateLimitError};
pub use local::LocalLimiter;
pub use source::{Network, Source, source};
