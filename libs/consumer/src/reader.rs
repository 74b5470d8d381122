//! The thread of the connection: its runtime runs nothing but the protocol, so that no handler can delay it.

use std::future::pending;
use std::io;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use async_nats::{ClientError, ConnectErrorKind};
use tokio::runtime;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::Dispatch;

use crate::dead_letter;
use crate::event::Event;
use crate::handlers::Handlers;
use crate::lead::Lead;
use crate::session::Session;
use crate::source::find_all;
use crate::worker::Worker;
use crate::{Config, ConsumerError, Failure};

/// The client detects a broken connection after two unanswered pings.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Delay before reading starts again after an error.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// Time for the first answer of the broker. Requests fail while it reloads its configuration.
const START_TIME: Duration = Duration::from_secs(10);
/// Time to send the last acknowledgements.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A running thread. It ends when this is dropped.
pub(crate) struct Reader {
    stop: watch::Sender<bool>,
    result: oneshot::Receiver<Result<(), ConsumerError>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts the thread.
pub(crate) fn start<H, F>(
    config: Config,
    handlers: Handlers<H>,
    subscriber: Dispatch,
) -> Result<Reader, ConsumerError>
where
    H: Fn(Vec<Arc<Event>>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let runtime =
        runtime::Builder::new_current_thread().enable_all().build().map_err(ConsumerError::Thread)?;
    let (stop, mut is_stopping) = watch::channel(false);
    let (mut sender, result) = oneshot::channel();
    let run = move || {
        let _subscriber = tracing::dispatcher::set_default(&subscriber);
        let result = runtime.block_on(async {
            let stopped = async {
                if is_stopping.wait_for(|is_stopping| *is_stopping).await.is_err() {
                    // `run` was dropped: `closed` ends everything.
                    pending::<()>().await;
                }
            };
            tokio::select! {
                result = read(config, stopped, handlers) => Some(result),
                () = sender.closed() => None,
            }
        });
        // A name that is still resolved must not delay the end.
        runtime.shutdown_background();
        if let Some(result) = result {
            // Fails if `run` was dropped meanwhile.
            let _ = sender.send(result);
        }
    };
    let thread = thread::Builder::new().name("consumer".to_owned()).spawn(run);
    Ok(Reader { stop, result, thread: Some(thread.map_err(ConsumerError::Thread)?) })
}

impl Reader {
    /// Stops reading. The events in flight are handled.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits for the end. A panic of the thread continues here.
    pub(crate) async fn result(&mut self) -> Result<(), ConsumerError> {
        if let Ok(result) = (&mut self.result).await {
            return result;
        }
        // The thread has ended without a result.
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(panic)) => resume_unwind(panic),
            _ => Err(ConsumerError::Thread(io::Error::other("the thread has ended"))),
        }
    }
}

/// Reads events until `stop` is ready.
async fn read<H, F>(
    config: Config,
    stop: impl Future<Output = ()>,
    handlers: Handlers<H>,
) -> Result<(), ConsumerError>
where
    H: Fn(Vec<Arc<Event>>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let _running = config.monitor.begin();
    let connection = Connection::default();
    let options = connection.options(&config)?;
    let mut stop = pin!(stop);
    let rejected = async || rejected(connection.rejected_since.subscribe(), &config).await;
    let client = tokio::select! {
        () = &mut stop => return Ok(()),
        client = connect(&config, options, &connection) => client?,
        error = rejected() => return Err(error),
    };
    let context = jetstream::new(client.clone());
    let worker = Worker::new(&config, context.clone(), handlers);
    let (mut breaks, mut closed) = (connection.breaks.subscribe(), connection.is_closed.subscribe());
    let result = tokio::select! {
        result = read_sessions(&config, &context, &worker, stop, &mut breaks) => result,
        // Fails only after the connection was dropped.
        _ = closed.wait_for(|is_closed| *is_closed) => return Err(ConsumerError::Closed),
        error = rejected() => return Err(error),
    };
    // Sends the last acknowledgements.
    let _ = timeout(CLOSE_TIMEOUT, client.flush()).await;
    result
}

/// Connects; with [`ConnectOptions::retry_on_initial_connect`](crate::ConnectOptions::retry_on_initial_connect) until it succeeds.
async fn connect(
    config: &Config,
    options: async_nats::ConnectOptions,
    connection: &Connection,
) -> Result<async_nats::Client, ConsumerError> {
    let servers: Vec<_> = config.servers.split(',').map(str::trim).collect();
    loop {
        match options.clone().connect(&servers).await {
            Err(error) if config.options.retries_start && error.kind() != ConnectErrorKind::ServerParse => {
                config.monitor.failed(&error);
                connection.attempted(error.kind() == ConnectErrorKind::AuthorizationViolation);
                tracing::warn!(%error, consumer = config.name, "failed to connect to NATS");
                sleep(RESTART_DELAY).await;
            }
            result => return Ok(result?),
        }
    }
}

/// Reads in one session after the other, while no other process does.
async fn read_sessions<H, F>(
    config: &Config,
    context: &Context,
    worker: &Worker<H>,
    mut stop: Pin<&mut impl Future<Output = ()>>,
    breaks: &mut watch::Receiver<()>,
) -> Result<(), ConsumerError>
where
    H: Fn(Vec<Arc<Event>>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let client = context.client();
    // When a broker that does not answer ends the consumer. `None`: it has answered.
    let mut start_deadline = (!config.options.retries_start).then(Instant::now);
    loop {
        let mut lead = tokio::select! {
            () = &mut stop => return Ok(()),
            lead = Lead::take(&client, &config.name) => lead.map_err(|_| ConsumerError::Closed)?,
        };
        start_deadline = start_deadline.map(|_| Instant::now() + START_TIME);
        loop {
            breaks.mark_unchanged();
            let session = read_session(config, context, worker, stop.as_mut(), breaks, &mut start_deadline);
            let is_stopped = tokio::select! {
                ended = session => ended?,
                () = lead.answer() => true,
            };
            if is_stopped {
                // The last acknowledgements precede the end of the subscription.
                return Ok(());
            }
            tokio::select! {
                () = &mut stop => return Ok(()),
                () = sleep(RESTART_DELAY) => {}
                () = lead.answer() => {}
            }
            if !lead.is_first().await {
                break;
            }
        }
    }
}

/// Reads until `stop` is ready. Returns false if reading was interrupted, and can continue.
async fn read_session<H, F>(
    config: &Config,
    context: &Context,
    worker: &Worker<H>,
    mut stop: Pin<&mut impl Future<Output = ()>>,
    breaks: &mut watch::Receiver<()>,
    start_deadline: &mut Option<Instant>,
) -> Result<bool, ConsumerError>
where
    H: Fn(Vec<Arc<Event>>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let open = async {
        let consumers = find_all(config, context).await?;
        *start_deadline = None;
        Ok::<_, ConsumerError>(Session::open(config, context, consumers).await)
    };
    let opened = tokio::select! {
        () = &mut stop => return Ok(true),
        opened = open => opened,
    };
    let ended = match opened {
        Ok(Ok(session)) => session.run(worker, stop, breaks).await,
        Ok(Err(error)) => Err(error),
        Err(error @ ConsumerError::Unavailable { .. })
            if start_deadline.is_none_or(|deadline| Instant::now() < deadline) =>
        {
            Err(dead_letter::reason(&error).into())
        }
        Err(error) => return Err(error),
    };
    config.monitor.change(|status| status.is_reading = false);
    let Err(error) = ended else { return Ok(true) };
    config.monitor.failed(&error);
    tracing::warn!(error, consumer = config.name, "reading events was interrupted");
    Ok(false)
}

/// Waits until the login has been rejected for too long.
async fn rejected(mut since: watch::Receiver<Option<Instant>>, config: &Config) -> ConsumerError {
    let Some(limit) = config.rejected_for else { return pending().await };
    loop {
        let first = *since.borrow_and_update();
        let ended = async {
            match first {
                Some(first) => sleep_until(first + limit).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = ended => return ConsumerError::Rejected { name: config.name.clone() },
            // Fails only after the connection was dropped.
            _ = since.changed() => {}
        }
    }
}

/// Changes of the connection. Clones report to the same receivers.
#[derive(Clone, Default)]
struct Connection {
    /// It broke.
    breaks: watch::Sender<()>,
    /// It will not be opened again.
    is_closed: watch::Sender<bool>,
    /// Since when every attempt was rejected by the broker.
    rejected_since: watch::Sender<Option<Instant>>,
}

impl Connection {
    /// Records an attempt, and whether the broker rejected the login.
    fn attempted(&self, is_rejected: bool) {
        self.rejected_since.send_if_modified(|since| {
            let is_changed = since.is_some() != is_rejected;
            if is_changed {
                *since = is_rejected.then(Instant::now);
            }
            is_changed
        });
    }

    /// Returns the options of the client, which report the changes.
    fn options(&self, config: &Config) -> Result<async_nats::ConnectOptions, ConsumerError> {
        let connection = self.clone();
        let monitor = config.monitor.clone();
        let options = config.options.client_options(move |event| {
            monitor.connection_changed(event);
            match event {
                async_nats::Event::Disconnected => connection.breaks.send_replace(()),
                async_nats::Event::ClientError(ClientError::MaxReconnects) => {
                    connection.is_closed.send_replace(true);
                }
                async_nats::Event::ClientError(ClientError::Other(error)) => {
                    connection.attempted(*error == ConnectErrorKind::AuthorizationViolation.to_string());
                }
                async_nats::Event::Connected => connection.attempted(false),
                _ => {}
            }
        })?;
        Ok(options.name(&config.name).ping_interval(PING_INTERVAL).no_echo())
    }
}
