//! A reverse proxy that fails chosen requests of the pages, as the service, a proxy or the network does.

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use contract::{API_PREFIX, ProblemKind};
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// How a request fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// A problem document of the service.
    Problem(ProblemKind),
    /// A page of a proxy.
    Html(StatusCode),
    /// The connection is closed before the response.
    Connection,
    /// The connection is closed within the response.
    Truncated,
    /// There is no response.
    Silence,
    /// The response lacks a header.
    Without(&'static str),
}

/// Which requests fail.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// The request to the API with this number, and its repetitions by the browser.
    Api(usize),
    /// All requests of paths with this end.
    Path(&'static str),
}

#[derive(Default)]
struct Plan {
    failing: Option<(Target, Failure)>,
    /// Method and path of the requests to the API.
    requests: Vec<(Method, String)>,
}

/// A running proxy. It stops when dropped.
pub(crate) struct FailingProxy {
    pub(crate) base_url: String,
    plan: Arc<Mutex<Plan>>,
    server: JoinHandle<()>,
}

#[derive(Clone)]
struct Shared {
    upstream: String,
    http: reqwest::Client,
    plan: Arc<Mutex<Plan>>,
}

impl FailingProxy {
    /// Starts a proxy of the system with this origin.
    pub(crate) async fn start(upstream: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let plan = Arc::<Mutex<Plan>>::default();
        let shared = Shared {
            upstream: upstream.to_owned(),
            http: testkit::client::plain_http(),
            plan: Arc::clone(&plan),
        };
        let router = Router::new().fallback(forward).with_state(shared);
        #[expect(clippy::disallowed_methods, reason = "the proxy stops when it is dropped")]
        let server = tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        Self { base_url, plan, server }
    }

    /// Lets all requests pass.
    pub(crate) fn pass(&self) {
        *self.plan.lock() = Plan::default();
    }

    /// Fails requests from now on.
    pub(crate) fn fail(&self, target: Target, failure: Failure) {
        *self.plan.lock() = Plan { failing: Some((target, failure)), ..Plan::default() };
    }

    /// Method and path of the requests to the API since the last change.
    pub(crate) fn requests(&self) -> Vec<(Method, String)> {
        self.plan.lock().requests.clone()
    }
}

impl Drop for FailingProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Plan {
    /// Records a request. Returns how it fails.
    fn decide(&mut self, method: &Method, path: &str) -> Option<Failure> {
        let request = (method.clone(), path.to_owned());
        let below = |prefix: &str| path.strip_prefix(API_PREFIX).is_some_and(|path| path.starts_with(prefix));
        let is_document = !below("/") || method == Method::GET && below("/pages/");
        let (target, failure) = self.failing.clone().unzip();
        let fails = match target {
            Some(Target::Path(end)) => path.ends_with(end),
            Some(Target::Api(number)) if !is_document => match self.requests.get(number) {
                // A browser repeats a request if a connection that it has used before is closed.
                Some(failed) => *failed == request,
                None => self.requests.len() == number,
            },
            _ => false,
        };
        if !is_document {
            self.requests.push(request);
        }
        failure.filter(|_| fails)
    }
}

impl Failure {
    /// The response in place of the one of the service.
    async fn response(self) -> Response {
        match self {
            Self::Silence | Self::Without(_) => std::future::pending().await,
            Self::Problem(kind) => {
                let document = json!({ "code": kind.code(), "title": kind.title() }).to_string();
                let status = StatusCode::from_u16(kind.status()).unwrap();
                (status, [(CONTENT_TYPE, "application/problem+json")], document).into_response()
            }
            Self::Html(status) => {
                (status, [(CONTENT_TYPE, "text/html")], "<!doctype html><p>A proxy.</p>").into_response()
            }
            // Ends the task of the connection without a message.
            Self::Connection => std::panic::resume_unwind(Box::new(())),
            Self::Truncated => {
                let parts = futures::stream::iter([Ok("{"), Err(std::io::Error::other("closed"))]);
                ([(CONTENT_TYPE, "application/json")], Body::from_stream(parts)).into_response()
            }
        }
    }
}

async fn forward(State(shared): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let failure = shared.plan.lock().decide(&parts.method, parts.uri.path());
    let missing = match failure {
        None => None,
        Some(Failure::Without(header)) => Some(header),
        Some(failure) => return failure.response().await,
    };
    let body: Bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let url = format!("{}{}", shared.upstream, parts.uri);
    let response =
        shared.http.request(parts.method, url).headers(parts.headers).body(body).send().await.unwrap();
    let (status, mut headers) = (response.status(), response.headers().clone());
    let body = response.bytes().await.unwrap();
    headers.remove("transfer-encoding");
    if let Some(header) = missing {
        headers.remove(header);
    }
    (status, headers, Body::from(body)).into_response()
}
