//! What the cache shows: how checks were answered, how much is remembered, how long it was not believed, and how late a
//! revocation came.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper bounds in seconds, around the promise of one second and the ceiling of five.
const BUCKETS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 5.0];

/// How a check was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From what is remembered: the credential is live.
    Hit,
    /// From what is remembered: it is not.
    Negative,
    /// By asking session.
    Miss,
    /// By asking session, since nothing that is remembered is believed now.
    Distrusted,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answered {
    way: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Of {
    kind: &'static str,
}

#[derive(Clone, Debug)]
pub(super) struct CacheMetrics {
    /// In the order of [`Way`].
    checks: [Counter; 4],
    live: Gauge,
    dead: Gauge,
    distrusted: Counter<f64, AtomicU64>,
    lag: Histogram,
}

impl CacheMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let (checks, entries) = (Family::<Answered, Counter>::default(), Family::<Of, Gauge>::default());
        let metrics = Self {
            checks: ["hit", "negative", "miss", "distrusted"]
                .map(|way| checks.get_or_create_owned(&Answered { way })),
            live: entries.get_or_create_owned(&Of { kind: "live" }),
            dead: entries.get_or_create_owned(&Of { kind: "dead" }),
            distrusted: Counter::default(),
            lag: Histogram::new(BUCKETS),
        };
        registry.register("credential_checks", "Checks of credentials by how they were answered", checks);
        registry.register("credential_cache_entries", "Credentials that are remembered", entries);
        let distrusted = "Time for which every check asked session, since invalidations may have been missed";
        registry.register_with_unit(
            "credential_cache_distrusted",
            distrusted,
            Unit::Seconds,
            metrics.distrusted.clone(),
        );
        let lag = "Time from a revocation's commit until it held here, by invalidations";
        registry.register_with_unit("revocation_lag", lag, Unit::Seconds, metrics.lag.clone());
        metrics
    }

    pub(super) fn count(&self, way: Way) {
        self.checks[way as usize].inc();
    }

    pub(super) fn distrusted(&self, longer: Duration) {
        self.distrusted.inc_by(longer.as_secs_f64());
    }

    pub(super) fn lag(&self, lag: Duration) {
        self.lag.observe(lag.as_secs_f64());
    }

    pub(super) fn show(&self, live: usize, dead: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.live.set(number(live));
        self.dead.set(number(dead));
    }
}
