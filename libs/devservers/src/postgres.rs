//! A private Postgres cluster on loopback with password authentication.

mod cluster;
mod scram;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::data_dir::DataDir;
use crate::process::{self, StopStep};
use crate::server::{Instance, Server, StartError, StoredPort};
use crate::{ServersConfig, secret};
use cluster::Cluster;

const ROLES: &str = include_str!("../../../deploy/postgres/roles.sql");
const SCHEMAS: &str = include_str!("../../../deploy/postgres/schemas.sql");
/// The database of the services.
const DATABASE: &str = "svc";

/// A role of Postgres.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PostgresRole {
    /// The superuser. No service uses it.
    Superuser,
    /// Migrates the schema `identity`.
    IdentityMigrator,
    /// The runtime role of identity.
    Identity,
    /// Migrates the schema `session`.
    SessionMigrator,
    /// The runtime role of session.
    Session,
}

impl PostgresRole {
    const SERVICES: [Self; 4] =
        [Self::IdentityMigrator, Self::Identity, Self::SessionMigrator, Self::Session];

    /// The name of the role.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Superuser => "postgres",
            Self::IdentityMigrator => "svc_identity_migrator",
            Self::Identity => "svc_identity",
            Self::SessionMigrator => "svc_session_migrator",
            Self::Session => "svc_session",
        }
    }
}

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
            Self::Temporary => {
                &["max_connections=500", "fsync=off", "synchronous_commit=off", "full_page_writes=off"]
            }
        }
    }
}

/// The file of the process id in the directory of the cluster.
const PID: &str = "postmaster.pid";
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
            process::stop_orphan(&data_dir.join(PID), &arguments, Postgres::STOP).await
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
    instance: Instance,
    passwords: Passwords,
}

impl Postgres {
    /// Stops the Postgres of an earlier run and creates the cluster if it does not exist.
    pub(crate) async fn prepare(
        config: &ServersConfig,
        cancel: &CancellationToken,
    ) -> Result<Self, StartError> {
        let passwords = load_passwords(&config.data.secrets(), config.durability);
        let passwords = passwords.context("failed to read the passwords of Postgres")?;
        let cluster = Cluster::open(&link(&config.data), &config.tools, config.account).await?;
        // First, because its port would be taken otherwise.
        let stopped = stop_orphan(&config.data).await;
        stopped.context("failed to stop the Postgres of an earlier run")?;
        cluster.ensure(&passwords[&PostgresRole::Superuser], config.durability, cancel).await?;
        let port = StoredPort::load(config.data.root().join("postgres.port"));
        let port = port.context("failed to find a free port")?;
        let instance = Instance {
            log: config.data.logs().join("postgres.log"),
            pid_file: cluster.data_dir().join(PID),
            identifying_arguments: identifying_arguments(&cluster.data_dir()),
            port,
            monitor: None,
        };
        Ok(Self { cluster, durability: config.durability, instance, passwords })
    }

    /// Creates the roles, the database and the schemas.
    pub(crate) async fn create_roles(&self) -> anyhow::Result<()> {
        create_roles(self).await.context("failed to create the database roles and schemas")
    }

    /// The URL of a database for a role.
    pub(crate) fn url(&self, role: PostgresRole, database: &str) -> String {
        let (name, password) = (role.name(), &self.passwords[&role]);
        format!("postgres://{name}:{password}@127.0.0.1:{}/{database}", self.instance.port.number())
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
        command.arg("-c").arg(format!("port={}", self.instance.port.number()));
        for setting in SETTINGS.iter().chain(self.durability.settings()) {
            command.arg("-c").arg(setting);
        }
        command
    }

    fn instance(&self) -> &Instance {
        &self.instance
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

/// The passwords of the roles, in hexadecimal, so that neither SQL nor a URL needs quoting.
type Passwords = HashMap<PostgresRole, String>;

/// Reads or generates the passwords. All roles of a temporary cluster have the same password: tests derive the URLs of the
/// other roles from that of the superuser.
fn load_passwords(secrets: &Path, durability: Durability) -> io::Result<Passwords> {
    let load =
        |role: PostgresRole| secret::load_or_generate(&secrets.join(format!("postgres-{}", role.name())));
    let superuser = load(PostgresRole::Superuser)?;
    let mut passwords = HashMap::from([(PostgresRole::Superuser, superuser.clone())]);
    for role in PostgresRole::SERVICES {
        let is_persistent = durability == Durability::Persistent;
        passwords.insert(role, if is_persistent { load(role)? } else { superuser.clone() });
    }
    Ok(passwords)
}

/// Creates the roles, the database and the schemas. Idempotent.
async fn create_roles(postgres: &Postgres) -> Result<(), sqlx::Error> {
    // A database takes seconds on a slow disk, which is no warning for a person who starts the servers.
    let options = PgConnectOptions::from_str(&postgres.url(PostgresRole::Superuser, "postgres"))?;
    let mut server = options.disable_statement_logging().connect().await?;
    sqlx::raw_sql(ROLES).execute(&mut server).await?;
    for (role, password) in &postgres.passwords {
        let password = match postgres.durability {
            Durability::Persistent => password.clone(),
            // Tests open thousands of connections.
            Durability::Temporary => scram::fast_verifier(password),
        };
        let statement = format!("alter role {} password '{password}'", role.name());
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut server).await?;
    }
    let existing: Option<i32> = sqlx::query_scalar("select 1 from pg_database where datname = $1")
        .bind(DATABASE)
        .fetch_optional(&mut server)
        .await?;
    if existing.is_none() {
        sqlx::raw_sql(AssertSqlSafe(format!("create database {DATABASE}"))).execute(&mut server).await?;
    }
    server.close().await?;
    let mut database = PgConnection::connect(&postgres.url(PostgresRole::Superuser, DATABASE)).await?;
    sqlx::raw_sql(SCHEMAS).execute(&mut database).await?;
    database.close().await
}
