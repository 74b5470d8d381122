//! A client of the public API for tests. The `expect` methods panic with the whole response when it differs.

use std::fmt;
use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Longer than any response takes, so that a test fails instead of hanging.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(2);

/// An HTTP client without TLS. It loads no certificates, which takes 200 ms in an unoptimised build.
pub fn plain_http() -> reqwest::Client {
    // Fails when the process has installed the same provider before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().no_proxy().tls_certs_only([]).timeout(REQUEST_TIMEOUT);
    builder.build().expect("valid client settings")
}

/// A client that sends the same headers with each request.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    /// Origin and path prefix.
    base_url: String,
    headers: Vec<(String, String)>,
}

/// A response, read completely.
pub struct TestResponse {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: reqwest::header::HeaderMap,
    /// The body.
    pub body: String,
}

impl Client {
    /// A client without credentials.
    pub fn new(base_url: &str) -> Self {
        Self::at(&format!("{base_url}{}", contract::API_PREFIX))
    }

    /// A client without credentials of an API with another path prefix.
    pub fn at(base_url: &str) -> Self {
        Self { http: plain_http(), base_url: base_url.to_owned(), headers: Vec::new() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a bearer credential.
    #[must_use]
    pub fn bearer(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    /// Sends `GET`. All paths are relative to the path prefix.
    pub async fn get(&self, path: &str) -> TestResponse {
        self.send(self.request(Method::GET, path)).await
    }

    /// Sends `DELETE`.
    pub async fn delete(&self, path: &str) -> TestResponse {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// Sends `POST` with a JSON body.
    pub async fn post(&self, path: &str, body: &impl Serialize) -> TestResponse {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    /// Sends `PUT` with a JSON body.
    pub async fn put(&self, path: &str, body: &impl Serialize) -> TestResponse {
        self.send(self.request(Method::PUT, path).json(body)).await
    }

    /// Sends `PATCH` with a JSON body.
    pub async fn patch(&self, path: &str, body: &impl Serialize) -> TestResponse {
        self.send(self.request(Method::PATCH, path).json(body)).await
    }

    /// Sends `POST` with any body. An empty `media_type` sends no `Content-Type`.
    pub async fn post_bytes(
        &self,
        path: &str,
        media_type: &str,
        body: impl Into<reqwest::Body>,
    ) -> TestResponse {
        let request = self.request(Method::POST, path).body(body);
        self.send(if media_type.is_empty() { request } else { request.header("Content-Type", media_type) })
            .await
    }

    /// A request with the headers of this client, for [`Client::send`].
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base_url));
        self.headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    /// Sends a request.
    pub async fn send(&self, request: RequestBuilder) -> TestResponse {
        let response = request.send().await.expect("a response");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        TestResponse { status, headers, body: response.text().await.expect("a complete body") }
    }
}

impl TestResponse {
    /// Expects the status and parses the body.
    #[track_caller]
    pub fn expect<T: DeserializeOwned>(&self, status: u16) -> T {
        assert_eq!(self.status, status, "{self}");
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// Expects the status and no body.
    #[track_caller]
    pub fn expect_empty(&self, status: u16) {
        assert_eq!((self.status, self.body.as_str()), (status, ""), "{self}");
    }

    /// Expects a problem document with this status and code and with the headers that all problems have.
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

    /// Parses the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }
}

impl fmt::Display for TestResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {}", self.status, self.headers, self.body)
    }
}
