//! An HTTP server with canned responses that records requests.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use parking_lot::Mutex;
use tokio::net::TcpListener;

/// A recorded request.
#[derive(Clone, Debug)]
pub(crate) struct StubRequest {
    /// Method, path and query.
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl StubRequest {
    /// Body, which must be JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Returns status and body of the response.
pub(crate) type Handler = fn(&StubRequest) -> (u16, String);

/// A running server. Stops when dropped.
pub(crate) struct Stub {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<StubRequest>>>,
    _runtime: tokio::runtime::Runtime,
}

impl Stub {
    /// Starts a server on a free port.
    pub(crate) fn new(handler: Handler) -> Self {
        Self::with_listener("http", |listener| listener, handler)
    }

    /// Starts a server behind the listener that `wrap` returns.
    pub(crate) fn with_listener<L: Listener<Addr = SocketAddr>>(
        scheme: &str,
        wrap: impl FnOnce(TcpListener) -> L,
        handler: Handler,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = wrap(runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap());
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<StubRequest>>> = Arc::default();
        let recorded = Arc::clone(&requests);
        let router =
            Router::new().fallback(move |request: Request| respond(request, Arc::clone(&recorded), handler));
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { url, requests, _runtime: runtime }
    }

    /// Recorded requests, in order.
    pub(crate) fn requests(&self) -> Vec<StubRequest> {
        self.requests.lock().clone()
    }

    /// Method, path and query of the recorded requests, in order.
    pub(crate) fn request_lines(&self) -> Vec<String> {
        self.requests().into_iter().map(|request| request.line).collect()
    }
}

async fn respond(request: Request, recorded: Arc<Mutex<Vec<StubRequest>>>, handler: Handler) -> Response {
    let (head, body) = request.into_parts();
    let line = format!("{} {}", head.method, head.uri);
    let request =
        StubRequest { line, headers: head.headers, body: to_bytes(body, usize::MAX).await.unwrap() };
    let (status, body) = handler(&request);
    // As the service does: the instance of a problem is the path of the request.
    let body = body.replace(r#""instance":"/api/v1""#, &format!(r#""instance":"{}""#, head.uri.path()));
    recorded.lock().push(request);
    let content_type = match body.get(..1) {
        Some("<") => "text/html",
        Some("e" | "i" | "r" | ":") => "text/event-stream",
        _ => "application/json",
    };
    let status = StatusCode::from_u16(status).unwrap();
    (
        status,
        [
            ("content-type", content_type),
            ("x-request-id", "of-the-stub"),
            ("location", "https://svc.example/api/v1"),
        ],
        body,
    )
        .into_response()
}

/// Status and problem document of this kind.
pub(crate) fn problem(kind: contract::ProblemKind) -> (u16, String) {
    let problem = contract::Problem {
        type_uri: format!("http://127.0.0.1/api/v1/problems/{}", kind.code()),
        title: kind.title().into(),
        status: kind.status(),
        // Without details, the service repeats the remedy.
        detail: kind.remedy().into(),
        instance: "/api/v1".into(),
        code: kind.code().into(),
        request_id: "of-the-stub".into(),
        errors: Vec::new(),
        retry_after_ms: None,
        second_factor: None,
    };
    (kind.status(), serde_json::to_string(&problem).unwrap())
}
