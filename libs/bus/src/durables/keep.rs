//! Keeps the file with the accounts of consumers, next to a nats-server that includes it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::Message;
use futures::StreamExt as _;
use service::Tasks;
use tokio::time::sleep;

use super::{DurableError, Durables, accounts_file};
use crate::connect::{Config, Connection, NotConnected, connect};
use crate::streams::EventStreams;

/// Subject of the requests to derive the file again. The response follows after the reload was requested.
pub const CONSUMERS_SUBJECT: &str = "svc.ingest.consumers.v1";
/// Interval without such a request. Replaces lost ones.
const INTERVAL: Duration = Duration::from_secs(30);
/// Pause after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long a broker that was reloaded may take until it accepts a login, for example with thousands of accounts.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);
/// A request during a reload has no responder. So has one without something that keeps the file, which takes a second to detect.
const RELOAD_ATTEMPTS: u32 = 10;
const RELOAD_PAUSE: Duration = Duration::from_millis(100);

/// The file, and what reloads the broker.
pub struct AccountsFile {
    path: PathBuf,
    reload: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
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
        Self { path, reload: Box::new(reload) }
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
        // The server has read the file that exists.
        let mut applied = std::fs::read_to_string(&self.path).unwrap_or_default();
        loop {
            let request = tokio::select! {
                Some(request) = requests.next() => Some(request),
                () = sleep(pause) => None,
            };
            match self.derive(connection, streams, &mut applied).await {
                Ok(()) => {
                    pause = INTERVAL;
                    logged.clear();
                    respond(connection, request).await;
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
        *applied = content;
        tracing::info!(file = %self.path.display(), "accounts of consumers changed");
        Ok(())
    }
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
async fn respond(connection: &Connection, request: Option<Message>) {
    if let Some(reply) = request.and_then(|request| request.reply) {
        let _ = connection.client.publish(reply, "".into()).await;
        let _ = connection.client.flush().await;
    }
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

    /// Requests that the file is derived again. Returns whether something keeps it.
    pub async fn apply(&self) -> bool {
        let Ok(client) = self.connection.connected() else { return false };
        for _ in 0..RELOAD_ATTEMPTS {
            if client.request(CONSUMERS_SUBJECT, "".into()).await.is_ok() {
                return true;
            }
            sleep(RELOAD_PAUSE).await;
        }
        false
    }

    /// Waits until each server accepts a login, for at most five seconds. Returns whether they do.
    pub async fn wait_until_accepted(&self, user: &str, password: &str) -> bool {
        let Ok(configs) = self.config.each_server_as(user, password) else { return false };
        let accepted = futures::future::join_all(configs.iter().map(|config| async move {
            while connect(config).await.is_err() {
                sleep(POLL).await;
            }
        }));
        tokio::time::timeout(LOGIN_TIMEOUT, accepted).await.is_ok()
    }
}
