//! Request metrics by route. The label is the pattern of the route, never the path.
//!
//! The handles of an endpoint are looked up once for each method and status. After that, a request costs two clock reads, three atomic
//! additions and one histogram bucket, without allocation and without a lock that routes share.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use http::{Method, StatusCode};
use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::connections::Connection;
use crate::telemetry::Metrics;

/// Label of requests that match no route.
const UNMATCHED: &str = "other";
/// Status if the client disconnects before the response, as in common proxies.
const CLIENT_CLOSED_REQUEST: u16 = 499;
/// Values of the label `method`; other methods are `other`. The set is bounded because clients choose methods.
static METHODS: [Method; 7] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS];
/// Upper bounds in seconds, from a fast acknowledgement of an event to the timeout of a client.
const BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Metrics of one endpoint: a handler of a route, or the fallback.
pub(super) struct Endpoint {
    service: &'static str,
    metrics: Metrics,
    in_flight: Gauge,
    /// By method and status.
    handles: RwLock<HashMap<(&'static str, u16), Handles>>,
}

#[derive(Clone)]
struct Handles {
    seconds: Histogram,
    requests: Counter,
}

impl Endpoint {
    pub(super) fn new(service: &'static str, metrics: Metrics) -> Self {
        let labels = [("service", service)];
        let in_flight = metrics.metric("http_requests_in_flight", "Requests in flight", &labels);
        Self { service, metrics, in_flight, handles: RwLock::default() }
    }

    /// Starts the measurement of a request. The drop of the result ends it.
    pub(super) fn start(&self, request: &Request) -> Measurement<'_> {
        self.in_flight.inc();
        let known = METHODS.iter().find(|known| *known == request.method());
        Measurement {
            endpoint: self,
            method: known.map_or("other", Method::as_str),
            route: request.extensions().get().cloned(),
            connection: request.extensions().get().cloned(),
            start: Instant::now(),
            status: CLIENT_CLOSED_REQUEST,
        }
    }

    fn handles(&self, method: &'static str, route: Option<&MatchedPath>, status: u16) -> Handles {
        if let Some(handles) = self.handles.read().get(&(method, status)) {
            return handles.clone();
        }
        let (route, text) = (route.map_or(UNMATCHED, MatchedPath::as_str), status.to_string());
        let labels = [("service", self.service), ("method", method), ("route", route), ("status", &*text)];
        let help =
            "Time from the request head to the response head, without the time in which the body is received";
        let seconds = self.metrics.histogram("http_request_duration_seconds", help, &labels[..3], &BUCKETS);
        let help = "Requests by response status; 499 means that the client disconnected before the response";
        let handles = Handles { seconds, requests: self.metrics.metric("http_requests", help, &labels) };
        self.handles.write().insert((method, status), handles.clone());
        handles
    }
}

/// Measurement of one request.
pub(super) struct Measurement<'a> {
    endpoint: &'a Endpoint,
    method: &'static str,
    route: Option<MatchedPath>,
    /// `None` for a request without a connection, as in tests.
    connection: Option<Arc<Connection>>,
    start: Instant,
    status: u16,
}

impl Measurement<'_> {
    pub(super) fn record_status(&mut self, status: StatusCode) {
        self.status = status.as_u16();
    }
}

impl Drop for Measurement<'_> {
    fn drop(&mut self) {
        self.endpoint.in_flight.dec();
        let body_time = self.connection.as_ref().map_or(Duration::ZERO, |connection| connection.body_time());
        let Handles { seconds, requests } =
            self.endpoint.handles(self.method, self.route.as_ref(), self.status);
        seconds.observe(self.start.elapsed().saturating_sub(body_time).as_secs_f64());
        requests.inc();
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use crate::http::{Edge, not_found};
    use crate::telemetry::{Telemetry, TraceSettings};

    use super::*;

    struct TestEdge {
        telemetry: Telemetry,
        router: Router,
    }

    impl TestEdge {
        fn new() -> Self {
            let telemetry = Telemetry::start("test", &TraceSettings::default()).unwrap();
            let router = Router::new()
                .route("/users/{user_id}", get(async || "ok").delete(async || StatusCode::NO_CONTENT))
                .route(
                    "/status/{status}",
                    get(async |id: crate::http::Id<u16>| StatusCode::from_u16(id.0).unwrap()),
                )
                .route("/never", get(async || std::future::pending::<()>().await))
                .fallback(not_found);
            let router = Edge::new("https://svc.example", "users", &telemetry).wrap(router);
            Self { telemetry, router }
        }

        async fn send(&self, method: &str, uri: &str) {
            let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
            self.router.clone().oneshot(request).await.unwrap();
        }

        fn assert_metric(&self, line: &str) {
            let text = self.telemetry.metrics().text();
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
    }

    #[tokio::test]
    async fn counts_requests_by_route() {
        let edge = TestEdge::new();
        for user in 0..3 {
            edge.send("GET", &format!("/users/{user}")).await;
        }
        edge.send("HEAD", "/users/1").await;
        edge.send("DELETE", "/users/1").await;
        edge.send("POST", "/users/1").await;
        edge.send("BREW", "/users/1").await;
        edge.send("GET", "/nowhere/1").await;
        edge.send("GET", "/nowhere/2").await;
        for (method, route, status, times) in [
            ("GET", "/users/{user_id}", 200, 3),
            ("HEAD", "/users/{user_id}", 200, 1),
            ("DELETE", "/users/{user_id}", 204, 1),
            ("POST", "/users/{user_id}", 405, 1),
            ("other", "/users/{user_id}", 405, 1),
            ("GET", "other", 404, 2),
        ] {
            edge.assert_metric(&format!(
                "svc_http_requests_total{{service=\"users\",method=\"{method}\",route=\"{route}\",status=\"{status}\"}} {times}"
            ));
            edge.assert_metric(&format!(
                "svc_http_request_duration_seconds_count{{service=\"users\",method=\"{method}\",route=\"{route}\"}} {times}"
            ));
        }
    }

    #[tokio::test]
    async fn counts_each_status() {
        let edge = TestEdge::new();
        for status in (200..216).chain(200..216) {
            edge.send("GET", &format!("/status/{status}")).await;
        }
        for status in 200..216 {
            edge.assert_metric(&format!(
                "svc_http_requests_total{{service=\"users\",method=\"GET\",route=\"/status/{{status}}\",status=\"{status}\"}} 2"
            ));
        }
    }

    #[tokio::test]
    async fn counts_a_disconnected_client() {
        let edge = TestEdge::new();
        {
            let mut request = Box::pin(edge.send("GET", "/never"));
            assert!(futures::poll!(&mut request).is_pending());
            edge.assert_metric("svc_http_requests_in_flight{service=\"users\"} 1");
        }
        edge.assert_metric("svc_http_requests_in_flight{service=\"users\"} 0");
        edge.assert_metric(
            "svc_http_requests_total{service=\"users\",method=\"GET\",route=\"/never\",status=\"499\"} 1",
        );
    }
}
