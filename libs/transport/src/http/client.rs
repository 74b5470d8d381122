//! HTTP client for one endpoint: TLS, headers and bounded responses.

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rand::TryRng as _;
use rand::rngs::SysRng;
use reqwest::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, ClientBuilder, RequestBuilder, StatusCode, redirect};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tenancy::X_TENANT_ID;
use tokio::time::{Instant, timeout_at};

use super::Options;
use super::body::{Progress, RequestBody};
use super::endpoint::Endpoint;
use super::proxy::ProxyChoice;
use super::response::HttpResponse;
use crate::{RequestLog, TraceContext, TransportError, TransportErrorKind};

/// Maximum size of a response. Results of a full batch with long messages take about 1 MiB.
const MAX_RESPONSE_BYTES: usize = 8 * 1024 * 1024;

/// Time limit for establishing a connection, over all addresses of the host. A shorter time limit of an attempt replaces it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections are closed after this time. A proxy or a server can have forgotten an older one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Query of requests with events, if invalid ones are quarantined.
const QUARANTINE: &str = "?invalid=quarantine";

/// A connection pool and the headers of every request. Clones share the pool.
#[derive(Clone)]
pub(super) struct HttpClient {
    client: Client,
    /// Identifies the pool.
    pool: Arc<()>,
    timeout: Duration,
    endpoint: Endpoint,
    proxy: ProxyChoice,
    bearer: Option<HeaderValue>,
    tenant: Option<HeaderValue>,
    options: Arc<Options>,
}

/// A request that can be sent.
pub(super) struct Post {
    url: String,
    request: RequestBuilder,
    progress: Progress,
}

/// Time limits of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AttemptLimits {
    /// Time without progress: from the start, or from the last piece of the body that the connection took, to the complete response.
    pub(super) idle: Duration,
    /// Time of the whole attempt.
    pub(super) total: Duration,
}

impl HttpClient {
    /// Validates the configuration. Does not connect.
    pub(super) fn new(options: Arc<Options>) -> Result<Self, TransportError> {
        let Options { config, roots, tenant, .. } = &*options;
        let endpoint = Endpoint::parse(&config.endpoint).map_err(|reason| {
            configuration_error(format!("invalid endpoint ({reason}); example: http://127.0.0.1:8080"))
        })?;
        let timeout = Duration::try_from_secs_f64(config.timeout_sec)
            .ok()
            .filter(|timeout| !timeout.is_zero())
            .ok_or_else(|| configuration_error("timeout_sec must be a number of seconds above 0"))?;
        let bearer = match &config.api_key {
            Some(key) => Some(bearer_header(key.expose())?),
            None => None,
        };
        // A tenant id consists of visible ASCII characters.
        let tenant = tenant.as_ref().and_then(|tenant| HeaderValue::try_from(tenant.as_str()).ok());
        let proxy = ProxyChoice::of(&endpoint).map_err(configuration_error)?;
        let builder = client_builder(&endpoint, &proxy, roots.as_deref(), timeout);
        let client = builder.and_then(|builder| Ok(builder.build()?)).map_err(|error| {
            let cause = root_cause(&*error);
            configuration_error(format!(
                "failed to create the HTTP client: {cause}; check that CA certificates are installed"
            ))
        })?;
        Ok(Self { client, pool: Arc::default(), timeout, endpoint, proxy, bearer, tenant, options })
    }

    /// Returns whether both have the same connections.
    pub(super) fn has_same_pool(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.pool, &other.pool)
    }

    /// Gets an API path, without the credential.
    pub(super) async fn get(&self, path: &str) -> Result<HttpResponse, TransportError> {
        let url = self.endpoint.url(path);
        let limits = AttemptLimits { idle: self.timeout, total: self.timeout };
        self.logged("GET", &url, self.client.get(&url), &Progress::default(), limits).await
    }

    /// Prepares a post of JSON to an API path.
    pub(super) fn prepare(&self, path: &str, body: &RequestBody, bearer: Option<HeaderValue>) -> Post {
        let (mut url, progress) = (self.endpoint.url(path), Progress::default());
        if self.options.quarantines {
            url.push_str(QUARANTINE);
        }
        let mut request =
            self.client.post(&url).header(CONTENT_TYPE, "application/json").body(body.upload(&progress));
        if body.gzip {
            request = request.header(CONTENT_ENCODING, "gzip");
        }
        if let Some(bearer) = bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        if let Some(tenant) = &self.tenant {
            request = request.header(X_TENANT_ID, tenant);
        }
        Post { url, request, progress }
    }

    /// Sends a prepared request. `limits` can shorten the time limit of the attempt. Returns also the time in which the body was sent.
    pub(super) async fn post(
        &self,
        post: Post,
        limits: AttemptLimits,
    ) -> (Result<HttpResponse, TransportError>, Duration) {
        let limits = AttemptLimits { idle: limits.idle.min(self.timeout), ..limits };
        let response = self.logged("POST", &post.url, post.request, &post.progress, limits).await;
        (response, post.progress.duration())
    }

    /// Returns the credential of the next request.
    pub(super) async fn bearer(&self) -> Result<Option<HeaderValue>, TransportError> {
        match &self.options.token_file {
            Some(file) => file.bearer(self.timeout).await.map(Some),
            None => Ok(self.bearer.clone()),
        }
    }

    /// Returns the credential to send after this response: the service rejected the one that was sent, and the token file contains
    /// another one.
    pub(super) async fn replaced_bearer(
        &self,
        sent: Option<&HeaderValue>,
        response: &HttpResponse,
    ) -> Option<HeaderValue> {
        if response.status != StatusCode::UNAUTHORIZED {
            return None;
        }
        let current = self.bearer().await.ok()??;
        (sent != Some(&current)).then_some(current)
    }

    /// Sends a request and reports it.
    async fn logged(
        &self,
        method: &'static str,
        url: &str,
        request: RequestBuilder,
        progress: &Progress,
        limits: AttemptLimits,
    ) -> Result<HttpResponse, TransportError> {
        let started = Instant::now();
        let mut is_sent = true;
        let result = limits.run(self.send(request, &mut is_sent), progress).await;
        let result = result.unwrap_or_else(|| Err(self.timeout_error()));
        if let Some(on_request) = &self.options.on_request {
            let response = result.as_ref().ok();
            on_request(&RequestLog {
                method,
                url,
                status: response.map(|response| response.status.as_u16()),
                request_id: response.and_then(HttpResponse::request_id),
                is_sent,
                elapsed: started.elapsed(),
            });
        }
        result
    }

    async fn send(
        &self,
        mut request: RequestBuilder,
        is_sent: &mut bool,
    ) -> Result<HttpResponse, TransportError> {
        if let Some(trace) = self.options.trace.or_else(begin_trace) {
            request = request.header("traceparent", trace.to_string());
        }
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                *is_sent = !(error.is_connect() || error.is_builder());
                return Err(match self.proxy_error(&error).await {
                    Some(error) => error,
                    None => self.request_error(&error),
                });
            }
        };
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.request_error(&error))? {
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                let message = format!(
                    "the response of {} is too large; check that it is the address of the service",
                    self.endpoint
                );
                return Err(TransportError::new(TransportErrorKind::Protocol, message));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(HttpResponse::new(&response, body, &self.endpoint))
    }

    fn timeout_error(&self) -> TransportError {
        TransportError::new(TransportErrorKind::Timeout, format!("request to {} timed out", self.endpoint))
    }

    /// Error of a proxy that did not connect to the service.
    async fn proxy_error(&self, error: &reqwest::Error) -> Option<TransportError> {
        let failure = self.proxy.proxy()?.explain(&self.endpoint, &root_cause(error)).await?;
        let message = format!("{}; {}", failure.message, failure.advice);
        let error = TransportError::new(TransportErrorKind::Connection, message);
        Some(TransportError { retryable: failure.is_temporary, ..error })
    }

    /// Error for a request without a complete response.
    fn request_error(&self, error: &reqwest::Error) -> TransportError {
        let (endpoint, cause) = (&self.endpoint, root_cause(error));
        if error.is_timeout() && !error.is_connect() {
            return self.timeout_error();
        }
        let (kind, message) = if error.is_builder() {
            (TransportErrorKind::Configuration, format!("invalid request: {cause}"))
        } else if tls_errors(error).any(is_not_tls) {
            let advice = "if it has no TLS on this port, use http://";
            (TransportErrorKind::Connection, format!("{endpoint} does not answer with TLS; {advice}"))
        } else if let Some(advice) = tls_errors(error).find_map(untrusted_advice) {
            let kind = TransportErrorKind::UntrustedCertificate;
            (kind, format!("{endpoint} is not trusted: {cause}; {advice}"))
        } else if error.is_connect() {
            let advice = "check the address, and that the service is running";
            let through = self.proxy.proxy().map_or_else(String::new, |proxy| {
                format!(" through the proxy {} ({})", proxy.address(), proxy.variable())
            });
            (
                TransportErrorKind::Connection,
                format!("cannot connect to {endpoint}{through}: {cause}; {advice}"),
            )
        } else {
            (TransportErrorKind::Connection, format!("connection to {endpoint} failed: {cause}"))
        };
        // A retry meets the same protocol.
        let is_final = tls_errors(error).any(is_not_tls);
        let error = TransportError::new(kind, message);
        TransportError { retryable: error.retryable && !is_final, ..error }
    }
}

impl AttemptLimits {
    /// Awaits an exchange. Returns `None` after a limit.
    async fn run<T>(self, exchange: impl Future<Output = T>, progress: &Progress) -> Option<T> {
        let started = Instant::now();
        let mut exchange = pin!(exchange);
        let mut previous = None;
        loop {
            let idle = after(progress.last().unwrap_or(started), self.idle);
            let limit = idle.min(after(started, self.total));
            // No progress since the timer was started.
            if previous.is_some_and(|previous| limit <= previous) {
                return None;
            }
            if let Ok(value) = timeout_at(limit, exchange.as_mut()).await {
                return Some(value);
            }
            previous = Some(limit);
        }
    }
}

/// The instant after a duration of any length.
fn after(instant: Instant, duration: Duration) -> Instant {
    const FAR: Duration = Duration::from_hours(24 * 365 * 30);
    instant.checked_add(duration).unwrap_or_else(|| instant + FAR)
}

/// Starts a new trace. Returns `None` if the system has no random bytes.
pub fn begin_trace() -> Option<TraceContext> {
    let mut random = [0; 24];
    SysRng.try_fill_bytes(&mut random).ok()?;
    TraceContext::begin(random)
}

/// Configures a client. `timeout` limits an attempt.
fn client_builder(
    endpoint: &Endpoint,
    proxy: &ProxyChoice,
    roots: Option<&RootCertStore>,
    timeout: Duration,
) -> Result<ClientBuilder, Box<dyn Error + Send + Sync>> {
    let builder = Client::builder()
        .tls_backend_preconfigured(tls_config(endpoint, roots)?)
        .user_agent(concat!("svc-transport/", env!("CARGO_PKG_VERSION")))
        // A host can have several addresses: the time is divided among them.
        .connect_timeout(CONNECT_TIMEOUT.min(timeout))
        .pool_idle_timeout(IDLE_TIMEOUT)
        // The API never redirects. Following a redirect would send the credential to another address.
        .redirect(redirect::Policy::none());
    Ok(proxy.apply(builder)?)
}

/// Uses the provider that the program has installed, or ring. Installs none: that of the process belongs to the program.
fn tls_config(endpoint: &Endpoint, roots: Option<&RootCertStore>) -> Result<ClientConfig, rustls::Error> {
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = match roots {
        None if endpoint.is_https() => builder.with_platform_verifier()?,
        // Loading the system's certificates takes time, and fails on a machine without any.
        _ => builder.with_root_certificates(roots.cloned().unwrap_or_else(RootCertStore::empty)),
    };
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Parses root certificates from PEM. Requires at least one.
pub(super) fn parse_root_certificates(pem: &[u8]) -> Result<RootCertStore, TransportError> {
    let invalid = |reason: &str| configuration_error(format!("invalid root certificates: {reason}"));
    let mut roots = RootCertStore::empty();
    for der in CertificateDer::pem_slice_iter(pem) {
        let added = der.map_err(|error| invalid(&error.to_string())).map(|der| roots.add(der))?;
        added.map_err(|error| invalid(&error.to_string()))?;
    }
    if roots.is_empty() { Err(invalid("no PEM certificate found")) } else { Ok(roots) }
}

/// Returns the header with a credential.
pub(super) fn bearer_header(key: &str) -> Result<HeaderValue, TransportError> {
    if key.is_empty() {
        return Err(configuration_error("api_key is empty"));
    }
    let mut value = HeaderValue::try_from(format!("Bearer {key}"))
        .map_err(|_| configuration_error("api_key contains invalid characters"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Errors of rustls that caused an error. They are wrapped in I/O errors.
#[doc(hidden)]
pub fn tls_errors(error: &reqwest::Error) -> impl Iterator<Item = &rustls::Error> {
    fn unwrapped<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
        match error.downcast_ref::<std::io::Error>() {
            Some(error) => unwrapped(error.get_ref()?),
            None => error.downcast_ref(),
        }
    }
    let causes = std::iter::successors(Some(error as &(dyn Error + 'static)), |error| (*error).source());
    causes.filter_map(unwrapped)
}

/// Whether the server sent something else than TLS records, such as plain HTTP.
#[doc(hidden)]
pub fn is_not_tls(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType))
}

/// What to do if the client rejected the certificate of the server.
fn untrusted_advice(error: &rustls::Error) -> Option<&'static str> {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let rustls::Error::InvalidCertificate(reason) = error else { return None };
    Some(match reason {
        Expired | ExpiredContext { .. } => {
            "the certificate has expired: renew it, and check the clock of this computer"
        }
        NotValidYet | NotValidYetContext { .. } => {
            "the certificate is not valid yet: check the clock of this computer"
        }
        _ => "check the address, and pass a private certificate authority to `with_root_certificates`",
    })
}

/// Innermost cause. The outer errors only repeat the URL.
#[doc(hidden)]
pub fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Error of the configuration. Nothing was sent.
pub(super) fn configuration_error(message: impl Into<String>) -> TransportError {
    TransportError::new(TransportErrorKind::Configuration, message)
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use proptest::prelude::*;

    use super::*;
    use crate::{HttpTransport, HttpTransportConfig};

    fn pem(body: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_ends_after_a_time_without_progress_of_its_body_or_after_its_total_time() {
        let limits = |idle, total| AttemptLimits {
            idle: Duration::from_secs(idle),
            total: Duration::from_secs(total),
        };
        for (limits, pieces, ends_after) in [
            (limits(30, u64::MAX), 0, 30),
            (limits(30, u64::MAX), 9, 180 + 30),
            (limits(30, 100), 9, 100),
            (limits(0, u64::MAX), 0, 0),
            (limits(10, u64::MAX), 9, 10),
        ] {
            let progress = Progress::default();
            let body = RequestBody { bytes: vec![0; 9 * 32 * 1024].into(), gzip: false };
            let upload = body.upload(&progress);
            let exchange = async {
                let mut upload = pin!(upload);
                for _ in 0..pieces {
                    tokio::time::sleep(Duration::from_secs(20)).await;
                    std::future::poll_fn(|cx| upload.as_mut().poll_frame(cx)).await.unwrap().unwrap();
                }
                std::future::pending::<()>().await;
            };
            let started = Instant::now();
            assert_eq!(limits.run(exchange, &progress).await, None);
            assert_eq!(started.elapsed().as_secs(), ends_after);
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_is_tried_at_the_next_address_of_the_host_when_one_is_silent() {
        use tokio::net::{TcpListener, TcpSocket, TcpStream};

        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        // One connection fills the accept queue. Linux then drops the packets of further ones.
        let silent = socket.listen(0).unwrap();
        let address = silent.local_addr().unwrap();
        let _queued = TcpStream::connect(address).await.unwrap();
        let healthy = TcpListener::bind("127.0.0.1:0").await.unwrap();

        let config = HttpTransportConfig { timeout_sec: 4.0, ..HttpTransportConfig::new("http://svc.test") };
        let mut client = HttpClient::new(Arc::clone(&HttpTransport::new(config).shared.options)).unwrap();
        client.proxy = ProxyChoice::Direct;
        let builder = client_builder(&client.endpoint, &client.proxy, None, client.timeout).unwrap();
        let addresses = [address, healthy.local_addr().unwrap()];
        client.client = builder.resolve_to_addrs("svc.test", &addresses).build().unwrap();
        tokio::select! {
            accepted = healthy.accept() => drop(accepted.unwrap()),
            result = client.get("/health") => panic!("the second address got no connection: {:?}", result.err()),
        }
    }

    #[test]
    fn rejects_text_without_a_valid_certificate() {
        for text in ["", "nonsense", &pem("AAAA"), &pem("not base64!"), "-----BEGIN CERTIFICATE-----\nAAAA"] {
            let error = parse_root_certificates(text.as_bytes()).unwrap_err();
            assert_eq!(error.kind, TransportErrorKind::Configuration, "{text}");
        }
    }

    proptest! {
        #[test]
        fn certificate_parser_rejects_arbitrary_bytes(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            body in "[A-Za-z0-9+/=]{0,60}",
        ) {
            prop_assert!(parse_root_certificates(&bytes).is_err());
            prop_assert!(parse_root_certificates(pem(&body).as_bytes()).is_err());
        }
    }
}
