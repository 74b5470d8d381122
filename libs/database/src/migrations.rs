//! Migrations go forward only: first expand, in a later release contract. Each migration declares the oldest binaries that run on
//! it. The database stores the declarations, so that an older binary knows whether it runs on a newer schema, and an upgrade and a
//! rollback over several migrations work under load.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use service::config::{ConfigErrors, EXIT_CONFIG, Environment, Reader, Variables as _};
use service::health::Readiness;
use service::process::CommandResult;
use service::{Tasks, chain};
use sqlx::migrate::{MigrateError, Migration, Migrator};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _, SqlSafeStr as _};
use tokio::time::Instant;

pub use crate::access::{MIGRATOR_DATABASE_LOGIN, MIGRATOR_DATABASE_URL};
use crate::{Database, DatabaseAccess, Error};

/// Interval at which a process checks the lock of another migration, or the schema version.
const POLL: Duration = Duration::from_millis(500);

/// Timeout of one attempt of `migrate up` to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Age of a process from which `migrate up` starts no migration of a named Job. The environment of a container is fixed when it starts,
/// so a longer wait could run the migration of a release that has been replaced meanwhile.
const MAX_AGE: Duration = Duration::from_secs(30);

/// Exit code of a migration that waited longer than `MAX_AGE` (`EX_TEMPFAIL` of sysexits.h). The Job replaces the pod without counting a
/// failure, and the new pod reads which Job is the current one.
const EXIT_TOO_OLD: u8 = 75;

/// Exit code if the database is not available, so that nothing is known about its schema (`EX_UNAVAILABLE` of sysexits.h).
const EXIT_UNAVAILABLE: u8 = 69;

/// Lines of migrations that include a file, and the file. In it, the name of the schema replaces [`SCHEMA`].
const INCLUDES: [(&str, &str); 1] = [("-- include: outbox_1.sql\n", include_str!("outbox/outbox_1.sql"))];
const SCHEMA: &str = "{schema}";

/// First line of a migration: binaries that were built for this schema version or a later one run on the schema after it.
const OLDEST_BINARY: &str = "-- oldest-binary: ";

/// Subcommands of `migrate`.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// Wait for the database, and run missing migrations as the migrator role
    Up(Job),
    /// Compare the schema with this binary; exit code 1 if the binary cannot run on it, 69 if the database is not available
    Status,
    /// Wait until the database is available and migrated
    Wait,
}

/// The Job that runs `migrate up`. A Job of an abandoned upgrade can start much later, for example when its image appears in the
/// registry. It must not migrate the database of the release that is active then.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Job {
    /// Name of the Job that runs this command
    #[arg(long = "job", value_name = "NAME", requires = "current")]
    name: Option<String>,
    /// Name of the Job of the current release; with another --job, no migration runs
    #[arg(long = "current-job", value_name = "NAME", requires = "name")]
    current: Option<String>,
}

impl Job {
    /// Returns the name of the current Job if it is not the one that runs this command.
    fn superseded_by(&self) -> Option<&str> {
        self.current.as_deref().filter(|_| self.current != self.name)
    }

    /// Checks that the process is young enough to know which Job is the current one.
    fn check_age(&self, age: Duration) -> Result<(), MigrationError> {
        if self.name.is_some() && age >= MAX_AGE { Err(MigrationError::TooOld) } else { Ok(()) }
    }
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
    /// The schema does not support the binary any more.
    Ahead {
        /// The applied version.
        applied: i64,
        /// The oldest version for which a binary must be built.
        oldest: i64,
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
            Self::Ahead { applied, oldest, needed } => {
                write!(
                    f,
                    "schema version {applied} supports binaries of version {oldest} and later, but this binary was built for \
                        {needed}: use a newer binary"
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
    /// The process waited too long to know that its Job is still the current one.
    #[error("started {} s ago, so another release can be the current one by now: start again", MAX_AGE.as_secs())]
    TooOld,
    /// Two open connections have the same server process.
    #[error(
        "the URL leads to a pooler that gives a connection to each transaction or statement: set it to mode `session` \
         (PgBouncer: pool_mode = session), or connect to Postgres directly"
    )]
    SharedConnections,
    /// A service has a role to which row-level security does not apply.
    #[error(
        "the role {role} {privilege}, so row-level security does not apply to it: SVC_DATABASE_URL must have the runtime role of the \
         service, such as svc_{schema}"
    )]
    PrivilegedRole {
        /// The role of the connection.
        role: String,
        /// What the role is or has.
        privilege: String,
        /// The schema of the service.
        schema: &'static str,
    },
    /// Tables that this role creates would belong to another role than those of other migrations.
    #[error(
        "the role {role} does not own the schema {schema}, {owner} does: SVC_MIGRATOR_DATABASE_URL must have \
         svc_{schema}_migrator, and this role must own the schema (alter schema {schema} owner to svc_{schema}_migrator)"
    )]
    NotOwner {
        /// The role of the connection.
        role: String,
        /// The owner of the schema.
        owner: String,
        /// The schema.
        schema: &'static str,
    },
    /// A migration does not declare which binaries run on it. The first one cannot have older binaries.
    #[error("migration {0} must begin with the line `{OLDEST_BINARY}<version>`")]
    Undeclared(i64),
}

impl MigrationError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::TooOld => ExitCode::from(EXIT_TOO_OLD),
            Self::SharedConnections | Self::PrivilegedRole { .. } | Self::NotOwner { .. } => {
                ExitCode::from(EXIT_CONFIG)
            }
            Self::Database(_) => ExitCode::from(EXIT_UNAVAILABLE),
            Self::Failed(_) | Self::Undeclared(_) => ExitCode::FAILURE,
        }
    }
}

impl From<sqlx::Error> for MigrationError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error.into())
    }
}

impl Migrations {
    /// Returns the migrations with the files that they include. Their checksums are those of the whole text.
    pub fn complete(&self) -> Vec<Migration> {
        let complete = |migration: &Migration| {
            let with_file = |sql: String, (line, file): (&str, &str)| {
                if sql.contains(line) { sql.replace(line, &file.replace(SCHEMA, self.schema)) } else { sql }
            };
            let sql = INCLUDES.into_iter().fold(migration.sql.as_str().to_owned(), with_file);
            let (description, kind) = (migration.description.clone(), migration.migration_type);
            Migration::new(
                migration.version,
                description,
                kind,
                AssertSqlSafe(sql).into_sql_str(),
                migration.no_tx,
            )
        };
        self.migrator.iter().map(complete).collect()
    }

    /// Runs a subcommand and prints its result to standard error.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub async fn execute(&self, command: Command, environment: &Environment) -> CommandResult {
        let up = match &command {
            Command::Up(job) => Some(job.clone()),
            Command::Status | Command::Wait => None,
        };
        if let Some(current) = up.as_ref().and_then(Job::superseded_by) {
            eprintln!(
                "{}: no migration runs, because the current release has another Job: {current}",
                self.schema
            );
            return Ok(ExitCode::SUCCESS);
        }
        Ok(match self.try_execute(command, environment).await? {
            Ok(Version::Accepted(version)) => {
                eprintln!("{}: {}", self.schema, Version::Accepted(version));
                ExitCode::SUCCESS
            }
            Ok(version) => {
                eprintln!("{}: {version}", self.schema);
                // A Job does not retry after the exit code of a configuration error, because a retry would fail too.
                if up.is_some() { ExitCode::from(EXIT_CONFIG) } else { ExitCode::FAILURE }
            }
            Err(error) => {
                eprintln!("{}: {}", self.schema, chain(&error));
                error.exit_code()
            }
        })
    }

    async fn try_execute(
        &self,
        command: Command,
        environment: &Environment,
    ) -> Result<Result<Version, MigrationError>, ConfigErrors> {
        let started = Instant::now();
        let report = |state| eprintln!("{}: waiting: {state}", self.schema);
        if let Command::Up(job) = &command {
            let mut reader = Reader::new(environment);
            let access = DatabaseAccess::for_migrator(&mut reader);
            let access = reader.finish(|| access)?;
            let up = async {
                self.wait_for_database(&access, report).await?;
                self.up_if(&access, || job.check_age(started.elapsed())).await
            };
            return Ok(up.await);
        }
        let access = DatabaseAccess::load(environment)?;
        let compare = async {
            let database = Database::connect(access, self.schema)?;
            if matches!(command, Command::Wait) {
                self.wait(&database, report).await;
            }
            self.version_of(&database).await
        };
        Ok(compare.await)
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
        access: &DatabaseAccess,
        mut report: impl FnMut(String),
    ) -> Result<(), MigrationError> {
        let options = access.options()?;
        let mut last = String::new();
        loop {
            let timed_out = |_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
            let attempt = tokio::time::timeout(CONNECT_TIMEOUT, PgConnection::connect_with(&options)).await;
            match attempt.unwrap_or_else(timed_out).map_err(Error::from) {
                Ok(connection) => return Ok(connection.close().await?),
                Err(error @ Error::Unavailable(_)) if !error.rejects_credential() => {
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

    /// Runs missing migrations, one process at a time. Does nothing on a newer schema.
    ///
    /// # Errors
    /// A query or a migration failed. The migrations before it are applied. Or a migration declares no oldest binary, or the role does
    /// not own the schema.
    pub async fn up(&self, access: &DatabaseAccess) -> Result<Version, MigrationError> {
        self.up_if(access, || Ok(())).await
    }

    /// Like `up`. Calls `check` when no other process runs migrations, and runs none after an error.
    async fn up_if(
        &self,
        access: &DatabaseAccess,
        check: impl FnOnce() -> Result<(), MigrationError>,
    ) -> Result<Version, MigrationError> {
        let migrations = self.complete();
        let declared: Vec<_> = migrations.iter().map(oldest_binary).collect::<Result<_, _>>()?;
        // A migration takes as long as its tables are large: no statement of it is too slow.
        let options = access.options()?.disable_statement_logging();
        let mut connection = PgConnection::connect_with(&options).await?;
        let mut second = PgConnection::connect_with(&options).await?;
        check_pooler(&mut connection, &mut second).await?;
        second.close().await?;
        self.check_owner(&mut connection).await?;
        self.lock(&mut connection).await?;
        check()?;
        let mut migrator = Migrator {
            ignore_missing: true,
            // `lock` polls instead: a session that waits inside `pg_advisory_lock` holds a snapshot, which blocks
            // `create index concurrently` of the running migration.
            locking: false,
            ..Migrator::DEFAULT
        };
        migrator.dangerous_set_table_name(self.table());
        // One after the other: an older binary that starts during a long migration needs the declarations of those before it.
        for (index, oldest) in declared.into_iter().enumerate() {
            migrator.migrations = migrations[..=index].to_vec().into();
            migrator.run(&mut connection).await?;
            self.declare(&mut connection, migrations[index].version, oldest).await?;
        }
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
        let (applied, oldest): (i64, i64) = if exists {
            // A version without a declaration supports its own binaries only.
            let latest = format!(
                "select coalesce(max(version), 0), \
                 coalesce(max(coalesce((to_jsonb(m) ->> 'oldest_binary')::bigint, version)) filter (where version > $1), 0) \
                 from {table} m where success"
            );
            sqlx::query_as(AssertSqlSafe(latest)).bind(needed).fetch_one(connection).await?
        } else {
            (0, 0)
        };
        Ok(match applied {
            _ if applied < needed => Version::Behind { applied, needed },
            _ if oldest > needed => Version::Ahead { applied, oldest, needed },
            _ => Version::Accepted(applied),
        })
    }

    /// Stores which binaries run on a version.
    async fn declare(
        &self,
        connection: &mut PgConnection,
        version: i64,
        oldest: i64,
    ) -> Result<(), sqlx::Error> {
        let table = self.table();
        // `alter table` would wait for a backup that reads the table, and all statements behind it.
        let statements = format!(
            "do $$ begin
                if not exists (
                    select from pg_catalog.pg_attribute where attrelid = '{table}'::regclass and attname = 'oldest_binary'
                ) then
                    alter table {table} add column oldest_binary bigint;
                end if;
             end $$; \
             update {table} set oldest_binary = {oldest} where version = {version} and oldest_binary is distinct from {oldest}"
        );
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(connection).await.map(|_| ())
    }

    /// Waits until the database is available and its version is accepted. Calls `report` with the state whenever it changes.
    pub async fn wait(&self, database: &Database, mut report: impl FnMut(String)) {
        let mut last = String::new();
        loop {
            let state = match self.version_of(database).await {
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

    async fn version_of(&self, database: &Database) -> Result<Version, MigrationError> {
        let (mut connection, mut second) =
            (database.pool().acquire().await?, database.pool().acquire().await?);
        check_pooler(&mut connection, &mut second).await?;
        drop(second);
        check_runtime_role(self.schema, &mut connection).await?;
        Ok(self.version(&mut connection).await?)
    }

    /// Checks that the tables of a migration will belong to the owner of the schema.
    async fn check_owner(&self, connection: &mut PgConnection) -> Result<(), MigrationError> {
        let other: Option<(String, String)> = sqlx::query_as(
            "select
                current_user::text,
                pg_get_userbyid(nspowner)::text
            from pg_catalog.pg_namespace
            where nspname = $1 and pg_get_userbyid(nspowner) <> current_user",
        )
        .bind(self.schema)
        .fetch_optional(connection)
        .await?;
        match other {
            Some((role, owner)) => Err(MigrationError::NotOwner { role, owner, schema: self.schema }),
            None => Ok(()),
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

/// Checks that row-level security applies to the role of a service: policies of the owner of the schema are for all tenants.
pub(crate) async fn check_runtime_role(
    schema: &'static str,
    connection: &mut PgConnection,
) -> Result<(), MigrationError> {
    let privileged: Option<(String, String)> = sqlx::query_as(
        "select
            rolname::text,
            case
                when rolsuper then 'is a superuser'
                when rolbypassrls then 'has BYPASSRLS'
                else 'has the privileges of the migrator role'
            end
        from pg_catalog.pg_roles
        where rolname = current_user and (
            rolsuper or rolbypassrls
            or exists (select from pg_catalog.pg_namespace where nspname = $1 and pg_has_role(nspowner, 'usage'))
            or exists (
                select from pg_catalog.pg_roles as migrator
                where migrator.rolname = format('svc_%s_migrator', $1) and pg_has_role(migrator.oid, 'usage')
            )
        )",
    )
    .bind(schema)
    .fetch_optional(connection)
    .await?;
    match privileged {
        Some((role, privilege)) => Err(MigrationError::PrivilegedRole { role, privilege, schema }),
        None => Ok(()),
    }
}

/// Number of comparisons of two connections. A pooler can give them different server processes by chance, while others are in use.
const COMPARISONS: usize = 10;

/// Checks that each of two open connections has a server process. A pooler that shares one between them loses the state of a session:
/// prepared statements and advisory locks.
async fn check_pooler(first: &mut PgConnection, second: &mut PgConnection) -> Result<(), MigrationError> {
    let (mut of_first, mut of_second) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..COMPARISONS {
        for (connection, processes) in [(&mut *first, &mut of_first), (&mut *second, &mut of_second)] {
            // The simple protocol, which needs no prepared statement.
            let row = sqlx::raw_sql("select pg_backend_pid()").fetch_one(connection).await?;
            processes.insert(row.try_get::<i32, _>(0)?);
        }
    }
    if of_first.is_disjoint(&of_second) { Ok(()) } else { Err(MigrationError::SharedConnections) }
}

/// Returns the version that the first line of a migration declares.
fn oldest_binary(migration: &Migration) -> Result<i64, MigrationError> {
    let declared = migration.sql.as_str().lines().next().and_then(|line| line.strip_prefix(OLDEST_BINARY));
    match declared.and_then(|version| version.trim().parse().ok()) {
        Some(oldest) if oldest <= migration.version => Ok(oldest),
        None if declared.is_none() && migration.version == 1 => Ok(1),
        _ => Err(MigrationError::Undeclared(migration.version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, current: &str) -> Job {
        Job { name: Some(name.to_owned()), current: Some(current.to_owned()) }
    }

    #[test]
    fn only_the_job_of_the_current_release_migrates() {
        assert_eq!(job("migrate-2", "migrate-3").superseded_by(), Some("migrate-3"));
        assert_eq!(job("migrate-3", "migrate-3").superseded_by(), None);
        assert_eq!(Job::default().superseded_by(), None);
    }

    #[test]
    fn only_a_comparison_or_a_migration_that_failed_ends_with_exit_code_1() {
        let privileged = MigrationError::PrivilegedRole {
            role: "postgres".to_owned(),
            privilege: "is a superuser".to_owned(),
            schema: "session",
        };
        let not_owner = MigrationError::NotOwner {
            role: "postgres".to_owned(),
            owner: "svc_session_migrator".to_owned(),
            schema: "session",
        };
        for (error, code) in [
            (MigrationError::from(sqlx::Error::PoolTimedOut), 69),
            (privileged, 64),
            (not_owner, 64),
            (MigrationError::SharedConnections, 64),
            (MigrationError::Undeclared(2), 1),
        ] {
            assert_eq!(error.exit_code(), ExitCode::from(code), "{error}");
        }
    }

    #[test]
    fn a_job_that_waited_long_starts_again_to_read_which_job_is_the_current_one() {
        let error = job("migrate-2", "migrate-2").check_age(MAX_AGE).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::from(75));
        assert!(job("migrate-2", "migrate-2").check_age(Duration::from_secs(29)).is_ok());
        assert!(Job::default().check_age(Duration::MAX).is_ok());
    }
}
