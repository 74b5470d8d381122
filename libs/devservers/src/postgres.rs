//! A private Postgres cluster on loopback with password authentication.

mod cluster;
mod roles;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use sqlx::{Connection as _, PgConnection};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::ServersConfig;
use crate::data_dir::DataDir;
use crate::process::{self, StopStep};
use crate::server::StoredPort;
use crate::server::{Server, StartError};
use cluster::Cluster;
use roles::Passwords;
pub use roles::PostgresRole;

/// Whether committed data survive a crash of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Committed data are synced to disk.
    Persistent,
    /// Nothing is synced, for a cluster that is removed after a test run; allows the connections of many tests.
    Temporary,
}

impl Durability {
    fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Persistent => &["max_connections=100"],
            Self::Temporary => &[
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

/// Settings for both kinds of durability.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "timezone=UTC",
    "log_timezone=UTC",
    "log_line_prefix=%m [%p] %q%u@%d ",
    "jit=off",
];

/// Stops the Postgres of an earlier run in this directory that was killed.
pub(crate) async fn stop_orphan(data: &DataDir) -> io::Result<()> {
    match link(data).canonicalize() {
        Ok(directory) => {
            let data_dir = directory.join("cluster");
            let arguments = identifying_arguments(&data_dir);
            process::stop_orphan(&data_dir.join("postmaster.pid"), &arguments, Postgres::STOP).await
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn link(data: &DataDir) -> PathBuf {
    data.root().join("postgres")
}

fn identifying_arguments(data_dir: &Path) -> String {
    format!("-D {}", data_dir.display())
}

pub(crate) struct Postgres {
    cluster: Cluster,
    durability: Durability,
    port: StoredPort,
    log: PathBuf,
    identifying_arguments: String,
    passwords: Passwords,
}

impl Postgres {
    /// Stops the Postgres of an earlier run and creates the cluster if it does not exist.
    pub(crate) async fn prepare(
        config: &ServersConfig,
        cancel: &CancellationToken,
    ) -> Result<Self, StartError> {
        let passwords = Passwords::load(&config.data.secrets(), config.durability);
        let passwords = passwords.map_err(StartError::io("read the passwords of Postgres"))?;
        let cluster = Cluster::open(&link(&config.data), &config.tools, config.account).await?;
        // First, because its port would be taken otherwise.
        let stopped = stop_orphan(&config.data).await;
        stopped.map_err(StartError::io("stop the Postgres of an earlier run"))?;
        cluster.ensure(passwords.of(PostgresRole::Superuser), config.durability, cancel).await?;
        let port = StoredPort::load(config.data.root().join("postgres.port"));
        let port = port.map_err(StartError::io("find a free port"))?;
        let log = config.data.logs().join("postgres.log");
        let identifying_arguments = identifying_arguments(&cluster.data_dir());
        Ok(Self { cluster, durability: config.durability, port, log, identifying_arguments, passwords })
    }

    /// Creates the roles, the database and the schemas.
    pub(crate) async fn create_roles(&self) -> Result<(), StartError> {
        roles::create(self).await.map_err(StartError::Roles)
    }

    /// The URL of a database for a role.
    pub(crate) fn url(&self, role: PostgresRole, database: &str) -> String {
        let (name, password) = (role.name(), self.passwords.of(role));
        format!("postgres://{name}:{password}@127.0.0.1:{}/{database}", self.port.number())
    }
}

impl Server for Postgres {
    const NAME: &'static str = "Postgres";
    // Fast shutdown, which closes connections; then immediate shutdown, which requires recovery at the next start.
    const STOP: &'static [StopStep] =
        &[(Signal::INT, Duration::from_secs(20)), (Signal::QUIT, Duration::from_secs(5))];

    fn command(&self) -> Command {
        let mut command = self.cluster.command("postgres");
        command.arg("-D").arg(self.cluster.data_dir());
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
        self.cluster.data_dir().join("postmaster.pid")
    }

    fn identifying_arguments(&self) -> &str {
        &self.identifying_arguments
    }

    fn port(&self) -> &StoredPort {
        &self.port
    }

    async fn is_responding(&self) -> bool {
        let ping = async {
            let mut connection =
                PgConnection::connect(&self.url(PostgresRole::Superuser, "postgres")).await?;
            connection.ping().await?;
            connection.close().await
        };
        matches!(tokio::time::timeout(Duration::from_secs(5), ping).await, Ok(Ok(())))
    }
}
