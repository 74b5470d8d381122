//! Reads the events of a durable consumer from NATS. It needs no connection to the service: the platform administrator creates the
//! durable and its NATS user (`svc consumers create`, docs/consumers.md).
//!
//! - The events of one source are handled one after the other, in the order of the stream. Different sources are handled at the
//!   same time. One process of a durable reads. Others wait until it has stopped or crashed, so a rolling update needs no pause. To
//!   divide the work, create a durable per range of partitions.
//! - An event is acknowledged after the handler has returned. It becomes a dead letter only after its own failures (see below):
//!   `svc events dlq list` shows it, and `svc events dlq replay` sends it again.
//! - If more than half of [`Config::max_in_flight`] events wait for failing or blocked ones of their sources, no new events are read
//!   until some of them are handled. [`Config::handler_timeout`] ends handlers that do not return.
//! - [`run_batches`] passes several events of a source to one call of the handler.
//! - [`Config::monitor`] shows whether the consumer is connected, its last error, and how many events it has handled.
//! - Delivery is at least once. Events that this process has handled are skipped when they are delivered again, until the durable is
//!   created again, as by `svc consumers reset`. A restarted process can handle the events a second time that the previous one handled
//!   last.
//! - After a crash or a lost connection, reading continues after the acknowledgement time of the durable (30 s), so that
//!   unacknowledged events come first, in their order. After a stop it continues at once: events that wait for their next attempt are
//!   returned to the broker. If handlers have not returned within [`Config::stop_timeout`], it continues as after a crash.
//! - A durable with event types also delivers events of other types with the subject of `GENERIC_EVENT` (docs/consumers.md). They are
//!   acknowledged without the handler.
//! - The span of the handler belongs to the trace of the request that sent the event.
//!
//! # Failures
//!
//! Later events of the same source wait while an event is tried again, after 0.5, 1, 2, 4, 8, 16 s and then every 30 s.
//!
//! | The handler | The event becomes a dead letter |
//! | --- | --- |
//! | returns [`Failure::Retry`] | after [`Config::retry_for`], 3,600 s from the first failure: an outage of half an hour costs no event |
//! | returns [`Failure::Reject`] | at once |
//! | panics | after 5 panics, typically 7.5 s |
//! | ends the process (abort, memory limit) | after 5 crashes in a row while its first attempt was the only one that ran |
//! | blocks, or does not return | never, if the program ends with `stop`. A SIGKILL during the only attempt that runs is a crash |
//!
//! Pass [`shutdown_signal`] as `stop`: a SIGTERM that the program does not handle ends the process like a crash, so restarts count as
//! crashes of the event that is being handled.
//!
//! A supervisor, such as Kubernetes or systemd, must restart the program after a crash. The events that were in flight are then tried one
//! at a time before new ones are read. If one takes longer than 10 s, the next one starts too; for one that was running at the last
//! crash, 1 minute. Events that failed are tried again at the same time as others. After 2 minutes, all remaining ones start, and new
//! events are read.
//!
//! # Threads
//!
//! Each attempt is a task of the Tokio runtime that calls [`run`]. The connection to NATS has its own thread, so handlers that block
//! do not delay acknowledgements or break the session. In a runtime with worker threads, they do not delay other handlers either: each
//! occupies one of the threads for blocking code, 512 by default (`max_blocking_threads`). In a `current_thread` runtime, other handlers
//! and `stop` wait for it.
//!
//! A handler is dropped at its next await when [`Config::handler_timeout`] ends, or [`Config::stop_timeout`] after a stop or a lost
//! connection: its event is handled again, so it must be safe to cancel. A handler that blocks runs to its end, and the next event of its
//! source waits for it.
//!
//! ```no_run
//! use consumer::{Config, ConsumerError, Failure};
//!
//! # async fn insert(_: &str, _: &[u8]) -> std::io::Result<()> { Ok(()) }
//! # async fn run() -> Result<(), ConsumerError> {
//! let config = Config::new("nats://nats:4222", "archive", "password");
//! consumer::run(config, consumer::shutdown_signal(), async |event| {
//!     if event.payload.len() > 100_000 {
//!         return Err(Failure::reject("too large for the archive"));
//!     }
//!     // Any error is a `Failure::Retry`.
//!     insert(&event.event_id, &event.payload).await?;
//!     Ok(())
//! })
//! .await
//! # }
//! ```

mod dead_letter;
mod event;
mod handlers;
mod lanes;
mod lead;
mod marks;
mod options;
mod reader;
mod recovery;
mod session;
mod source;
mod status;
mod worker;

use std::env::VarError;
use std::fmt::{self, Debug, Formatter};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
#[cfg(unix)]
use tokio::signal::unix::{self, SignalKind};

pub use async_nats::{Event as ConnectionEvent, HeaderMap};
pub use bytes::Bytes;
pub use chrono::{DateTime, Utc};
pub use event::Event;
pub use options::ConnectOptions;
pub use serde_json::Value;
pub use status::{Monitor, Status};
pub use udm::UdmEvent;

use handlers::Handlers;

/// Any error of a handler.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Settings of a consumer. Other fields can follow: begin with [`Config::new`] and `..`.
#[derive(Clone)]
pub struct Config {
    /// `nats://host:port`, or several addresses separated by commas; `tls://` for TLS.
    pub servers: String,
    /// Name of the durable consumer.
    pub name: String,
    /// Credentials, TLS and limits of the connection. [`Config::new`] sets user and password.
    pub options: ConnectOptions,
    /// Streams that contain the durable; `UDM` by default. `svc consumers create` prints them.
    pub streams: Vec<String>,
    /// Largest number of events that are delivered and not handled yet, 256 by default. Each has up to 256 KiB, and about 1 MiB is
    /// requested at once. After a crash, all unacknowledged events are read first, as many as the previous process had.
    pub max_in_flight: usize,
    /// Time from the first failed attempt until an event that still fails becomes a dead letter, 3,600 s by default. `None` tries
    /// without limit, also an event that is rejected, or that makes the handler panic or end the process.
    pub retry_for: Option<Duration>,
    /// Time for the events that are in flight when the consumer stops or reading is interrupted, 20 s by default. The rest is
    /// delivered again later. A stop does not wait for events that wait for their next attempt.
    pub stop_timeout: Duration,
    /// Time after which the consumer ends with [`ConsumerError::Rejected`] while the broker rejects its login, for example because the
    /// password was replaced or the consumer was deleted; 60 s by default. At the start, only with
    /// [`ConnectOptions::retry_on_initial_connect`]: otherwise it ends at once. `None` tries without limit.
    pub rejected_for: Option<Duration>,
    /// Time limit of a call of the handler. After it, the handler is dropped at its next await, which counts as [`Failure::Retry`].
    /// `None`, the default, waits without limit. In any case, a handler that runs for longer than the acknowledgement time of the durable
    /// (30 s) is logged, and again after each time twice as long.
    pub handler_timeout: Option<Duration>,
    /// Shows the state of the consumer.
    pub monitor: Monitor,
}

/// Without credentials.
impl Debug for Config {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let address = |server: &str| server.rsplit('@').next().unwrap_or_default().to_owned();
        formatter
            .debug_struct("Config")
            .field("servers", &self.servers.split(',').map(address).collect::<Vec<_>>())
            .field("name", &self.name)
            .field("options", &self.options)
            .field("streams", &self.streams)
            .field("max_in_flight", &self.max_in_flight)
            .field("retry_for", &self.retry_for)
            .field("stop_timeout", &self.stop_timeout)
            .field("rejected_for", &self.rejected_for)
            .field("handler_timeout", &self.handler_timeout)
            .field("monitor", &self.monitor)
            .finish()
    }
}

impl Config {
    /// Returns the settings of the variables `NATS_URL`, `NATS_USER` (the name of the durable) and `NATS_PASSWORD`, with which
    /// `svc consumers create` prints the login, and of `NATS_STREAM` (names of streams with commas; default: `UDM`).
    ///
    /// # Errors
    /// [`ConsumerError::Options`] if one of the first three is not set, or not UTF-8.
    #[expect(clippy::disallowed_methods, reason = "the caller asks for the environment")]
    pub fn from_env() -> Result<Self, ConsumerError> {
        let read = |name: &str| match std::env::var(name) {
            Ok(value) if !value.is_empty() => Ok(value),
            Ok(_) | Err(VarError::NotPresent) => {
                Err(ConsumerError::Options(format!("{name} is not set").into()))
            }
            Err(error) => Err(ConsumerError::Options(format!("{name}: {error}").into())),
        };
        let mut config = Self::new(read("NATS_URL")?, read("NATS_USER")?, read("NATS_PASSWORD")?);
        if let Ok(streams) = read("NATS_STREAM") {
            config.streams = streams.split(',').map(str::to_owned).collect();
        }
        Ok(config)
    }

    /// Returns the default settings. The NATS user has the name of the durable.
    pub fn new(servers: impl Into<String>, name: impl Into<String>, password: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            servers: servers.into(),
            options: ConnectOptions::with_user_and_password(name.clone(), password.into()),
            name,
            streams: vec!["UDM".to_owned()],
            max_in_flight: 256,
            retry_for: Some(Duration::from_hours(1)),
            stop_timeout: Duration::from_secs(20),
            rejected_for: Some(Duration::from_mins(1)),
            handler_timeout: None,
            monitor: Monitor::default(),
        }
    }
}

/// The handler could not handle an event.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// Another attempt can succeed, for example when a database is not available. It follows for [`Config::retry_for`].
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

/// Any error is a [`Failure::Retry`], so that `?` works in a handler.
impl<E: Into<BoxError>> From<E> for Failure {
    fn from(cause: E) -> Self {
        Self::retry(cause)
    }
}

/// The consumer cannot start, or cannot continue. `Debug` returns its text and that of its sources, because `main` prints it so.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConsumerError {
    /// The configuration is invalid.
    #[error("invalid configuration of the consumer: {0}")]
    Options(BoxError),
    /// The connection was lost, and could not be opened again within [`ConnectOptions::max_reconnects`] attempts.
    #[error(
        "the connection to NATS is closed after `max_reconnects` attempts: check that the broker runs, then start again"
    )]
    Closed,
    /// The broker has rejected the login for [`Config::rejected_for`].
    #[error(
        "the broker rejects the login of consumer {name}: set the current password, which `svc consumers rotate-login` replaces, and \
         check that the consumer exists"
    )]
    Rejected {
        /// Name of the durable.
        name: String,
    },
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
    /// The durable limits the number of deliveries, after which the broker drops an event.
    #[error(
        "consumer {name} of stream {stream} has `max_deliver`, and would lose events: create it with `svc consumers create`"
    )]
    DeliveryLimit {
        /// Name of the stream.
        stream: String,
        /// Name of the durable.
        name: String,
    },
    /// The system has no thread for the connection.
    #[error("failed to start the thread of the consumer")]
    Thread(#[source] std::io::Error),
    /// The broker did not answer within 10 s of the start. The user may have no permission for the durable.
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

impl Debug for ConsumerError {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&dead_letter::reason(self))
    }
}

/// Waits until the process gets SIGTERM, as from Kubernetes and systemd, or SIGINT (Ctrl-C); outside of Unix until Ctrl-C. The `stop`
/// of [`run`].
///
/// # Panics
/// In a Tokio runtime that was built without `enable_io` or `enable_all`.
pub async fn shutdown_signal() {
    #[cfg(unix)]
    let terminated = async {
        match unix::signal(SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            Err(error) => {
                tracing::warn!(%error, "failed to handle SIGTERM");
                pending().await
            }
        }
    };
    #[cfg(not(unix))]
    let terminated = pending::<Option<()>>();
    let interrupted = async {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::warn!(%error, "failed to handle Ctrl-C");
            pending::<()>().await;
        }
    };
    tokio::select! {
        _ = terminated => {}
        () = interrupted => {}
    }
}

/// Handles events until `stop` is ready, then waits for the events in flight. Reconnects without limit, unless
/// [`ConnectOptions::max_reconnects`] sets one; at the start only with [`ConnectOptions::retry_on_initial_connect`]. Dropping the future
/// ends everything without acknowledgements; a handler that blocks is finished.
///
/// Calls of the handler run at the same time, so each gets its own clone of what they share:
///
/// ```no_run
/// # use consumer::{Config, ConsumerError};
/// # use std::sync::Arc;
/// # struct Database;
/// # impl Database { async fn insert(&self, _: &[u8]) -> std::io::Result<()> { Ok(()) } }
/// # async fn run(config: Config, database: Arc<Database>) -> Result<(), ConsumerError> {
/// consumer::run(config, consumer::shutdown_signal(), move |event| {
///     let database = Arc::clone(&database);
///     async move { Ok(database.insert(&event.payload).await?) }
/// })
/// .await
/// # }
/// ```
///
/// # Errors
/// [`ConsumerError`] when the consumer cannot start, when its durable is deleted, when its login is rejected for
/// [`Config::rejected_for`], or when the connection is closed.
///
/// # Panics
/// Outside of a Tokio runtime.
pub async fn run<H, F>(
    config: Config,
    stop: impl Future<Output = ()>,
    handler: H,
) -> Result<(), ConsumerError>
where
    H: Fn(Arc<Event>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    run_batches(config, 1, stop, move |mut events| {
        let attempt = events.pop().map(&handler);
        async move {
            match attempt {
                Some(attempt) => attempt.await,
                None => Ok(()),
            }
        }
    })
    .await
}

/// Like [`run`], but a call of the handler gets up to `max` events of one source, in order: those that have arrived while the previous
/// call ran. So a database writes them with one statement. `max` is at least 1.
///
/// After a call of several events failed, panicked or took too long, the handler is called for each of them alone. It must therefore accept
/// events that it has written before. Failures of a call with one event count for it, as with [`run`].
///
/// ```no_run
/// # use consumer::{Config, ConsumerError, Failure};
/// # async fn insert_all(_: &[std::sync::Arc<consumer::Event>]) -> std::io::Result<()> { Ok(()) }
/// # async fn run() -> Result<(), ConsumerError> {
/// let config = Config::new("nats://nats:4222", "archive", "password");
/// let stop = consumer::shutdown_signal();
/// consumer::run_batches(config, 100, stop, async |events| insert_all(&events).await.map_err(Failure::retry)).await
/// # }
/// ```
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// Outside of a Tokio runtime.
pub async fn run_batches<H, F>(
    config: Config,
    max: usize,
    stop: impl Future<Output = ()>,
    handler: H,
) -> Result<(), ConsumerError>
where
    H: Fn(Vec<Arc<Event>>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    if config.streams.is_empty() {
        return Err(ConsumerError::Options("`streams` is empty".into()));
    }
    let subscriber = tracing::dispatcher::get_default(Clone::clone);
    let handlers = Handlers::new(handler, max, &config, subscriber.clone());
    let mut reader = reader::start(config, handlers, subscriber)?;
    tokio::select! {
        result = reader.result() => return result,
        () = stop => reader.stop(),
    }
    reader.result().await
}
