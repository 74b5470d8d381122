//! The thread of the connection: its runtime runs nothing but the protocol, so that no handler can delay it.

use std::future::pending;
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_nats::jetstream;
use tokio::runtime;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};
use tracing::Dispatch;

use crate::event::Event;
use crate::handlers::Handlers;
use crate::session::Session;
use crate::worker::Worker;
use crate::{Config, ConsumerError, Failure};

/// The client detects a broken connection after two unanswered pings.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Delay before reading starts again after an error.
const RESTART_DELAY: Duration = Duration::from_secs(1);
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
    H: Fn(Arc<Event>) -> F + Send + Sync + 'static,
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
    H: Fn(Arc<Event>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let (sender, mut disconnects) = watch::channel(());
    let options = config.options.clone().name(&config.name).ping_interval(PING_INTERVAL);
    let options = options.event_callback(move |event| {
        if matches!(event, async_nats::Event::Disconnected) {
            sender.send_replace(());
        }
        std::future::ready(())
    });
    let client = options.connect(config.servers.split(',').map(str::trim).collect::<Vec<_>>()).await?;
    let context = jetstream::new(client.clone());
    let worker = Worker::new(&config, context.clone(), handlers);
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
