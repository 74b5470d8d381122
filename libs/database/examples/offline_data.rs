//! Writes the offline data of all checked queries to `.sqlx`. It starts a temporary Postgres, migrates it and runs `cargo check`
//! against it. It compiles while the data are outdated, because it does not depend on the services. `make gen` runs it.

use std::path::Path;

use anyhow::{Context as _, bail};
use database::DatabaseAccess;
use database::migrations::Migrations;
use devservers::{Durability, PostgresRole, Servers, ServersConfig, Tools, create_temporary_directory};
use sqlx::migrate::Migrator;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

const DATABASE: &str = "svc";
const CONTEXTS: [(&str, PostgresRole); 2] =
    [("identity", PostgresRole::IdentityMigrator), ("session", PostgresRole::SessionMigrator)];

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let tools = Tools::load(&root.join(".dev/tools.json"))?;
    let (data, _lock) = create_temporary_directory().await?;
    let config = ServersConfig { tools, data, durability: Durability::Temporary, account: None };
    let written = write_with_servers(&config, &root).await;
    config.data.remove()?;
    written
}

async fn write_with_servers(config: &ServersConfig, root: &Path) -> anyhow::Result<()> {
    let servers = Servers::start(config, &CancellationToken::new()).await?;
    let written = tokio::select! {
        written = write(&servers, root) => written,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    servers.stop().await;
    written
}

async fn write(servers: &Servers, root: &Path) -> anyhow::Result<()> {
    let mut check = Command::new("cargo");
    // The features of the whole workspace, so that the dependencies are those of `cargo clippy --workspace`.
    check.args(["check", "--quiet", "--workspace"]).current_dir(root).kill_on_drop(true);
    for (context, migrator) in CONTEXTS {
        // Read at run time, because an embedded migration would not be noticed by an unchanged program.
        let migrations = Migrator::new(root.join("services").join(context).join("migrations")).await?;
        let migrations = Migrations { schema: context, migrator: Box::leak(Box::new(migrations)) };
        migrations.up(&DatabaseAccess::fixed(&servers.database_url(migrator, DATABASE))).await?;
        check.arg("--bin").arg(format!("svc-{context}"));
    }
    // Moved into place when complete: a failed run keeps the old data.
    let (offline, place) = (root.join(".dev/offline-data"), root.join(".sqlx"));
    remove_if_exists(&offline)?;
    std::fs::create_dir_all(&offline)?;
    // The libraries name this variable in `option_env!`, and it differs in each run: cargo checks them again.
    check.env("DATABASE_URL", servers.database_url(PostgresRole::Superuser, DATABASE));
    check.env_remove("SQLX_OFFLINE").env("SQLX_OFFLINE_DIR", &offline);
    if !check.status().await.context("failed to run cargo")?.success() {
        bail!("the queries do not match the migrations");
    }
    remove_if_exists(&place)?;
    Ok(std::fs::rename(offline, place)?)
}

fn remove_if_exists(directory: &Path) -> std::io::Result<()> {
    if directory.exists() { std::fs::remove_dir_all(directory) } else { Ok(()) }
}
