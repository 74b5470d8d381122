use sqlx::{Connection as _, PgConnection};
use standalone::Tools;
use standalone::data_dir::DataDir;
use standalone::servers::{Account, Durability, Role, Servers, ServersConfig, StartError};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::installation::tools_file;

pub(super) fn config(dir: &TempDir, account: Option<Account>) -> ServersConfig {
    let data = DataDir::at(&dir.path().join("data")).unwrap();
    data.create().unwrap();
    ServersConfig {
        tools: Tools::load(&tools_file()).unwrap(),
        data,
        durability: Durability::Throwaway,
        account,
    }
}

async fn start_and_stop(account: Option<Account>) {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir, account);
    for _ in 0..2 {
        let servers = Servers::start(&config, &CancellationToken::new()).await.unwrap();
        let mut database =
            PgConnection::connect(&servers.database_url(Role::Superuser, "svc")).await.unwrap();
        let one: i32 = sqlx::query_scalar("select 1").fetch_one(&mut database).await.unwrap();
        assert_eq!(one, 1);
        drop(database);
        servers.stop().await;
    }
    let link = config.data.root().join("postgres");
    let elsewhere = std::fs::read_link(&link).ok();
    assert_eq!(elsewhere.is_some(), matches!(account, Some(Account::Other { .. })));
    config.data.remove().unwrap();
    assert!(!config.data.root().exists());
    assert!(!elsewhere.is_some_and(|path| path.exists()), "what was put elsewhere goes too");
}

#[tokio::test]
async fn postgres_runs_under_the_account_that_fits_the_machine() {
    start_and_stop(None).await;
}

/// Only root can become somebody else; anybody else's run shows the first test to be enough.
#[tokio::test]
async fn started_by_root_postgres_also_runs_as_another_user_whom_the_data_directory_is_closed_to() {
    if rustix::process::geteuid().is_root() {
        start_and_stop(Some(Account::Other { uid: 65534, gid: 65534 })).await;
    }
}

#[tokio::test]
async fn a_start_that_is_cancelled_leaves_nothing_running() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir, None);
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert!(matches!(Servers::start(&config, &cancel).await, Err(StartError::Cancelled)));
    assert!(!config.data.root().join("postgres/cluster/postmaster.pid").exists());
}

#[tokio::test]
async fn data_of_another_postgres_version_are_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir, None);
    Servers::start(&config, &CancellationToken::new()).await.unwrap().stop().await;
    std::fs::write(config.data.root().join("postgres/cluster/PG_VERSION"), "9\n").unwrap();
    let error = Servers::start(&config, &CancellationToken::new()).await.err().unwrap().to_string();
    assert!(error.contains("made by Postgres 9") && error.contains("make clean"), "{error}");
}

#[tokio::test]
async fn a_server_that_cannot_start_is_told_with_its_last_words() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&dir, None);
    Servers::start(&config, &CancellationToken::new()).await.unwrap().stop().await;
    std::fs::write(config.data.root().join("postgres/cluster/postgresql.conf"), "nonsense = 1\n").unwrap();
    let error = Servers::start(&config, &CancellationToken::new()).await.err().unwrap().to_string();
    assert!(error.contains("Postgres ended") && error.contains("nonsense"), "{error}");
    let nats_port = std::fs::read_to_string(config.data.root().join("nats.port")).unwrap();
    let nats = std::net::TcpStream::connect(format!("127.0.0.1:{nats_port}"));
    assert!(nats.is_err(), "the other server was stopped");
}

#[tokio::test]
async fn a_runtime_role_reaches_its_own_schema_and_changes_no_shape() {
    let dir = tempfile::tempdir().unwrap();
    let servers = Servers::start(&config(&dir, None), &CancellationToken::new()).await.unwrap();
    let mut migrator =
        PgConnection::connect(&servers.database_url(Role::IdentityMigrator, "svc")).await.unwrap();
    sqlx::raw_sql("create table identity.thing (a integer); grant select on identity.thing to svc_identity")
        .execute(&mut migrator)
        .await
        .unwrap();
    assert!(sqlx::raw_sql("create table session.thing (a integer)").execute(&mut migrator).await.is_err());

    let mut identity = PgConnection::connect(&servers.database_url(Role::Identity, "svc")).await.unwrap();
    sqlx::raw_sql("select from identity.thing").execute(&mut identity).await.unwrap();
    for refused in [
        "create table identity.other (a integer)",
        "create table public.other (a integer)",
        "create temporary table other (a integer)",
        "drop table identity.thing",
        "insert into identity.thing values (1)",
        "create role other",
        "create database other",
    ] {
        assert!(sqlx::raw_sql(refused).execute(&mut identity).await.is_err(), "{refused}");
    }

    let mut session = PgConnection::connect(&servers.database_url(Role::Session, "svc")).await.unwrap();
    assert!(sqlx::raw_sql("select from identity.thing").execute(&mut session).await.is_err());
    servers.stop().await;
}
