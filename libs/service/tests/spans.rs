//! Spans of a process without a trace exporter. Alone in its process, because `tracing` caches whether a callsite is enabled.

use service::telemetry::{Output, Telemetry, TraceSettings};

#[tokio::test]
async fn spans_are_disabled_unless_they_are_exported() {
    let telemetry = Telemetry::start("test", &TraceSettings::default()).unwrap();
    telemetry.install("debug", Output::Stderr);
    assert!(tracing::info_span!("request").is_disabled());
    assert!(tracing::enabled!(tracing::Level::DEBUG), "events are logged");
}
