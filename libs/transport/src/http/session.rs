//! One open HTTP client for one endpoint: requests go out, answers come back whole and bounded.

use std::error::Error;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Certificate, Client, RequestBuilder, Response, redirect};

use super::answer::Answer;
use super::body::Body;
use super::config::HttpTransportConfig;
use super::endpoint::Endpoint;
use crate::{TraceContext, TransportError, TransportErrorKind, begin_trace};

/// Results of a full batch, each with a long message, take about 1 MiB. What is larger is not the service.
const LARGEST_ANSWER: usize = 8 * 1024 * 1024;

/// A connection pool and what every request needs. Clones share the pool.
#[derive(Clone)]
pub(super) struct Session {
    client: Client,
    endpoint: Endpoint,
    bearer: Option<HeaderValue>,
    trace: Option<TraceContext>,
}

impl Session {
    /// Checks the configuration. No byte is sent yet.
    pub(super) fn open(
        config: &HttpTransportConfig,
        roots: Option<&[Certificate]>,
        trace: Option<TraceContext>,
    ) -> Result<Self, TransportError> {
        let endpoint = Endpoint::parse(&config.endpoint)?;
        let timeout = Duration::try_from_secs_f64(config.timeout_sec)
            .ok()
            .filter(|timeout| !timeout.is_zero())
            .ok_or_else(|| configuration("timeout_sec is a number of seconds above 0"))?;
        let bearer = match &config.api_key {
            Some(key) => Some(bearer(key.expose())?),
            None => None,
        };
        let client = client(&endpoint, roots, timeout).map_err(|error| {
            configuration(format!(
                "no HTTP client can be made: {}; are CA certificates installed?",
                root(&error)
            ))
        })?;
        Ok(Self { client, endpoint, bearer, trace })
    }

    /// Asks for a path of the API, without the key: what needs none should not see one.
    pub(super) async fn get(&self, path: &str) -> Result<Answer, TransportError> {
        self.exchange(self.client.get(self.endpoint.at(path))).await
    }

    /// Posts JSON to a path of the API.
    pub(super) async fn post(&self, path: &str, body: &Body) -> Result<Answer, TransportError> {
        let mut request = self
            .client
            .post(self.endpoint.at(path))
            .header(CONTENT_TYPE, "application/json")
            .body(body.bytes.clone());
        if body.gzip {
            request = request.header(CONTENT_ENCODING, "gzip");
        }
        if let Some(bearer) = &self.bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        self.exchange(request).await
    }

    async fn exchange(&self, mut request: RequestBuilder) -> Result<Answer, TransportError> {
        if let Some(trace) = self.trace.or_else(begin_trace) {
            request = request.header("traceparent", trace.to_string());
        }
        let mut response = request.send().await.map_err(|error| self.fault(&error))?;
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| self.fault(&error))? {
            if body.len() + part.len() > LARGEST_ANSWER {
                let message =
                    format!("{} answered with more than it ever does; is it the service?", self.endpoint);
                return Err(TransportError::new(TransportErrorKind::Protocol, message));
            }
            body.extend_from_slice(&part);
        }
        Ok(whole(&response, body))
    }

    /// Why there is no whole answer.
    fn fault(&self, error: &reqwest::Error) -> TransportError {
        let (kind, message) = if error.is_timeout() {
            (TransportErrorKind::Timeout, format!("{} did not answer in time", self.endpoint))
        } else if error.is_builder() {
            (TransportErrorKind::Configuration, format!("the request cannot be made: {}", root(error)))
        } else if error.is_connect() {
            let cause = root(error);
            let advice = "check the address, and that the service is running";
            (
                TransportErrorKind::Connection,
                format!("cannot connect to {}: {cause}; {advice}", self.endpoint),
            )
        } else {
            let cause = root(error);
            (TransportErrorKind::Connection, format!("the connection to {} broke: {cause}", self.endpoint))
        };
        TransportError::new(kind, message)
    }
}

fn client(endpoint: &Endpoint, roots: Option<&[Certificate]>, timeout: Duration) -> reqwest::Result<Client> {
    install_tls_provider();
    let mut builder = Client::builder()
        .user_agent(concat!("svc-transport/", env!("CARGO_PKG_VERSION")))
        .timeout(timeout)
        // The API never redirects. Following would turn a POST into a GET and take the key elsewhere.
        .redirect(redirect::Policy::none());
    if !endpoint.is_https() {
        // Loading the machine's certificates would cost time, and fail where there are none, for nothing.
        builder = builder.tls_certs_only([]);
    } else if let Some(roots) = roots {
        builder = builder.tls_certs_only(roots.iter().cloned());
    }
    if endpoint.is_loopback() {
        builder = builder.no_proxy();
    }
    builder.build()
}

/// The HTTP client takes the process's provider, and panics when there is none.
fn install_tls_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that somebody else was quicker, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

fn bearer(key: &str) -> Result<HeaderValue, TransportError> {
    let mut value = HeaderValue::try_from(format!("Bearer {key}"))
        .map_err(|_| configuration("api_key holds a character that no header can carry"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn whole(response: &Response, body: Vec<u8>) -> Answer {
    Answer {
        status: response.status(),
        retry_after: text(response.headers(), RETRY_AFTER.as_str())
            .and_then(|seconds| seconds.parse().ok())
            .map(Duration::from_secs),
        request_id: text(response.headers(), "x-request-id").map(str::to_owned),
        body,
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// The innermost cause; what lies around it only says that a request failed, and repeats the URL.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn configuration(message: impl Into<String>) -> TransportError {
    TransportError::new(TransportErrorKind::Configuration, message)
}
