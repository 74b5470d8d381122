//! Start, stop, account, data and roles.

use std::path::{Path, PathBuf};
use std::process::Command;

use devservers::{Account, DataDir, Durability, PostgresRole, Servers, ServersConfig, StartError, Tools};
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(super) fn config(dir: &TempDir, account: Option<Account>) -> ServersConfig {
    let data = DataDir::at(&dir.path().join("data")).unwrap();
    data.create().unwrap();
    let tools = Tools::load(&tools_file()).unwrap();
    ServersConfig { tools, data, durability: Durability::Temporary, account }
}

fn tools_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.dev/tools.json")
}

async fn start(config: &ServersConfig) -> Result<Servers, StartError> {
    Servers::start(config, &CancellationToken::new()).await
}

async fn start_and_stop_twice(account: Option<Account>) {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir, account);
    for _ in 0..2 {
        let servers = start(&config).await.unwrap();
        let url = servers.database_url(PostgresRole::Superuser, "svc");
        let mut database = PgConnection::connect(&url).await.unwrap();
        let one: i32 = sqlx::query_scalar("select 1").fetch_one(&mut database).await.unwrap();
        assert_eq!(one, 1);
        drop(database);
        servers.stop().await;
    }
    let target = std::fs::read_link(config.data.root().join("postgres")).ok();
    assert_eq!(target.is_some(), matches!(account, Some(Account::Other { .. })));
    config.data.remove().unwrap();
    assert!(!config.data.root().exists());
    assert!(!target.is_some_and(|path| path.exists()), "the data of the other user are removed too");
}

#[tokio::test]
async fn postgres_runs_under_the_selected_account() {
    start_and_stop_twice(None).await;
}

/// Only root can run Postgres as another user.
#[tokio::test]
async fn root_can_run_postgres_as_a_user_without_access_to_the_data_directory() {
    if rustix::process::geteuid().is_root() {
        start_and_stop_twice(Some(Account::Other { uid: 65534, gid: 65534 })).await;
    }
}

#[tokio::test]
async fn a_cancelled_start_leaves_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir, None);
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert!(matches!(Servers::start(&config, &cancel).await, Err(StartError::Cancelled)));
    assert!(!config.data.root().join("postgres/cluster/postmaster.pid").exists());
}

#[tokio::test]
async fn data_of_another_postgres_version_are_rejected_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir, None);
    start(&config).await.unwrap().stop().await;
    std::fs::write(config.data.root().join("postgres/cluster/PG_VERSION"), "9\n").unwrap();
    let error = start(&config).await.err().unwrap().to_string();
    assert!(error.contains("created by Postgres 9") && error.contains("make clean"), "{error}");
}

/// Creates a program that prints a version. Another process writes it, because a file that this one has open for writing cannot run.
fn create_program(path: &Path, prints: &str) {
    let script = r#"printf '#!/bin/sh\necho "%s"\n' "$2" > "$1" && chmod 755 "$1""#;
    let status = Command::new("sh").args(["-c", script, "sh"]).arg(path).arg(prints).status().unwrap();
    assert!(status.success());
}

#[tokio::test]
async fn a_server_that_is_too_old_is_named_with_the_required_version_before_anything_is_created() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir, None);
    let (postgres, nats_server) = (dir.path().join("postgres"), dir.path().join("nats-server"));
    create_program(&postgres, "postgres (PostgreSQL) 14.9 (Debian 14.9-1.pgdg120+1)");
    create_program(&nats_server, "nats-server: v2.12.5");
    for (tools, program, expected) in [
        (
            Tools { postgres_bin_dir: dir.path().to_owned(), ..config.tools.clone() },
            &postgres,
            ["Postgres 14.9 is too old", "15 or newer"],
        ),
        (
            Tools { nats_server: nats_server.clone(), ..config.tools.clone() },
            &nats_server,
            ["nats-server 2.12.5 is too old", "2.12.6 or newer"],
        ),
    ] {
        let config = ServersConfig { tools, ..config.clone() };
        let error = start(&config).await.err().unwrap().to_string();
        assert!(expected.iter().all(|text| error.contains(text)), "{error}");
        assert!(error.contains(&program.display().to_string()), "{error}");
        assert!(error.contains("make up TOOLS=fetch"), "{error}");
        assert!(!config.data.root().join("postgres").exists());
    }
}

#[tokio::test]
async fn a_failed_start_reports_the_end_of_the_log_and_stops_the_other_server() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir, None);
    start(&config).await.unwrap().stop().await;
    std::fs::write(config.data.root().join("postgres/cluster/postgresql.conf"), "nonsense = 1\n").unwrap();
    let error = start(&config).await.err().unwrap().to_string();
    assert!(error.contains("Postgres exited") && error.contains("nonsense"), "{error}");
    let nats_port = std::fs::read_to_string(config.data.root().join("nats.port")).unwrap();
    let nats = std::net::TcpStream::connect(format!("127.0.0.1:{nats_port}"));
    assert!(nats.is_err(), "nats-server still runs");
}

#[tokio::test]
async fn a_runtime_role_reads_its_own_schema_only_and_cannot_change_it() {
    let dir = tempfile::tempdir().unwrap();
    let servers = start(&config(&dir, None)).await.unwrap();
    let connect = async |role| PgConnection::connect(&servers.database_url(role, "svc")).await.unwrap();
    let mut migrator = connect(PostgresRole::IdentityMigrator).await;
    sqlx::raw_sql("create table identity.thing (a integer); grant select on identity.thing to svc_identity")
        .execute(&mut migrator)
        .await
        .unwrap();
    assert!(sqlx::raw_sql("create table session.thing (a integer)").execute(&mut migrator).await.is_err());

    let mut identity = connect(PostgresRole::Identity).await;
    sqlx::raw_sql("select from identity.thing").execute(&mut identity).await.unwrap();
    for denied in [
        "create table identity.other (a integer)",
        "create table public.other (a integer)",
        "create temporary table other (a integer)",
        "drop table identity.thing",
        "insert into identity.thing values (1)",
        "create role other",
        "create database other",
    ] {
        assert!(sqlx::raw_sql(denied).execute(&mut identity).await.is_err(), "{denied}");
    }

    let mut session = connect(PostgresRole::Session).await;
    assert!(sqlx::raw_sql("select from identity.thing").execute(&mut session).await.is_err());
    servers.stop().await;
}
