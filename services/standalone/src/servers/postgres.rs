//! A private Postgres: one cluster, reached over loopback with a password only.

mod bootstrap;
mod home;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use sqlx::{Connection as _, PgConnection};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::child::Step;
use super::port::KeptPort;
use super::server::{Server, StartError};
use super::{ServersConfig, orphan};
use crate::data_dir::DataDir;
use home::Home;

use bootstrap::Passwords;
pub use bootstrap::Role;

/// Whether data are worth keeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// What is committed survives the machine.
    Kept,
    /// Everything is thrown away at the end, so nothing is synced; made for many tests at once.
    Throwaway,
}

impl Durability {
    fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Kept => &["max_connections=100"],
            Self::Throwaway => &[
                "max_connections=500",
                "fsync=off",
                "synchronous_commit=off",
                "full_page_writes=off",
                "wal_level=minimal",
                "max_wal_senders=0",
            ],
        }
    }
}

/// The same for both: nothing but loopback, one time zone, a log that names who and where.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "timezone=UTC",
    "log_timezone=UTC",
    "log_line_prefix=%m [%p] %q%u@%d ",
    "jit=off",
];

/// Stops the server that a killed run of this directory left behind.
pub(super) async fn clear_orphan(data: &DataDir) -> io::Result<()> {
    match link(data).canonicalize() {
        Ok(home) => {
            let cluster = home.join("cluster");
            orphan::clear(&cluster.join("postmaster.pid"), &mark(&cluster), Postgres::STOP).await
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn link(data: &DataDir) -> PathBuf {
    data.root().join("postgres")
}

fn mark(cluster: &Path) -> String {
    format!("-D {}", cluster.display())
}

/// The server.
pub(super) struct Postgres {
    home: Home,
    durability: Durability,
    port: KeptPort,
    log: PathBuf,
    mark: String,
    passwords: Passwords,
}

impl Postgres {
    /// Stops what an earlier run left behind, and makes the cluster when there is none.
    pub(super) async fn prepare(
        config: &ServersConfig,
        cancel: &CancellationToken,
    ) -> Result<Self, StartError> {
        let reading = "reading the passwords of Postgres";
        let passwords =
            Passwords::load(&config.data.secrets(), config.durability).map_err(StartError::io(reading))?;
        let home = Home::open(&link(&config.data), &config.tools, config.account).await?;
        // Before its port is looked at: else that would seem to be taken by a stranger.
        let orphaned = "stopping the Postgres of an earlier run";
        clear_orphan(&config.data).await.map_err(StartError::io(orphaned))?;
        home.ensure_cluster(passwords.of(Role::Superuser), config.durability, cancel).await?;
        let port = KeptPort::load(config.data.root().join("postgres.port"));
        let port = port.map_err(StartError::io("finding a free port"))?;
        let log = config.data.logs().join("postgres.log");
        let mark = mark(&home.cluster());
        Ok(Self { home, durability: config.durability, port, log, mark, passwords })
    }

    /// Makes roles, database and schemas.
    pub(super) async fn bootstrap(&self) -> Result<(), StartError> {
        bootstrap::run(self).await.map_err(StartError::Bootstrap)
    }

    /// The address of a database as a role.
    pub(super) fn url(&self, role: Role, database: &str) -> String {
        let (name, password) = (role.name(), self.passwords.of(role));
        format!("postgres://{name}:{password}@127.0.0.1:{}/{database}", self.port.number())
    }
}

impl Server for Postgres {
    const NAME: &'static str = "Postgres";
    // Fast shutdown, which ends sessions; then immediate, which leaves recovery to the next start.
    const STOP: &'static [Step] =
        &[(Signal::INT, Duration::from_secs(20)), (Signal::QUIT, Duration::from_secs(5))];

    fn command(&self) -> Command {
        let mut command = self.home.command("postgres");
        command.arg("-D").arg(self.home.cluster());
        command.arg("-c").arg(format!("port={}", self.port.number()));
        for setting in SETTINGS.iter().chain(self.durability.settings()) {
            command.arg("-c").arg(setting);
        }
        command
    }

    fn log(&self) -> &Path {
        &self.log
    }

    fn pid_file(&self) -> PathBuf {
        self.home.pid_file()
    }

    fn mark(&self) -> &str {
        &self.mark
    }

    fn port(&self) -> &KeptPort {
        &self.port
    }

    async fn answers(&self) -> bool {
        let ask = async {
            let mut connection = PgConnection::connect(&self.url(Role::Superuser, "postgres")).await?;
            connection.ping().await?;
            connection.close().await
        };
        matches!(tokio::time::timeout(Duration::from_secs(5), ask).await, Ok(Ok(())))
    }
}
