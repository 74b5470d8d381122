//! The three services as separate processes behind a reverse proxy that routes by the table of path prefixes.

use contract::paths::Upstream;
use e2e::{ApiUser, EventStream, Process, Services, api_client, free_address, output_of};
use serde_json::{Value, json};
use testkit::{MailServer, wait_until, within};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use transport::{HttpTransport, HttpTransportConfig, Secret, Transport as _, UdmEvent};
use url::Url;

const WITH_SCHEMA: [Upstream; 2] = [Upstream::Identity, Upstream::Session];

async fn migrate(services: &Services) {
    for service in WITH_SCHEMA {
        let status = services.migrate(service, "status").await;
        assert_eq!(status.status.code(), Some(1), "the schema is not migrated yet: {status:?}");
        assert!(String::from_utf8(status.stderr).unwrap().contains("run `migrate up`"));
        // A pod waits while the migration job runs.
        let (waited, up) = tokio::join!(services.migrate(service, "wait"), services.migrate(service, "up"));
        assert!(up.status.success(), "{up:?}");
        assert!(waited.status.success(), "{waited:?}");
        for verb in ["up", "status", "wait"] {
            let output = services.migrate(service, verb).await;
            assert_eq!(output.status.code(), Some(0), "{verb} of a migrated schema: {output:?}");
        }
    }
}

#[tokio::test]
async fn a_binary_runs_on_three_newer_migrations_that_support_it_and_refuses_one_that_does_not() {
    let services = Services::prepare().await;
    services.migrate_all().await;
    for service in WITH_SCHEMA {
        services.add_migrations(service, &[1, 1, 1]).await;
        for verb in ["up", "status", "wait"] {
            let accepted = services.migrate(service, verb).await;
            assert!(accepted.status.success(), "{verb}: {accepted:?}");
        }
        // A pod of the older binary restarts.
        services.start(service).wait_until_ready().await;
        services.add_migrations(service, &[0]).await;
        for (verb, code) in [("up", 64), ("status", 1)] {
            let rejected = services.migrate(service, verb).await;
            assert_eq!(rejected.status.code(), Some(code), "a Job does not retry 64: {rejected:?}");
            let message = String::from_utf8(rejected.stderr).unwrap();
            let expected = "supports binaries of version 5 and later, but this binary was built for 1: use a newer binary";
            assert!(message.contains(expected), "{message}");
        }
    }
}

#[tokio::test]
async fn the_job_of_an_abandoned_upgrade_changes_no_schema() {
    let services = Services::prepare().await;
    for service in WITH_SCHEMA {
        for (job, output, applied) in
            [("abandoned", "no migration runs", "schema version 0"), ("current", "accepted", "accepted")]
        {
            let mut command = services.command(service);
            command.args(["migrate", "up", "--job", job, "--current-job", "current"]);
            let up = output_of(command).await;
            assert!(up.status.success(), "{up:?}");
            assert!(String::from_utf8(up.stderr).unwrap().contains(output), "{job}");
            let status = services.migrate(service, "status").await;
            assert!(String::from_utf8(status.stderr).unwrap().contains(applied), "{job}");
        }
    }
}

#[tokio::test]
async fn migrations_wait_for_a_database_that_appears_later() {
    let services = Services::prepare().await;
    let address = free_address();
    let mut command = services.command(Upstream::Session);
    let (_, url) = command.get_envs().find(|(name, _)| *name == "SVC_MIGRATOR_DATABASE_URL").unwrap();
    let mut url: Url = url.unwrap().to_str().unwrap().parse().unwrap();
    let database = url.socket_addrs(|| None).unwrap();
    url.set_port(Some(address.port())).unwrap();
    command.args(["migrate", "up"]).env("SVC_MIGRATOR_DATABASE_URL", url.as_str());
    let directory = tempfile::tempdir().unwrap();
    let mut up = Process::start(&mut command, &directory.path().join("output"));
    wait_until("the command reports the missing database", async || {
        up.expect_running();
        up.output().contains("session: waiting: the database is not available").then_some(())
    })
    .await;

    let listener = TcpListener::bind(address).await.unwrap();
    let mut connections = JoinSet::new();
    let forward = async {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut server = TcpStream::connect(&*database).await.unwrap();
            // The command closes its connections in its own time.
            connections.spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
        }
    };
    let status = tokio::select! {
        status = up.wait() => status,
        () = forward => unreachable!(),
    };
    assert!(status.success(), "{}", up.output());
    assert!(up.output().ends_with("session: schema version 1: accepted\n"), "{}", up.output());

    // Other errors are not a matter of time.
    url.set_port(Some(database[0].port())).unwrap();
    let mut unknown = url.clone();
    unknown.set_path("missing");
    url.set_password(Some("wrong")).unwrap();
    for (url, error) in
        [(unknown, "database \"missing\" does not exist"), (url, "password authentication failed")]
    {
        let mut command = services.command(Upstream::Session);
        command.args(["migrate", "up"]).env("SVC_MIGRATOR_DATABASE_URL", url.as_str());
        let failed = output_of(command).await;
        assert_eq!(failed.status.code(), Some(69), "{failed:?}");
        assert!(String::from_utf8(failed.stderr).unwrap().contains(error), "{error}");
    }
}

#[tokio::test]
async fn a_service_becomes_ready_after_its_schema_is_migrated() {
    let services = Services::prepare().await;
    let mut session = services.start(Upstream::Session);
    wait_until("the service listens", async || {
        session.process.expect_running();
        tokio::net::TcpStream::connect(session.address).await.ok()
    })
    .await;
    assert!(!session.is_ready().await);
    assert!(services.migrate(Upstream::Session, "up").await.status.success());
    session.wait_until_ready().await;
}

#[tokio::test]
async fn a_load_balancer_checks_each_service_on_its_public_port() {
    let services = Services::prepare().await;
    migrate(&services).await;
    for service in services.start_all(&[]).await {
        let url = format!("http://{}/readyz", service.address);
        let response = testkit::client::plain_http().get(&url).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), response.text().await.unwrap().as_str()),
            (200, "ok\n"),
            "{url}"
        );
    }
}

#[tokio::test]
async fn separate_services_behind_a_proxy_work_as_one_system() {
    let services = Services::prepare().await;
    migrate(&services).await;
    let running = services.start_all(&[]).await;
    let proxy = services.start_proxy().await;
    // A ready service must be able to handle requests.
    api_client(&proxy.base_url).get("/health").await.expect::<Value>(200);

    let ada = ApiUser::create_acme(&proxy.base_url, &services.platform_token, "ada@acme.example").await;
    let second_session = ApiUser::log_in(&proxy.base_url, "acme", "ada@acme.example").await;

    let transport = HttpTransport::new(HttpTransportConfig {
        api_key: Some(Secret::new(&ada.token)),
        ..HttpTransportConfig::new(&proxy.base_url)
    });
    transport.connect().await.unwrap();
    let sent = transport.send(&UdmEvent::new("s").with_event_id("single")).await;
    assert!(sent.success, "{sent:?}");
    let batch: Vec<_> = (0..100).map(|id| UdmEvent::new("s").with_event_id(format!("b{id}"))).collect();
    let sent = transport.send_batch(&batch).await;
    assert!(sent.success && sent.successful_events == 100, "{sent:?}");
    let ids = EventStream::connect(&services.nats.url).await.event_ids().await;
    assert_eq!((ids.len(), ids.values().max()), (101, Some(&1)));

    let client = ada.client.clone().header("X-User-ID", &ada.user_id);
    let sessions: Value = client.get("/auth/sessions").await.expect(200);
    let items = sessions["items"].as_array().unwrap();
    assert_eq!(items.len(), 2);
    let id = items.iter().find(|session| session["current"] == false).unwrap()["id"].as_str().unwrap();
    ada.client.delete(&format!("/auth/sessions/{id}")).await.expect_empty(204);
    second_session.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    let event = json!({ "source_id": "s" });
    second_session.client.post("/events", &event).await.expect_problem(401, "credential_invalid");
    let logout = api_client(&proxy.base_url).header("X-Session-ID", &ada.token);
    logout.post_bytes("/auth/sessions/logout", "", "").await.expect_empty(204);
    let rejected = wait_until("ingest rejects the revoked session", async || {
        transport.send(&UdmEvent::new("s")).await.error
    });
    assert_eq!(rejected.await.code.as_deref(), Some("credential_invalid"));

    let problem = api_client(&proxy.base_url).get("/eventsource").await.expect_problem(404, "not_found");
    assert_eq!(problem.type_uri, format!("{}/api/v1/problems/not_found", proxy.base_url));
    // The proxy does not expose the internal API, which has its own listener.
    let path = format!("{}/internal/v1/introspect", proxy.base_url);
    assert_eq!(testkit::client::plain_http().post(path).send().await.unwrap().status(), 404);

    for service in running {
        let name = service.address;
        let drain = service.stop_with_open_connection();
        let status = within(std::time::Duration::from_secs(20), "a drain", drain).await;
        assert_eq!(status.code(), Some(0), "{name}");
    }
}

#[tokio::test]
async fn an_api_key_is_created_while_identity_is_stopped_and_its_notice_is_mailed_later() {
    let (services, mails) = (Services::prepare().await, MailServer::start("starttls").await.unwrap());
    services.migrate_all().await;
    let settings = mails.variables();
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut identity = services.start_with(Upstream::Identity, &settings);
    let mut session = services.start(Upstream::Session);
    identity.wait_until_ready().await;
    session.wait_until_ready().await;
    let proxy = services.start_proxy().await;
    let ada = ApiUser::create_acme(&proxy.base_url, &services.platform_token, "ada@acme.example").await;
    let status = identity.stop_with_open_connection().await;
    assert_eq!(status.code(), Some(0));

    ada.client.post("/api-keys", &json!({ "name": "firewalls" })).await.expect::<Value>(201);
    let retried = r#"svc_outbox_deliveries_total{schema="session",kind="api_key_report",outcome="retried"}"#;
    wait_until("a report fails", async || (session.metric(retried).await >= 1.0).then_some(())).await;
    assert_eq!(mails.mails(), [] as [Value; 0]);

    let mut identity = services.start_with(Upstream::Identity, &settings);
    identity.wait_until_ready().await;
    let mail = mails.wait_for_mails(1).await.remove(0);
    assert_eq!(mail["to"], json!(["ada@acme.example"]));
    let text = mail["parts"]["text/plain"].as_str().unwrap();
    assert!(
        text.contains("ada@acme.example created the API key “firewalls” in Acme (organization ID acme)"),
        "{text}"
    );
}

#[tokio::test]
async fn the_log_of_ingest_contains_the_changes_of_a_consumer_of_all_tenants() {
    let services = Services::prepare().await;
    services.migrate_all().await;
    let [_identity, _session, ingest] = services.start_all(&[]).await;
    let client = api_client(&format!("http://{}", ingest.address)).bearer(&services.platform_token);
    let platform = client.header("X-Request-Id", "req-7");
    let consumer = json!({ "name": "archive", "all_tenants": true });
    platform.post("/consumers", &consumer).await.expect::<Value>(201);
    platform.delete("/consumers/archive").await.expect_empty(204);
    let output = ingest.process.output();
    let lines = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lines = lines.filter(|line| line["message"] == "change of all tenants recorded");
    let fields = ["about", "consumer", "actor", "request_id", "client_address"];
    let changes: Vec<_> = lines.map(|line| fields.map(|field| line[field].clone())).collect();
    let change = |about: &str| [about, "archive", "PlatformAdmin", "req-7", "127.0.0.1"].map(Value::from);
    assert_eq!(changes, ["consumer_created", "consumer_deleted"].map(change), "{output}");
}
