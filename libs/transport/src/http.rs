//! The transport over HTTP. Faults that pass are retried with the same ids; whatever happens, each event has one result.

mod answer;
mod batch;
mod body;
mod config;
mod endpoint;
mod retry;
mod roots;
mod session;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use contract::events::AcceptedEvent;
use rand::rngs::StdRng;
use reqwest::Certificate;

use self::body::Body;
use self::retry::{Retries, SystemClock};
use self::session::Session;
use crate::{BatchSendResult, OutgoingEvent, SendResult, TraceContext, Transport, TransportError, UdmEvent};

pub use config::HttpTransportConfig;
pub(crate) use retry::Clock;

/// Sends events to the service over HTTP.
///
/// Connection faults, time-outs and the statuses 408, 429, 502, 503 and 504 are retried `max_retries` times with full
/// jitter; of a batch, only the events that were refused for a passing cause go again. Long batches travel as several
/// requests, one after the other.
pub struct HttpTransport {
    config: HttpTransportConfig,
    /// The machine's when absent.
    roots: Option<Vec<Certificate>>,
    /// One of its own for each request when absent.
    trace: Option<TraceContext>,
    session: Mutex<Option<Session>>,
    clock: Arc<dyn Clock>,
    jitter: Mutex<StdRng>,
}

impl HttpTransport {
    /// A transport for the service at the configuration's endpoint. Nothing is checked or opened before the first call.
    pub fn new(config: HttpTransportConfig) -> Self {
        Self::with_clock(config, Arc::new(SystemClock), rand::make_rng())
    }

    pub(crate) fn with_clock(config: HttpTransportConfig, clock: Arc<dyn Clock>, jitter: StdRng) -> Self {
        Self {
            config,
            roots: None,
            trace: None,
            session: Mutex::default(),
            clock,
            jitter: Mutex::new(jitter),
        }
    }

    /// The same transport, which trusts the certificates of this PEM text and no longer those of the machine: for a
    /// service with a certificate authority of its own. The error is a
    /// [`Configuration`](crate::TransportErrorKind::Configuration) fault: no certificate in it, or one that cannot be read.
    ///
    /// ```
    /// use transport::{HttpTransport, HttpTransportConfig, TransportErrorKind};
    ///
    /// let transport = HttpTransport::new(HttpTransportConfig::new("https://svc.example.com"));
    /// let error = transport.with_root_certificates(b"no certificate").unwrap_err();
    /// assert_eq!(error.kind, TransportErrorKind::Configuration);
    /// ```
    pub fn with_root_certificates(mut self, pem: &[u8]) -> Result<Self, TransportError> {
        self.roots = Some(roots::parse(pem)?);
        // What is open was made with other roots.
        self.session = Mutex::default();
        Ok(self)
    }

    /// The same transport, whose requests are children of this place in a trace. Otherwise each request begins a trace.
    #[must_use]
    pub fn in_trace(mut self, trace: TraceContext) -> Self {
        self.trace = Some(trace);
        self.session = Mutex::default();
        self
    }

    /// Sends events that are JSON already, with the bytes that they have. Otherwise as [`send_batch`](Transport::send_batch).
    pub async fn send_outgoing(&self, events: &[OutgoingEvent]) -> BatchSendResult {
        batch::deliver(self, events).await
    }

    /// The open session, or a new one.
    fn session(&self) -> Result<Session, TransportError> {
        let mut held = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        match &*held {
            Some(session) => Ok(session.clone()),
            None => Ok(held.insert(Session::open(&self.config, self.roots.as_deref(), self.trace)?).clone()),
        }
    }

    fn retries(&self) -> Retries<'_> {
        Retries::start(&*self.clock, &self.jitter, self.config.max_retries)
    }

    async fn deliver(&self, event: &OutgoingEvent) -> Result<AcceptedEvent, TransportError> {
        let session = self.session()?;
        let body = Body::event(event).await;
        let mut retries = self.retries();
        loop {
            match session.post("/events", &body).await.and_then(|answer| answer.accepted()) {
                Ok(accepted) => return Ok(accepted),
                Err(error) => retries.pause_after(error).await?,
            }
        }
    }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn connect(&self) -> Result<(), TransportError> {
        self.session()?.get("/health").await?.healthy()
    }

    async fn disconnect(&self) {
        // The last clone of a session closes its connections: at once, or when the sends under way are done.
        self.session.lock().unwrap_or_else(PoisonError::into_inner).take();
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
        let ready: Vec<_> = outgoing.iter().flatten().cloned().collect();
        let sent = self.send_outgoing(&ready).await;
        if ready.len() == events.len() {
            return sent;
        }
        // An event that cannot leave holds up no other: its failure takes its place among their results.
        let mut results = sent.results.into_iter();
        let woven = events.iter().zip(outgoing).filter_map(|(event, outgoing)| match outgoing {
            Ok(_) => results.next(),
            Err(error) => Some(SendResult::fail(event.event_id.clone().unwrap_or_default(), error)),
        });
        BatchSendResult::from_results(woven.collect(), sent.batch_id, sent.response_time_ms)
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
