//! Metrics of the credential cache.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper bounds in seconds. A revocation takes effect within 1 s (p99), and never later than 5 s.
const BUCKETS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 5.0];

/// How the result of a check was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheOutcome {
    /// From an entry: the credential is active.
    Hit,
    /// From an entry: the credential is not active.
    Negative,
    /// By a lookup.
    Miss,
    /// By a lookup, because the invalidation feed is down.
    Bypass,
}

/// Why a message of the invalidation feed was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// It has no valid signature.
    Unauthenticated,
    /// It, or a later message of its publisher, was already received.
    Repeated,
    /// It was sent too long ago, or the clocks differ.
    Outdated,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug)]
pub(super) struct CacheMetrics {
    /// In the order of [`CacheOutcome`].
    checks: [Counter; 4],
    active: Gauge,
    negative: Gauge,
    bypassed: Counter<f64, AtomicU64>,
    lag: Histogram,
    /// In the order of [`Rejection`].
    rejected: [Counter; 3],
}

impl CacheMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let checks = Family::<OutcomeLabel, Counter>::default();
        let entries = Family::<KindLabel, Gauge>::default();
        let rejected = Family::<ReasonLabel, Counter>::default();
        let metrics = Self {
            checks: ["hit", "negative", "miss", "bypass"]
                .map(|outcome| checks.get_or_create_owned(&OutcomeLabel { outcome })),
            active: entries.get_or_create_owned(&KindLabel { kind: "active" }),
            negative: entries.get_or_create_owned(&KindLabel { kind: "negative" }),
            bypassed: Counter::default(),
            lag: Histogram::new(BUCKETS),
            rejected: ["unauthenticated", "repeated", "outdated"]
                .map(|reason| rejected.get_or_create_owned(&ReasonLabel { reason })),
        };
        registry.register("credential_checks", "Credential checks by outcome", checks);
        registry.register("credential_cache_entries", "Entries of the credential cache", entries);
        let bypassed = "Time without credential cache, because the invalidation feed was down";
        let name = "credential_cache_bypassed";
        registry.register_with_unit(name, bypassed, Unit::Seconds, metrics.bypassed.clone());
        let lag = "Time from the commit of a change until its invalidation was applied";
        registry.register_with_unit("invalidation_lag", lag, Unit::Seconds, metrics.lag.clone());
        let help = "Rejected messages of the invalidation feed";
        registry.register("invalidations_rejected", help, rejected);
        metrics
    }

    pub(super) fn count(&self, outcome: CacheOutcome) {
        self.checks[outcome as usize].inc();
    }

    pub(super) fn add_bypassed(&self, time: Duration) {
        self.bypassed.inc_by(time.as_secs_f64());
    }

    pub(super) fn observe_lag(&self, lag: Duration) {
        self.lag.observe(lag.as_secs_f64());
    }

    pub(super) fn reject(&self, rejection: Rejection) {
        self.rejected[rejection as usize].inc();
    }

    pub(super) fn set_entries(&self, active: u64, negative: u64) {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.active.set(number(active));
        self.negative.set(number(negative));
    }
}
