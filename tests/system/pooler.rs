//! A pooler between the services and Postgres.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use contract::paths::Upstream::Session;
use e2e::{Process, Services, free_address, installed, kill};
use rustix::process::Signal;
use testkit::wait_until;
use url::Url;

const REASON: &str = "the URL leads to a pooler that gives a connection to each transaction or statement";

/// Writes the settings of `PgBouncer` in front of this database.
fn configure(home: &Path, database: &Url, port: u16, mode: &str) {
    let (host, server_port) = (database.host_str().unwrap(), database.port().unwrap());
    let settings = format!(
        "[databases]\n* = host={host} port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
         unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = {mode}\n",
        home.join("users").display()
    );
    let users = [database.username(), "svc_session_migrator"]
        .map(|name| format!("\"{name}\" \"{}\"\n", database.password().unwrap_or_default()));
    std::fs::write(home.join("users"), users.concat()).unwrap();
    std::fs::write(home.join("settings"), settings).unwrap();
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_named_and_one_in_session_mode_works() {
    let Some(program) = installed("pgbouncer") else { return };
    let services = Services::prepare().await;
    services.migrate_all().await;
    let (mut url, port) = (Url::parse(&services.database_url(Session)).unwrap(), free_address().port());
    let home = tempfile::tempdir().unwrap();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    configure(home.path(), &url, port, "transaction");
    let mut command = Command::new(program);
    if rustix::process::getuid().is_root() {
        command.args(["-u", "nobody"]);
    }
    let pooler = Process::start(command.arg(home.path().join("settings")), &home.path().join("log"));
    url.set_port(Some(port)).unwrap();
    wait_until("the pooler listens", async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok())
        .await;

    let mut session = services.start_with(Session, &[("SVC_DATABASE_URL", url.as_str())]);
    wait_until("the log names the pooler", async || session.process.output().contains(REASON).then_some(()))
        .await;
    assert!(!session.is_ready().await);
    configure(home.path(), &Url::parse(&services.database_url(Session)).unwrap(), port, "session");
    kill(pooler.pid(), Signal::HUP);
    session.wait_until_ready().await;
}
