//! The metric of second factors at logins.

use contract::factors::FactorMethod;
use prometheus_client::metrics::counter::Counter;
use service::telemetry::Metrics;

/// Codes of logins, by factor and result.
#[derive(Clone)]
pub(crate) struct FactorAttempts([[Counter; 2]; 3]);

impl FactorAttempts {
    /// Registers the counters.
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let counter = |method: FactorMethod, result| {
            let labels = [("factor", method.as_str()), ("result", result)];
            metrics.metric(
                "second_factor_attempts",
                "Codes and passkeys of logins with a second factor",
                &labels,
            )
        };
        let of = |method| [counter(method, "accepted"), counter(method, "rejected")];
        Self([FactorMethod::Totp, FactorMethod::Passkey, FactorMethod::RecoveryCode].map(of))
    }

    pub(super) fn count(&self, method: FactorMethod, is_accepted: bool) {
        let counters = match method {
            FactorMethod::Totp => &self.0[0],
            FactorMethod::Passkey => &self.0[1],
            FactorMethod::RecoveryCode => &self.0[2],
        };
        counters[usize::from(!is_accepted)].inc();
    }
}
