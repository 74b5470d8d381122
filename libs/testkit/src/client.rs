//! A client of the public API for tests: short to write, and panics with the whole answer when it is not the expected one.

use std::fmt;
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// No answer takes so long: a test that waits for one fails and says where, instead of standing still for ever.
const PATIENCE: Duration = Duration::from_mins(2);

/// A client of what listens on loopback without TLS. It reads no certificates: unoptimised, that takes a fifth of a second.
pub fn plain_http() -> reqwest::Client {
    let builder = reqwest::Client::builder().no_proxy().tls_certs_only([]).timeout(PATIENCE);
    builder.build().expect("a client can be made")
}

/// Sends requests with the same headers.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base_url: String,
    headers: Vec<(String, String)>,
}

/// What came back.
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: reqwest::header::HeaderMap,
    /// The body.
    pub body: String,
}

impl Client {
    /// A client that shows nothing.
    pub fn new(base_url: &str) -> Self {
        Self { http: plain_http(), base_url: base_url.to_owned(), headers: Vec::new() }
    }

    /// The same with a header more.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with a bearer credential.
    #[must_use]
    pub fn bearer(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    /// `GET` of a path below `/api/v1`.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    /// `DELETE`.
    pub async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// `POST` of JSON.
    pub async fn post(&self, path: &str, body: &impl Serialize) -> Answer {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    /// `PATCH` of JSON.
    pub async fn patch(&self, path: &str, body: &impl Serialize) -> Answer {
        self.send(self.request(Method::PATCH, path).json(body)).await
    }

    /// `POST` of any bytes under any media type; none when it is empty.
    pub async fn post_bytes(&self, path: &str, media_type: &str, body: impl Into<reqwest::Body>) -> Answer {
        let request = self.request(Method::POST, path).body(body);
        self.send(if media_type.is_empty() { request } else { request.header("Content-Type", media_type) })
            .await
    }

    /// A request to be finished by hand.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{}{path}", self.base_url, contract::API_PREFIX));
        self.headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    /// Sends it.
    pub async fn send(&self, request: RequestBuilder) -> Answer {
        let response = request.send().await.expect("the service answers");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Answer { status, headers, body: response.text().await.expect("the answer arrives whole") }
    }
}

impl Answer {
    /// The body, of an answer that must have this status.
    #[track_caller]
    pub fn expect<T: DeserializeOwned>(&self, status: u16) -> T {
        assert_eq!(self.status, status, "{self}");
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// Nothing, of an answer that must have this status and no body.
    #[track_caller]
    pub fn expect_empty(&self, status: u16) {
        assert_eq!((self.status, self.body.as_str()), (status, ""), "{self}");
    }

    /// The problem, which must have this status and code, and the form that all problems have.
    #[track_caller]
    pub fn expect_problem(&self, status: u16, code: &str) -> contract::Problem {
        assert_eq!(
            self.headers.get("content-type").map(reqwest::header::HeaderValue::as_bytes),
            Some(&b"application/problem+json"[..]),
            "{self}"
        );
        let problem: contract::Problem = self.expect(status);
        assert_eq!((problem.status, problem.code.as_str()), (status, code), "{self}");
        assert_eq!(
            self.headers.get("x-request-id").and_then(|v| v.to_str().ok()),
            Some(problem.request_id.as_str())
        );
        assert_eq!(self.headers.contains_key("retry-after"), problem.retry_after_ms.is_some(), "{self}");
        problem
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {}", self.status, self.headers, self.body)
    }
}
