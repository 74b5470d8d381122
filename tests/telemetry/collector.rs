//! An OTLP receiver over HTTP that stores all spans.

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use parking_lot::Mutex;
use prost::Message as _;
use service::Tasks;
use testkit::wait_until;
use tokio::net::TcpListener;

pub(crate) struct Collector {
    pub(crate) url: String,
    spans: Arc<Mutex<Vec<Span>>>,
    tasks: Tasks,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let spans = Arc::new(Mutex::new(Vec::new()));
        let (stored, tasks) = (Arc::clone(&spans), Tasks::default());
        let router = Router::new().route(
            "/v1/traces",
            post(async move |body: Bytes| {
                let request = ExportTraceServiceRequest::decode(body).unwrap();
                let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
                stored.lock().extend(scopes.flat_map(|scope| scope.spans));
                ExportTraceServiceResponse::default().encode_to_vec()
            }),
        );
        tasks.spawn_listener(service::http::serve(listener, router, tasks.clone(), tasks.draining().clone()));
        Self { url, spans, tasks }
    }

    /// Waits for the request span of a service in a trace.
    pub(crate) async fn request(&self, trace_id: &str, service: &str, name: &str) -> Span {
        wait_until("the span arrives", async || {
            let spans = self.trace(trace_id);
            spans.into_iter().find(|span| attribute(span, "svc.service") == service && span.name == name)
        })
        .await
    }

    /// Waits for the innermost span of a path that starts below a span. Each span is the child of the span before it.
    pub(crate) async fn descendant(&self, ancestor: &Span, names: &[&str]) -> Span {
        let trace_id = hex(&ancestor.trace_id);
        wait_until("the spans arrive", async || {
            let spans = self.trace(&trace_id);
            let child = |parent: Span, name: &&str| {
                let is_child = |span: &&Span| span.parent_span_id == parent.span_id && span.name == *name;
                spans.iter().find(is_child).cloned()
            };
            names.iter().try_fold(ancestor.clone(), child)
        })
        .await
    }

    /// Returns service and name of the request spans of a trace.
    pub(crate) fn requests(&self, trace_id: &str) -> Vec<String> {
        let spans = self.trace(trace_id).into_iter().filter(|span| span.kind() == SpanKind::Server);
        spans.map(|span| format!("{}: {}", attribute(&span, "svc.service"), span.name)).collect()
    }

    /// Returns the spans of a trace.
    pub(crate) fn trace(&self, trace_id: &str) -> Vec<Span> {
        let spans = self.spans.lock();
        spans.iter().filter(|span| hex(&span.trace_id) == trace_id).cloned().collect()
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

/// Returns an attribute as text, or an empty text if it is missing.
pub(crate) fn attribute(span: &Span, key: &str) -> String {
    let value = span.attributes.iter().find(|attribute| attribute.key == key);
    match value.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => other.map_or_else(String::new, |value| format!("{value:?}")),
    }
}
