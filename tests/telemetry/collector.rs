//! A collector for OTLP over HTTP that stores the received spans.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use service::Tasks;
use testkit::wait_until;
use tokio::net::TcpListener;

pub(crate) struct Collector {
    pub(crate) url: String,
    spans: Arc<Mutex<Vec<(String, Span)>>>,
    tasks: Tasks,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let spans = Arc::new(Mutex::new(Vec::new()));
        let (received, tasks) = (Arc::clone(&spans), Tasks::default());
        let router = Router::new().route(
            "/v1/traces",
            post(async move |body: Bytes| {
                let request = ExportTraceServiceRequest::decode(body).unwrap();
                for scope in request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans) {
                    let service = scope.scope.unwrap().name;
                    received
                        .lock()
                        .unwrap()
                        .extend(scope.spans.into_iter().map(|span| (service.clone(), span)));
                }
                ExportTraceServiceResponse::default().encode_to_vec()
            }),
        );
        tasks.spawn_listener(service::http::serve(listener, router, tasks.clone(), tasks.draining().clone()));
        Self { url, spans, tasks }
    }

    /// Waits for a span of a service in a trace.
    pub(crate) async fn wait_for_span(&self, trace_id: &str, service: &str, name: &str) -> Span {
        wait_until("the span arrives", async || {
            let spans = self.spans.lock().unwrap();
            let found = spans
                .iter()
                .find(|(of, span)| of == service && span.name == name && hex(&span.trace_id) == trace_id);
            found.map(|(_, span)| span.clone())
        })
        .await
    }

    /// The names of the spans of a trace.
    pub(crate) fn span_names(&self, trace_id: &str) -> Vec<String> {
        let spans = self.spans.lock().unwrap();
        let of_trace = spans.iter().filter(|(_, span)| hex(&span.trace_id) == trace_id);
        of_trace.map(|(service, span)| format!("{service}: {}", span.name)).collect()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.tasks.draining().cancel();
    }
}

pub(crate) fn hex(id: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(id)
}

/// An attribute as text; empty if it is missing.
pub(crate) fn attribute(span: &Span, key: &str) -> String {
    let value = span.attributes.iter().find(|attribute| attribute.key == key);
    match value.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => other.map_or_else(String::new, |value| format!("{value:?}")),
    }
}
