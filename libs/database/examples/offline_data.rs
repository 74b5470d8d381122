//! Writes the offline data of all checked queries to `.sqlx`. It migrates a new database on the server
//! `SVC_TEST_DATABASE_URL` and runs `cargo check` against it. `make gen` runs this program.

use std::path::Path;
use std::process::Command;

use database::migrations::Migrations;
use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use url::Url;

const DATABASE: &str = "offline_data";
const CONTEXTS: [&str; 2] = ["identity", "session"];

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    #[expect(clippy::disallowed_methods, reason = "the environment of `with-servers`")]
    let server =
        std::env::var("SVC_TEST_DATABASE_URL").map_err(|_| "run `make gen`: it starts the server")?;
    let url = migrated(&Url::parse(&server)?, &root).await?;

    // Moved into place when complete: a failed run keeps the old data.
    let (offline, place) = (root.join("target/offline-data"), root.join(".sqlx"));
    remove_if_there(&offline)?;
    std::fs::create_dir_all(&offline)?;
    // From the PATH, because with rustup this program selects the toolchain.
    let mut check = Command::new("cargo");
    check.args(["check", "--quiet"]).current_dir(&root);
    for context in CONTEXTS {
        check.args(["--package", context]);
        // Cargo does not check an unchanged library again, and its queries would write no data.
        let library = root.join("services").join(context).join("src/lib.rs");
        let touched = Command::new("touch").arg(library).status()?;
        if !touched.success() {
            return Err("failed to touch a library".into());
        }
    }
    check.env_remove("SQLX_OFFLINE").env("DATABASE_URL", url.as_str()).env("SQLX_OFFLINE_DIR", &offline);
    if !check.status()?.success() {
        return Err("the queries do not match the migrations".into());
    }
    remove_if_there(&place)?;
    Ok(std::fs::rename(offline, place)?)
}

fn remove_if_there(directory: &Path) -> std::io::Result<()> {
    if directory.exists() { std::fs::remove_dir_all(directory) } else { Ok(()) }
}

/// Creates a database with both schemas and returns its URL for the superuser.
async fn migrated(server: &Url, root: &Path) -> Result<Url, BoxError> {
    let script = |name: &str| std::fs::read_to_string(root.join("deploy/postgres").join(name));
    let mut connection = PgConnection::connect(server.as_str()).await?;
    sqlx::raw_sql(AssertSqlSafe(script("roles.sql")?)).execute(&mut connection).await?;
    sqlx::raw_sql(AssertSqlSafe(format!("drop database if exists {DATABASE}")))
        .execute(&mut connection)
        .await?;
    sqlx::raw_sql(AssertSqlSafe(format!("create database {DATABASE}"))).execute(&mut connection).await?;
    let mut url = server.clone();
    url.set_path(DATABASE);
    let mut inside = PgConnection::connect(url.as_str()).await?;
    sqlx::raw_sql(AssertSqlSafe(script("schemas.sql")?)).execute(&mut inside).await?;
    for context in CONTEXTS {
        // Read at run time, because the services do not compile while the data is outdated.
        let migrator = Migrator::new(root.join("services").join(context).join("migrations")).await?;
        let migrations = Migrations { schema: context, migrator: Box::leak(Box::new(migrator)) };
        let role = format!("svc_{context}_migrator");
        sqlx::raw_sql(AssertSqlSafe(format!("alter role {role} password 'offline-data'")))
            .execute(&mut inside)
            .await?;
        let mut as_migrator = url.clone();
        let named =
            as_migrator.set_username(&role).and_then(|()| as_migrator.set_password(Some("offline-data")));
        named.map_err(|()| "the server URL has no host")?;
        migrations.up(as_migrator.as_str()).await?;
    }
    Ok(url)
}
