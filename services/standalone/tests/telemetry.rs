//! What the whole system tells about itself: metrics on the admin port, traces to a collector.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without, it may fail on, in shared code too")]

mod telemetry {
    mod collector;
    mod metrics;
    mod outbox;
    mod traces;
}
