//! Keeps the file with the accounts of consumers, next to a nats-server that includes it, and suspends logins that send too many messages
//! to this server.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Message;
use contract::consumers::ConsumerSuspension;
use futures::future::try_join_all;
use futures::{FutureExt as _, StreamExt as _};
use service::clock::SystemClock;
use service::{Clock, Tasks, files};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use super::accounts::{ACCOUNT, accounts_file_at};
use super::message_rates::{MessageRates, Monitor};
use super::{Durable, DurableError, Durables, accounts_file, suspension};
use crate::connect::{Config, Connection, NotConnected, connect};
use crate::streams::EventStreams;

/// Subject of the requests to derive the file again. The response follows after the reload was requested.
pub const CONSUMERS_SUBJECT: &str = "svc.ingest.consumers.v1";
/// Interval without such a request. Replaces lost ones.
const INTERVAL: Duration = Duration::from_secs(30);
/// Pause after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long a broker that was reloaded may take until a login reads, for example with thousands of accounts.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);
/// A request that is lost during a reload gets no answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause before the second of two reloads. The server handles a signal that arrives during a reload after it, but not two.
const SECOND_RELOAD: Duration = Duration::from_millis(200);
/// A request during a reload has no responder. So has one without something that keeps the file, which takes a second to detect.
const RELOAD_ATTEMPTS: u32 = 10;
const RELOAD_PAUSE: Duration = Duration::from_millis(100);

/// Interval of the readings of the monitoring port.
const READING_INTERVAL: Duration = Duration::from_secs(1);

/// The file, and what reloads the broker.
pub struct AccountsFile {
    path: PathBuf,
    reload: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
    /// Whether the broker has read the file that exists.
    is_applied: bool,
    limit: Option<MessageLimit>,
    clock: Arc<dyn Clock>,
}

/// The limit of the messages that a login sends to the server.
#[derive(Clone, Debug)]
pub struct MessageLimit {
    /// The `http` URL of the monitoring port of the server.
    pub monitor: String,
    /// Messages per second, in addition to four for each event that the login reads. A correct consumer sends progress
    /// acknowledgements for at most the 10,000 events that were delivered to it (`max_ack_pending`).
    pub messages_per_second: u64,
    /// Duration of the first suspension. One within an hour after the last one is twice as long, up to an hour.
    pub suspension: Duration,
}

impl MessageLimit {
    /// Default of `messages_per_second`.
    pub const MESSAGES_PER_SECOND: u64 = 10_000;
    /// Default of `suspension`, in seconds.
    pub const SUSPENSION_SECONDS: u64 = 60;

    /// Returns the default limit.
    pub const fn new(monitor: String) -> Self {
        let suspension = Duration::from_secs(Self::SUSPENSION_SECONDS);
        Self { monitor, messages_per_second: Self::MESSAGES_PER_SECOND, suspension }
    }
}

/// The file was not derived.
#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(transparent)]
    NotConnected(#[from] NotConnected),
    #[error("failed to list the durables")]
    Durables(#[from] DurableError),
    #[error("failed to write the file or to reload the broker")]
    File(#[from] io::Error),
    #[error("failed to read the monitoring port of the server")]
    Monitor(#[from] reqwest::Error),
}

impl AccountsFile {
    /// Returns a file in a directory that exists. `reload` runs after each change.
    pub fn new(path: PathBuf, reload: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> Self {
        let reload = Box::new(reload);
        Self { path, reload, is_applied: false, limit: None, clock: Arc::new(SystemClock) }
    }

    /// Suspends logins above a limit.
    #[must_use]
    pub fn with_limit(mut self, limit: Option<MessageLimit>) -> Self {
        self.limit = limit;
        self
    }

    /// The broker has started after the last change of the file, so it is not reloaded before the next one.
    #[must_use]
    pub fn applied(mut self) -> Self {
        self.is_applied = true;
        self
    }

    /// Writes the file without consumers if it does not exist, so that the broker can start.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn initialize(&self) -> io::Result<()> {
        if self.path.exists() { Ok(()) } else { self.write(&accounts_file(&[])) }
    }

    /// The server can read the file as a member of its group.
    fn write(&self, content: &str) -> io::Result<()> {
        files::replace(&self.path, content.as_bytes(), 0o640)
    }

    /// Starts the task that derives the file at each request of ingest, and every 30 seconds.
    pub fn start(self, connection: Connection, streams: EventStreams, tasks: &Tasks) {
        let stop = tasks.stopping().clone();
        tasks.spawn("accounts of consumers", async move {
            stop.run_until_cancelled(Box::pin(self.keep(connection, streams))).await;
        });
    }

    async fn keep(self, connection: Connection, streams: EventStreams) {
        let Ok(mut requests) = connection.client.subscribe(CONSUMERS_SUBJECT).await else { return };
        // Otherwise, the server may have started before the file was changed: an earlier process may have ended before its reload.
        let known = self.is_applied.then(|| std::fs::read_to_string(&self.path).unwrap_or_default());
        let mut keeper = Keeper {
            rates: MessageRates::new(self.limit.as_ref().map_or(u64::MAX, |limit| limit.messages_per_second)),
            file: self,
            connection,
            streams,
            applied: known.unwrap_or_default(),
            durables: Vec::new(),
            unsaved: HashMap::new(),
        };
        let monitor = keeper.file.limit.as_ref().and_then(|limit| Monitor::new(&limit.monitor).ok());
        let mut readings = interval(READING_INTERVAL);
        readings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut logged, mut logged_reading) = (Logged::default(), Logged::default());
        let mut next = Instant::now();
        loop {
            let first = tokio::select! {
                Some(request) = requests.next() => Some(request),
                () = sleep_until(next) => None,
                _ = readings.tick(), if monitor.is_some() => {
                    if let Some(monitor) = &monitor {
                        let read = keeper.suspend_above_limit(monitor).await;
                        if !keeper.unsaved.is_empty() {
                            next = next.min(Instant::now() + RETRY_INTERVAL);
                        }
                        logged_reading.log(read.err().as_ref(), "failed to limit the messages of consumers; retrying");
                    }
                    continue;
                }
            };
            // One reload is for all changes that were requested meanwhile.
            let others = std::iter::from_fn(|| requests.next().now_or_never().flatten());
            let waiting: Vec<_> = first.into_iter().chain(others).collect();
            let derived = keeper.derive().await;
            if derived.is_ok() {
                respond(&keeper.connection, waiting).await;
            }
            next = Instant::now() + if derived.is_ok() { keeper.pause() } else { RETRY_INTERVAL };
            logged.log(derived.err().as_ref(), "failed to keep the accounts of consumers; retrying");
        }
    }
}

/// Logs an error when it differs from the last one.
#[derive(Default)]
struct Logged(String);

impl Logged {
    fn log(&mut self, error: Option<&KeepError>, message: &str) {
        let text = error.map(|error| service::chain(error)).unwrap_or_default();
        // While the server does not run, or has no streams, there is nothing to keep.
        let nothing_to_keep = error.is_some_and(|error| match error {
            KeepError::NotConnected(_) => true,
            KeepError::Durables(error) => error.is_missing_stream(),
            KeepError::File(_) | KeepError::Monitor(_) => false,
        });
        if !text.is_empty() && text != self.0 && !nothing_to_keep {
            tracing::warn!(error = text, "{message}");
        }
        self.0 = text;
    }
}

/// State of the server and the durables, as last read.
struct Keeper {
    file: AccountsFile,
    connection: Connection,
    streams: EventStreams,
    rates: MessageRates,
    /// The file that the server has read; empty if it is not known.
    applied: String,
    /// As they were last listed.
    durables: Vec<Durable>,
    /// Suspensions that are not in the metadata of their durables yet.
    unsaved: HashMap<String, ConsumerSuspension>,
}

impl Keeper {
    async fn derive(&mut self) -> Result<(), KeepError> {
        let durables = Durables::over(&self.connection, self.streams).await?;
        self.durables = durables.list().await?;
        let saved = self.save_suspensions(&durables).await;
        self.apply().await?;
        saved
    }

    /// Time until the file is derived again: a suspension ends by itself.
    fn pause(&self) -> Duration {
        let now = self.file.clock.now();
        let suspensions = self.durables.iter().filter_map(|durable| durable.suspension);
        let ends = suspensions
            .filter(|suspension| suspension.is_active(now))
            .map(|suspension| suspension.until - now);
        let first = ends.min().and_then(|first| first.to_std().ok());
        first.map_or(INTERVAL, |first| first.clamp(POLL, INTERVAL))
    }

    /// Writes the file of the known durables, if it differs from that of the server or from the stored one, and reloads the server.
    async fn apply(&mut self) -> Result<(), KeepError> {
        let content = accounts_file_at(&self.durables, self.file.clock.now());
        let stored = std::fs::read_to_string(&self.file.path).unwrap_or_default();
        if content == self.applied && content == stored {
            return Ok(());
        }
        let file = self.file.path.display();
        // After a failure, it is not known what the server has read.
        let mut previous = std::mem::take(&mut self.applied);
        if !previous.is_empty() && previous != stored {
            tracing::warn!(%file, "file with the accounts of consumers was lost or changed; it is written again");
            // The server may have started with it.
            previous = stored;
        }
        self.file.write(&content)?;
        (self.file.reload)()?;
        if uses_new_account(&content, &previous) {
            sleep(SECOND_RELOAD).await;
            (self.file.reload)()?;
        }
        tracing::info!(%file, "accounts of consumers changed");
        self.applied = content;
        Ok(())
    }

    /// Reads the monitoring port, and suspends the logins above the limit.
    async fn suspend_above_limit(&mut self, monitor: &Monitor) -> Result<(), KeepError> {
        let (received, at) = (monitor.received().await?, Instant::now());
        let mut suspects = HashMap::new();
        for name in self.rates.suspects(&received, &self.durables, at) {
            let found = Durables::over(&self.connection, self.streams).await?.get(name).await?;
            suspects.extend(found.map(|found| (name.to_owned(), found)));
        }
        let above = self.rates.above_limit(&received, &self.durables, &suspects, at);
        for (name, rate) in &above {
            self.suspend(name, *rate);
        }
        if above.is_empty() {
            return Ok(());
        }
        // First, because the broker can be too slow for requests.
        self.apply().await?;
        let durables = Durables::over(&self.connection, self.streams).await?;
        self.save_suspensions(&durables).await
    }

    fn suspend(&mut self, name: &str, messages_per_second: u64) {
        let Some(duration) = self.file.limit.as_ref().map(|limit| limit.suspension) else { return };
        let Some(durable) = self.durables.iter_mut().find(|durable| durable.name == name) else { return };
        if durable.is_suspended(self.file.clock.now()) {
            // The server has lost the request to reload.
            self.applied.clear();
            return;
        }
        let last = durable.suspension.as_ref();
        let suspension = suspension::start(last, duration, messages_per_second, self.file.clock.now());
        durable.suspension = Some(suspension);
        self.unsaved.insert(name.to_owned(), suspension);
        let until = suspension.until.to_rfc3339();
        tracing::warn!(
            consumer = name,
            messages_per_second,
            until,
            "login of consumer suspended: it sends more messages than it needs for the events that it reads"
        );
    }

    /// Stores suspensions in the metadata, and requests that the other keepers follow.
    #[expect(clippy::disallowed_methods, reason = "the other keepers derive the file in any case")]
    async fn save_suspensions(&mut self, durables: &Durables) -> Result<(), KeepError> {
        let now = self.file.clock.now();
        self.unsaved.retain(|_, suspension| suspension.is_active(now));
        if self.unsaved.is_empty() {
            return Ok(());
        }
        for durable in &mut self.durables {
            durable.suspension = self.unsaved.get(&durable.name).copied().or(durable.suspension);
        }
        for (name, suspension) in self.unsaved.clone() {
            durables.suspend(&name, suspension).await?;
            self.unsaved.remove(&name);
        }
        let _ = self.connection.client.publish(CONSUMERS_SUBJECT, "".into()).await;
        Ok(())
    }
}

/// Returns whether the file has a user in an account that the previous one has not: the server starts the imports of such an account at
/// the reload after the one that adds it.
fn uses_new_account(file: &str, previous: &str) -> bool {
    let name = |line: &'_ str| line.split_once(" {").map(|(name, _)| name.to_owned());
    let known: HashSet<_> = previous.lines().filter_map(name).collect();
    let mut used = file.lines().filter_map(|line| line.strip_suffix(" {"));
    used.any(|account| account.starts_with(ACCOUNT) && !known.contains(account))
}

#[expect(clippy::disallowed_methods, reason = "a lost response only delays the request of ingest")]
async fn respond(connection: &Connection, requests: Vec<Message>) {
    for reply in requests.into_iter().filter_map(|request| request.reply) {
        let _ = connection.client.publish(reply, "".into()).await;
    }
    let _ = connection.client.flush().await;
}

/// Applies changes of logins at a broker with a kept file.
pub struct ConsumerLogins {
    connection: Connection,
    config: Config,
}

impl ConsumerLogins {
    /// Uses a connection, and the addresses and certificates of a configuration.
    pub const fn new(connection: Connection, config: Config) -> Self {
        Self { connection, config }
    }

    /// Requests that the file is derived again, and waits for at most five seconds. Returns whether something keeps it.
    pub async fn apply(&self) -> bool {
        timeout(LOGIN_TIMEOUT, self.request()).await.unwrap_or(false)
    }

    async fn request(&self) -> bool {
        let Ok(client) = self.connection.connected() else { return false };
        for _ in 0..RELOAD_ATTEMPTS {
            if client.request(CONSUMERS_SUBJECT, "".into()).await.is_ok() {
                return true;
            }
            sleep(RELOAD_PAUSE).await;
        }
        false
    }

    /// Waits until the login of a durable reaches it through each server, for at most five seconds. Returns whether it does.
    pub async fn wait_until_usable(&self, durable: &Durable, password: &str) -> bool {
        let Ok(configs) = self.config.each_server_as(&durable.name, password) else { return false };
        let usable = futures::future::join_all(configs.iter().map(|config| async move {
            while !is_usable(config, durable).await {
                sleep(POLL).await;
            }
        }));
        timeout(LOGIN_TIMEOUT, usable).await.is_ok()
    }
}

/// Returns whether a login gets the information about its durable. The broker accepts a login before the imports of its account.
async fn is_usable(config: &Config, durable: &Durable) -> bool {
    // The client library logs each rejected login as an error.
    let Ok(client) = connect(config).with_subscriber(NoSubscriber::new()).await else { return false };
    let requests = durable
        .streams
        .iter()
        .map(|stream| client.request(format!("$JS.API.CONSUMER.INFO.{stream}.{}", durable.name), "".into()));
    timeout(REQUEST_TIMEOUT, try_join_all(requests)).await.is_ok_and(|answers| answers.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_user_in_an_account_that_was_not_loaded_requires_a_second_reload() {
        let empty = "# x\nCONSUMER_0 { limits: { max_conn: 1 } }\n";
        let used = "# x\nCONSUMER_0 {\n  users: [ { user: \"a\" } ]\n}\n";
        let more = format!("{used}CONSUMER_1 {{ limits: {{ max_conn: 1 }} }}\n");
        for (file, previous, expected) in [
            (used, empty, false),
            (used, used, false),
            (empty, used, false),
            (more.as_str(), used, false),
            (used, "# x\n", true),
            (used, "", true),
            (empty, "", false),
        ] {
            assert_eq!(uses_new_account(file, previous), expected, "{file} after {previous}");
        }
    }
}
