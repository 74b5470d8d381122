//! What exceeds a limit of a tenant, and the problem that reports it.

use std::fmt;
use std::time::Duration;

use contract::ProblemKind;
use service::Problem;

/// Longest delay that a rejection announces.
pub(super) const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// A limit of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    EventsPerSecond(u32),
    BytesPerSecond(u32),
    StreamShare,
    /// The tenant is below its share of a stream that others have filled.
    StreamSpace,
}

impl Limit {
    pub(super) const fn kind(self) -> ProblemKind {
        match self {
            Self::EventsPerSecond(_) | Self::BytesPerSecond(_) | Self::StreamShare => {
                ProblemKind::QuotaExceeded
            }
            Self::StreamSpace => ProblemKind::StreamFull,
        }
    }
}

/// An event exceeds a limit of its tenant. It can be sent again after the delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{limit}")]
pub(crate) struct OverQuota {
    pub(crate) limit: Limit,
    pub(crate) retry_after: Duration,
}

/// Which events of a request are admitted, if not all are within the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admit {
    /// The first ones.
    First,
    /// All if the tenant has any tokens left, else none. Later requests wait for the tokens that it takes of the future. So a
    /// request that is repeated as a whole succeeds at last.
    AllOrNone,
}

/// The result for the events of a request: the first ones are admitted, the others exceed a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    pub(crate) admitted: usize,
    /// `None` if all events are admitted.
    pub(crate) over_quota: Option<OverQuota>,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EventsPerSecond(count) => {
                write!(f, "The quota of the tenant is {count} events per second.")
            }
            Self::BytesPerSecond(count) => write!(f, "The quota of the tenant is {count} bytes per second."),
            Self::StreamShare => f.write_str("The tenant has used its share of the event stream."),
            Self::StreamSpace => f.write_str("The event stream is full."),
        }
    }
}

impl From<OverQuota> for Problem {
    fn from(error: OverQuota) -> Self {
        Self::new(error.limit.kind()).detail(error.to_string()).retry_after(error.retry_after)
    }
}
