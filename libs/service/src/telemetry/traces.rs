//! Traces: one server span a request, sent as OTLP over HTTP with Protocol Buffers.
//!
//! Whether a trace is recorded depends on its id alone, so that all services decide alike and no caller decides for them.

use std::error::Error;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState,
    Tracer as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, Span};
use reqwest::Url;
use tokio::runtime::Handle;

use super::TraceContext;
use crate::config::Variable;
use crate::http::RequestId;

/// How long one request to the collector may take.
const EXPORT_LIMIT: Duration = Duration::from_secs(3);
/// How long the last spans may take; well below what the lifecycle allows tasks that stop.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);
/// What a collector answers is a line or two.
const LARGEST_ANSWER: usize = 64 * 1024;

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

/// Traces cannot be sent from here.
#[derive(Debug, thiserror::Error)]
#[error("the exporter of traces cannot be made")]
pub struct StartError(#[source] Box<dyn Error + Send + Sync>);

impl TraceSettings {
    pub(super) fn start(&self, process: &'static str) -> Result<Option<SdkTracerProvider>, StartError> {
        let Some(endpoint) = &self.endpoint else { return Ok(None) };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client::new(endpoint).map_err(|error| StartError(error.into()))?)
            .with_endpoint(endpoint.as_str())
            .with_timeout(EXPORT_LIMIT)
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
    let mut url = Url::parse(text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err("must begin with http:// or https:// and a host".to_owned());
    }
    let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

/// Sends what is left and ends the exporter.
pub(super) async fn flush(provider: SdkTracerProvider) {
    // It blocks, and the exporter needs this runtime meanwhile.
    let flushed = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_LIMIT)).await;
    if let Ok(Err(error)) = flushed {
        tracing::warn!(%error, "the last spans could not be sent");
    }
}

/// The process's HTTP stack for the exporter, whose own thread has no runtime.
#[derive(Debug)]
struct Client {
    http: reqwest::Client,
    runtime: Handle,
}

impl Client {
    fn new(endpoint: &Url) -> reqwest::Result<Self> {
        let mut builder = reqwest::Client::builder().timeout(EXPORT_LIMIT);
        if endpoint.scheme() == "http" {
            // No certificate will be looked at, so an image without any is fine.
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
                let answer = http.execute(request).await?;
                let (parts, body) = Response::<reqwest::Body>::from(answer).into_parts();
                let body = Limited::new(body, LARGEST_ANSWER).collect().await?.to_bytes();
                Ok(Response::from_parts(parts, body))
            })
            .await?
    }
}

/// The span of a request that is being served. It ends when it is dropped, also with a client that hung up.
pub(crate) struct ServerSpan(Span);

impl ServerSpan {
    pub(crate) fn begin(
        tracer: &SdkTracer,
        method: &Method,
        route: Option<&str>,
        request_id: &RequestId,
        caller: Option<TraceContext>,
    ) -> Self {
        let name = route.map_or_else(|| method.to_string(), |route| format!("{method} {route}"));
        let mut attributes = vec![
            KeyValue::new("http.request.method", method.to_string()),
            KeyValue::new("svc.request_id", request_id.as_str().to_owned()),
        ];
        attributes.extend(route.map(|route| KeyValue::new("http.route", route.to_owned())));
        let builder = tracer.span_builder(name).with_kind(SpanKind::Server).with_attributes(attributes);
        Self(builder.start_with_context(tracer, &parent(caller)))
    }

    /// Whose child the spans of whoever we call shall be; none once the exporter has ended.
    pub(crate) fn context(&self) -> Option<TraceContext> {
        let context = self.0.span_context();
        context.is_valid().then(|| TraceContext {
            trace_id: u128::from_be_bytes(context.trace_id().to_bytes()),
            span_id: u64::from_be_bytes(context.span_id().to_bytes()),
            flags: context.trace_flags().to_u8(),
        })
    }

    /// What the request was answered with.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.0.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
        if status.is_server_error() {
            self.0.set_status(Status::error(""));
        }
    }
}

fn parent(caller: Option<TraceContext>) -> Context {
    let Some(TraceContext { trace_id, span_id, flags }) = caller else { return Context::new() };
    Context::new().with_remote_span_context(SpanContext::new(
        TraceId::from_bytes(trace_id.to_be_bytes()),
        SpanId::from_bytes(span_id.to_be_bytes()),
        TraceFlags::new(flags),
        true,
        TraceState::default(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigErrors, Environment, Variables as _};

    fn load(pairs: &[(&str, &str)]) -> Result<TraceSettings, ConfigErrors> {
        TraceSettings::load(&Environment::from_pairs(pairs.iter().copied()))
    }

    #[test]
    fn traces_are_off_unless_a_collector_is_named() {
        assert_eq!(load(&[]).unwrap().endpoint, None);
        for (text, url) in
            [("http://c:4318", "http://c:4318/v1/traces"), ("https://c/otlp/", "https://c/otlp/v1/traces")]
        {
            assert_eq!(load(&[("SVC_OTLP_ENDPOINT", text)]).unwrap().endpoint.unwrap().as_str(), url);
        }
    }

    #[test]
    fn what_is_no_collector_or_no_share_is_told() {
        for (name, value) in [
            ("SVC_OTLP_ENDPOINT", "collector:4317"),
            ("SVC_OTLP_ENDPOINT", "grpc://c:4317"),
            ("SVC_OTLP_RATIO", "1.1"),
            ("SVC_OTLP_RATIO", "NaN"),
        ] {
            let ConfigErrors(faults) = load(&[(name, value)]).unwrap_err();
            assert!(faults[0].starts_with(&format!("{name}={value}: ")), "{faults:?}");
        }
    }
}
