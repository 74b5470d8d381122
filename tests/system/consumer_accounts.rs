//! `svc-ingest accounts`, next to a nats-server that includes the file.

use std::path::Path;
use std::process::Command;

use bus::{Config, Connection, ConsumerLogins, Created, DurableFilter, Durables, EventStreams, Profile};
use e2e::{Process, program};
use futures::future::join_all;
use hashing::SystemEntropy;
use testkit::{NatsServer, wait_until};

fn accounts(arguments: &[&str], file: &Path) -> Command {
    let mut command = program("svc-ingest");
    command.arg("accounts").args(arguments).arg("--file").arg(file);
    command
}

/// Starts a server that includes the file. The path of an include is relative to the configuration.
async fn start_server(file: &Path) -> NatsServer {
    let include = format!("include \"../../../../../../..{}\"", file.display());
    let server =
        NatsServer::start_with(&testkit::nats::accounts_with(&include, str::to_owned)).await.unwrap();
    let client = testkit::nats::connect(&server.url, "administrator").await.unwrap();
    bus::ensure(&async_nats::jetstream::new(client), &Profile::single_server(16 << 20)).await.unwrap();
    server
}

/// Creates a consumer. Returns whether something keeps the accounts, and whether its login reads.
async fn create(server: &NatsServer, name: &str) -> (bool, bool) {
    let (logins, created) = create_only(server, name).await;
    let is_kept = logins.apply().await;
    let password = created.password.unwrap();
    (is_kept, is_kept && logins.wait_until_usable(&created.durable, password.expose()).await)
}

/// Creates a consumer without a change of the accounts.
async fn create_only(server: &NatsServer, name: &str) -> (ConsumerLogins, Created) {
    let config = Config {
        inbox_prefix: Some("_INBOX.ingest".to_owned()),
        ..Config::new(server.url_of("ingest"), "test")
    };
    let connection = Connection::open(&config).await.unwrap();
    let durables = wait_until("the client is connected", async || {
        Durables::over(&connection, EventStreams::ONE).await.ok()
    })
    .await;
    let created = durables.create(name, &DurableFilter::default().into(), &SystemEntropy).await.unwrap();
    (ConsumerLogins::new(connection, config), created)
}

#[tokio::test]
async fn the_kept_accounts_follow_the_consumers_with_a_signal_or_a_command() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("consumers.conf");
    assert!(accounts(&["init"], &file).status().unwrap().success());
    let initial = std::fs::read_to_string(&file).unwrap();
    assert!(initial.contains("CONSUMER_31 {") && !initial.contains("users"), "{initial}");
    let server = start_server(&file).await;
    assert_eq!(create(&server, "unkept").await, (false, false), "nothing keeps the file");

    let pid = server.pid().unwrap().to_string();
    let pid_file = directory.path().join("pid");
    std::fs::write(&pid_file, &pid).unwrap();
    let pid_file = pid_file.to_str().unwrap().to_owned();
    for (name, arguments) in
        [("by-signal", vec!["--pid-file", &pid_file]), ("by-command", vec!["--", "kill", "-HUP", &pid])]
    {
        let mut keep = accounts(&["keep"], &file);
        keep.args(arguments).env("SVC_NATS_URL", server.url_of("ingest"));
        let mut process = Process::start(&mut keep, &directory.path().join(name));
        wait_until("the file is kept", async || {
            process.expect_running();
            std::fs::read_to_string(&file).unwrap().contains("\"unkept\"").then_some(())
        })
        .await;
        assert_eq!(create(&server, name).await, (true, true), "{}", process.output());
    }
    // An existing file is not replaced.
    assert!(accounts(&["init"], &file).status().unwrap().success());
    assert!(std::fs::read_to_string(&file).unwrap().contains("by-command"));
}

#[tokio::test]
async fn all_logins_of_one_reload_read_also_if_there_are_more_than_empty_accounts() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("consumers.conf");
    assert!(accounts(&["init"], &file).status().unwrap().success());
    let server = start_server(&file).await;
    let mut created = Vec::new();
    for number in 0..70 {
        created.push(create_only(&server, &format!("consumer-{number}")).await);
    }
    let mut keep = accounts(&["keep"], &file);
    keep.args(["--", "kill", "-HUP", &server.pid().unwrap().to_string()]);
    keep.env("SVC_NATS_URL", server.url_of("ingest"));
    let mut process = Process::start(&mut keep, &directory.path().join("keep"));
    wait_until("the file is kept", async || {
        process.expect_running();
        std::fs::read_to_string(&file).unwrap().contains("\"consumer-69\"").then_some(())
    })
    .await;
    let usable = join_all(created.iter().map(async |(logins, created)| {
        let password = created.password.as_ref().unwrap();
        logins.wait_until_usable(&created.durable, password.expose()).await
    }))
    .await;
    assert_eq!(usable.iter().filter(|usable| !**usable).count(), 0, "{}", process.output());
}
