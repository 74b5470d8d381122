//! Rate limits that all replicas of a service share.
//!
//! The service's schema contains the table `limits` (see the migrations of identity). One statement counts a request
//! with the generic cell rate algorithm (GCRA): a row stores the theoretical arrival time, which is the time of the
//! next request at an even rate. A request that arrives earlier than this time by more than the burst tolerance is
//! rejected. A replica rejects further requests of the same subject without a statement until the limit allows one.
//!
//! Most routes use [`Limiter::wrap`], which counts in memory and shares the counts every second ([`BufferedLimiter`]). A handler that
//! verifies a password calls [`Limiter::count`] with the limit and the [`source`] of the client address, or with another subject. One
//! that looks up a single-use token or a user code calls [`Limiter::count_wrong`], which counts only wrong ones. [`LocalLimiter`]
//! counts in memory only, for a service without a database.

mod buffered;
mod layer;
mod limit;
mod limiter;
mod local;
mod source;

pub use buffered::BufferedLimiter;
pub use layer::class_of;
pub use limit::{
    CREDENTIAL, DEFAULT, DEVICE, EVENT_STREAM, INVITE, InvalidRate, LOGIN, Limit, RESET, Rate, TOKEN,
};
pub use limiter::{Limiter, LimiterMetrics, RateLimitError};
pub use local::LocalLimiter;
pub use source::{Network, Source, source};
