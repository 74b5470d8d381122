//! A database of a test's own, on the server that `make test` started: migrated as the migrators, used as the runtime
//! roles, never as the superuser, whom row-level security lets through.

use std::str::FromStr as _;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, ensure};
use database::Database;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection as _};
use url::Url;
use uuid::Uuid;

const ROLES: &str = include_str!("../../../deploy/postgres/roles.sql");
const SCHEMAS: &str = include_str!("../../../deploy/postgres/schemas.sql");
/// The server is thrown away after the tests and listens on loopback only.
const PASSWORD: &str = "only-for-tests";

/// A fresh database with both schemas. Once its last clone is gone, the next test's takes its place.
#[derive(Clone)]
pub struct TestDatabase(Arc<Inner>);

struct Inner {
    server: Url,
    name: String,
}

impl TestDatabase {
    /// Makes one on the server that `SVC_TEST_DATABASE_URL` names.
    pub async fn create() -> anyhow::Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "the test run's own environment")]
        let server = std::env::var("SVC_TEST_DATABASE_URL");
        let server =
            Url::parse(&server.context("run the tests with `make test`: it starts the servers they need")?)?;
        let template = template(&server).await?;
        let name = format!("test_{}", Uuid::now_v7().simple());
        let mut connection = connect(&server).await?;
        let dropped = std::mem::take(&mut *finished());
        for name in dropped {
            execute(&mut connection, format!("drop database if exists {name} with (force)")).await?;
        }
        execute(&mut connection, format!("create database {name} template {template}")).await?;
        let database = Self(Arc::new(Inner { server, name }));
        let mut connection = PgConnection::connect(&database.superuser_url()).await?;
        // Who may connect is said per database, and is not copied with a template.
        sqlx::raw_sql(SCHEMAS).execute(&mut connection).await?;
        Ok(database)
    }

    /// The address as a role: `svc_identity`, `svc_session`, or one of the migrators.
    pub fn url(&self, role: &str) -> String {
        of_role(&self.0.server, role, &self.0.name)
    }

    /// The address as the superuser, for looking at what a test has done.
    pub fn superuser_url(&self) -> String {
        of_database(&self.0.server, &self.0.name)
    }

    /// A pool as a runtime role.
    pub fn pool(&self, role: &str) -> anyhow::Result<Database> {
        let schema = if role.starts_with("svc_session") { "session" } else { "identity" };
        Ok(Database::new(&self.url(role), schema)?)
    }

    /// A connection of the superuser, for looking at what a test has done.
    pub async fn superuser(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect(&self.superuser_url()).await?)
    }
}

/// Databases that no test needs any more. A few hundred of ten megabytes would fill the disk of a small machine.
static FINISHED: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Drop for Inner {
    fn drop(&mut self) {
        // Not dropped here: that would stop the test's own runtime, and a connection that it is just opening would hold
        // up the server until it gives up the client, a minute later.
        finished().push(std::mem::take(&mut self.name));
    }
}

fn finished() -> std::sync::MutexGuard<'static, Vec<String>> {
    FINISHED.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The name of a migrated database that others are copied from: copying is a few times faster than migrating.
async fn template(server: &Url) -> anyhow::Result<String> {
    let migrations = [identity::MIGRATIONS, session::MIGRATIONS];
    let checksums = migrations.iter().flat_map(|m| m.migrator.iter()).flat_map(|m| m.checksum.iter());
    // Names the set of migrations; collisions would need two sets in one run.
    let digest = checksums.fold(0_u64, |digest, byte| {
        digest.rotate_left(5) ^ u64::from(*byte).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    let name = format!("template_{digest:016x}");

    let mut connection = connect(server).await?;
    sqlx::query("select pg_advisory_lock(hashtextextended('testkit template', 0))")
        .execute(&mut connection)
        .await?;
    let exists: bool = sqlx::query_scalar("select exists (select from pg_database where datname = $1)")
        .bind(&name)
        .fetch_one(&mut connection)
        .await?;
    if !exists {
        sqlx::raw_sql(ROLES).execute(&mut connection).await?;
        for role in ["svc_identity_migrator", "svc_identity", "svc_session_migrator", "svc_session"] {
            execute(&mut connection, format!("alter role {role} password '{PASSWORD}'")).await?;
        }
        let unfinished = format!("{name}_unfinished");
        execute(&mut connection, format!("drop database if exists {unfinished}")).await?;
        execute(&mut connection, format!("create database {unfinished}")).await?;
        let mut inside = PgConnection::connect(&of_database(server, &unfinished)).await?;
        sqlx::raw_sql(SCHEMAS).execute(&mut inside).await?;
        inside.close().await?;
        for migration in migrations {
            let role = format!("svc_{}_migrator", migration.schema);
            let version = migration.up(&of_role(server, &role, &unfinished)).await?;
            ensure!(matches!(version, database::migrations::Version::Accepted(_)), "{version}");
        }
        execute(&mut connection, format!("alter database {unfinished} rename to {name}")).await?;
    }
    // The lock goes with the connection.
    connection.close().await?;
    Ok(name)
}

async fn connect(server: &Url) -> anyhow::Result<PgConnection> {
    let options = PgConnectOptions::from_str(server.as_str())?.database("postgres");
    PgConnection::connect_with(&options)
        .await
        .context("the test server does not answer: run the tests with `make test`")
}

async fn execute(connection: &mut PgConnection, statement: String) -> anyhow::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await?;
    Ok(())
}

fn of_database(server: &Url, database: &str) -> String {
    let mut url = server.clone();
    url.set_path(database);
    url.into()
}

fn of_role(server: &Url, role: &str, database: &str) -> String {
    let mut url = server.clone();
    url.set_path(database);
    // An address with a host can hold both.
    let _ = url.set_username(role);
    let _ = url.set_password(Some(PASSWORD));
    url.into()
}
