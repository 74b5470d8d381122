//! Telemetry of the running services: metrics, alerts and traces.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod telemetry {
    mod alerts;
    mod collector;
    mod metrics;
    mod runbooks;
    mod traces;
}
