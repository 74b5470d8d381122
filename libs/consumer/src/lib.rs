//! Reads the events of a durable consumer from NATS. It needs no connection to the service: the platform administrator creates the
//! durable and its NATS user (`svc consumers create`, docs/consumers.md).
//!
//! - The events of one source are handled one after the other, in the order of the stream. Different sources are handled at the
//!   same time. This requires one process per durable: with two, each restarts repeatedly with a warning. To divide
//!   the work, create a durable per range of partitions.
//! - An event is acknowledged after the handler has returned. A failed event is tried again with increasing delays, while later
//!   events of its source wait. After [`Config::max_attempts`], or when the handler rejects it, it becomes a dead letter:
//!   `svc events dlq list` shows it, and `svc events dlq replay` sends it again. An event that was delivered 20 times without an
//!   acknowledgement, for example because the process crashes, becomes a dead letter without another attempt.
//! - Half of [`Config::max_in_flight`] waiting events of failing sources stop the reading of others until they are handled.
//! - Delivery is at least once. Events that this process has handled are skipped when they are delivered again; a restarted process
//!   can handle the events a second time that the previous one handled last.
//! - After a crash or a lost connection, reading continues after the acknowledgement time of the durable (30 s), so that
//!   unacknowledged events come first, in their order. After a stop it continues at once.
//! - The span of the handler belongs to the trace of the request that sent the event.
//!
//! ```no_run
//! use consumer::{Config, ConsumerError, Failure};
//!
//! # async fn insert(_: &str, _: &[u8]) -> std::io::Result<()> { Ok(()) }
//! # async fn run() -> Result<(), ConsumerError> {
//! let config = Config::new("nats://nats:4222", "archive", "password");
//! let stop = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
//! consumer::run(config, stop, async |event| {
//!     if event.payload.len() > 100_000 {
//!         return Err(Failure::reject("too large for the archive"));
//!     }
//!     insert(&event.event_id, &event.payload).await.map_err(Failure::retry)
//! })
//! .await
//! # }
//! ```

mod dead_letter;
mod event;
mod lanes;
mod session;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::jetstream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

pub use event::Event;

use session::Session;
use worker::Worker;

/// Prefix of the JetStream API in the accounts of consumers.
const API_PREFIX: &str = "JS.API";
/// The client detects a broken connection after two unanswered pings.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Delay before reading starts again after an error.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// Time to send the last acknowledgements.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Any error of a handler.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Settings of a consumer.
#[derive(Clone)]
pub struct Config {
    /// `nats://host:port`, or several addresses separated by commas; `tls://` for TLS.
    pub servers: String,
    /// Name of the durable consumer.
    pub name: String,
    /// Credentials and TLS. [`Config::new`] sets user and password.
    pub options: ConnectOptions,
    /// Streams that contain the durable; `UDM` by default. `svc consumers create` prints them.
    pub streams: Vec<String>,
    /// Largest number of events that are delivered and not handled yet, 256 by default. Each has up to 256 KiB.
    pub max_in_flight: usize,
    /// Number of attempts before a failing event becomes a dead letter, 5 by default. The delay after the first attempt is 0.5 s
    /// and doubles up to 30 s. `None` tries without limit, also a rejected event: for a user without dead letters.
    pub max_attempts: Option<u32>,
    /// Time for the events that are in flight when the consumer stops or reading is interrupted, 20 s by default. The rest is
    /// delivered again later.
    pub stop_timeout: Duration,
}

impl Config {
    /// Returns the default settings. The NATS user has the name of the durable.
    pub fn new(servers: impl Into<String>, name: impl Into<String>, password: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            servers: servers.into(),
            options: ConnectOptions::with_user_and_password(name.clone(), password.into()),
            name,
            streams: vec!["UDM".to_owned()],
            max_in_flight: 256,
            max_attempts: Some(5),
            stop_timeout: Duration::from_secs(20),
        }
    }
}

/// The handler could not handle an event.
#[derive(Debug)]
pub enum Failure {
    /// Another attempt can succeed, for example when a database is not available.
    Retry(BoxError),
    /// No attempt can succeed. The event becomes a dead letter with this reason.
    Reject(BoxError),
}

impl Failure {
    /// Returns [`Failure::Retry`].
    pub fn retry(cause: impl Into<BoxError>) -> Self {
        Self::Retry(cause.into())
    }

    /// Returns [`Failure::Reject`].
    pub fn reject(cause: impl Into<BoxError>) -> Self {
        Self::Reject(cause.into())
    }
}

/// The consumer cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ConsumerError {
    /// No server is reachable, or the server rejected the user.
    #[error("failed to connect to NATS")]
    Connect(#[from] async_nats::ConnectError),
    /// The stream does not contain the durable.
    #[error(
        "stream {stream} has no consumer {name}: create it with `svc consumers create`, and check `streams` of the configuration"
    )]
    NotFound {
        /// Name of the stream.
        stream: String,
        /// Name of the durable.
        name: String,
    },
    /// The broker did not answer when the consumer started. The user may have no permission for the durable.
    #[error(
        "failed to read consumer {name} of stream {stream}: check that the broker runs and the user has its permissions"
    )]
    Unavailable {
        /// Name of the stream.
        stream: String,
        /// Name of the durable.
        name: String,
        /// Error of the client library.
        #[source]
        source: jetstream::stream::ConsumerError,
    },
}

/// Handles events until `stop` is ready, then waits for the events in flight. Reconnects without limit.
///
/// # Errors
/// [`ConsumerError`] when the consumer cannot start, or when its durable is deleted.
pub async fn run<H, F>(
    config: Config,
    stop: impl Future<Output = ()>,
    handler: H,
) -> Result<(), ConsumerError>
where
    H: Fn(Arc<Event>) -> F,
    F: Future<Output = Result<(), Failure>>,
{
    let (sender, mut disconnects) = watch::channel(());
    let options = config.options.clone().name(&config.name).ping_interval(PING_INTERVAL);
    let options =
        options.custom_inbox_prefix(format!("_INBOX.{}", config.name)).event_callback(move |event| {
            if matches!(event, async_nats::Event::Disconnected) {
                sender.send_replace(());
            }
            std::future::ready(())
        });
    let client = options.connect(config.servers.split(',').map(str::trim).collect::<Vec<_>>()).await?;
    let context = jetstream::with_prefix(client.clone(), API_PREFIX);
    let worker = Worker::new(&config, context.clone(), handler);
    tokio::pin!(stop);
    let mut has_started = false;
    loop {
        disconnects.mark_unchanged();
        let opened = tokio::select! {
            () = &mut stop => return Ok(()),
            opened = Session::open(&config, &context) => opened,
        };
        match opened {
            Ok(session) => {
                has_started = true;
                let Err(error) = session.run(&worker, stop.as_mut(), &mut disconnects).await else {
                    break;
                };
                tracing::warn!(error, consumer = config.name, "reading events was interrupted");
            }
            Err(error @ ConsumerError::Unavailable { .. }) if has_started => {
                tracing::warn!(?error, consumer = config.name, "failed to continue reading events");
            }
            Err(error) => return Err(error),
        }
        tokio::select! {
            () = &mut stop => break,
            () = sleep(RESTART_DELAY) => {}
        }
    }
    // Sends the last acknowledgements.
    let _ = timeout(CLOSE_TIMEOUT, client.flush()).await;
    Ok(())
}
