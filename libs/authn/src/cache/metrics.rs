//! Metrics of the credential cache.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use service::telemetry::Metrics;

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
    /// Registers the metrics.
    pub(super) fn new(metrics: &Metrics) -> Self {
        let checks = |outcome| {
            metrics.metric("credential_checks", "Credential checks by outcome", &[("outcome", outcome)])
        };
        let entries = |kind| {
            metrics.metric("credential_cache_entries", "Entries of the credential cache", &[("kind", kind)])
        };
        let rejected = |reason| {
            let help = "Rejected messages of the invalidation feed";
            metrics.metric("invalidations_rejected", help, &[("reason", reason)])
        };
        let bypassed = "Time without credential cache, because the invalidation feed was down";
        let lag = "Time from the commit of a change until its invalidation was applied";
        Self {
            checks: ["hit", "negative", "miss", "bypass"].map(checks),
            active: entries("active"),
            negative: entries("negative"),
            bypassed: metrics.metric("credential_cache_bypassed_seconds", bypassed, &[]),
            lag: metrics.histogram("invalidation_lag_seconds", lag, &[], &BUCKETS),
            rejected: ["unauthenticated", "repeated", "outdated"].map(rejected),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_changes_its_metric_only() {
        let registry = Metrics::new("test");
        let metrics = CacheMetrics::new(&registry);
        for (count, outcome) in
            (1..).zip([CacheOutcome::Hit, CacheOutcome::Negative, CacheOutcome::Miss, CacheOutcome::Bypass])
        {
            (0..count).for_each(|_| metrics.count(outcome));
        }
        for (count, rejection) in
            (1..).zip([Rejection::Unauthenticated, Rejection::Repeated, Rejection::Outdated])
        {
            (0..count).for_each(|_| metrics.reject(rejection));
        }
        metrics.add_bypassed(Duration::from_millis(2500));
        metrics.observe_lag(Duration::from_millis(500));
        let text = registry.text();
        for line in [
            r#"credential_checks_total{outcome="hit"} 1"#,
            r#"credential_checks_total{outcome="negative"} 2"#,
            r#"credential_checks_total{outcome="miss"} 3"#,
            r#"credential_checks_total{outcome="bypass"} 4"#,
            r#"invalidations_rejected_total{reason="unauthenticated"} 1"#,
            r#"invalidations_rejected_total{reason="repeated"} 2"#,
            r#"invalidations_rejected_total{reason="outdated"} 3"#,
            "credential_cache_bypassed_seconds_total 2.5",
            "invalidation_lag_seconds_sum 0.5",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
