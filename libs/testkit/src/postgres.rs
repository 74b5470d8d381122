//! A database for one test on the server that `make test` started. Migrations run as the migrator roles, tests as the runtime
//! roles: the superuser bypasses row-level security.

use std::str::FromStr as _;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use database::migrations::{Migrations, Version};
use database::{Database, DatabaseAccess};
use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection as _};
use tokio::sync::OnceCell;
use url::Url;
use uuid::Uuid;

const SCHEMAS: &str = include_str!("../../../deploy/postgres/schemas.sql");
// Embedded here so that tests of a library do not link the services.
const MIGRATIONS: [Migrations; 2] = [
    Migrations { schema: "identity", migrator: &IDENTITY },
    Migrations { schema: "session", migrator: &SESSION },
];
static IDENTITY: sqlx::migrate::Migrator = sqlx::migrate!("../../services/identity/migrations");
static SESSION: sqlx::migrate::Migrator = sqlx::migrate!("../../services/session/migrations");

/// A new database with both schemas. After the last clone is dropped, the next [`TestDatabase::create`] deletes it.
#[derive(Clone)]
pub struct TestDatabase(Arc<DatabaseName>);

struct DatabaseName {
    server: Url,
    name: String,
}

impl TestDatabase {
    /// Creates a database on the server in `SVC_TEST_DATABASE_URL`, where all roles have the password of the superuser.
    pub async fn create() -> anyhow::Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "the address of the test server")]
        let server = std::env::var("SVC_TEST_DATABASE_URL");
        let server =
            Url::parse(&server.context("SVC_TEST_DATABASE_URL is not set: run the tests with `make test`")?)?;
        let template = TEMPLATE.get_or_try_init(|| template(&server)).await?;
        Self::create_from(server, template).await
    }

    /// Creates a database on another server, where no role needs a password.
    pub async fn create_on(server: &Url) -> anyhow::Result<Self> {
        Self::create_from(server.clone(), &template(server).await?).await
    }

    async fn create_from(server: Url, template: &str) -> anyhow::Result<Self> {
        let name = format!("test_{}", Uuid::now_v7().simple());
        let mut connection = connect(&server).await?;
        let unused = std::mem::take(&mut *UNUSED.lock());
        for name in unused {
            execute(&mut connection, format!("drop database if exists {name} with (force)")).await?;
        }
        execute(&mut connection, format!("create database {name} template {template}")).await?;
        let database = Self(Arc::new(DatabaseName { server, name }));
        let mut connection = PgConnection::connect(&database.superuser_url()).await?;
        // The right to connect is not copied with the template.
        sqlx::raw_sql(SCHEMAS).execute(&mut connection).await?;
        Ok(database)
    }

    /// The URL for a role: `svc_identity`, `svc_session` or a migrator.
    pub fn url(&self, role: &str) -> String {
        role_url(&self.0.server, role, &self.0.name)
    }

    /// The URL for the superuser, to inspect the result of a test.
    pub fn superuser_url(&self) -> String {
        database_url(&self.0.server, &self.0.name)
    }

    /// A pool as a runtime role.
    pub fn pool(&self, role: &str) -> anyhow::Result<Database> {
        let schema = if role.starts_with("svc_session") { "session" } else { "identity" };
        Ok(Database::new(&self.url(role), schema)?)
    }

    /// A connection as the superuser, to inspect the result of a test.
    pub async fn superuser(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect(&self.superuser_url()).await?)
    }
}

/// Databases to delete. Several hundred of 10 MB each would fill a small disk.
static UNUSED: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Drop for DatabaseName {
    fn drop(&mut self) {
        // Not deleted here: that would block the test's runtime, and a connection that is being opened would block the
        // server for a minute.
        UNUSED.lock().push(std::mem::take(&mut self.name));
    }
}

static TEMPLATE: OnceCell<String> = OnceCell::const_new();

/// The name of the migrated template database. Copying it is several times faster than migrating.
async fn template(server: &Url) -> anyhow::Result<String> {
    let migrations: Vec<_> = MIGRATIONS.iter().flat_map(Migrations::complete).collect();
    // A hash that identifies the set of migrations.
    let digest =
        migrations.iter().flat_map(|migration| migration.checksum.iter()).fold(0_u64, |digest, byte| {
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
        let unfinished = format!("{name}_unfinished");
        execute(&mut connection, format!("drop database if exists {unfinished}")).await?;
        // Another order of texts than that of their bytes, as on many servers of users.
        let locale = "locale_provider icu icu_locale 'en-US' lc_collate 'C' lc_ctype 'C' encoding 'UTF8'";
        execute(&mut connection, format!("create database {unfinished} template template0 {locale}")).await?;
        let mut inside = PgConnection::connect(&database_url(server, &unfinished)).await?;
        sqlx::raw_sql(SCHEMAS).execute(&mut inside).await?;
        inside.close().await?;
        for migration in MIGRATIONS {
            let role = format!("svc_{}_migrator", migration.schema);
            let version = migration.up(&DatabaseAccess::fixed(&role_url(server, &role, &unfinished))).await?;
            ensure!(matches!(version, Version::Accepted(_)), "{version}");
        }
        execute(&mut connection, format!("alter database {unfinished} rename to {name}")).await?;
    }
    // Closing the connection releases the advisory lock.
    connection.close().await?;
    Ok(name)
}

async fn connect(server: &Url) -> anyhow::Result<PgConnection> {
    let options = PgConnectOptions::from_str(server.as_str())?.database("postgres");
    PgConnection::connect_with(&options)
        .await
        .context("failed to connect to the test server: run the tests with `make test`")
}

async fn execute(connection: &mut PgConnection, statement: String) -> anyhow::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await?;
    Ok(())
}

fn database_url(server: &Url, database: &str) -> String {
    let mut url = server.clone();
    url.set_path(database);
    url.into()
}

fn role_url(server: &Url, role: &str, database: &str) -> String {
    let mut url = server.clone();
    url.set_path(database);
    // Cannot fail: the URL has a host.
    let _ = url.set_username(role);
    url.into()
}
