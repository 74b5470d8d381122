//! The request that a task serves: its id, client address and trace (W3C Trace Context). A task-local variable carries
//! them, so that logs and calls to other services need no parameter for them.

use std::future::Future;
use std::net::IpAddr;

use contract::TraceContext;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use tracing::Instrument as _;

use super::request_id::{RequestId, X_REQUEST_ID};
use super::traces;

/// Header of W3C Trace Context, in HTTP and NATS.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Returns the trace context of the caller. A repeated header is ignored.
pub(crate) fn caller(headers: &HeaderMap) -> Option<TraceContext> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => TraceContext::parse(value.to_str().ok()?),
        _ => None,
    }
}

/// Data of the current request.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    pub(crate) request_id: RequestId,
    /// Client address. It is not part of [`Origin`], so it is not stored with background work.
    pub(crate) client: Option<IpAddr>,
    /// Whether the request arrived at the public API. The client of an internal request is another service.
    pub(crate) is_public: bool,
    pub(crate) trace: Option<TraceContext>,
}

tokio::task_local! {
    static CURRENT: RequestContext;
}

/// Runs a future as part of a request.
pub(crate) fn in_request<F: Future>(request: RequestContext, work: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(request, work)
}

/// Reads the current request, if there is one.
pub(super) fn current<T>(read: impl FnOnce(&RequestContext) -> T) -> Option<T> {
    CURRENT.try_with(read).ok()
}

/// Returns the client address of the current request, if it arrived at the public API.
pub fn client_address() -> Option<IpAddr> {
    current(|request| request.client.filter(|_| request.is_public)).flatten()
}

/// Returns the `traceparent` for messages of the current request: the span of the request if it is traced, otherwise the
/// span of the caller.
pub fn traceparent() -> Option<String> {
    current(|request| request.trace)?.map(|trace| trace.to_string())
}

/// Returns the headers for a call to another service: the id and the trace of the current request.
pub fn outgoing_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    current(|request| headers.insert(X_REQUEST_ID, request.request_id.header()));
    if let Some(value) = traceparent().and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(TRACEPARENT, value);
    }
    headers
}

/// The request that caused work in the background, in a form that can be stored with the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    request_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

impl Origin {
    /// Returns the current request, if there is one.
    pub fn current() -> Option<Self> {
        let request_id = current(|request| request.request_id.as_str().to_owned())?;
        Some(Self { request_id, traceparent: traceparent() })
    }

    /// Runs work as part of the request, in a span of its trace.
    pub fn resume<F: Future>(&self, span: &'static str, work: F) -> impl Future<Output = F::Output> {
        let trace = self.traceparent.as_deref().and_then(TraceContext::parse);
        let request_id = RequestId::named(&self.request_id);
        let request = RequestContext { request_id, client: None, is_public: false, trace };
        in_request(request, work.instrument(traces::background_span(span, trace)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn ignores_a_repeated_traceparent() {
        let mut headers = HeaderMap::new();
        headers.append(TRACEPARENT, HeaderValue::from_static(SAMPLE));
        assert!(caller(&headers).is_some());
        headers.append(TRACEPARENT, HeaderValue::from_static(SAMPLE));
        assert_eq!(caller(&headers), None);
    }

    #[tokio::test]
    async fn resumed_work_belongs_to_the_request() {
        assert_eq!(Origin::current(), None);
        let text = format!(r#"{{"request_id":"r-1","traceparent":"{SAMPLE}"}}"#);
        let stored: Origin = serde_json::from_str(&text).unwrap();
        let resumed = stored.resume("test", async { Origin::current() }).await;
        assert_eq!(serde_json::to_string(&resumed).unwrap(), text);
    }

    #[tokio::test]
    async fn replaces_malformed_stored_values() {
        let bad = Origin { request_id: "two\nlines".to_owned(), traceparent: Some("nonsense".to_owned()) };
        let resumed = bad.resume("test", async { Origin::current() }).await.unwrap();
        assert_eq!((resumed.request_id.len(), resumed.traceparent), (16, None));
    }
}
