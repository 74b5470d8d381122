//! Requests of the logins of consumers: those of the API of JetStream, and dead letters. The accounts of consumers map them to ingest,
//! one replica of which answers each. What a client sends is dropped or answered with an error if it is malformed, and has no other
//! effect.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use service::{LogThrottle, Tasks};
use tokio::time::Instant;

use super::api_requests::{ApiRequest, Object, error};
use crate::connect::{Config, ConnectError, Connection};
use crate::dead_letters::{Full, MAX_DEAD_LETTER, check_space, submitted};
use crate::publisher::{Ack, PublishError, Publisher};
use crate::streams::{DEAD_LETTER_STREAM, EventStreams};
use crate::wire::{Dialer, Reply, ServerMessage, listen};

/// Subject of the requests: `<prefix>.<name of the login>.<request>`.
pub(super) const REQUESTS: &str = "svc.consumers.api.v1";
/// The request that stores a dead letter, before the tenant.
pub(super) const DEAD_LETTER: &str = "DEAD_LETTER";
/// Each request is answered by one replica.
const QUEUE: &str = "ingest";
/// Requests of one login that are handled at the same time. Further ones are dropped, and the client repeats them.
const MAX_REQUESTS: usize = 64;
/// The same for all logins.
const MAX_REQUESTS_OF_ALL: usize = 1024;
/// Headers and payload of a request, of which the accounts of consumers permit 8 KiB.
const MAX_PAYLOAD: usize = 8 * 1024;
/// Less than the timeout of clients.
const STORE_TIMEOUT: Duration = Duration::from_secs(3);
/// Codes of JetStream.
const BAD_REQUEST: u64 = 10_003;
const NOT_AVAILABLE: u64 = 10_008;
const TOO_LARGE: u64 = 10_054;
const STORE_FAILED: u64 = 10_077;
const TOO_MANY_REQUESTS: u64 = 10_167;

/// Answers the requests.
pub struct ConsumerRequests {
    /// The streams of events.
    pub streams: EventStreams,
    /// Decides for the name of a login whether its next request of the API is answered.
    pub admits: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// Publishes to `UDM_DLQ`.
    pub dead_letters: Publisher,
    /// Share in percent that the dead letters of one tenant, or of one consumer, can fill of their half of `UDM_DLQ`.
    pub stream_share: u8,
    /// Counts the dead letters for which no space is left.
    pub rejected: Counter,
}

impl ConsumerRequests {
    /// Starts the task that receives requests, with a separate connection. `connection` is for requests to JetStream, and the responses.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn start(self, config: Config, connection: Connection, tasks: &Tasks) -> Result<(), ConnectError> {
        let dialer = Dialer::new(config)?;
        let names = self.streams.names();
        let (handled, log_throttle) = (Mutex::default(), LogThrottle::default());
        let own = Arc::new(State { settings: self, connection, names, handled, log_throttle });
        let (stop, requests) = (tasks.stopping().clone(), tasks.clone());
        tasks.spawn("requests of consumers", async move {
            let subject = format!("{REQUESTS}.> {QUEUE}");
            stop.run_until_cancelled(listen(dialer, &subject, |delivery| own.receive(&delivery, &requests)))
                .await;
        });
        Ok(())
    }
}

struct State {
    settings: ConsumerRequests,
    connection: Connection,
    names: Vec<String>,
    /// Number of requests of each login that are handled.
    handled: Mutex<HashMap<String, usize>>,
    log_throttle: LogThrottle,
}

impl State {
    /// Starts to answer a request. Its failure ends no other task.
    fn receive(self: &Arc<Self>, delivery: &ServerMessage<'_>, tasks: &Tasks) {
        let Some(request) = Request::new(delivery) else { return };
        if !request.is_dead_letter() && !(self.settings.admits)(&request.login) {
            return;
        }
        if let Some(permit) = self.admit(&request.login) {
            tasks.spawn_short(async move { permit.requests.answer(&request).await });
        }
    }

    fn admit(self: &Arc<Self>, login: &str) -> Option<Permit> {
        let mut handled = self.handled.lock();
        let is_free = handled.get(login).is_none_or(|count| *count < MAX_REQUESTS)
            && handled.values().sum::<usize>() < MAX_REQUESTS_OF_ALL;
        is_free.then(|| {
            *handled.entry(login.to_owned()).or_default() += 1;
            Permit { requests: Arc::clone(self), login: login.to_owned() }
        })
    }

    #[expect(clippy::disallowed_methods, reason = "the client repeats a request without a response")]
    async fn answer(&self, request: &Request) {
        let response = match request.name.split_once('.') {
            Some((DEAD_LETTER, tenant)) => self.store(request, tenant).await,
            _ => match self.answer_api(request).await {
                Some(response) => response,
                None => return,
            },
        };
        if let Some(reply) = request.reply_to.clone() {
            let _ = self.connection.client.publish(reply, Value::Object(response).to_string().into()).await;
        }
    }

    /// Returns no response to an unknown request, or without the broker: the client tries again.
    async fn answer_api(&self, request: &Request) -> Option<Object> {
        let api_request = ApiRequest::parse(&request.login, &request.name, &request.payload)?;
        let context = async_nats::jetstream::new(self.connection.client.clone());
        let response = api_request.response(&context, &self.names).await;
        response.inspect_err(|error| tracing::debug!(?error, "failed to answer an API request")).ok()
    }

    /// Stores a dead letter. Returns the acknowledgement without its number, which would reveal how many others send.
    async fn store(&self, request: &Request, tenant: &str) -> Object {
        let Ok(tenant) = tenant.parse() else {
            return error(400, BAD_REQUEST, "the subject contains no tenant id");
        };
        let message = submitted(&request.login, &tenant, &request.headers, request.payload.clone());
        let Some(message) = message else {
            return error(400, BAD_REQUEST, "malformed headers");
        };
        if request.payload.len() > MAX_DEAD_LETTER {
            return error(400, TOO_LARGE, "a dead letter has at most 8 KiB: send a reference to the event");
        }
        let ConsumerRequests { dead_letters, stream_share, rejected, .. } = &self.settings;
        let (mut full, others) = (None, self.in_flight().saturating_sub(1));
        let stored = match check_space(dead_letters, *stream_share, (&tenant, &request.login), others).await {
            Ok(None) => dead_letters.publish(&tenant, message, Instant::now() + STORE_TIMEOUT).await,
            Ok(found) => {
                full = found;
                Err(PublishError::StreamFull)
            }
            Err(error) => Err(error),
        };
        match stored {
            Ok(Ack { duplicate, .. }) => acknowledgement(duplicate),
            Err(PublishError::StreamFull) => {
                rejected.inc();
                error(503, STORE_FAILED, no_space(full))
            }
            Err(PublishError::Overloaded) => error(429, TOO_MANY_REQUESTS, "too many requests"),
            Err(
                cause @ (PublishError::Unavailable
                | PublishError::AckTimeout
                | PublishError::Misconfigured { .. }),
            ) => {
                if let Some(omitted) = self.log_throttle.due() {
                    tracing::warn!(consumer = request.login, error = %cause, omitted, "failed to store a dead letter");
                }
                error(503, NOT_AVAILABLE, "JetStream is not available")
            }
        }
    }

    /// Number of requests that are handled.
    fn in_flight(&self) -> u64 {
        self.handled.lock().values().sum::<usize>() as u64
    }
}

/// Describes why there is no space. `None` is a bound of the broker.
const fn no_space(full: Option<Full>) -> &'static str {
    match full {
        Some(Full::Share) => {
            "no space for dead letters of this tenant or consumer: replay or delete stored ones (svc events dlq)"
        }
        Some(Full::Half) => {
            "no space for dead letters of consumers: replay or delete stored ones (svc events dlq), or enlarge UDM_DLQ"
        }
        None => "UDM_DLQ is full: replay or delete stored dead letters (svc events dlq)",
    }
}

/// Returns the acknowledgement of a stored dead letter. All have the same number.
fn acknowledgement(duplicate: bool) -> Object {
    let mut fields =
        Object::from_iter([("stream".to_owned(), json!(DEAD_LETTER_STREAM)), ("seq".to_owned(), json!(1))]);
    if duplicate {
        fields.insert("duplicate".to_owned(), json!(true));
    }
    fields
}

/// A request that is handled. It ends also if its handler panics.
struct Permit {
    requests: Arc<State>,
    login: String,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut handled = self.requests.handled.lock();
        if let Some(count) = handled.get_mut(&self.login) {
            *count -= 1;
            if *count == 0 {
                handled.remove(&self.login);
            }
        }
    }
}

/// A message of the login of a consumer. Its account determines the login.
struct Request {
    login: String,
    /// The part of the subject after the login.
    name: String,
    reply_to: Option<String>,
    headers: Bytes,
    payload: Bytes,
}

impl Request {
    fn is_dead_letter(&self) -> bool {
        self.name.split('.').next() == Some(DEAD_LETTER)
    }

    /// Returns `None` for a message that no account maps, or that is larger than the accounts permit: the event of a pull request with a
    /// subject of this service as its reply subject.
    fn new(delivery: &ServerMessage<'_>) -> Option<Self> {
        let (login, name) = delivery.subject.strip_prefix(REQUESTS)?.strip_prefix('.')?.split_once('.')?;
        let Reply::Payload(payload) = delivery.reply else { return None };
        // The server adds a header.
        (delivery.headers.len() + payload.len() <= 2 * MAX_PAYLOAD).then(|| Self {
            login: login.to_owned(),
            name: name.to_owned(),
            reply_to: delivery.reply_to.map(str::to_owned),
            headers: Bytes::copy_from_slice(delivery.headers),
            payload: Bytes::copy_from_slice(payload),
        })
    }
}
