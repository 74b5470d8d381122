//! A stand-in for the service that answers what a test tells it to, and keeps what it was asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use tokio::net::TcpListener;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Asked {
    /// The body, which must be JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

pub(crate) type Answers = fn(&Asked) -> (u16, String);

/// The stand-in. It ends with the test's runtime.
pub(crate) struct Stub {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    _runtime: tokio::runtime::Runtime,
}

impl Stub {
    /// Begins to listen on a free port.
    pub(crate) fn answering(answers: Answers) -> Self {
        Self::on("http", |listener| listener, answers)
    }

    /// The same, at a port that `wrap` puts something before.
    pub(crate) fn on<L: Listener<Addr = SocketAddr>>(
        scheme: &str,
        wrap: impl FnOnce(TcpListener) -> L,
        answers: Answers,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = wrap(runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap());
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let seen = Arc::clone(&asked);
        let router =
            Router::new().fallback(move |request: Request| answer(request, Arc::clone(&seen), answers));
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { url, asked, _runtime: runtime }
    }

    /// What was asked, in order.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Method and path of what was asked, in order.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }
}

async fn answer(request: Request, seen: Arc<Mutex<Vec<Asked>>>, answers: Answers) -> Response {
    let (head, body) = request.into_parts();
    let line = format!("{} {}", head.method, head.uri);
    let asked = Asked { line, headers: head.headers, body: to_bytes(body, usize::MAX).await.unwrap() };
    let (status, body) = answers(&asked);
    seen.lock().unwrap().push(asked);
    let status = StatusCode::from_u16(status).unwrap();
    (status, [("content-type", "application/json"), ("x-request-id", "of-the-stub")], body).into_response()
}

/// A problem document as the service sends it.
pub(crate) fn problem(kind: contract::ProblemKind) -> (u16, String) {
    let problem = contract::Problem {
        type_uri: format!("http://127.0.0.1/api/v1/problems/{}", kind.code()),
        title: kind.title().into(),
        status: kind.status(),
        detail: "What happened this time.".into(),
        instance: "/api/v1".into(),
        code: kind.code().into(),
        request_id: "of-the-stub".into(),
        errors: Vec::new(),
        retry_after_ms: None,
    };
    (kind.status(), serde_json::to_string(&problem).unwrap())
}
