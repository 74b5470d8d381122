//! `svc-ingest accounts`, next to a nats-server that includes the file.

use std::path::Path;
use std::process::Command;

use async_nats::jetstream::context::ConsumerInfoErrorKind;
use bus::{Config, Connection, ConsumerLogins, Created, DurableFilter, Durables, EventStreams, Profile};
use contract::paths::Upstream;
use e2e::{Process, Services, accounts, api_client};
use futures::future::join_all;
use hashing::SystemEntropy;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::{Client, Forwarder, NatsServer, TestResponse, wait_until};

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

/// Connects as ingest.
async fn connect(server: &NatsServer) -> (ConsumerLogins, Durables) {
    let config = Config {
        inbox_prefix: Some("_INBOX.ingest".to_owned()),
        ..Config::new(server.url_of("ingest"), "test")
    };
    let connection = Connection::open(&config).await.unwrap();
    let durables = wait_until("the client is connected", async || {
        Durables::over(&connection, EventStreams::ONE).await.ok()
    })
    .await;
    (ConsumerLogins::new(connection, config), durables)
}

/// Creates a consumer without a change of the accounts.
async fn create_only(server: &NatsServer, name: &str) -> (ConsumerLogins, Created) {
    let (logins, durables) = connect(server).await;
    let filter = DurableFilter::default().into();
    // A request can fail while the server reloads its accounts.
    let created = wait_until("the consumer is created", async || {
        durables.create(name, &filter, &SystemEntropy).await.ok()
    })
    .await;
    (logins, created)
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
async fn a_request_during_a_reload_waits_until_the_broker_answers() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("consumers.conf");
    std::fs::write(&file, bus::accounts_file(&[])).unwrap();
    let server = start_server(&file).await;
    let (_, created) = create_only(&server, "siem").await;
    let (_, durables) = connect(&server).await;
    let pid = Pid::from_raw(server.pid().unwrap()).unwrap();
    let files = [bus::accounts_file(&[created.durable]), bus::accounts_file(&[])];
    for content in files.iter().cycle().take(6) {
        std::fs::write(&file, content).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
        for _ in 0..500 {
            assert!(durables.get("siem").await.unwrap().is_some());
        }
    }
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
    let reading = created.iter().map(async |(logins, created)| {
        let password = created.password.as_ref().unwrap();
        wait_until("the login reads", async || {
            logins.wait_until_usable(&created.durable, password.expose()).await.then_some(())
        })
        .await;
    });
    join_all(reading).await;
}

#[tokio::test]
async fn a_keeper_that_ended_between_the_file_and_the_reload_reloads_when_it_starts_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("consumers.conf");
    assert!(accounts(&["init"], &file).status().unwrap().success());
    let server = start_server(&file).await;
    let (logins, created) = create_only(&server, "siem").await;
    let keep = |command: &str| {
        let mut keep = accounts(&["keep"], &file);
        keep.args(["--", "sh", "-c", command]).env("SVC_NATS_URL", server.url_of("ingest"));
        Process::start(&mut keep, &directory.path().join("keep"))
    };
    let mut killed = keep("kill -KILL $PPID");
    killed.wait().await;
    assert!(std::fs::read_to_string(&file).unwrap().contains("\"siem\""), "{}", killed.output());
    let again = keep(&format!("kill -HUP {}", server.pid().unwrap()));
    let password = created.password.unwrap();
    assert!(logins.wait_until_usable(&created.durable, password.expose()).await, "{}", again.output());
}

#[tokio::test]
async fn a_file_that_is_lost_or_changed_is_written_again_and_the_server_reads_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("consumers.conf");
    assert!(accounts(&["init"], &file).status().unwrap().success());
    let server = start_server(&file).await;
    let pid = server.pid().unwrap().to_string();
    let mut keep = accounts(&["keep"], &file);
    keep.args(["--", "kill", "-HUP", &pid]).env("SVC_NATS_URL", server.url_of("ingest"));
    let keeper = Process::start(&mut keep, &directory.path().join("keep"));
    let (logins, created) = create_only(&server, "siem").await;
    let password = created.password.unwrap();
    let is_kept = async || {
        wait_until("the file is kept", async || logins.apply().await.then_some(())).await;
        let stored = std::fs::read_to_string(&file).unwrap();
        stored.contains("\"siem\"") && logins.wait_until_usable(&created.durable, password.expose()).await
    };
    assert!(is_kept().await, "{}", keeper.output());
    assert!(!keeper.output().contains("was lost or changed"), "{}", keeper.output());
    // As a new volume with the file of `accounts init`.
    std::fs::write(&file, bus::accounts_file(&[])).unwrap();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    assert!(is_kept().await, "{}", keeper.output());
    std::fs::remove_file(&file).unwrap();
    assert!(is_kept().await, "{}", keeper.output());
    assert_eq!(keeper.output().matches("was lost or changed").count(), 2, "{}", keeper.output());
}

/// ingest with two streams, which reaches the broker through a forwarder, session, and a keeper of the accounts.
struct System {
    services: Services,
    _session: e2e::Service,
    broker: Forwarder,
    directory: tempfile::TempDir,
    _keeper: Process,
}

impl System {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("consumers.conf");
        assert!(accounts(&["init"], &file).status().unwrap().success());
        let include = format!("include \"../../../../../../..{}\"", file.display());
        let services =
            Services::prepare_with(NatsServer::start_with_consumers(&include).await.unwrap()).await;
        services.migrate_all().await;
        let mut session = services.start(Upstream::Session);
        session.wait_until_ready().await;
        let broker = Forwarder::start().await.unwrap();
        broker.set_target(services.nats.url.rsplit_once(':').unwrap().1.parse().unwrap());
        let mut keep = accounts(&["keep"], &file);
        keep.args(["--", "kill", "-HUP", &services.nats.pid().unwrap().to_string()]);
        keep.env("SVC_NATS_URL", services.nats.url_of("ingest")).env("SVC_STREAMS", "2");
        let keeper = Process::start(&mut keep, &directory.path().join("keep"));
        Self { services, _session: session, broker, directory, _keeper: keeper }
    }

    /// Sends a request to an ingest that is killed when it sends a message with this text to the broker. Returns a client of the next one.
    async fn kill_at(
        &self,
        text: &str,
        request: impl AsyncFn(Client) -> TestResponse,
    ) -> (e2e::Service, Client) {
        let (mut ingest, client) = self.ingest().await;
        self.broker.hold(Some(text));
        // While the broker reloads its configuration, requests get 503.
        let served = wait_until("the request is served", async || {
            let response = request(client.clone()).await;
            (response.status != 503).then_some(response)
        });
        tokio::select! {
            response = served => panic!("not held at {text}: {response}"),
            () = self.broker.wait_until_held() => {}
        }
        ingest.process.signal(Signal::KILL);
        ingest.process.wait().await;
        self.broker.hold(None);
        self.ingest().await
    }

    async fn ingest(&self) -> (e2e::Service, Client) {
        let url = format!("nats://ingest:ingest@{}", self.broker.address);
        let variables = [("SVC_NATS_URL", &*url), ("SVC_STREAMS", "2")];
        let mut ingest = self.services.start_with(Upstream::Ingest, &variables);
        ingest.wait_until_ready().await;
        let client = api_client(&format!("http://{}", ingest.address)).bearer(&self.services.platform_token);
        (ingest, client)
    }

    /// Whether the broker has a login of the consumer.
    fn has_login(&self) -> bool {
        let file = std::fs::read_to_string(self.directory.path().join("consumers.conf")).unwrap();
        file.contains("user: \"siem\"")
    }

    /// The streams that have the durable. During a reload, the broker rejects logins and answers no requests.
    async fn streams(&self) -> Vec<&'static str> {
        wait_until("the broker answers", async || {
            let client = testkit::nats::connect(&self.services.nats.url, "administrator").await.ok()?;
            let context = async_nats::jetstream::new(client);
            let mut found = Vec::new();
            for stream in ["UDM_00_31", "UDM_32_63"] {
                match context.get_stream(stream).await.ok()?.consumer_info("siem").await {
                    Ok(_) => found.push(stream),
                    Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => {}
                    Err(_) => return None,
                }
            }
            Some(found)
        })
        .await
    }

    async fn create(client: Client) -> TestResponse {
        client.post("/consumers", &json!({ "name": "siem", "tenant_id": "acme" })).await
    }

    async fn delete(client: Client) -> TestResponse {
        client.delete("/consumers/siem").await
    }
}

#[tokio::test]
async fn the_same_request_completes_a_creation_that_ended_at_any_step() {
    let system = System::start().await;
    // Before the durable of the first and the second stream, the change of the accounts, and the check of the login.
    for (text, streams) in [
        ("CONSUMER.CREATE.UDM_00_31.siem", 0),
        ("CONSUMER.CREATE.UDM_32_63.siem", 1),
        ("svc.ingest.consumers.v1", 2),
        (r#""user":"siem""#, 2),
    ] {
        let (ingest, client) = system.kill_at(text, System::create).await;
        assert_eq!(system.streams().await.len(), streams, "{text}");
        let is_new = streams == 0;
        let created: Value = System::create(client.clone()).await.expect(if is_new { 201 } else { 200 });
        assert_eq!(system.streams().await.len(), 2, "{text}");
        // The password of the first request is lost. A null login lets the CLI name `rotate-login`.
        assert_eq!(created["login"].is_null(), !is_new, "{text}: {created}");
        // A response waits for a slow reload for five seconds only.
        wait_until("a replaced login reads", async || {
            let replaced: Value = client.post("/consumers/siem/rotate-login", &json!({})).await.expect(200);
            replaced["login"]["active"].as_bool()?.then_some(())
        })
        .await;
        assert!(system.has_login());
        System::delete(client).await.expect_empty(204);
        assert!(system.streams().await.is_empty(), "{text}");
        wait_until("the login is gone", async || (!system.has_login()).then_some(())).await;
        drop(ingest);
    }
}

#[tokio::test]
async fn the_same_request_completes_a_deletion_that_ended_at_any_step() {
    let system = System::start().await;
    for (text, streams) in [
        ("CONSUMER.DELETE.UDM_00_31.siem", 2),
        ("CONSUMER.DELETE.UDM_32_63.siem", 1),
        ("svc.ingest.consumers.v1", 0),
    ] {
        let (ingest, client) = system.ingest().await;
        System::create(client).await.expect::<Value>(201);
        wait_until("the login is there", async || system.has_login().then_some(())).await;
        drop(ingest);
        let (ingest, client) = system.kill_at(text, System::delete).await;
        assert_eq!(system.streams().await.len(), streams, "{text}");
        let deleted = System::delete(client).await;
        assert_eq!(deleted.status, if streams == 0 { 404 } else { 204 }, "{text}");
        assert!(system.streams().await.is_empty() && !system.has_login(), "{text}");
        drop(ingest);
    }
}
