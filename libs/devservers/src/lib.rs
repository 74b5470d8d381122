//! A private Postgres and nats-server as child processes, for `make up` and `make test`.
//!
//! The servers listen on loopback only. They are restarted when they exit and stopped with this process. Servers of an earlier
//! run that was killed are stopped at the next start in the same data directory.

mod account;
pub mod data_dir;
mod nats;
mod postgres;
mod process;
pub mod secret;
mod server;
mod temporary;

use std::fmt::Display;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use account::Account;
pub use data_dir::{DataDir, Lock, LockAttempt};
pub use nats::NatsUser;
pub use postgres::{Durability, PostgresRole};
pub use server::StartError;
pub use temporary::create_temporary_directory;

use nats::Nats;
use postgres::Postgres;
use server::{RunningServer, start, supervise};

/// The oldest supported version of Postgres, see `docs/running.md`. That of nats-server is in `bus`.
const OLDEST_POSTGRES: u32 = 15;

/// The paths of server programs and test tools (`.dev/tools.json`), written by `deploy/local/fetch.py`.
#[derive(Clone, Debug, Deserialize)]
pub struct Tools {
    /// The directory of `postgres` and `initdb`.
    pub postgres_bin_dir: PathBuf,
    /// The root directory of a fetched Postgres; `None` for the Postgres of the machine.
    pub postgres_package: Option<PathBuf>,
    /// `nats-server`.
    pub nats_server: PathBuf,
    /// The Python that ran `fetch.py`.
    pub python: Option<PathBuf>,
    /// A reverse proxy, for tests.
    pub caddy: Option<PathBuf>,
    /// The directory of nats-py, for tests.
    pub nats_py_path: Option<PathBuf>,
    /// The directory of aiosmtpd, for tests.
    pub aiosmtpd_path: Option<PathBuf>,
    /// The directory of schemathesis, for tests; `None` if Python is too old for it.
    pub schemathesis_path: Option<PathBuf>,
    /// The directory of openapi-python-client, for tests; `None` if Python is too old for it.
    pub client_generator_path: Option<PathBuf>,
}

impl Tools {
    /// Reads the file.
    ///
    /// # Errors
    /// If the file is missing or invalid.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let advice = || format!("failed to read {}; run python3 deploy/local/fetch.py first", path.display());
        let text = std::fs::read(path).with_context(advice)?;
        serde_json::from_slice(&text).with_context(advice)
    }

    /// Checks that the servers are not older than the services require.
    async fn check_versions(&self) -> anyhow::Result<()> {
        let postgres = self.postgres_bin_dir.join("postgres");
        let version = process::version_of(&postgres).await?;
        let number = process::major(&version).and_then(|number| number.parse::<u32>().ok());
        if number.is_none_or(|number| number < OLDEST_POSTGRES) {
            let error = format!("Postgres {version} is too old: update it to {OLDEST_POSTGRES} or newer");
            return Err(too_old(error, &postgres));
        }
        let version = process::version_of(&self.nats_server).await?;
        bus::check_version(&version).map_err(|error| too_old(error, &self.nats_server))
    }
}

/// The error of a program that is too old.
fn too_old(error: impl Display, program: &Path) -> anyhow::Error {
    anyhow!("{error} ({}), or download a newer one with make up TOOLS=fetch", program.display())
}

/// The process ids of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pids {
    /// The postmaster.
    pub postgres: i32,
    /// nats-server.
    pub nats: i32,
}

/// The configuration of both servers.
#[derive(Clone, Debug)]
pub struct ServersConfig {
    /// The programs.
    pub tools: Tools,
    /// The directory of data, logs and secrets. The caller holds its lock.
    pub data: DataDir,
    /// Whether committed data survive a crash of the machine.
    pub durability: Durability,
    /// The account that runs Postgres; `None` selects one.
    pub account: Option<Account>,
}

/// Both servers, running. Dropping it stops them in the background.
pub struct Servers {
    postgres: Arc<Postgres>,
    nats: Arc<Nats>,
    pids: watch::Receiver<Pids>,
    stop: CancellationToken,
    supervisors: TaskTracker,
}

impl Servers {
    /// Starts both servers and waits until they respond and the database roles exist. After `cancel` is
    /// cancelled, the started servers are stopped.
    ///
    /// # Errors
    /// If a server is too old, before anything is created, or does not start, with the end of its log.
    pub async fn start(config: &ServersConfig, cancel: &CancellationToken) -> Result<Self, StartError> {
        config.tools.check_versions().await?;
        let postgres = Postgres::prepare(config, cancel).await?;
        let nats = Nats::prepare(config).await?;
        let (postgres, nats) = tokio::join!(start(postgres, cancel), start(nats, cancel));
        let (postgres, nats) = match (postgres, nats) {
            (Ok(postgres), Ok(nats)) => (postgres, nats),
            (Err(error), other) => return Err(stop_other(error, other.ok()).await),
            (other, Err(error)) => return Err(stop_other(error, other.ok()).await),
        };
        if let Err(error) = postgres.server.create_roles().await {
            tokio::join!(postgres.stop(), nats.stop());
            return Err(error.into());
        }
        Ok(Self::supervised(postgres, nats))
    }

    fn supervised(postgres: RunningServer<Postgres>, nats: RunningServer<Nats>) -> Self {
        let (sender, pids) = watch::channel(Pids { postgres: postgres.pid(), nats: nats.pid() });
        let (sender, stop, supervisors) = (Arc::new(sender), CancellationToken::new(), TaskTracker::new());
        let servers = Self {
            postgres: Arc::clone(&postgres.server),
            nats: Arc::clone(&nats.server),
            pids,
            stop: stop.clone(),
            supervisors,
        };
        let postgres_sender = Arc::clone(&sender);
        servers.supervisors.spawn(supervise(postgres, stop.clone(), move |pid| {
            postgres_sender.send_modify(|pids| pids.postgres = pid);
        }));
        servers
            .supervisors
            .spawn(supervise(nats, stop, move |pid| sender.send_modify(|pids| pids.nats = pid)));
        servers.supervisors.close();
        servers
    }

    /// Stops both servers and waits for their end.
    pub async fn stop(self) {
        self.stop.cancel();
        self.supervisors.wait().await;
    }

    /// The current process ids. They change when a server is restarted.
    pub fn pids(&self) -> watch::Receiver<Pids> {
        self.pids.clone()
    }

    /// The URL of a database for a role.
    pub fn database_url(&self, role: PostgresRole, database: &str) -> String {
        self.postgres.url(role, database)
    }

    /// The URL of the broker for a user.
    pub fn nats_url(&self, user: NatsUser) -> String {
        self.nats.url(user)
    }

    /// The file with the accounts of consumers. Changes take effect when the broker reloads its configuration (SIGHUP).
    pub fn consumers_file(&self) -> PathBuf {
        self.nats.consumers_file()
    }

    /// The URL of the monitoring port of the broker.
    pub fn nats_monitor_url(&self) -> String {
        self.nats.monitor_url()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Stops servers of an earlier run in this directory that was killed. The caller holds the lock.
///
/// # Errors
/// If a server cannot be stopped.
pub async fn stop_orphans(data: &DataDir) -> std::io::Result<()> {
    postgres::stop_orphan(data).await?;
    nats::stop_orphan(data).await
}

/// Stops the server that started after the other one failed.
async fn stop_other<S: server::Server>(error: StartError, other: Option<RunningServer<S>>) -> StartError {
    if let Some(other) = other {
        other.stop().await;
    }
    error
}

/// Prints progress to standard error. A closed terminal is not an error: the shutdown must complete without it.
fn print_progress(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
