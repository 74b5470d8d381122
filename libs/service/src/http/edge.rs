//! Router of the public API of one service, and the layer around every public and internal router.
//!
//! The layer assigns request id, trace span and client address, catches panics of handlers, renders problem documents and
//! records metrics. It is one layer because each additional layer would box another future per request.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::handler::Handler;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use contract::routes::{Method, Route};
use contract::{API_PREFIX, ProblemKind, problem};
use futures::FutureExt as _;
use http::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, RETRY_AFTER, STRICT_TRANSPORT_SECURITY,
    TRANSFER_ENCODING, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};
use tenancy::{X_SESSION_ID, X_TENANT_ID, X_USER_ID};
use tokio::time::{Instant, timeout_at};
use tower::Layer as _;
use tower::layer::layer_fn;
use tracing::Instrument as _;

use super::connections::Connection;
use super::extract::single_value;
use super::measure::Endpoint;
use super::oauth::OAuthError;
use super::problem::Problem;
use super::{HeaderError, PeerAddress, RequestId, TrustedProxies, X_REQUEST_ID};
use crate::telemetry::{Metrics, RequestContext, RequestSpan, Telemetry, caller, in_request};
use crate::{LogThrottle, chain};

/// Browsers use HTTPS only for one year, renewed by every response (RFC 6797). Without `includeSubDomains`, because other hosts
/// can be below the public one.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// Time from the request head, or from the end of its body, to the response head. The steps of a request have their own, shorter
/// timeouts. This one limits their sum, and steps that have none. The body has its own limit ([`BodyPace`](super::pace::BodyPace)). The
/// time to send the body of the response is not limited.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Headers of which one value would be ignored if there were two.
static SINGLE_HEADERS: [HeaderName; 7] = [
    AUTHORIZATION,
    CONTENT_TYPE,
    HOST,
    HeaderName::from_static("last-event-id"),
    X_SESSION_ID,
    X_TENANT_ID,
    X_USER_ID,
];

/// Renders a problem as a page, for a person who opened an address with these request headers.
pub type ErrorPage = Arc<dyn Fn(ProblemKind, &HeaderMap) -> Response + Send + Sync>;

/// Failed requests in the log per minute.
const LOGGED_FAILURES: u64 = 60;

/// HTTP edge of a service.
#[derive(Clone)]
pub struct Edge {
    /// Public origin of the installation, the base of problem type URIs.
    pub public_url: Arc<str>,
    service: &'static str,
    metrics: Metrics,
    proxies: TrustedProxies,
    is_public: bool,
    error_page: Option<ErrorPage>,
    failures: Arc<Failures>,
}

/// Logs failed requests, a bounded number per minute, because clients can cause many. Faults of the service are counted separately.
struct Failures {
    internal: LogThrottle,
    other: LogThrottle,
}

impl Failures {
    /// Logs a problem. The line contains the request id, and how many lines of the minute before are missing.
    fn log(&self, problem: &Problem, path: &str) {
        let code = problem.kind.code();
        let throttle = if problem.kind == ProblemKind::Internal { &self.internal } else { &self.other };
        let Some(cause) = &problem.cause else { return tracing::debug!(code, path, "request rejected") };
        match throttle.due() {
            Some(0) => tracing::error!(code, path, cause = chain(&**cause), "request failed"),
            Some(omitted) => tracing::error!(code, path, omitted, cause = chain(&**cause), "request failed"),
            None => {}
        }
    }
}

/// Fallback of a router: 404.
pub async fn not_found() -> Problem {
    Problem::new(ProblemKind::NotFound)
}

impl Edge {
    /// Creates the edge of a service. Metrics and traces contain the name.
    pub fn new(public_url: &str, service: &'static str, telemetry: &Telemetry) -> Self {
        Self {
            public_url: public_url.trim_end_matches('/').into(),
            service,
            metrics: telemetry.metrics().clone(),
            proxies: TrustedProxies::default(),
            is_public: true,
            error_page: None,
            failures: Arc::new(Failures {
                internal: LogThrottle::per_minute(LOGGED_FAILURES),
                other: LogThrottle::per_minute(LOGGED_FAILURES),
            }),
        }
    }

    /// Responds to browsers with a page instead of a problem document, where an address was opened.
    #[must_use]
    pub fn with_error_pages(self, error_page: ErrorPage) -> Self {
        Self { error_page: Some(error_page), ..self }
    }

    /// Trusts `X-Forwarded-For` from these proxies.
    #[must_use]
    pub fn with_trusted_proxies(self, proxies: &TrustedProxies) -> Self {
        Self { proxies: proxies.clone(), ..self }
    }

    /// Wraps the complete router of an internal API.
    pub fn wrap_internal(&self, router: Router) -> Router {
        Self { is_public: false, ..self.clone() }.wrap(router)
    }

    /// Wraps the complete router of a public API.
    pub fn wrap(&self, router: Router) -> Router {
        let edge = self.clone();
        // Called once per handler of a route, so that each handler keeps the handles of its metrics.
        router.layer(layer_fn(move |endpoint| {
            let metrics = Endpoint::new(edge.service, edge.metrics.clone());
            middleware::from_fn_with_state(Arc::new((edge.clone(), metrics)), pass).layer(endpoint)
        }))
    }

    async fn handle(&self, request: Request, next: Next, id: RequestId) -> Response {
        // Cheap: the path and the pattern are shared with the request, not copied.
        let uri = request.uri().clone();
        let (method, pattern) =
            (request.method().clone(), request.extensions().get::<MatchedPath>().cloned());
        let connection = request.extensions().get::<Arc<Connection>>().cloned();
        let error_page = self.error_page.as_ref().filter(|_| is_opened(&request));
        let error_page = error_page.map(|page| (page, request.headers().clone()));
        let response = match check_head(&request) {
            Err(problem) => problem.into_response(),
            Ok(()) => respond(next.run(request), connection.as_deref()).await,
        };
        let mut response = if let Some(mut problem) = problem_of(&response) {
            if problem.kind == ProblemKind::Forbidden && problem.detail.is_none() {
                problem.detail = pattern.and_then(|pattern| allowed_callers(&method, pattern.as_str()));
            }
            let mut rendered = self.render(&problem, uri.path(), &id);
            if let Some((page, headers)) = error_page {
                let (parts, body) = page(problem.kind, &headers).into_parts();
                rendered.headers_mut().extend(parts.headers);
                *rendered.body_mut() = body;
            }
            keep_headers(&response, &mut rendered);
            rendered
        } else {
            response
        };
        self.complete(response.headers_mut(), &id);
        response
    }

    /// Sets the headers that every response has.
    fn complete(&self, headers: &mut HeaderMap, id: &RequestId) {
        headers.insert(X_REQUEST_ID, id.header());
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // Most responses depend on the credential. Handlers of public documents set their own value.
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        if self.public_url.starts_with("https:") {
            headers.insert(STRICT_TRANSPORT_SECURITY, HSTS);
        }
    }

    fn render(&self, problem: &Problem, path: &str, id: &RequestId) -> Response {
        let kind = problem.kind;
        self.failures.log(problem, path);
        let document = contract::Problem {
            type_uri: format!("{}{API_PREFIX}/problems/{}", self.public_url, kind.code()),
            title: kind.title().to_owned(),
            status: kind.status(),
            detail: problem.detail.clone().unwrap_or_else(|| kind.remedy().to_owned()),
            instance: path.to_owned(),
            code: kind.code().to_owned(),
            request_id: id.as_str().to_owned(),
            errors: problem.errors.clone(),
            retry_after_ms: problem.retry_after.and_then(|after| after.as_millis().try_into().ok()),
            second_factor: problem.second_factor.as_deref().cloned(),
        };
        // Structs of strings always serialise.
        let (status, media_type, body) = if let Some(error) = OAuthError::from_problem(path, kind, &document)
        {
            (error.status, "application/json", serde_json::to_vec(&error))
        } else {
            let status = StatusCode::from_u16(kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (status, problem::MEDIA_TYPE, serde_json::to_vec(&document))
        };
        let mut response = Response::new(Body::from(body.unwrap_or_default()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        if let Some(challenge) = challenge(kind) {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if let Some(after) = problem.retry_after {
            // Whole seconds, rounded up, because an earlier retry would be rejected.
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        response
    }
}

/// Passes a request to its endpoint. The state is behind one pointer because the framework clones it per request.
async fn pass(State(state): State<Arc<(Edge, Endpoint)>>, mut request: Request, next: Next) -> Response {
    let (edge, metrics) = &*state;
    let mut measurement = metrics.start(&request);
    let id = RequestId::from_headers(request.headers());
    request.extensions_mut().insert(id.clone());
    let client = edge.proxies.client(request.extensions().get::<PeerAddress>(), request.headers());
    request.extensions_mut().insert(client);
    let caller = caller(request.headers());
    let route = request.extensions().get().map(MatchedPath::as_str);
    let span = RequestSpan::new(edge.service, request.method(), route, &id, caller);
    let context = RequestContext {
        request_id: id.clone(),
        client: Some(client.0),
        is_public: edge.is_public,
        trace: span.context().or(caller),
    };
    let handled = edge.handle(request, next, id).instrument(span.span().clone());
    let response = in_request(context, handled).await;
    measurement.record_status(response.status());
    span.record_status(response.status());
    response
}

/// Awaits the response of a handler, at most until its deadline. The time in which the client sends the body does not count.
async fn respond(response: impl Future<Output = Response>, connection: Option<&Connection>) -> Response {
    let mut response = pin!(AssertUnwindSafe(response).catch_unwind());
    let mut deadline = Instant::now() + REQUEST_TIMEOUT;
    loop {
        let elapsed = match timeout_at(deadline, response.as_mut()).await {
            Ok(Ok(response)) => return response,
            Ok(Err(panic)) => {
                return Problem::new(ProblemKind::Internal).caused_by(panic_text(&*panic)).into_response();
            }
            Err(elapsed) => elapsed,
        };
        let later = connection.map(|connection| connection.handled_since() + REQUEST_TIMEOUT);
        if let Some(later) = later.filter(|later| *later > deadline) {
            deadline = later;
            continue;
        }
        let detail = "The service did not respond in time. The request may have taken effect. Wait for \
            the time in Retry-After. If the request is not idempotent, check its effect before you repeat \
            it.";
        return Problem::new(ProblemKind::DependencyUnavailable)
            .detail(detail)
            .caused_by(elapsed)
            .into_response();
    }
}

/// Returns whether a browser opened the address: it accepts HTML, and no JSON (RFC 9110, section 12.5.1).
fn is_opened(request: &Request) -> bool {
    let values = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges =
        values.flat_map(|value| value.split(',')).map(|range| range.split(';').next().unwrap_or("").trim());
    let (mut html, mut json) = (false, false);
    for range in ranges {
        html |= range.eq_ignore_ascii_case("text/html");
        json |= range.to_ascii_lowercase().ends_with("json");
    }
    html && !json
}

/// Checks the headers of every request.
fn check_head(request: &Request) -> Result<(), Problem> {
    SINGLE_HEADERS.iter().try_for_each(|name| single_value(request.headers(), name).map(drop))?;
    check_host(request)?;
    check_transfer_encoding(request.headers())
}

/// Checks `Host` (RFC 9112, section 3.2). A request without a connection, which a test sends to the router, needs none.
fn check_host(request: &Request) -> Result<(), Problem> {
    let is_valid = |host: &HeaderValue| {
        host.is_empty() || Authority::try_from(host.as_bytes()).is_ok_and(|host| !host.as_str().contains('@'))
    };
    match request.headers().get(HOST) {
        Some(host) if is_valid(host) => Ok(()),
        Some(_) => Err(HeaderError::Invalid(HOST, "send one host with an optional port".to_owned()).into()),
        None if request.version() < Version::HTTP_11 => Ok(()),
        None if request.extensions().get::<PeerAddress>().is_none() => Ok(()),
        None => Err(HeaderError::Missing(HOST).into()),
    }
}

/// Checks that a body is not compressed by `Transfer-Encoding`, which the server does not decode (RFC 9112, section 6.1).
fn check_transfer_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    match (encodings.next(), encodings.next()) {
        (None, _) => Ok(()),
        (Some(value), None) if is_chunked(value) => Ok(()),
        _ => Err(ProblemKind::TransferEncoding.into()),
    }
}

/// Returns the problem of an error response: one from a handler, or one for a plain-text response of the framework.
fn problem_of(response: &Response) -> Option<Problem> {
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return None;
    }
    if let Some(problem) = response.extensions().get::<Problem>() {
        return Some(problem.clone());
    }
    // The framework responds in plain text, or with an empty body for an unknown path or method. Any other empty body is
    // intended by a handler.
    let content_type = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let plain = content_type.is_some_and(|value| value.starts_with(b"text/plain"));
    let kind = match status {
        StatusCode::NOT_FOUND if plain || content_type.is_none() => ProblemKind::NotFound,
        StatusCode::METHOD_NOT_ALLOWED if plain || content_type.is_none() => ProblemKind::MethodNotAllowed,
        StatusCode::PAYLOAD_TOO_LARGE if plain => ProblemKind::BodyTooLarge,
        StatusCode::UNSUPPORTED_MEDIA_TYPE if plain => ProblemKind::MediaType,
        _ if plain && status.is_client_error() => ProblemKind::ValidationFailed,
        _ if plain => ProblemKind::Internal,
        _ => return None,
    };
    Some(kind.into())
}

/// Returns the challenge of a response to a credential that is missing or not sufficient (RFC 6750, section 3).
const fn challenge(kind: ProblemKind) -> Option<&'static str> {
    match kind {
        ProblemKind::CredentialInvalid => Some("Bearer error=\"invalid_token\""),
        ProblemKind::InsufficientScope => Some("Bearer error=\"insufficient_scope\""),
        _ if kind.status() == 401 => Some("Bearer"),
        _ => None,
    }
}

/// Returns the detail of a 403 for a wrong kind of caller.
fn allowed_callers(method: &http::Method, pattern: &str) -> Option<String> {
    let route = contract::routes::find(method.as_str(), pattern)?;
    Some(format!("This credential is not allowed to do this. Allowed callers: {}.", route.callers()))
}

/// Keeps the headers that the response had, such as `Allow` of a 405.
fn keep_headers(from: &Response, to: &mut Response) {
    for (name, value) in from.headers() {
        if name != CONTENT_TYPE && name != http::header::CONTENT_LENGTH && !to.headers().contains_key(name) {
            to.headers_mut().append(name, value.clone());
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().map(ToString::to_string).or_else(|| panic.downcast_ref().cloned());
    format!("handler panicked: {}", text.unwrap_or_default())
}

/// A router that is built from the route table. It serves only routes of [`contract::routes`].
pub struct Api<S>(Router<S>);

impl<S: Clone + Send + Sync + 'static> Default for Api<S> {
    fn default() -> Self {
        Self(Router::new())
    }
}

impl<S: Clone + Send + Sync + 'static> Api<S> {
    /// Serves a route with this handler.
    #[must_use]
    pub fn on<T: 'static>(self, route: &Route, handler: impl Handler<T, S>) -> Self {
        let method = match route.method {
            Method::Get => MethodFilter::GET,
            Method::Post => MethodFilter::POST,
            Method::Patch => MethodFilter::PATCH,
            Method::Delete => MethodFilter::DELETE,
        };
        Self(self.0.route(&route.full_path(), on(method, handler)))
    }

    /// Returns the router. Every other path gets 404.
    pub fn with_state(self, state: S) -> Router {
        self.0.fallback(not_found).with_state(state)
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::telemetry::TraceSettings;

    async fn send(request: http::request::Builder) -> (Response<()>, contract::Problem) {
        let router = Router::new()
            .route("/panic", get(async || -> () { panic!("secret cause") }))
            .route("/never", get(async || std::future::pending::<()>().await))
            .route("/busy", get(async || Problem::new(ProblemKind::Overloaded).caused_by("secret cause")))
            .route("/header", get(async || HeaderError::Missing(tenancy::X_TENANT_ID)))
            .fallback(not_found);
        let telemetry = Telemetry::start("test", &TraceSettings::default()).unwrap();
        let router = Edge::new("https://svc.example/", "test", &telemetry).wrap(router);
        let (parts, body) = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        assert!(!String::from_utf8_lossy(&body).contains("secret cause"));
        (Response::from_parts(parts, ()), serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_response_in_time_gets_503_with_retry_after() {
        let (response, problem) = send(Request::builder().uri("/never")).await;
        assert_eq!((response.status().as_u16(), problem.code.as_str()), (503, "dependency_unavailable"));
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        assert!(problem.detail.contains("may have taken effect"), "{}", problem.detail);
    }

    #[tokio::test]
    async fn every_error_becomes_a_problem_document_without_its_cause() {
        for (method, path, status, code) in [
            ("GET", "/panic", 500, "internal"),
            ("GET", "/busy", 503, "overloaded"),
            ("GET", "/header", 400, "header_missing"),
            ("GET", "/nowhere", 404, "not_found"),
            ("POST", "/busy", 405, "method_not_allowed"),
        ] {
            let (response, problem) = send(Request::builder().method(method).uri(path)).await;
            assert_eq!((response.status().as_u16(), problem.code.as_str()), (status, code));
            assert_eq!(problem.type_uri, format!("https://svc.example/api/v1/problems/{code}"));
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
            assert_eq!(problem.instance, path);
        }
    }

    #[tokio::test]
    async fn a_request_of_a_connection_needs_one_valid_host() {
        let peer = PeerAddress("192.0.2.1:4000".parse().unwrap());
        for (hosts, code) in [
            (&[][..], "header_missing"),
            (&["svc.example", "svc.example"], "header_invalid"),
            (&["svc.example/x"], "header_invalid"),
            (&["user@svc.example"], "header_invalid"),
            (&["svc.example:8080"], "not_found"),
            (&["[::1]:8080"], "not_found"),
            (&[""], "not_found"),
        ] {
            let request = hosts.iter().fold(Request::builder().uri("/x").extension(peer), |request, host| {
                request.header(HOST, *host)
            });
            let (_, problem) = send(request).await;
            assert_eq!(problem.code, code, "{hosts:?}");
        }
        let old = Request::builder().uri("/x").extension(peer).version(Version::HTTP_10);
        assert_eq!(send(old).await.1.code, "not_found");
    }

    #[tokio::test]
    async fn a_header_that_must_be_single_is_rejected_if_it_is_repeated() {
        for name in [
            "Authorization",
            "Content-Type",
            "Host",
            "X-Tenant-ID",
            "X-User-ID",
            "X-Session-ID",
            "Last-Event-ID",
        ] {
            let (_, problem) = send(Request::builder().uri("/x").header(name, "a").header(name, "a")).await;
            let expected = format!("The header {name} was sent more than once. Send it once.");
            assert_eq!((&*problem.code, &*problem.detail), ("header_invalid", &*expected));
        }
        let twice = Request::builder().uri("/x").header("Accept", "a/b").header("Accept", "a/c");
        assert_eq!(send(twice).await.1.code, "not_found");
    }

    /// RFC 6749, section 5.2, and RFC 8628, section 3.5.
    #[tokio::test]
    async fn every_problem_of_a_device_route_is_an_oauth_error() {
        let telemetry = Telemetry::start("test", &TraceSettings::default()).unwrap();
        for kind in ProblemKind::ALL {
            for (path, is_poll) in [("/api/v1/auth/device/code", false), ("/api/v1/auth/device/token", true)]
            {
                let problem = Problem::new(*kind).detail("Send \"a\\b\" — now.");
                let router = Router::new().route(path, get(async move || problem));
                let router = Edge::new("https://svc.example", "test", &telemetry).wrap(router);
                let response = router.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
                let (parts, body) = response.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(parts.headers[CONTENT_TYPE], "application/json");
                assert_eq!(parts.headers.contains_key(RETRY_AFTER), kind.is_retryable());
                let expected = match (kind.status(), is_poll) {
                    (408 | 429 | 503, true) => (400, "slow_down"),
                    (status @ (429 | 503), false) => (status, "temporarily_unavailable"),
                    (500, _) => (500, "server_error"),
                    (405, _) => (405, "invalid_request"),
                    _ => (400, "invalid_request"),
                };
                assert_eq!((parts.status.as_u16(), body["error"].as_str().unwrap()), expected, "{kind:?}");
                assert_eq!(body["error_description"], "Send 'a b'   now.");
                assert_eq!((&body["code"], &body["status"]), (&kind.code().into(), &expected.0.into()));
            }
        }
    }

    #[tokio::test]
    async fn a_temporary_error_has_retry_after_and_a_wrong_method_has_allow() {
        let (response, problem) = send(Request::builder().uri("/busy")).await;
        assert_eq!(
            (&response.headers()[RETRY_AFTER], problem.retry_after_ms),
            (&HeaderValue::from(1), Some(1000))
        );
        let (response, _) = send(Request::builder().method("POST").uri("/busy")).await;
        assert_eq!(response.headers()["allow"], "GET,HEAD");
    }

    #[tokio::test]
    async fn a_response_is_not_stored_or_sniffed_unless_its_handler_permits_it() {
        let telemetry = Telemetry::start("test", &TraceSettings::default()).unwrap();
        for (public_url, hsts) in [("https://svc.example", Some(HSTS)), ("http://127.0.0.1:8080", None)] {
            let router = Router::new()
                .route("/private", get(async || "{}"))
                .route("/public", get(async || ([(CACHE_CONTROL, "no-cache")], "{}")))
                .fallback(not_found);
            let router = Edge::new(public_url, "test", &telemetry).wrap(router);
            for (path, caching) in [("/private", "no-store"), ("/public", "no-cache"), ("/x", "no-store")] {
                let request = Request::builder().uri(path).body(Body::empty()).unwrap();
                let response = router.clone().oneshot(request).await.unwrap();
                assert_eq!(response.headers()[CACHE_CONTROL], caching, "{path}");
                assert_eq!(response.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff", "{path}");
                assert_eq!(response.headers().get(STRICT_TRANSPORT_SECURITY), hsts.as_ref(), "{path}");
            }
        }
    }

    #[tokio::test]
    async fn a_forbidden_caller_learns_which_callers_are_allowed() {
        let telemetry = Telemetry::start("test", &TraceSettings::default()).unwrap();
        let detail = async |path: &'static str, problem: Problem| {
            let router = Router::new().route(path, get(async || problem));
            let router = Edge::new("https://svc.example", "test", &telemetry).wrap(router);
            let response = router.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            serde_json::from_slice::<contract::Problem>(&body).unwrap().detail
        };
        assert_eq!(
            detail("/api/v1/tenants", ProblemKind::Forbidden.into()).await,
            "This credential is not allowed to do this. Allowed callers: the platform administrator."
        );
        assert_eq!(
            detail("/api/v1/tenants", Problem::new(ProblemKind::Forbidden).detail("Own.")).await,
            "Own."
        );
        assert_eq!(detail("/x", ProblemKind::Forbidden.into()).await, ProblemKind::Forbidden.remedy());
    }

    /// RFC 6750, section 3.
    #[tokio::test]
    async fn a_rejected_credential_has_a_challenge_with_its_error() {
        let telemetry = Telemetry::start("test", &TraceSettings::default()).unwrap();
        for (kind, challenge) in [
            (ProblemKind::Unauthenticated, Some("Bearer")),
            (ProblemKind::CredentialInvalid, Some("Bearer error=\"invalid_token\"")),
            (ProblemKind::InsufficientScope, Some("Bearer error=\"insufficient_scope\"")),
            (ProblemKind::Forbidden, None),
        ] {
            let router = Router::new().route("/x", get(async move || Problem::new(kind)));
            let router = Edge::new("https://svc.example", "test", &telemetry).wrap(router);
            let response = router.oneshot(Request::get("/x").body(Body::empty()).unwrap()).await.unwrap();
            let header = response.headers().get(WWW_AUTHENTICATE).map(|value| value.to_str().unwrap());
            assert_eq!(header, challenge);
        }
    }

    #[tokio::test]
    async fn echoes_a_valid_request_id_and_replaces_an_invalid_one() {
        let (response, problem) = send(Request::builder().uri("/x").header(X_REQUEST_ID, "my-id.1_2")).await;
        assert_eq!(
            (&response.headers()[X_REQUEST_ID], problem.request_id.as_str()),
            (&"my-id.1_2".parse().unwrap(), "my-id.1_2")
        );
        for bad in ["", "a b", "a\"b", &"x".repeat(129)] {
            let (_, problem) = send(Request::builder().uri("/x").header(X_REQUEST_ID, bad)).await;
            assert_eq!(problem.request_id.len(), 16, "{bad}");
        }
    }
}
