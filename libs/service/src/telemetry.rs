//! Logs, metrics and traces of a process.
//!
//! One `tracing` subscriber writes the logs and exports the spans. With an exporter, each layer has its own filter, so that log levels do
//! not affect exported spans. Spans are off unless `SVC_OTLP_ENDPOINT` is set; the trace context of a caller is always
//! passed on to called services.

mod context;
mod logs;
mod metrics;
mod request_id;
mod traces;

use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::FilterExt as _;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::Tasks;

pub use context::{Origin, TRACEPARENT, client_address, outgoing_headers, traceparent};
pub(crate) use context::{RequestContext, caller, in_request};
pub use contract::TraceContext;
pub use logs::{LOG, LogThrottle, Output, chain, parse_directives};
pub use metrics::{Labels, Metrics};
pub use request_id::{RequestId, X_REQUEST_ID};
pub(crate) use traces::RequestSpan;
pub use traces::{StartError, TraceSettings};

/// Metrics and trace exporter of a process. Clones share them.
#[derive(Clone)]
pub struct Telemetry {
    metrics: Metrics,
    traces: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Creates the metrics and starts the trace exporter. `process` is the name of the binary without `svc-`. Requires a
    /// Tokio runtime.
    ///
    /// # Errors
    /// The trace exporter cannot be started.
    pub fn start(process: &'static str, traces: &TraceSettings) -> Result<Self, StartError> {
        Ok(Self { metrics: Metrics::new(process), traces: traces.start(process)? })
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Starts logging and the export of spans for the whole process. A second call in one process has no effect.
    pub fn install(&self, directives: &str, output: Output) {
        // Fails only if a subscriber is installed already.
        let _ = self.subscriber(directives, output).try_init();
    }

    /// Starts logging and the export of spans for the current thread, until the guard is dropped. Tests use it to run
    /// several systems in one process.
    pub fn install_for_thread(&self, directives: &str, output: Output) -> DefaultGuard {
        self.subscriber(directives, output).set_default()
    }

    fn subscriber(&self, directives: &str, output: Output) -> Dispatch {
        let Some(provider) = &self.traces else { return logs_only(directives, output) };
        let filter = logs::levels(directives).and(logs::without_spans());
        tracing_subscriber::registry()
            .with(logs::layer(output).with_filter(filter))
            .with(traces::span_layer(provider))
            .with(traces::statement_layer(provider))
            .into()
    }

    /// Exports the remaining spans when the process stops, within the shutdown budget of its tasks.
    pub fn flush_on_shutdown(&self, tasks: &Tasks) {
        let Some(provider) = self.traces.clone() else { return };
        let stopping = tasks.stopping().clone();
        tasks.spawn_short(async move {
            stopping.cancelled().await;
            traces::flush(provider).await;
        });
    }
}

/// Starts logging without traces for the whole process. A second call in one process has no effect.
pub fn install_logs(directives: &str, output: Output) {
    // Fails only if a subscriber is installed already.
    let _ = logs_only(directives, output).try_init();
}

/// Creates a subscriber that disables spans, so that they cost nothing. The filters are global: with one filter per layer,
/// tracing-subscriber creates spans, and drops the event after a call of `tracing::enabled!`.
fn logs_only(directives: &str, output: Output) -> Dispatch {
    tracing_subscriber::registry()
        .with(logs::layer(output))
        .with(logs::levels(directives))
        .with(logs::without_spans())
        .into()
}
