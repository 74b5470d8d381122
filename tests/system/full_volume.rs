//! A nats-server that cannot write, as on a full volume: it replies to probes and to no message, also after the volume has space
//! again, until it is restarted.

use std::time::Duration;

use e2e::{ApiUser, Producers, Service, Services, api_client};
use serde_json::{Value, json};
use testkit::{TestResponse, wait_until, within};

/// The limit for each response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
const EVENTS: &str = r#"svc_publish_available{stream="UDM"}"#;
const AUDIT: &str = r#"svc_publish_available{stream="AUDIT"}"#;

async fn is_available(service: &Service, stream: &str) -> bool {
    service.metric(stream).await > 0.5
}

fn expect_unavailable(response: &TestResponse) {
    response.expect_problem(503, "dependency_unavailable");
    assert!(response.headers.contains_key("retry-after"), "{response}");
}

#[tokio::test]
async fn on_a_full_volume_events_get_503_at_once_until_the_restarted_broker_acknowledges_one() {
    let mut services = Services::prepare().await;
    services.migrate_all().await;
    let [identity, session, ingest] = services.start_all(&[]).await;
    let base_url = format!("http://{}", identity.address);
    let ada = ApiUser::create_acme(&base_url, &services.platform_token, "ada@acme.example").await;
    let client = api_client(&format!("http://{}", ingest.address)).bearer(&ada.token);
    let mut producers = Producers::start(&client);
    producers.wait_for_acknowledged(50).await;

    services.nats.fail_writes(true).unwrap();
    wait_until("the stream is not available", async || (!is_available(&ingest, EVENTS).await).then_some(()))
        .await;
    let send = async || {
        let event = json!({ "source_id": "s" });
        within(RESPONSE_TIMEOUT, "an event", client.post("/events", &event)).await
    };
    // One call per second is published and waits for an acknowledgement. The others do not.
    wait_until("an event is rejected at once", async || {
        let response = send().await;
        if response.status == 503 && response.json()["code"] == "ack_timeout" {
            return None;
        }
        expect_unavailable(&response);
        Some(())
    })
    .await;
    expect_unavailable(&client.get("/health").await);
    assert!(ingest.is_ready().await, "an outage of the broker does not restart or remove pods");
    // Logins work, and their audit events wait.
    for _ in 0..5 {
        ApiUser::log_in(&base_url, "acme", "ada@acme.example").await;
    }
    wait_until("the audit stream is not available", async || {
        (!is_available(&session, AUDIT).await).then_some(())
    })
    .await;

    services.nats.fail_writes(false).unwrap();
    producers.wait_for_rejected(20).await;
    assert!(!is_available(&ingest, EVENTS).await, "the server replies to probes only");

    services.nats.restart().await.unwrap();
    producers.wait_for_acknowledged(50).await;
    for (service, stream) in [(&ingest, EVENTS), (&session, AUDIT)] {
        wait_until(stream, async || is_available(service, stream).await.then_some(())).await;
    }
    client.get("/health").await.expect::<Value>(200);
    let acknowledged = producers.stop().await;
    e2e::EventStream::connect(&services.nats.url).await.expect_each_once(&acknowledged).await;
}
