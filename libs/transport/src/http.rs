//! Transport over HTTP. Retries temporary errors with the same event ids, and returns exactly one result per event.

mod batch;
mod body;
mod client;
mod endpoint;
mod linger;
mod outage_log;
mod pipeline;
mod proxy;
mod response;
mod retry;
mod token_file;

use std::env::VarError;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::events::AcceptedEvent;
use contract::routes;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rustls::RootCertStore;
use tenancy::TenantId;
use tokio::runtime;
use tokio::sync::Semaphore;

use self::batch::Event as _;
use self::body::RequestBody;
use self::client::{HttpClient, Post, parse_root_certificates};
use self::linger::Linger;
use self::outage_log::OutageLog;
use self::response::HttpResponse;
use self::retry::{RetryState, SystemClock};
use self::token_file::TokenFile;
use crate::in_flight::InFlight;
use crate::{
    BatchProgress, BatchSendResult, OutgoingEvent, RequestLog, Secret, SendResult, TraceContext, Transport,
    TransportError, TransportErrorKind, UdmEvent,
};

pub use client::{begin_trace, is_not_tls, root_cause, tls_errors};
pub use endpoint::{Endpoint, is_of_another_path};
pub use pipeline::{BatchPipeline, PipelineSlot, SentBatch};
pub use proxy::ProxyChoice;
pub(crate) use retry::Clock;

/// Valid delays of [`HttpTransport::with_linger`]. A longer delay adds latency and hardly reduces the number of requests.
const LINGER: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(5);

/// Default of [`HttpTransport::with_max_concurrent_requests`]. The service accepts 256 connections of an address, which several
/// processes can share.
const MAX_CONCURRENT_REQUESTS: usize = 64;

/// Configuration of an [`HttpTransport`]. Names and defaults are specified. `Debug` redacts the key.
#[derive(Clone, Debug)]
pub struct HttpTransportConfig {
    /// Address of the service, `https://host[:port]`, with or without the prefix `/api/v1`.
    pub endpoint: String,
    /// API key or session token, sent as `Authorization: Bearer`.
    pub api_key: Option<Secret>,
    /// Time limit of one attempt in seconds, which starts again while its body is being sent. Default: 30.
    pub timeout_sec: f64,
    /// Maximum number of retries after the last attempt that delivered an event. Default: 3, which survive an outage of 41 s: see
    /// [`HttpTransport`].
    pub max_retries: u32,
}

impl HttpTransportConfig {
    /// Default configuration for this endpoint.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self { endpoint: endpoint.into(), api_key: None, timeout_sec: 30.0, max_retries: 3 }
    }

    /// Configuration from the variables `SVC_BASE_URL` and `SVC_API_KEY`, as `svc` uses them. White space around a value is removed. An
    /// empty variable counts as unset. Without `SVC_API_KEY`, requests have no credential and each send fails with 401, unless
    /// [`with_token_file`](HttpTransport::with_token_file) follows.
    ///
    /// # Errors
    ///
    /// [`Configuration`](TransportErrorKind::Configuration) if `SVC_BASE_URL` is not set, or one of them is not UTF-8.
    #[expect(clippy::disallowed_methods, reason = "the caller asks for the environment")]
    pub fn from_env() -> Result<Self, TransportError> {
        let read = |name: &str| match std::env::var(name) {
            Ok(value) => Ok(Some(value.trim().to_owned()).filter(|value| !value.is_empty())),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => Err(format!("{name} is not valid UTF-8")),
        };
        let invalid = |message: String| TransportError::new(TransportErrorKind::Configuration, message);
        let endpoint = read("SVC_BASE_URL").map_err(invalid)?;
        let endpoint = endpoint.ok_or_else(|| invalid("SVC_BASE_URL is not set".to_owned()))?;
        let api_key = read("SVC_API_KEY").map_err(invalid)?.map(Secret::new);
        Ok(Self { api_key, ..Self::new(endpoint) })
    }
}

/// Sends events to the service over HTTP.
///
/// Connection errors, timeouts and the statuses 408, 429, 502, 503 and 504 are retried up to `max_retries` times:
///
/// - While the service does not answer (no connection, no response, or 502 to 504 from a proxy), and after a 429 without
///   `Retry-After`, the three default retries follow after pauses of 1, 10 and 30 s, each up to 50 % longer. If each attempt fails at
///   once, a send gives up after 41 to 62 s, so an outage of up to 41 s loses no event. If each attempt ends after 30 s without a
///   response, a send gives up after 3 attempts, at most 110 s. More retries add pauses of 2, 4, 8 and 16 s before the last two. A
///   single one follows after 1 s.
/// - After other errors, a retry follows after `Retry-After` and jitter: up to 0.25 s, doubled with each retry. A `Retry-After` above
///   60 s makes the error final. It contains the time.
/// - Retries do not count while the service itself answers with `Retry-After` that its broker is not available
///   (`dependency_unavailable`, `ack_timeout`, `stream_full`), or that the tenant is above a limit (`quota_exceeded`, `rate_limited`),
///   unless `max_retries` is 0. Their jitter is at most 4 s, so a send continues soon after the end of an outage of the broker.
/// - No attempt starts later than 100 s after the call, so that the service detects every repeated event. A process that is
///   suspended together with its clock can exceed it.
///
/// A slow link loses nothing: a request may take as long as its body makes progress. A batch that is too slow (408) or too large (413)
/// for the service is sent in two halves. These errors, and 429, store nothing, so the halves and retries after them have the 100 s
/// from their own start.
///
/// Of a batch, only events with a retryable error are sent again. An attempt that delivers a part of the batch does not count, for
/// example above the quota of the tenant. A long batch is sent as several sequential requests.
///
/// At most 64 requests are in flight ([`with_max_concurrent_requests`](Self::with_max_concurrent_requests)). Further sends wait.
///
/// Memory: in addition to the events and one result for each, a batch of any length holds the JSON of one request (at most
/// 10 MiB) and its compressed form.
pub struct HttpTransport {
    shared: TransportState,
    linger: Option<Linger>,
}

/// The state that concurrent sends share. Clones are cheap.
#[derive(Clone)]
struct TransportState {
    options: Arc<Options>,
    /// Connections belong to the runtime that opened them.
    client: Arc<Mutex<Option<(runtime::Id, HttpClient)>>>,
    clock: Arc<dyn Clock>,
    jitter: Arc<Mutex<StdRng>>,
    /// `None` allows retries until the service no longer detects repeated events.
    total_timeout: Option<Duration>,
    /// Each request in flight has a permit.
    requests: Arc<Semaphore>,
    in_flight: InFlight,
    outage_log: Arc<OutageLog>,
}

/// What all requests have in common.
#[derive(Clone)]
struct Options {
    config: HttpTransportConfig,
    /// `None` means the system's certificates.
    roots: Option<Arc<RootCertStore>>,
    /// `None` starts a new trace for each request.
    trace: Option<TraceContext>,
    /// The file with the credential, instead of the one in the configuration.
    token_file: Option<TokenFile>,
    /// `None` accepts any tenant of the credential.
    tenant: Option<TenantId>,
    /// Whether invalid events are quarantined.
    quarantines: bool,
    on_request: Option<OnRequest>,
}

/// Receives each request after its response.
type OnRequest = Arc<dyn Fn(&RequestLog<'_>) + Send + Sync>;

impl HttpTransport {
    /// Creates a transport. The first call validates the configuration and connects.
    pub fn new(config: HttpTransportConfig) -> Self {
        Self::with_clock(config, Arc::new(SystemClock), rand::make_rng())
    }

    pub(crate) fn with_clock(config: HttpTransportConfig, clock: Arc<dyn Clock>, jitter: StdRng) -> Self {
        let (roots, trace, token_file, tenant, quarantines, on_request) = Default::default();
        let shared = TransportState {
            options: Arc::new(Options { config, roots, trace, token_file, tenant, quarantines, on_request }),
            client: Arc::default(),
            clock,
            jitter: Arc::new(Mutex::new(jitter)),
            total_timeout: None,
            requests: Arc::new(Semaphore::new(MAX_CONCURRENT_REQUESTS)),
            in_flight: InFlight::default(),
            outage_log: Arc::default(),
        };
        Self { shared, linger: None }
    }

    /// Changes the options, and discards a client with other ones.
    fn with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(Arc::make_mut(&mut self.shared.options));
        self.shared.client = Arc::default();
        self
    }

    /// Trusts these PEM certificates instead of the system's, for a service with a private certificate authority.
    ///
    /// # Errors
    ///
    /// [`Configuration`](crate::TransportErrorKind::Configuration) if the text contains no certificate or an invalid one.
    ///
    /// ```
    /// use transport::{HttpTransport, HttpTransportConfig, TransportErrorKind};
    ///
    /// let transport = HttpTransport::new(HttpTransportConfig::new("https://svc.example.com"));
    /// let error = transport.with_root_certificates(b"not a certificate").unwrap_err();
    /// assert_eq!(error.kind, TransportErrorKind::Configuration);
    /// ```
    pub fn with_root_certificates(self, pem: &[u8]) -> Result<Self, TransportError> {
        let roots = Arc::new(parse_root_certificates(pem)?);
        Ok(self.with(|options| options.roots = Some(roots)))
    }

    /// Makes all requests children of this span. Otherwise, each request starts a new trace.
    #[must_use]
    pub fn in_trace(self, trace: TraceContext) -> Self {
        self.with(|options| options.trace = Some(trace))
    }

    /// Sends the content of a file as the credential, instead of `api_key`. The file is read for each request, so that a token that is
    /// replaced in it is followed, for example a projected service account token of Kubernetes. If the service rejects the token (401)
    /// and the file then contains another one, the request is sent a second time.
    ///
    /// ```
    /// use transport::{HttpTransport, HttpTransportConfig};
    ///
    /// let config = HttpTransportConfig::new("https://svc.example.com");
    /// let transport = HttpTransport::new(config).with_token_file("/var/run/secrets/svc/token");
    /// ```
    #[must_use]
    pub fn with_token_file(self, file: impl AsRef<Path>) -> Self {
        self.with(|options| options.token_file = Some(TokenFile::new(file.as_ref().to_owned())))
    }

    /// Limits a request including its retries, counted from the last attempt that delivered an event, without the time in which its
    /// body is sent. While the service does not answer, a pause takes at most half of the time that is left. A `Retry-After` that ends
    /// later is an error at once. A running attempt is ended.
    ///
    /// A batch has no absolute limit, because it continues while events are delivered. To limit it, drop its future, for example with
    /// [`tokio::time::timeout`]. Its results are lost then: send its events again with the same ids.
    #[must_use]
    pub fn with_total_timeout(mut self, timeout: Duration) -> Self {
        self.shared.total_timeout = Some(timeout);
        self
    }

    /// Limits the requests in flight, 64 by default. Further sends wait for their turn, up to the time limits of their retries. A
    /// pause before a retry does not count.
    ///
    /// Each request in flight is a connection. The service closes new connections above 256 of one address, unless a reverse proxy is
    /// in between. For more than 64 concurrent sends, [`with_linger`](Self::with_linger) is cheaper.
    ///
    /// # Errors
    ///
    /// [`Configuration`](TransportErrorKind::Configuration) if the number is 0 or above 1,000,000.
    ///
    /// ```
    /// use transport::{HttpTransport, HttpTransportConfig};
    ///
    /// let transport = HttpTransport::new(HttpTransportConfig::new("https://svc.example.com"));
    /// assert!(transport.with_max_concurrent_requests(16).is_ok());
    /// ```
    pub fn with_max_concurrent_requests(mut self, requests: usize) -> Result<Self, TransportError> {
        if !(1..=1_000_000).contains(&requests) {
            let message = "the number of concurrent requests must be 1 to 1,000,000";
            return Err(TransportError::new(TransportErrorKind::Configuration, message));
        }
        self.shared.requests = Arc::new(Semaphore::new(requests));
        Ok(self)
    }

    /// Calls a function after each request, for example to log it. It is not called for a request that is canceled, because its send
    /// was dropped.
    ///
    /// The function must not block or panic. It runs in the task that waits for the response, and delays it. After a panic, a send with
    /// [`with_linger`](Self::with_linger) returns a [`Connection`](TransportErrorKind::Connection) error, although the service may
    /// have accepted the event; any other send panics.
    #[must_use]
    pub fn on_request(self, function: impl Fn(&RequestLog<'_>) + Send + Sync + 'static) -> Self {
        self.with(|options| options.on_request = Some(Arc::new(function)))
    }

    /// Names the tenant in every request. The service then rejects a credential of another tenant with `tenant_mismatch`.
    #[must_use]
    pub fn for_tenant(self, tenant: TenantId) -> Self {
        self.with(|options| options.tenant = Some(tenant))
    }

    /// Lets the service store invalid events as dead letters of the tenant (`?invalid=quarantine`). Their results are successful, and
    /// [`BatchProgress`] and [`SentBatch`] count them. An event that is not sent, because it has no valid `event_id`, still fails, and
    /// so does an invalid one while the quarantine is full.
    ///
    /// ```
    /// use transport::{HttpTransport, HttpTransportConfig};
    ///
    /// let transport = HttpTransport::new(HttpTransportConfig::new("https://svc.example.com")).quarantine_invalid();
    /// ```
    #[must_use]
    pub fn quarantine_invalid(self) -> Self {
        self.with(|options| options.quarantines = true)
    }

    /// Collects concurrent calls of [`send`](Transport::send) for this time into one request: 1 to 5 ms. A request is sent
    /// earlier when it has 500 events or 1 MiB. This reduces the cost of many concurrent sends.
    ///
    /// Each call still gets the result for its event, and dropping a call affects no other: the event is
    /// not sent, unless it is in a request already, which can be retried. Calls that overlap are sent in
    /// their order within a request; there is no order between requests.
    ///
    /// # Errors
    ///
    /// [`Configuration`](TransportErrorKind::Configuration) if the time is out of range.
    ///
    /// ```
    /// use std::time::Duration;
    /// use transport::{HttpTransport, HttpTransportConfig};
    ///
    /// let transport = HttpTransport::new(HttpTransportConfig::new("https://svc.example.com"));
    /// assert!(transport.with_linger(Duration::from_millis(2)).is_ok());
    /// ```
    pub fn with_linger(mut self, delay: Duration) -> Result<Self, TransportError> {
        if !LINGER.contains(&delay) {
            let message = "the linger time must be 1 ms to 5 ms";
            return Err(TransportError::new(TransportErrorKind::Configuration, message));
        }
        self.linger = Some(Linger::new(delay));
        Ok(self)
    }

    #[cfg(test)]
    pub(crate) fn with_any_linger(mut self, delay: Duration) -> Self {
        self.linger = Some(Linger::new(delay));
        self
    }

    /// Like [`send_batch`](Transport::send_batch). Calls `on_progress` after each response, before each pause and at the end.
    pub async fn send_batch_with_progress(
        &self,
        events: &[UdmEvent],
        on_progress: impl FnMut(BatchProgress) + Send,
    ) -> BatchSendResult {
        self.deliver(events, on_progress).await
    }

    /// Sends events that are JSON already, without changing their bytes. Otherwise like
    /// [`send_batch_with_progress`](Self::send_batch_with_progress).
    pub async fn send_outgoing(
        &self,
        events: &[OutgoingEvent],
        on_progress: impl FnMut(BatchProgress) + Send,
    ) -> BatchSendResult {
        self.deliver(events, on_progress).await
    }

    async fn deliver<E: batch::Event>(
        &self,
        events: &[E],
        mut on_progress: impl FnMut(BatchProgress) + Send,
    ) -> BatchSendResult {
        let _sending = self.shared.in_flight.start();
        batch::deliver(&self.shared, events, &mut |progress, _| on_progress(progress)).await
    }
}

impl TransportState {
    /// Current client, or a new one.
    fn client(&self) -> Result<HttpClient, TransportError> {
        let runtime = current_runtime()?;
        let mut current = self.client.lock();
        match &*current {
            Some((owner, client)) if *owner == runtime => return Ok(client.clone()),
            _ => {}
        }
        let client = HttpClient::new(Arc::clone(&self.options))?;
        *current = Some((runtime, client.clone()));
        Ok(client)
    }

    fn retry_state(&self) -> RetryState<'_> {
        RetryState::new(&*self.clock, &self.jitter, self.options.config.max_retries)
            .with_total_timeout(self.total_timeout)
    }

    async fn send(&self, event: &OutgoingEvent) -> SendResult {
        let started = self.clock.now();
        match self.deliver(event).await {
            Ok(accepted) => SendResult::ok(
                event.event_id(),
                Some(retry::milliseconds(self.clock.now() - started)),
                Some(accepted.server_event_id.to_string()),
            ),
            Err(error) => SendResult::fail(event.event_id(), error),
        }
    }

    async fn deliver(&self, event: &OutgoingEvent) -> Result<AcceptedEvent, TransportError> {
        current_runtime()?;
        let body = RequestBody::event(event).await;
        let mut retries = self.retry_state();
        loop {
            let response = self.attempt(routes::SEND_EVENT.path, &body, &mut retries, || ()).await;
            match response.and_then(|response| response.accepted_event()) {
                Ok(accepted) => return Ok(accepted),
                Err(error) => retries.pause_or_fail(error).await?,
            }
        }
    }

    /// Posts when a request is allowed, and a second time if the token file contains another credential than the one that was rejected.
    /// Calls `on_start` before each request.
    async fn attempt(
        &self,
        path: &str,
        body: &RequestBody,
        retries: &mut RetryState<'_>,
        mut on_start: impl FnMut(),
    ) -> Result<HttpResponse, TransportError> {
        // An error means that the semaphore is closed, which never happens.
        let _permit = retries.wait_for(self.requests.acquire()).await?;
        let client = self.client()?;
        let bearer = client.bearer().await?;
        let post = client.prepare(path, body, bearer.clone());
        let mut response = self.post(&client, post, retries, &mut on_start).await?;
        response.has_credential = bearer.is_some();
        match client.replaced_bearer(bearer.as_ref(), &response).await {
            Some(replaced) => {
                let post = client.prepare(path, body, Some(replaced));
                self.post(&client, post, retries, &mut on_start).await
            }
            None => Ok(response),
        }
    }

    /// Posts once. After a timeout or a broken connection, the next attempt opens a new connection: other ones of the pool can be
    /// broken too.
    async fn post(
        &self,
        client: &HttpClient,
        post: Post,
        retries: &mut RetryState<'_>,
        on_start: &mut impl FnMut(),
    ) -> Result<HttpResponse, TransportError> {
        // The last check before the request: nothing is awaited in between.
        retries.check_deadline()?;
        on_start();
        let (response, upload) = client.post(post, retries.attempt_limits()).await;
        retries.record_upload(upload);
        match &response {
            Ok(response) => self.outage_log.record(self.clock.now(), response.outage().as_deref()),
            Err(TransportError {
                kind: TransportErrorKind::Connection | TransportErrorKind::Timeout,
                message,
                ..
            }) => {
                self.discard(client);
                self.outage_log.record(self.clock.now(), Some(message));
            }
            Err(_) => {}
        }
        response
    }

    /// Discards the client, unless another attempt has replaced it. Requests in flight keep their connections.
    fn discard(&self, broken: &HttpClient) {
        let mut current = self.client.lock();
        current.take_if(|(_, current)| current.has_same_pool(broken));
    }
}

/// The runtime of the calling task. Timers and connections need one.
fn current_runtime() -> Result<runtime::Id, TransportError> {
    let runtime = runtime::Handle::try_current().map_err(|_| {
        let message =
            "an `HttpTransport` needs a Tokio runtime: call it from a task of one, or in `Runtime::block_on`";
        TransportError::new(TransportErrorKind::Configuration, message)
    })?;
    Ok(runtime.id())
}

#[async_trait]
impl Transport for HttpTransport {
    async fn connect(&self) -> Result<(), TransportError> {
        self.shared.client()?.get(routes::GET_HEALTH.path).await?.health()
    }

    async fn disconnect(&self) {
        // The connections close when the last clone is dropped, after the sends in progress.
        self.shared.client.lock().take();
    }

    async fn flush(&self, timeout: Duration) -> usize {
        self.shared.in_flight.wait(timeout).await
    }

    async fn send(&self, event: &UdmEvent) -> SendResult {
        let _sending = self.shared.in_flight.start();
        match (event.prepare(), &self.linger) {
            (Ok(event), Some(linger)) => linger.send(&self.shared, event.into_owned()).await,
            (Ok(event), None) => self.shared.send(&event).await,
            (Err(failed), _) => *failed,
        }
    }

    async fn send_batch(&self, events: &[UdmEvent]) -> BatchSendResult {
        self.send_batch_with_progress(events, |_| ()).await
    }

    async fn send_json(&self, events: &[OutgoingEvent]) -> BatchSendResult {
        self.send_outgoing(events, |_| ()).await
    }

    async fn health_check(&self) -> bool {
        self.connect().await.is_ok()
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport").field("config", &self.shared.options.config).finish_non_exhaustive()
    }
}
