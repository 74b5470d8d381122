//! Request metrics by route. The label is the pattern of the route, never the path.
//!
//! The handles of a route are looked up once. After that, a request costs two clock reads, three atomic additions and one
//! histogram bucket, without allocation and without a lock that routes share.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use http::{Method, StatusCode};
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
const METHODS: [Method; 7] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS];
/// Number of status counters that a route caches. Further counters are looked up.
const STATUSES: usize = 8;
/// Upper bounds in seconds, from a fast acknowledgement of an event to the timeout of a client.
const BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Metrics of one endpoint: a handler of a route, or the fallback.
pub(super) struct Endpoint {
    service: &'static str,
    metrics: Metrics,
    methods: [OnceLock<Handles>; METHODS.len() + 1],
}

struct Handles {
    service: &'static str,
    method: &'static str,
    route: String,
    seconds: Histogram,
    in_flight: Gauge,
    counters: [OnceLock<(u16, Counter)>; STATUSES],
}

impl Endpoint {
    pub(super) fn new(service: &'static str, metrics: Metrics) -> Self {
        Self { service, metrics, methods: Default::default() }
    }

    /// Starts the measurement of a request. The drop of the result ends it.
    pub(super) fn start(&self, request: &Request) -> Measurement<'_> {
        let method = METHODS.iter().position(|known| known == request.method()).unwrap_or(METHODS.len());
        let handles = self.methods[method].get_or_init(|| {
            let route = request.extensions().get().map_or(UNMATCHED, MatchedPath::as_str);
            self.handles(METHODS.get(method).map_or("other", method_name), route)
        });
        handles.in_flight.inc();
        let connection = request.extensions().get().cloned();
        let (metrics, start) = (&self.metrics, Instant::now());
        Measurement { metrics, handles, connection, start, status: CLIENT_CLOSED_REQUEST }
    }

    fn handles(&self, method: &'static str, route: &str) -> Handles {
        let (service, metrics) = (self.service, &self.metrics);
        let labels = [("service", service), ("method", method), ("route", route)];
        let help =
            "Time from the request head to the response head, without the time in which the body is received";
        Handles {
            service,
            method,
            route: route.to_owned(),
            seconds: metrics.histogram("http_request_duration_seconds", help, &labels, &BUCKETS),
            in_flight: metrics.metric("http_requests_in_flight", "Requests in flight", &labels[..1]),
            counters: Default::default(),
        }
    }
}

/// `Method::as_str` is not static.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// Measurement of one request.
pub(super) struct Measurement<'a> {
    metrics: &'a Metrics,
    handles: &'a Handles,
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
        self.handles.in_flight.dec();
        let body_time = self.connection.as_ref().map_or(Duration::ZERO, |connection| connection.body_time());
        self.handles.seconds.observe(self.start.elapsed().saturating_sub(body_time).as_secs_f64());
        self.handles.count(self.status, self.metrics);
    }
}

impl Handles {
    fn count(&self, status: u16, metrics: &Metrics) {
        let counter = || {
            let help =
                "Requests by response status; 499 means that the client disconnected before the response";
            let (method, route, status) = (self.method, self.route.as_str(), status.to_string());
            let labels =
                [("service", self.service), ("method", method), ("route", route), ("status", &status)];
            metrics.metric::<Counter>("http_requests", help, &labels)
        };
        for slot in &self.counters {
            let (known, requests) = slot.get_or_init(|| (status, counter()));
            if *known == status {
                requests.inc();
                return;
            }
        }
        counter().inc();
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
    async fn counts_more_statuses_than_a_route_caches() {
        let edge = TestEdge::new();
        for status in (200..200 + 2 * STATUSES).chain(200..200 + 2 * STATUSES) {
            edge.send("GET", &format!("/status/{status}")).await;
        }
        for status in 200..200 + 2 * STATUSES {
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
