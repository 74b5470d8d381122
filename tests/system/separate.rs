//! The three services as separate processes behind a real reverse proxy that splits by the path table.

use contract::paths::Upstream;
use e2e::{Person, Services, raw_client};
use serde_json::{Value, json};
use transport::{HttpTransport, HttpTransportConfig, Secret, Transport as _, UdmEvent};

const ALL: [Upstream; 3] = [Upstream::Identity, Upstream::Session, Upstream::Ingest];
const WITH_SCHEMA: [Upstream; 2] = [Upstream::Identity, Upstream::Session];

async fn migrate(services: &Services) {
    for service in WITH_SCHEMA {
        let status = services.migrate(service, "status").await;
        assert_eq!(status.status.code(), Some(1), "nothing is migrated yet: {status:?}");
        assert!(String::from_utf8(status.stderr).unwrap().contains("run `migrate up`"));
        // One waits beside the migration, as a pod does.
        let (waited, up) = tokio::join!(services.migrate(service, "wait"), services.migrate(service, "up"));
        assert!(up.status.success(), "{up:?}");
        assert!(waited.status.success(), "{waited:?}");
        for verb in ["up", "status", "wait"] {
            let output = services.migrate(service, verb).await;
            assert_eq!(output.status.code(), Some(0), "{verb} of what is migrated: {output:?}");
        }
    }
}

#[tokio::test]
async fn a_schema_one_version_ahead_is_accepted_and_one_further_ahead_is_refused_for_good() {
    let services = Services::prepare().await;
    for service in WITH_SCHEMA {
        assert!(services.migrate(service, "up").await.status.success());
        services.put_schema_ahead(service).await;
        assert!(services.migrate(service, "up").await.status.success());
        services.put_schema_ahead(service).await;
        let refused = services.migrate(service, "up").await;
        assert_eq!(refused.status.code(), Some(64), "a Job takes this code as final: {refused:?}");
        assert!(String::from_utf8(refused.stderr).unwrap().contains("use a newer binary"));
    }
}

#[tokio::test]
async fn a_service_is_not_ready_before_its_schema_is_and_gets_ready_by_itself() {
    let services = Services::prepare().await;
    let mut session = services.start(Upstream::Session);
    testkit::wait_until("it listens", async || {
        session.process.expect_running();
        tokio::net::TcpStream::connect(session.address).await.ok()
    })
    .await;
    assert!(!session.is_ready().await);
    assert!(services.migrate(Upstream::Session, "up").await.status.success());
    session.until_ready().await;
}

#[tokio::test]
async fn three_processes_behind_a_proxy_are_one_system() {
    let services = Services::prepare().await;
    migrate(&services).await;
    let mut running = ALL.map(|service| services.start(service));
    for running in &mut running {
        running.until_ready().await;
    }
    let proxy = services.proxy().await;
    // Who is ready is sent requests, and must be able to answer them.
    raw_client(&proxy.base_url).get("/health").await.expect::<Value>(200);

    let operator = raw_client(&proxy.base_url).bearer(&services.platform_token);
    let tenant = json!({
        "tenant_id": "acme", "display_name": "Acme", "admin_email": "ada@acme.example", "delivery": "response",
    });
    let tenant: Value = operator.post("/tenants", &tenant).await.expect(201);
    let ada = Person::invited(&proxy.base_url, tenant["invite"]["token"].as_str().unwrap()).await;
    let other = Person::logged_in(&proxy.base_url, "acme", "ada@acme.example").await;

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
    let ids = e2e::Broker::connect(&services.nats.url).await.message_ids().await;
    assert_eq!((ids.len(), ids.values().max()), (101, Some(&1)));

    let mine = ada.client.clone().header("X-User-ID", &ada.user_id);
    let sessions: Value = mine.get("/auth/sessions").await.expect(200);
    let items = sessions["items"].as_array().unwrap();
    assert_eq!(items.len(), 2);
    let id = items.iter().find(|session| session["current"] == false).unwrap()["id"].as_str().unwrap();
    ada.client.delete(&format!("/auth/sessions/{id}")).await.expect_empty(204);
    other.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    let event = json!({ "source_id": "s" });
    other.client.post("/events", &event).await.expect_problem(401, "credential_invalid");
    let raw = raw_client(&proxy.base_url).header("X-Session-ID", &ada.token);
    raw.post_bytes("/auth/sessions/logout", "", "").await.expect_empty(204);
    let refused = testkit::wait_until("ingest has heard of it", async || {
        transport.send(&UdmEvent::new("s")).await.error
    });
    assert_eq!(refused.await.code.as_deref(), Some("credential_invalid"));

    let problem = raw_client(&proxy.base_url).get("/eventsource").await.expect_problem(404, "not_found");
    assert_eq!(problem.type_uri, format!("{}/api/v1/problems/not_found", proxy.base_url));
    // The internal API has a listener of its own; nothing in front leads there.
    let internal = testkit::client::plain_http();
    let path = format!("{}/internal/v1/introspect", proxy.base_url);
    assert_eq!(internal.post(path).send().await.unwrap().status(), 404);

    for service in running {
        let name = service.address;
        let ended =
            testkit::within(std::time::Duration::from_secs(20), "a drain", service.end_beside_a_client());
        assert_eq!(ended.await.code(), Some(0), "{name}");
    }
}
