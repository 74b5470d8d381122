//! Migrations go forward only: first expand, in a later release contract. A binary therefore runs on its own schema version
//! N and on N + 1, so that an upgrade and a rollback work under load.

use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use service::config::{ConfigErrors, EXIT_CONFIG, Environment, Reader, Variable};
use service::health::Readiness;
use service::process::report_config_errors;
use service::{Tasks, chain};
use sqlx::Connection as _;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgConnection};

use crate::{DATABASE_URL, Database, Error};

/// The URL that `migrate up` uses.
pub const MIGRATOR_DATABASE_URL: Variable = Variable {
    name: "SVC_MIGRATOR_DATABASE_URL",
    form: "postgres://user:password@host:port/database",
    default: None,
    secret: true,
    meaning: "URL of the Postgres database, with the migrator role of the service. Only `migrate up` reads it.",
};

/// Interval at which a process checks the lock of another migration, or the schema version.
const POLL: Duration = Duration::from_millis(500);

/// Timeout of one attempt of `migrate up` to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Subcommands of `migrate`.
#[derive(Clone, Copy, Debug, clap::Subcommand)]
pub enum Command {
    /// Wait for the database, and run missing migrations as the migrator role
    Up,
    /// Compare the schema with this binary; exit code 1 if the binary cannot run on it
    Status,
    /// Wait until the database is available and migrated
    Wait,
}

/// The migrations of one schema.
#[derive(Clone, Copy)]
pub struct Migrations {
    /// The schema of the service.
    pub schema: &'static str,
    /// The migrations that `sqlx::migrate!` embedded.
    pub migrator: &'static Migrator,
}

/// Schema version of a database in relation to a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The binary can run on it.
    Accepted(i64),
    /// The schema is too old: run the migrations.
    Behind {
        /// The applied version, or 0.
        applied: i64,
        /// The version that the binary needs.
        needed: i64,
    },
    /// The schema is more than one version ahead: the binary is too old.
    Ahead {
        /// The applied version.
        applied: i64,
        /// The version that the binary was built for.
        needed: i64,
    },
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Accepted(applied) => write!(f, "schema version {applied}: accepted"),
            Self::Behind { applied, needed } => {
                write!(f, "schema version {applied}, but {needed} is needed: run `migrate up`")
            }
            Self::Ahead { applied, needed } => {
                write!(
                    f,
                    "schema version {applied}, but this binary was built for {needed}: use a newer binary"
                )
            }
        }
    }
}

/// The migrations did not complete.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// A query failed.
    #[error("failed to query the database")]
    Database(#[from] Error),
    /// A migration failed, or an applied migration has changed.
    #[error("failed to run migrations")]
    Failed(#[from] MigrateError),
}

#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error(transparent)]
    Migration(#[from] MigrationError),
}

impl From<sqlx::Error> for MigrationError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error.into())
    }
}

impl Migrations {
    /// Runs a subcommand and prints its result to standard error.
    pub async fn execute(&self, command: Command, environment: &Environment) -> ExitCode {
        match self.try_execute(command, environment).await {
            Ok(Version::Accepted(version)) => {
                eprintln!("{}: {}", self.schema, Version::Accepted(version));
                ExitCode::SUCCESS
            }
            Ok(version) => {
                eprintln!("{}: {version}", self.schema);
                // A Job does not retry after the exit code of a configuration error, because a retry would fail too.
                if matches!(command, Command::Up) { ExitCode::from(EXIT_CONFIG) } else { ExitCode::FAILURE }
            }
            Err(CommandError::Config(errors)) => report_config_errors(&errors),
            Err(CommandError::Migration(error)) => {
                eprintln!("{}: {}", self.schema, chain(&error));
                ExitCode::FAILURE
            }
        }
    }

    async fn try_execute(
        &self,
        command: Command,
        environment: &Environment,
    ) -> Result<Version, CommandError> {
        let variable = if matches!(command, Command::Up) { MIGRATOR_DATABASE_URL } else { DATABASE_URL };
        let mut read = Reader::new(environment);
        let url = read.required::<String>(&variable);
        let url = read.finish(|| url)?;
        let report = |state| eprintln!("{}: waiting: {state}", self.schema);
        if matches!(command, Command::Up) {
            self.wait_for_database(&url, report).await?;
            return Ok(self.up(&url).await?);
        }
        let database = Database::new(&url, self.schema).map_err(MigrationError::from)?;
        if matches!(command, Command::Wait) {
            self.wait(&database, report).await;
        }
        let mut connection = database.pool().acquire().await.map_err(MigrationError::from)?;
        Ok(self.version(&mut connection).await.map_err(MigrationError::from)?)
    }

    /// Returns the version that the binary was built for.
    pub fn needed(&self) -> i64 {
        self.migrator.iter().map(|migration| migration.version).max().unwrap_or(0)
    }

    fn table(&self) -> String {
        format!("{}.schema_migrations", self.schema)
    }

    /// Waits until the database accepts connections. Calls `report` with the state whenever it changes.
    ///
    /// # Errors
    /// The URL or the database is wrong, for example the password.
    async fn wait_for_database(
        &self,
        url: &str,
        mut report: impl FnMut(String),
    ) -> Result<(), MigrationError> {
        let options = PgConnectOptions::from_str(url)?;
        let mut last = String::new();
        loop {
            let timed_out = |_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
            let attempt = tokio::time::timeout(CONNECT_TIMEOUT, PgConnection::connect_with(&options)).await;
            match attempt.unwrap_or_else(timed_out).map_err(Error::from) {
                Ok(connection) => return Ok(connection.close().await?),
                Err(error @ Error::Unavailable(_)) => {
                    let state = chain(&error);
                    if state != last {
                        report(state.clone());
                        last = state;
                    }
                }
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Runs missing migrations, one process at a time. Does nothing on a schema that is one version ahead.
    ///
    /// # Errors
    /// A query or a migration failed. The migrations before it are applied.
    pub async fn up(&self, url: &str) -> Result<Version, MigrationError> {
        let mut connection = PgConnection::connect_with(&PgConnectOptions::from_str(url)?).await?;
        self.lock(&mut connection).await?;
        let mut migrator = Migrator {
            migrations: self.migrator.migrations.clone(),
            ignore_missing: true,
            // `lock` polls instead: a session that waits inside `pg_advisory_lock` holds a snapshot, which blocks
            // `create index concurrently` of the running migration.
            locking: false,
            ..Migrator::DEFAULT
        };
        migrator.dangerous_set_table_name(self.table());
        migrator.run(&mut connection).await?;
        let version = self.version(&mut connection).await?;
        connection.close().await?;
        Ok(version)
    }

    /// Compares the schema with this binary. The schema must exist, even without migrations.
    ///
    /// # Errors
    /// The query failed.
    pub async fn version(&self, connection: &mut PgConnection) -> Result<Version, Error> {
        let (needed, table) = (self.needed(), self.table());
        let exists: bool = sqlx::query_scalar("select to_regclass($1) is not null")
            .bind(&table)
            .fetch_one(&mut *connection)
            .await?;
        let applied = if exists {
            let latest = format!("select coalesce(max(version), 0) from {table} where success");
            sqlx::query_scalar(sqlx::AssertSqlSafe(latest)).fetch_one(connection).await?
        } else {
            0
        };
        Ok(match applied {
            _ if applied < needed => Version::Behind { applied, needed },
            _ if applied > needed + 1 => Version::Ahead { applied, needed },
            _ => Version::Accepted(applied),
        })
    }

    /// Waits until the database is available and its version is accepted. Calls `report` with the state whenever it changes.
    pub async fn wait(&self, database: &Database, mut report: impl FnMut(String)) {
        let mut last = String::new();
        loop {
            let state = match database.pool().acquire().await {
                Ok(mut connection) => self.version(&mut connection).await,
                Err(error) => Err(error.into()),
            };
            let state = match state {
                Ok(Version::Accepted(_)) => return,
                Ok(version) => version.to_string(),
                Err(error) => chain(&error),
            };
            if state != last {
                report(state.clone());
                last = state;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Closes the readiness gate `schema` until the database is available and its version is accepted.
    pub fn gate(&self, database: &Database, tasks: &Tasks, readiness: &Readiness) {
        let (migrations, database, gate) = (*self, database.clone(), readiness.gate("schema"));
        let stopping = tasks.stopping().clone();
        tasks.spawn_short(async move {
            let report = |state| tracing::warn!(schema = migrations.schema, state, "waiting for database");
            tokio::select! {
                () = migrations.wait(&database, report) => gate.open(),
                () = stopping.cancelled() => {}
            }
        });
    }

    async fn lock(&self, connection: &mut PgConnection) -> Result<(), Error> {
        loop {
            let acquired: bool = sqlx::query_scalar("select pg_try_advisory_lock(hashtextextended($1, 0))")
                .bind(self.table())
                .fetch_one(&mut *connection)
                .await?;
            if acquired {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
    }
}
