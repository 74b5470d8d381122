//! The request that a task works for: its id and its place in a trace (W3C Trace Context). They follow the task, so that
//! logs and calls to other services find them without being handed them.

use std::future::Future;
use std::net::IpAddr;

use contract::TraceContext;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::http::{RequestId, X_REQUEST_ID};

/// The header of W3C Trace Context, over HTTP and NATS.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// What a caller sent. Two of them are none.
pub(crate) fn caller(headers: &HeaderMap) -> Option<TraceContext> {
    let mut sent = headers.get_all(TRACEPARENT).iter();
    match (sent.next(), sent.next()) {
        (Some(one), None) => TraceContext::parse(one.to_str().ok()?),
        _ => None,
    }
}

/// The request at hand.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub(crate) request_id: RequestId,
    /// Nothing keeps it longer than the request.
    pub(crate) client: Option<IpAddr>,
    pub(crate) trace: Option<TraceContext>,
}

tokio::task_local! {
    static CURRENT: Current;
}

/// Does the work for a request.
pub(crate) fn in_request<F: Future>(request: Current, work: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(request, work)
}

/// Looks at the request at hand, if there is one.
pub(super) fn current<T>(look: impl FnOnce(&Current) -> T) -> Option<T> {
    CURRENT.try_with(look).ok()
}

/// The `traceparent` for what is sent on behalf of the request at hand: with traces on, of our own span; else the caller's.
pub fn traceparent() -> Option<String> {
    current(|request| request.trace)?.map(|trace| trace.to_string())
}

/// The headers for a call to another service on behalf of the request at hand: its id and its trace.
pub fn outgoing() -> HeaderMap {
    let mut headers = HeaderMap::new();
    current(|request| headers.insert(X_REQUEST_ID, request.request_id.header()));
    if let Some(value) = traceparent().and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(TRACEPARENT, value);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn two_headers_are_none() {
        let mut headers = HeaderMap::new();
        headers.append(TRACEPARENT, HeaderValue::from_static(SAMPLE));
        assert!(caller(&headers).is_some());
        headers.append(TRACEPARENT, HeaderValue::from_static(SAMPLE));
        assert_eq!(caller(&headers), None);
    }
}
