//! What a process tells about itself: logs, metrics and traces.
//!
//! Logs and metrics are always on. Traces are off unless `SVC_OTLP_ENDPOINT` is set, and then nothing of them is built;
//! the trace context of a caller is still passed on to whoever is called in turn.

mod context;
mod logs;
mod metrics;
mod origin;
mod traces;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::Tasks;

pub(crate) use context::{Current, caller, in_request};
pub use context::{TRACEPARENT, outgoing, traceparent};
pub use contract::TraceContext;
pub use logs::{LOG, Output, start};
pub use metrics::Metrics;
pub use origin::Origin;
pub(crate) use traces::ServerSpan;
pub use traces::{StartError, TraceSettings};

/// The metrics and traces of a process. Clones are handles to the same.
#[derive(Clone)]
pub struct Telemetry {
    metrics: Metrics,
    traces: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Starts what the settings ask for; `process` is the name of the binary without `svc-`. Needs a runtime.
    ///
    /// # Errors
    /// The exporter of traces cannot be made.
    pub fn start(process: &'static str, traces: &TraceSettings) -> Result<Self, StartError> {
        Ok(Self { metrics: Metrics::new(process), traces: traces.start(process)? })
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Sends what is left of the traces once the process stops, within the time that its tasks have for that.
    pub fn flush_on_shutdown(&self, tasks: &Tasks) {
        let Some(provider) = self.traces.clone() else { return };
        let stopping = tasks.stopping().clone();
        tasks.spawn_short(async move {
            stopping.cancelled().await;
            traces::flush(provider).await;
        });
    }

    /// What makes spans for a service of this process.
    pub(crate) fn tracer(&self, service: &'static str) -> Option<SdkTracer> {
        self.traces.as_ref().map(|provider| provider.tracer(service))
    }
}
