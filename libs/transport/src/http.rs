//! Transport over HTTP. Retries temporary errors with the same event ids, and returns exactly one result per event.

mod batch;
mod client;
mod response;
mod retry;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use contract::events::AcceptedEvent;
use contract::routes;
use rand::rngs::StdRng;
use reqwest::Certificate;
use tenancy::TenantId;

use self::client::{HttpClient, RequestBody, parse_root_certificates};
use self::retry::{RetryState, SystemClock};
use crate::{
    BatchSendResult, OutgoingEvent, Secret, SendResult, TraceContext, Transport, TransportError, UdmEvent,
};

pub use client::begin_trace;
pub(crate) use retry::Clock;

/// Configuration of an [`HttpTransport`]. Names and defaults are specified. `Debug` redacts the key.
#[derive(Clone, Debug)]
pub struct HttpTransportConfig {
    /// Address of the service, `https://host[:port]`, with or without the prefix `/api/v1`.
    pub endpoint: String,
    /// API key or session token, sent as `Authorization: Bearer`.
    pub api_key: Option<Secret>,
    /// Time limit of one attempt in seconds. Default: 30.
    pub timeout_sec: f64,
    /// Maximum number of retries after the first attempt. Default: 3.
    pub max_retries: u32,
}

impl HttpTransportConfig {
    /// Default configuration for this endpoint.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self { endpoint: endpoint.into(), api_key: None, timeout_sec: 30.0, max_retries: 3 }
    }
}

/// Sends events to the service over HTTP.
///
/// Connection errors, timeouts and the statuses 408, 429, 502, 503 and 504 are retried up to `max_retries` times with full
/// jitter. Of a batch, only events with a retryable error are sent again. A long batch is sent as several sequential
/// requests.
pub struct HttpTransport {
    config: HttpTransportConfig,
    /// `None` means the system's certificates.
    roots: Option<Vec<Certificate>>,
    /// `None` starts a new trace for each request.
    trace: Option<TraceContext>,
    /// `None` accepts any tenant of the credential.
    tenant: Option<TenantId>,
    client: Mutex<Option<HttpClient>>,
    clock: Arc<dyn Clock>,
    jitter: Mutex<StdRng>,
}

impl HttpTransport {
    /// Creates a transport. The first call validates the configuration and connects.
    pub fn new(config: HttpTransportConfig) -> Self {
        Self::with_clock(config, Arc::new(SystemClock), rand::make_rng())
    }

    pub(crate) fn with_clock(config: HttpTransportConfig, clock: Arc<dyn Clock>, jitter: StdRng) -> Self {
        Self {
            config,
            roots: None,
            trace: None,
            tenant: None,
            client: Mutex::default(),
            clock,
            jitter: Mutex::new(jitter),
        }
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
    pub fn with_root_certificates(mut self, pem: &[u8]) -> Result<Self, TransportError> {
        self.roots = Some(parse_root_certificates(pem)?);
        // Discards a client with other certificates.
        self.client = Mutex::default();
        Ok(self)
    }

    /// Makes all requests children of this span. Otherwise, each request starts a new trace.
    #[must_use]
    pub fn in_trace(mut self, trace: TraceContext) -> Self {
        self.trace = Some(trace);
        self.client = Mutex::default();
        self
    }

    /// Names the tenant in every request. The service then rejects a credential of another tenant with `tenant_mismatch`.
    #[must_use]
    pub fn for_tenant(mut self, tenant: TenantId) -> Self {
        self.tenant = Some(tenant);
        self.client = Mutex::default();
        self
    }

    /// Sends events that are JSON already, without changing their bytes. Otherwise like [`send_batch`](Transport::send_batch).
    pub async fn send_outgoing(&self, events: &[OutgoingEvent]) -> BatchSendResult {
        batch::deliver(self, events).await
    }

    /// Current client, or a new one.
    fn client(&self) -> Result<HttpClient, TransportError> {
        let mut current = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*current {
            return Ok(client.clone());
        }
        let client = HttpClient::new(&self.config, self.roots.as_deref(), self.trace, self.tenant.as_ref())?;
        Ok(current.insert(client).clone())
    }

    fn retry_state(&self) -> RetryState<'_> {
        RetryState::new(&*self.clock, &self.jitter, self.config.max_retries)
    }

    async fn deliver(&self, event: &OutgoingEvent) -> Result<AcceptedEvent, TransportError> {
        let client = self.client()?;
        let body = RequestBody::event(event).await;
        let mut retries = self.retry_state();
        loop {
            let response = client.post(routes::SEND_EVENT.path, &body).await;
            match response.and_then(|response| response.accepted_event()) {
                Ok(accepted) => return Ok(accepted),
                Err(error) => retries.pause_or_fail(error).await?,
            }
        }
    }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn connect(&self) -> Result<(), TransportError> {
        self.client()?.get(routes::GET_HEALTH.path).await?.health()
    }

    async fn disconnect(&self) {
        // The connections close when the last clone is dropped, after the sends in progress.
        self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    async fn send(&self, event: &UdmEvent) -> SendResult {
        let started = self.clock.now();
        let event = match OutgoingEvent::try_from(event) {
            Ok(event) => event,
            Err(error) => return SendResult::fail(event.event_id.clone().unwrap_or_default(), error),
        };
        match self.deliver(&event).await {
            Ok(accepted) => SendResult::ok(
                event.event_id(),
                Some(retry::milliseconds(self.clock.now() - started)),
                Some(accepted.server_event_id.to_string()),
            ),
            Err(error) => SendResult::fail(event.event_id(), error),
        }
    }

    async fn send_batch(&self, events: &[UdmEvent]) -> BatchSendResult {
        let outgoing: Vec<_> = events.iter().map(OutgoingEvent::try_from).collect();
        let valid: Vec<_> = outgoing.iter().flatten().cloned().collect();
        let sent = self.send_outgoing(&valid).await;
        if valid.len() == events.len() {
            return sent;
        }
        // Inserts the errors of invalid events between the results of the others.
        let mut results = sent.results.into_iter();
        let merged = events.iter().zip(outgoing).filter_map(|(event, outgoing)| match outgoing {
            Ok(_) => results.next(),
            Err(error) => Some(SendResult::fail(event.event_id.clone().unwrap_or_default(), error)),
        });
        BatchSendResult::from_results(merged.collect(), sent.batch_id, sent.response_time_ms)
    }

    async fn health_check(&self) -> bool {
        self.connect().await.is_ok()
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport").field("config", &self.config).finish_non_exhaustive()
    }
}
