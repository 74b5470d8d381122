//! Connections to a real Postgres with a certificate of a private CA.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::path::Path;

use database::{Database, DatabaseSettings};
use devservers::{DataDir, Durability, PostgresRole, Servers, ServersConfig, Tools};
use service::chain;
use service::config::{Environment, Variables as _};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use testkit::Certificates;
use tokio_util::sync::CancellationToken;

/// Writes a file into the data directory of the server, readable by its account only.
async fn write(server: &mut PgConnection, name: &str, source: &Path) {
    let content = std::fs::read_to_string(source).unwrap();
    let lines = format!("copy (select unnest(string_to_array('{}', E'\\n')))", content.trim());
    let statement = format!("{lines} to program 'umask 077; cat > {name}'");
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(server).await.unwrap();
}

/// Returns the TLS version of a connection, or the error.
async fn connect(url: &str) -> Result<Option<String>, String> {
    let database = Database::new(url, "identity").unwrap();
    let mut connection = database.pool().acquire().await.map_err(|error| chain(&error))?;
    let version = sqlx::query_scalar("select version from pg_stat_ssl where pid = pg_backend_pid()");
    Ok(version.fetch_one(&mut *connection).await.unwrap())
}

#[tokio::test]
async fn verify_full_accepts_the_private_ca_of_the_server_and_no_other() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::at(&home.path().join("data")).unwrap();
    data.create().unwrap();
    let tools = Tools::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.dev/tools.json")).unwrap();
    let config = ServersConfig { tools, data, durability: Durability::Temporary, account: None };
    let servers = Servers::start(&config, &CancellationToken::new()).await.unwrap();
    let (ours, other) = (Certificates::create().unwrap(), Certificates::create().unwrap());
    let mut server =
        PgConnection::connect(&servers.database_url(PostgresRole::Superuser, "svc")).await.unwrap();
    write(&mut server, "server.crt", &ours.server().join("tls.crt")).await;
    write(&mut server, "server.key", &ours.server().join("tls.key")).await;
    for statement in ["alter system set ssl = on", "select pg_reload_conf()"] {
        sqlx::raw_sql(statement).execute(&mut server).await.unwrap();
    }
    let url = servers.database_url(PostgresRole::Identity, "svc");
    let verified = |ca: &Path| format!("{url}?sslmode=verify-full&sslrootcert={}", ca.display());
    // The server reloads its settings in the background.
    testkit::wait_until("the server uses TLS", async || connect(&url).await.unwrap()).await;

    assert_eq!(connect(&verified(&ours.authority())).await.unwrap().as_deref(), Some("TLSv1.3"));
    let error = connect(&verified(&other.authority())).await.unwrap_err();
    assert!(error.contains("invalid peer certificate"), "{error}");
    let error = connect(&format!("{url}?sslmode=verify-full")).await.unwrap_err();
    assert!(error.contains("invalid peer certificate"), "{error}");
    servers.stop().await;
}

#[test]
fn the_number_of_connections_is_a_setting() {
    let load = |pairs: &[(&str, &str)]| {
        let environment = Environment::from_pairs([("SVC_DATABASE_URL", "postgres://a@127.0.0.1:1/b")]);
        DatabaseSettings::load(&environment.with(pairs.iter().copied()))
    };
    let connections = |pairs: &[(&str, &str)]| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _guard = runtime.enter();
        load(pairs).unwrap().pool("identity").unwrap().pool().max_connections()
    };
    assert_eq!(
        [connections(&[]), connections(&[("SVC_DATABASE_CONNECTIONS", "20")])],
        [3, 13],
        "two thirds are for requests, and one of them only for lookups"
    );
    assert!(load(&[("SVC_DATABASE_CONNECTIONS", "3")]).is_err());
}
