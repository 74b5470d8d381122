//! The metric of second factors at logins.

use contract::factors::FactorMethod;
use prometheus_client::metrics::counter::Counter;
use service::telemetry::Metrics;

/// Codes of logins, by factor and result.
#[derive(Clone)]
pub(crate) struct FactorAttempts(Vec<[Counter; 2]>);

impl FactorAttempts {
    /// Registers the counters.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let counter = |method: FactorMethod, result| -> Counter {
            let labels = [("factor", method.as_str()), ("result", result)];
            metrics.metric(
                "second_factor_attempts",
                "Codes and passkeys of logins with a second factor",
                &labels,
            )
        };
        let of = |method: &FactorMethod| [counter(*method, "accepted"), counter(*method, "rejected")];
        Self(FactorMethod::ALL.iter().map(of).collect())
    }

    pub(super) fn count(&self, method: FactorMethod, is_accepted: bool) {
        self.0[method as usize][usize::from(!is_accepted)].inc();
    }
}
