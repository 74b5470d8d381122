//! How many requests, how fast and how they ended, by route: what the path was matched against, never the path itself.
//!
//! The handles of a route are found once. After that a request costs two looks at the clock, three atomic additions and
//! one bucket; it allocates nothing and takes no lock that another route takes.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// The route of what matches none.
const UNMATCHED: &str = "other";
/// The status of a request whose client hung up before the answer, as proxies write it.
const CLIENT_GONE: u16 = 499;
/// Methods are labels, so there are only so many: these, and `other`.
const METHODS: [Method; 7] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS];
/// Handles of so many statuses are kept at a route; it rarely has more, and then they are looked up.
const STATUSES: usize = 8;
/// Upper bounds in seconds: from an event that is acknowledged at once to a client that is about to give up.
const BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Of {
    service: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Requested {
    service: &'static str,
    method: &'static str,
    route: Arc<str>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answered {
    service: &'static str,
    method: &'static str,
    route: Arc<str>,
    status: u16,
}

/// The metrics of all listeners of a process.
#[derive(Clone, Debug)]
pub(super) struct HttpMetrics {
    requests: Family<Answered, Counter>,
    seconds: Family<Requested, Histogram, fn() -> Histogram>,
    in_flight: Family<Of, Gauge>,
}

impl HttpMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            in_flight: Family::default(),
        };
        let requests = "Requests by the status of their answer; 499 when the client hung up before it";
        registry.register("http_requests", requests, metrics.requests.clone());
        let seconds = "Time from a request's head to its answer's";
        registry.register_with_unit("http_request_duration", seconds, Unit::Seconds, metrics.seconds.clone());
        registry.register("http_requests_in_flight", "Requests under way", metrics.in_flight.clone());
        metrics
    }
}

/// The metrics at one endpoint: a handler at a route, or the fallback.
pub(super) struct Endpoint {
    service: &'static str,
    metrics: HttpMetrics,
    methods: [OnceLock<Handles>; METHODS.len() + 1],
}

struct Handles {
    of: Requested,
    seconds: Histogram,
    in_flight: Gauge,
    answered: [OnceLock<(u16, Counter)>; STATUSES],
}

impl Endpoint {
    pub(super) fn new(service: &'static str, metrics: HttpMetrics) -> Self {
        Self { service, metrics, methods: Default::default() }
    }

    /// Measures a request until what is returned is dropped.
    pub(super) fn begin(&self, request: &Request) -> Measured<'_> {
        let method = METHODS.iter().position(|known| known == request.method()).unwrap_or(METHODS.len());
        let handles = self.methods[method].get_or_init(|| {
            let route = request.extensions().get().map_or(UNMATCHED, MatchedPath::as_str);
            self.handles(METHODS.get(method).map_or("other", method_name), route)
        });
        handles.in_flight.inc();
        Measured { metrics: &self.metrics, handles, began: Instant::now(), status: CLIENT_GONE }
    }

    fn handles(&self, method: &'static str, route: &str) -> Handles {
        let of = Requested { service: self.service, method, route: route.into() };
        Handles {
            seconds: self.metrics.seconds.get_or_create_owned(&of),
            in_flight: self.metrics.in_flight.get_or_create_owned(&Of { service: self.service }),
            answered: Default::default(),
            of,
        }
    }
}

/// `Method::as_str` lends from the method, which is no constant here.
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

/// A request that is being measured.
pub(super) struct Measured<'a> {
    metrics: &'a HttpMetrics,
    handles: &'a Handles,
    began: Instant,
    status: u16,
}

impl Measured<'_> {
    pub(super) fn record_status(&mut self, status: StatusCode) {
        self.status = status.as_u16();
    }
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        self.handles.in_flight.dec();
        self.handles.seconds.observe(self.began.elapsed().as_secs_f64());
        self.handles.count(self.status, &self.metrics.requests);
    }
}

impl Handles {
    fn count(&self, status: u16, requests: &Family<Answered, Counter>) {
        let counter = || {
            let Requested { service, method, route } = self.of.clone();
            requests.get_or_create_owned(&Answered { service, method, route, status })
        };
        for place in &self.answered {
            let (known, requests) = place.get_or_init(|| (status, counter()));
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

    struct Asked {
        telemetry: Telemetry,
        router: Router,
    }

    impl Asked {
        fn new() -> Self {
            let telemetry = Telemetry::start("test", &TraceSettings::default()).unwrap();
            let router = Router::new()
                .route("/users/{user_id}", get(async || "ok").delete(async || StatusCode::NO_CONTENT))
                .route(
                    "/status/{status}",
                    get(async |id: crate::http::path::Id<u16>| StatusCode::from_u16(id.0).unwrap()),
                )
                .route("/never", get(async || std::future::pending::<()>().await))
                .fallback(not_found);
            let router = Edge::new("https://svc.example", "users", &telemetry).wrap(router);
            Self { telemetry, router }
        }

        async fn ask(&self, method: &str, uri: &str) {
            let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
            self.router.clone().oneshot(request).await.unwrap();
        }

        fn has(&self, line: &str) {
            let text = self.telemetry.metrics().text();
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
    }

    #[tokio::test]
    async fn requests_are_counted_by_what_their_path_matched() {
        let asked = Asked::new();
        for user in 0..3 {
            asked.ask("GET", &format!("/users/{user}")).await;
        }
        asked.ask("HEAD", "/users/1").await;
        asked.ask("DELETE", "/users/1").await;
        asked.ask("POST", "/users/1").await;
        asked.ask("BREW", "/users/1").await;
        asked.ask("GET", "/nowhere/1").await;
        asked.ask("GET", "/nowhere/2").await;
        for (method, route, status, times) in [
            ("GET", "/users/{user_id}", 200, 3),
            ("HEAD", "/users/{user_id}", 200, 1),
            ("DELETE", "/users/{user_id}", 204, 1),
            ("POST", "/users/{user_id}", 405, 1),
            ("other", "/users/{user_id}", 405, 1),
            ("GET", "other", 404, 2),
        ] {
            asked.has(&format!(
                "svc_http_requests_total{{service=\"users\",method=\"{method}\",route=\"{route}\",status=\"{status}\"}} {times}"
            ));
            asked.has(&format!(
                "svc_http_request_duration_seconds_count{{service=\"users\",method=\"{method}\",route=\"{route}\"}} {times}"
            ));
        }
    }

    #[tokio::test]
    async fn a_route_may_give_more_statuses_than_it_keeps_at_hand() {
        let asked = Asked::new();
        for status in (200..200 + 2 * STATUSES).chain(200..200 + 2 * STATUSES) {
            asked.ask("GET", &format!("/status/{status}")).await;
        }
        for status in 200..200 + 2 * STATUSES {
            asked.has(&format!(
                "svc_http_requests_total{{service=\"users\",method=\"GET\",route=\"/status/{{status}}\",status=\"{status}\"}} 2"
            ));
        }
    }

    #[tokio::test]
    async fn a_client_that_hangs_up_is_counted_and_no_longer_in_flight() {
        let asked = Asked::new();
        {
            let mut request = Box::pin(asked.ask("GET", "/never"));
            assert!(futures::poll!(&mut request).is_pending());
            asked.has("svc_http_requests_in_flight{service=\"users\"} 1");
        }
        asked.has("svc_http_requests_in_flight{service=\"users\"} 0");
        asked.has(
            "svc_http_requests_total{service=\"users\",method=\"GET\",route=\"/never\",status=\"499\"} 1",
        );
    }
}
