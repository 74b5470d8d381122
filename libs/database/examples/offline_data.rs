//! Writes the offline data of every checked query into `.sqlx`: migrates a fresh database on the server that
//! `SVC_TEST_DATABASE_URL` names, then has cargo check the contexts against it. `make gen` runs it.

use std::path::Path;
use std::process::Command;

use database::migrations::Migrations;
use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use url::Url;

const DATABASE: &str = "offline_data";
const CONTEXTS: [&str; 2] = ["identity", "session"];

type Fault = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Fault> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    #[expect(clippy::disallowed_methods, reason = "the environment of `with-servers`")]
    let server =
        std::env::var("SVC_TEST_DATABASE_URL").map_err(|_| "run `make gen`: it starts the server")?;
    let url = migrated(&Url::parse(&server)?, &root).await?;

    // Put in place once it is whole: a failed run leaves the old data alone.
    let (offline, place) = (root.join("target/offline-data"), root.join(".sqlx"));
    remove_if_there(&offline)?;
    std::fs::create_dir_all(&offline)?;
    // From the PATH, because with rustup this program selects the toolchain.
    let mut check = Command::new("cargo");
    check.args(["check", "--quiet"]).current_dir(&root);
    for context in CONTEXTS {
        check.args(["--package", context]);
        // What cargo has checked already it would not check again, and the queries would write nothing.
        let library = root.join("services").join(context).join("src/lib.rs");
        let touched = Command::new("touch").arg(library).status()?;
        if !touched.success() {
            return Err("a library cannot be touched".into());
        }
    }
    check.env_remove("SQLX_OFFLINE").env("DATABASE_URL", url.as_str()).env("SQLX_OFFLINE_DIR", &offline);
    if !check.status()?.success() {
        return Err("the queries do not fit the migrations".into());
    }
    remove_if_there(&place)?;
    Ok(std::fs::rename(offline, place)?)
}

fn remove_if_there(directory: &Path) -> std::io::Result<()> {
    if directory.exists() { std::fs::remove_dir_all(directory) } else { Ok(()) }
}

/// A fresh database with both schemas migrated; its address as the superuser.
async fn migrated(server: &Url, root: &Path) -> Result<Url, Fault> {
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
        // Read when run, not when built: it must work while the contexts themselves do not build.
        let migrator = Migrator::new(root.join("services").join(context).join("migrations")).await?;
        let migrations = Migrations { schema: context, migrator: Box::leak(Box::new(migrator)) };
        let role = format!("svc_{context}_migrator");
        sqlx::raw_sql(AssertSqlSafe(format!("alter role {role} password 'offline-data'")))
            .execute(&mut inside)
            .await?;
        let mut as_migrator = url.clone();
        let named =
            as_migrator.set_username(&role).and_then(|()| as_migrator.set_password(Some("offline-data")));
        named.map_err(|()| "the server's address has no host")?;
        migrations.up(as_migrator.as_str()).await?;
    }
    Ok(url)
}
