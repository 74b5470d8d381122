//! An HTTP server with scripted responses, and virtual time. After the script, it accepts all events.

use std::collections::{HashSet, VecDeque};
use std::future::pending;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use axum::serve::Listener;
use futures::stream;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::tls::{Authority, TlsListener};
use crate::http::Clock;
use crate::{HttpTransport, HttpTransportConfig};

/// Response to one post.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Accepts according to the rules.
    Accept,
    /// Responds with this status, `Retry-After` and body.
    Respond(u16, Option<u64>, String),
    /// Rejects the events with these indexes, retryable or not, and responds with this status.
    Reject(u16, Vec<(usize, bool)>),
    /// Rejects the event with this index permanently with this code, and responds with this status.
    RejectWith(u16, usize, &'static str),
    /// Responds with this `Retry-After` and date.
    Busy(&'static str, &'static str),
    /// Never responds.
    Hang,
    /// Continues with the next step after a permit is added.
    Wait(Arc<Semaphore>),
    /// Closes the connection after the start of the response.
    Disconnect,
    /// Advances the virtual time, then continues with the next step.
    Advance(Duration),
    /// Responds like a proxy without a service, until this virtual time, then continues with the next step.
    Away(Duration),
    /// Responds with this step until this virtual time, then continues with the next step.
    Until(Duration, Box<Self>),
}

/// Responds with a problem document.
pub(super) fn problem(status: u16, code: &str, retry_after_ms: Option<u64>) -> Step {
    problem_at("/", status, code, retry_after_ms)
}

/// The same, for a request to this path.
pub(super) fn problem_at(path: &str, status: u16, code: &str, retry_after_ms: Option<u64>) -> Step {
    let body = json!({
        "type": "about:blank", "title": "Title", "status": status, "detail": "Detail.", "instance": path, "code": code,
        "request_id": "r-1", "errors": [{"pointer": "/p", "code": "c", "message": "wrong"}],
        "retry_after_ms": retry_after_ms,
    });
    Step::Respond(status, None, body.to_string())
}

/// A recorded request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) compressed: bool,
    /// Decompressed body.
    pub(super) body: String,
    /// Virtual time of the receipt.
    pub(super) received: Instant,
    /// Status of the response, after it began.
    pub(super) status: Option<u16>,
}

impl Request {
    /// Events of a batch, with unchanged bytes.
    pub(super) fn events(&self) -> Vec<String> {
        let list: Vec<Box<RawValue>> = serde_json::from_str(&self.body).unwrap();
        list.into_iter().map(|event| event.get().to_owned()).collect()
    }

    pub(super) fn ids(&self) -> Vec<String> {
        self.events().iter().map(|event| id_of(event)).collect()
    }
}

pub(super) fn id_of(event: &str) -> String {
    let event: Value = serde_json::from_str(event).unwrap();
    let id = event.get("event_id").or_else(|| event.get("eventId"));
    id.unwrap().as_str().unwrap().to_owned()
}

/// Rules for posts without a scripted response.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    /// Events with these ids are rejected.
    pub(super) rejected_ids: HashSet<String>,
    /// Larger batches are rejected with 413. A batch with an event id that starts with `huge` always is.
    pub(super) max_events: Option<usize>,
    /// `GET /health` responds with 503.
    pub(super) unhealthy: bool,
}

#[derive(Default)]
struct Shared {
    rules: Rules,
    script: Mutex<VecDeque<Step>>,
    requests: Mutex<Vec<Request>>,
    accepted: Mutex<HashSet<String>>,
    /// Number of requests without a response that are not canceled.
    in_progress: Arc<()>,
    clock: Arc<VirtualClock>,
}

/// A running server. Stops when dropped.
pub(super) struct Server {
    pub(super) endpoint: String,
    pub(super) clock: Arc<VirtualClock>,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl Server {
    pub(super) async fn with_rules(rules: Rules, script: impl IntoIterator<Item = Step>) -> Self {
        let (clock, listener) = (Arc::default(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let shared = Shared {
            rules,
            script: Mutex::new(script.into_iter().collect()),
            clock: Arc::clone(&clock),
            ..Shared::default()
        };
        Self::on(listener, "http", clock, shared)
    }

    /// Server at this address, which accepts everything.
    pub(super) async fn at(address: SocketAddr, clock: Arc<VirtualClock>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let shared = Shared { clock: Arc::clone(&clock), ..Shared::default() };
        Self::on(listener, "http", clock, shared)
    }

    /// Server without a script, with a certificate of this authority.
    pub(super) async fn over_tls(authority: &Authority) -> Self {
        let (clock, listener) = (Arc::default(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let shared = Shared { clock: Arc::clone(&clock), ..Shared::default() };
        Self::on(TlsListener::new(listener, authority), "https", clock, shared)
    }

    fn on<L>(listener: L, scheme: &str, clock: Arc<VirtualClock>, shared: Shared) -> Self
    where
        L: Listener<Addr = SocketAddr>,
    {
        let (endpoint, shared) = (format!("{scheme}://{}", listener.local_addr().unwrap()), Arc::new(shared));
        let router =
            Router::new().fallback(respond).with_state(shared.clone()).layer(DefaultBodyLimit::disable());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { endpoint, clock, shared, _tasks: tasks }
    }

    pub(super) async fn scripted(script: impl IntoIterator<Item = Step>) -> Self {
        Self::with_rules(Rules::default(), script).await
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().clone()
    }

    /// Returns whether the event with this id was accepted in a batch.
    pub(super) fn accepted(&self, id: &str) -> bool {
        self.shared.accepted.lock().contains(id)
    }

    /// Number of requests that have no response yet and were not canceled by the client.
    pub(super) fn requests_in_progress(&self) -> usize {
        Arc::strong_count(&self.shared.in_progress) - 1
    }

    /// Transport to this server, in virtual time.
    pub(super) fn transport(&self) -> HttpTransport {
        self.transport_with(|_| ())
    }

    pub(super) fn transport_with(&self, change: impl FnOnce(&mut HttpTransportConfig)) -> HttpTransport {
        let mut config = HttpTransportConfig::new(&self.endpoint);
        change(&mut config);
        HttpTransport::with_clock(config, self.clock.clone(), StdRng::seed_from_u64(7))
    }
}

async fn respond(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let compressed = headers.get("content-encoding").is_some_and(|encoding| encoding == "gzip");
    let request = Request {
        method,
        path: uri.path().to_owned(),
        headers,
        compressed,
        body: text(&body, compressed),
        received: shared.clock.now(),
        status: None,
    };
    let _in_progress = Arc::clone(&shared.in_progress);
    let number = {
        let mut requests = shared.requests.lock();
        requests.push(request.clone());
        requests.len() - 1
    };
    let response = respond_to(&shared, &request).await;
    shared.requests.lock()[number].status = Some(response.status().as_u16());
    response
}

async fn respond_to(shared: &Shared, request: &Request) -> Response {
    match request.path.as_str() {
        "/api/v1/health" if shared.rules.unhealthy => {
            send(problem(503, "dependency_unavailable", Some(1000)))
        }
        "/api/v1/health" => axum::Json(json!({"status": "ok"})).into_response(),
        "/api/v1/events" | "/api/v1/events/batch" => post(shared, request).await,
        path => match path.strip_prefix("/moved") {
            Some(to) => Redirect::temporary(to).into_response(),
            None if path.starts_with("/welcome") => "<html>Welcome</html>".into_response(),
            None => send(problem_at(path, 404, "not_found", None)),
        },
    }
}

async fn post(shared: &Shared, request: &Request) -> Response {
    loop {
        let step = shared.script.lock().pop_front();
        return match step {
            Some(Step::Advance(time)) => {
                shared.clock.advance(time);
                continue;
            }
            Some(Step::Away(until)) if shared.clock.elapsed() < until => {
                shared.script.lock().push_front(Step::Away(until));
                StatusCode::BAD_GATEWAY.into_response()
            }
            Some(Step::Until(until, step)) if shared.clock.elapsed() < until => {
                shared.script.lock().push_front(Step::Until(until, step.clone()));
                send(*step)
            }
            Some(Step::Away(_) | Step::Until(..)) => continue,
            Some(Step::Busy(retry_after, date)) => {
                let mut response = StatusCode::SERVICE_UNAVAILABLE.into_response();
                response.headers_mut().insert("retry-after", retry_after.parse().unwrap());
                response.headers_mut().insert("date", date.parse().unwrap());
                response
            }
            Some(Step::Wait(permits)) => {
                permits.acquire().await.unwrap().forget();
                continue;
            }
            Some(Step::Hang) => pending().await,
            Some(Step::Disconnect) => disconnect(),
            Some(Step::Reject(status, indexes)) => batch(shared, request, status, |index, _| {
                indexes.iter().find(|(rejected, _)| *rejected == index).map(|(_, retryable)| *retryable)
            }),
            Some(Step::RejectWith(status, rejected, code)) => {
                let of_event = |index, _: &str| (index == rejected).then_some((false, code));
                batch_with_codes(shared, request, status, of_event)
            }
            Some(step @ Step::Respond(..)) => send(step),
            Some(Step::Accept) | None => respond_by_rules(shared, request),
        };
    }
}

fn respond_by_rules(shared: &Shared, request: &Request) -> Response {
    let rules = &shared.rules;
    let rejected = |id: &str| rules.rejected_ids.contains(id).then_some(false);
    if request.path == "/api/v1/events" {
        let id = id_of(&request.body);
        return if rejected(&id).is_some() {
            send(problem(422, "validation_failed", None))
        } else {
            accepted(&id)
        };
    }
    let ids = request.ids();
    let huge = ids.iter().any(|id| id.starts_with("huge"));
    if huge || rules.max_events.is_some_and(|max| ids.len() > max) {
        return send(problem(413, "batch_too_large", None));
    }
    let status = if ids.iter().any(|id| rejected(id).is_some()) { 207 } else { 202 };
    batch(shared, request, status, |_, id| rejected(id))
}

fn accepted(id: &str) -> Response {
    let body = json!({
        "event_id": id, "server_event_id": server_event_id(id), "status": "accepted", "duplicate": false,
        "received_at": "2026-11-21T00:00:00Z",
    });
    (StatusCode::ACCEPTED, axum::Json(body)).into_response()
}

fn batch(
    shared: &Shared,
    request: &Request,
    status: u16,
    rejected: impl Fn(usize, &str) -> Option<bool>,
) -> Response {
    let with_code = |index, id: &str| rejected(index, id).map(|retryable| (retryable, "some_code"));
    batch_with_codes(shared, request, status, with_code)
}

/// Results in reverse order, because the transport must not depend on it. Sets `Retry-After` if an event is retryable.
fn batch_with_codes(
    shared: &Shared,
    request: &Request,
    status: u16,
    rejected: impl Fn(usize, &str) -> Option<(bool, &'static str)>,
) -> Response {
    let ids = request.ids();
    let mut results: Vec<_> =
        ids.iter().enumerate().map(|(index, id)| result(shared, index, id, rejected(index, id))).collect();
    results.reverse();
    let failed = results.iter().filter(|result| result["status"] == "rejected").count();
    let retryable = results.iter().any(|result| result["retryable"] == true);
    let body = json!({
        "batch_id": Uuid::from_u128(1), "total_events": ids.len(), "successful_events": ids.len() - failed,
        "failed_events": failed, "results": results,
    });
    let mut response = (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response();
    if retryable {
        response.headers_mut().insert("retry-after", 1.into());
    }
    response
}

fn result(shared: &Shared, index: usize, id: &str, rejected: Option<(bool, &str)>) -> Value {
    if let Some((retryable, code)) = rejected {
        return json!({
            "index": index, "event_id": id, "status": "rejected", "code": code, "message": "no",
            "pointer": "/x", "retryable": retryable,
        });
    }
    shared.accepted.lock().insert(id.to_owned());
    json!({"index": index, "event_id": id, "status": "accepted", "server_event_id": server_event_id(id)})
}

fn server_event_id(id: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, id.as_bytes())
}

fn send(step: Step) -> Response {
    let Step::Respond(status, retry_after, body) = step else { panic!("not a response: {step:?}") };
    let mut response = (StatusCode::from_u16(status).unwrap(), body).into_response();
    if let Some(seconds) = retry_after {
        response.headers_mut().insert("retry-after", seconds.into());
    }
    response.headers_mut().insert("x-request-id", "r-header".parse().unwrap());
    response
}

fn disconnect() -> Response {
    let parts = [Ok(Bytes::from_static(b"{\"event")), Err(std::io::Error::other("scripted"))];
    Body::from_stream(stream::iter(parts)).into_response()
}

fn text(body: &Bytes, compressed: bool) -> String {
    if !compressed {
        return String::from_utf8(body.to_vec()).unwrap();
    }
    let mut text = String::new();
    flate2::read::GzDecoder::new(&body[..]).read_to_string(&mut text).unwrap();
    text
}

/// Time that advances only by sleeping and by [`Step::Advance`]. Records all pauses.
#[derive(Debug)]
pub(crate) struct VirtualClock {
    start: Instant,
    state: Mutex<VirtualTime>,
}

#[derive(Debug, Default)]
struct VirtualTime {
    elapsed: Duration,
    pauses: Vec<Duration>,
    /// Pauses do not end.
    stopped: bool,
    /// Time that each pause takes in addition, as in a process that is stopped meanwhile.
    overrun: Duration,
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self { start: Instant::now(), state: Mutex::default() }
    }
}

impl VirtualClock {
    pub(crate) fn advance(&self, time: Duration) {
        self.state.lock().elapsed += time;
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.state.lock().elapsed
    }

    /// Each pause takes this time in addition from now on.
    pub(crate) fn set_overrun(&self, overrun: Duration) {
        self.state.lock().overrun = overrun;
    }

    /// Pauses do not end from now on.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
    }

    pub(crate) fn pauses(&self) -> Vec<Duration> {
        self.state.lock().pauses.clone()
    }
}

#[async_trait]
impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        self.start + self.state.lock().elapsed
    }

    async fn sleep(&self, pause: Duration) {
        let stopped = {
            let mut state = self.state.lock();
            state.pauses.push(pause);
            let overrun = state.overrun;
            state.elapsed += pause + overrun;
            state.stopped
        };
        if stopped {
            pending::<()>().await;
        }
    }
}
