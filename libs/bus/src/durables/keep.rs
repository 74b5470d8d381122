//! Keeps the file with the accounts of consumers, next to a nats-server that includes it.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::Message;
use futures::future::try_join_all;
use futures::{FutureExt as _, StreamExt as _};
use service::Tasks;
use tokio::time::{sleep, timeout};

use super::accounts::ACCOUNT;
use super::{Durable, DurableError, Durables, accounts_file};
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

/// The file, and what reloads the broker.
pub struct AccountsFile {
    path: PathBuf,
    reload: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
    /// Whether the broker has read the file that exists.
    is_applied: bool,
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
}

impl AccountsFile {
    /// Returns a file in a directory that exists. `reload` runs after each change.
    pub fn new(path: PathBuf, reload: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self { path, reload: Box::new(reload), is_applied: false }
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
        if self.path.exists() { Ok(()) } else { write(&self.path, &accounts_file(&[])) }
    }

    /// Starts the task that derives the file at each request of ingest, and every 30 seconds.
    pub fn start(self, connection: Connection, streams: EventStreams, tasks: &Tasks) {
        let stop = tasks.stopping().clone();
        tasks.spawn("accounts of consumers", async move {
            stop.run_until_cancelled(self.keep(&connection, streams)).await;
        });
    }

    async fn keep(&self, connection: &Connection, streams: EventStreams) {
        let Ok(mut requests) = connection.client.subscribe(CONSUMERS_SUBJECT).await else { return };
        let mut logged = String::new();
        let mut pause = Duration::ZERO;
        // Otherwise, the server may have started before the file was changed: an earlier process may have ended before its reload.
        let known = self.is_applied.then(|| std::fs::read_to_string(&self.path).unwrap_or_default());
        let mut applied = known.unwrap_or_default();
        loop {
            let first = tokio::select! {
                Some(request) = requests.next() => Some(request),
                () = sleep(pause) => None,
            };
            // One reload is for all changes that were requested meanwhile.
            let others = std::iter::from_fn(|| requests.next().now_or_never().flatten());
            let waiting: Vec<_> = first.into_iter().chain(others).collect();
            match self.derive(connection, streams, &mut applied).await {
                Ok(()) => {
                    pause = INTERVAL;
                    logged.clear();
                    respond(connection, waiting).await;
                }
                Err(error) => {
                    pause = RETRY_INTERVAL;
                    let text = service::chain(&error);
                    // While the server does not run, there is nothing to keep.
                    if !matches!(error, KeepError::NotConnected(_)) && text != logged {
                        tracing::warn!(error = text, "failed to keep the accounts of consumers; retrying");
                        logged = text;
                    }
                }
            }
        }
    }

    /// `applied` is the file that the server has read.
    async fn derive(
        &self,
        connection: &Connection,
        streams: EventStreams,
        applied: &mut String,
    ) -> Result<(), KeepError> {
        let durables = Durables::over(connection, streams).await?.list().await?;
        let content = accounts_file(&durables);
        if content == *applied {
            return Ok(());
        }
        write(&self.path, &content)?;
        (self.reload)()?;
        if uses_new_account(&content, applied) {
            sleep(SECOND_RELOAD).await;
            (self.reload)()?;
        }
        *applied = content;
        tracing::info!(file = %self.path.display(), "accounts of consumers changed");
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

/// Replaces the file in one step. Only its owner and the group, such as that of the server, can read it.
fn write(path: &Path, content: &str) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let part = path.with_extension("part");
    let _ = std::fs::remove_file(&part);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o640).open(&part)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(part, path)
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
    let Ok(client) = connect(config).await else { return false };
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
