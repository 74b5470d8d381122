//! Traces: spans of requests, use cases, SQL statements and publishes, exported as OTLP over HTTP with Protocol Buffers.
//!
//! The sampling decision depends only on the trace id, so that all services decide equally and callers cannot decide.
//! Spans are exported in batches. A full queue drops spans and never blocks.

use std::error::Error;
use std::time::Duration;

use contract::TraceContext;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, TraceContextExt as _, TraceFlags, TraceId, TraceState,
    Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use reqwest::Url;
use tokio::runtime::Handle;
use tracing::field::{Empty, Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets, filter_fn};
use tracing_subscriber::layer::Context as LayerContext;
use tracing_subscriber::registry::LookupSpan;

use super::request_id::RequestId;
use crate::config::{Variable, parse_http_url};

/// Instrumentation scope of all spans.
const TRACER: &str = "svc";
/// Timeout of one request to the collector.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of the last export, well below the shutdown budget of tasks.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Responses of a collector are one or two lines.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

crate::variables! {
    /// Settings of the trace exporter.
    #[derive(Clone, Debug, Default)]
    pub struct TraceSettings {
        /// URL of an OpenTelemetry collector that accepts OTLP over HTTP, such as `http://collector:4318`. Traces are
        /// sent to the path `/v1/traces` below it. Tracing is off without it.
        endpoint: Option<Url> = Variable::new("SVC_OTLP_ENDPOINT", "URL").optional_with(collector),
        /// Share of traces that are recorded. Use the same value in every service, so that no trace is incomplete.
        ratio: f64 = Variable::new("SVC_OTLP_RATIO", "number, 0 to 1").default("1").between(0.0, 1.0),
    }
}

/// The trace exporter cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("failed to start trace exporter")]
pub struct StartError(#[source] Box<dyn Error + Send + Sync>);

impl TraceSettings {
    pub(super) fn start(&self, process: &'static str) -> Result<Option<SdkTracerProvider>, StartError> {
        let Some(endpoint) = &self.endpoint else { return Ok(None) };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client::new(endpoint).map_err(|error| StartError(error.into()))?)
            .with_endpoint(endpoint.as_str())
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(|error| StartError(error.into()))?;
        let resource = Resource::builder_empty()
            .with_service_name(format!("svc-{process}"))
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::TraceIdRatioBased(self.ratio))
            .with_resource(resource.build())
            .with_batch_exporter(exporter);
        Ok(Some(provider.build()))
    }
}

fn collector(text: &str) -> Result<Url, String> {
    let mut url = parse_http_url(text)?;
    let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

/// Exports the remaining spans and shuts the exporter down.
pub(super) async fn flush(provider: SdkTracerProvider) {
    // The shutdown blocks, and the exporter needs this runtime for it.
    let flushed = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_TIMEOUT)).await;
    if let Ok(Err(error)) = flushed {
        tracing::warn!(%error, "failed to export remaining spans");
    }
}

/// HTTP client of the exporter. It runs on the runtime of the process, because the exporter's thread has none.
#[derive(Debug)]
struct Client {
    http: reqwest::Client,
    runtime: Handle,
}

impl Client {
    fn new(endpoint: &Url) -> reqwest::Result<Self> {
        let mut builder = reqwest::Client::builder().timeout(EXPORT_TIMEOUT);
        if endpoint.scheme() == "http" {
            // Needs no certificates, so it also works in an image without any.
            builder = builder.tls_certs_only([]);
        }
        Ok(Self { http: builder.build()?, runtime: Handle::current() })
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (http, request) = (self.http.clone(), request.try_into()?);
        self.runtime
            .spawn(async move {
                let response = http.execute(request).await?;
                let (parts, body) = Response::<reqwest::Body>::from(response).into_parts();
                let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await?.to_bytes();
                Ok(Response::from_parts(parts, body))
            })
            .await?
    }
}

/// Creates the layer that exports spans of level `INFO` and above.
pub(super) fn span_layer<S>(provider: &SdkTracerProvider) -> impl Layer<S> + Send + Sync + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let filter = filter_fn(|metadata| metadata.is_span() && *metadata.level() <= Level::INFO)
        .with_max_level_hint(LevelFilter::INFO);
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(TRACER))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(filter)
}

/// Creates the layer that exports a span for each SQL statement.
pub(super) fn statement_layer<S>(provider: &SdkTracerProvider) -> impl Layer<S> + Send + Sync + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let filter = Targets::new().with_target("sqlx::query", LevelFilter::DEBUG);
    StatementLayer(provider.tracer(TRACER)).with_filter(filter)
}

/// Makes a span of the event that sqlx logs after each statement. The comment at the start of a statement is the name of
/// its span: `-- session.introspect`.
struct StatementLayer(SdkTracer);

impl<S: Subscriber> Layer<S> for StatementLayer {
    fn on_event(&self, event: &Event<'_>, _: LayerContext<'_, S>) {
        let parent = Context::current();
        if !parent.span().span_context().is_sampled() {
            return;
        }
        let mut statement = Statement::default();
        event.record(&mut statement);
        let end = opentelemetry::time::now();
        let start = end.checked_sub(statement.elapsed).unwrap_or(end);
        let mut span = self
            .0
            .span_builder(statement.name)
            .with_kind(SpanKind::Client)
            .with_start_time(start)
            .with_attributes([KeyValue::new("db.system.name", "postgresql")])
            .start_with_context(&self.0, &parent);
        span.end_with_timestamp(end);
    }
}

/// Name and duration of a statement.
#[derive(Default)]
struct Statement {
    name: String,
    elapsed: Duration,
}

impl Visit for Statement {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "summary" {
            let mut words = value.split(' ').skip_while(|word| matches!(*word, "--" | "/*"));
            words.next().unwrap_or("statement").clone_into(&mut self.name);
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if field.name() == "elapsed_secs" {
            self.elapsed = Duration::try_from_secs_f64(value).unwrap_or_default();
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

/// Span of a request. It ends when it is dropped, even if the client disconnects.
pub(crate) struct RequestSpan(tracing::Span);

impl RequestSpan {
    pub(crate) fn new(
        service: &'static str,
        method: &Method,
        route: Option<&str>,
        request_id: &RequestId,
        caller: Option<TraceContext>,
    ) -> Self {
        let span = tracing::info_span!(
            parent: None,
            "request",
            otel.name = Empty,
            otel.kind = "server",
            otel.status_code = Empty,
            svc.service = service,
            svc.request_id = request_id.as_str(),
            http.request.method = method.as_str(),
            http.route = route,
            http.response.status_code = Empty,
        );
        if !span.is_disabled() {
            let name = route.map_or_else(|| method.to_string(), |route| format!("{method} {route}"));
            span.record("otel.name", name);
            set_parent(&span, caller);
        }
        Self(span)
    }

    pub(crate) fn span(&self) -> &tracing::Span {
        &self.0
    }

    /// Returns the parent context for called services, or `None` if traces are off or the exporter is shut down.
    pub(crate) fn context(&self) -> Option<TraceContext> {
        if self.0.is_disabled() {
            return None;
        }
        let context = self.0.context();
        let span = context.span();
        let span = span.span_context();
        span.is_valid().then(|| TraceContext {
            trace_id: u128::from_be_bytes(span.trace_id().to_bytes()),
            span_id: u64::from_be_bytes(span.span_id().to_bytes()),
            flags: span.trace_flags().to_u8(),
        })
    }

    /// Records the status of the response.
    pub(crate) fn record_status(&self, status: StatusCode) {
        self.0.record("http.response.status_code", i64::from(status.as_u16()));
        if status.is_server_error() {
            self.0.record("otel.status_code", "ERROR");
        }
    }
}

/// Creates the span of work in the background.
pub(super) fn background_span(name: &'static str, caller: Option<TraceContext>) -> tracing::Span {
    let span = tracing::info_span!(parent: None, "background", otel.name = name);
    if !span.is_disabled() {
        set_parent(&span, caller);
    }
    span
}

fn set_parent(span: &tracing::Span, caller: Option<TraceContext>) {
    let Some(TraceContext { trace_id, span_id, flags }) = caller else { return };
    let parent = SpanContext::new(
        TraceId::from_bytes(trace_id.to_be_bytes()),
        SpanId::from_bytes(span_id.to_be_bytes()),
        TraceFlags::new(flags),
        true,
        TraceState::default(),
    );
    // Fails only for a span that has started.
    let _ = span.set_parent(Context::new().with_remote_span_context(parent));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigErrors, Environment, Variables as _};

    fn load(pairs: &[(&str, &str)]) -> Result<TraceSettings, ConfigErrors> {
        TraceSettings::load(&Environment::from_pairs(pairs.iter().copied()))
    }

    #[test]
    fn traces_are_off_without_an_endpoint() {
        assert_eq!(load(&[]).unwrap().endpoint, None);
        for (text, url) in
            [("http://c:4318", "http://c:4318/v1/traces"), ("https://c/otlp/", "https://c/otlp/v1/traces")]
        {
            assert_eq!(load(&[("SVC_OTLP_ENDPOINT", text)]).unwrap().endpoint.unwrap().as_str(), url);
        }
    }

    #[test]
    fn rejects_invalid_endpoints_and_ratios() {
        for (name, value) in [
            ("SVC_OTLP_ENDPOINT", "collector:4317"),
            ("SVC_OTLP_ENDPOINT", "grpc://c:4317"),
            ("SVC_OTLP_RATIO", "1.1"),
            ("SVC_OTLP_RATIO", "NaN"),
        ] {
            let ConfigErrors(errors) = load(&[(name, value)]).unwrap_err();
            assert!(errors[0].starts_with(&format!("{name}={value}: ")), "{errors:?}");
        }
    }
}
