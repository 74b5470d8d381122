//! Quotas of tenants, with two replicas of ingest and with the real CLI.

use std::path::Path;
use std::time::Instant;

use contract::paths::Upstream;
use e2e::{ALL_SERVICES, ApiUser, Service, Services, Svc, api_client, program};
use serde_json::{Value, json};
use testkit::wait_until;

const REPLICAS: &str = "svc_ingest_replicas";

async fn wait_for_replicas(service: &Service, count: f64) {
    wait_until("the number of replicas changes", async || {
        ((service.metric(REPLICAS).await - count).abs() < 0.5).then_some(())
    })
    .await;
}

#[tokio::test]
async fn two_replicas_of_ingest_share_a_quota_and_svc_waits_for_it() {
    let services = Services::prepare().await;
    services.migrate_all().await;
    let [identity, session, first] = ALL_SERVICES.map(|service| services.start(service));
    let mut running = [identity, session, first, services.start_second(Upstream::Ingest)];
    for service in &mut running {
        service.wait_until_ready().await;
    }
    let proxy = services.start_proxy().await;
    let ada = ApiUser::create_acme(&proxy.base_url, &services.platform_token, "ada@acme.example").await;
    let platform_admin = api_client(&proxy.base_url).bearer(&services.platform_token);
    let quota = json!({ "quota": { "events_per_second": 100 } });
    platform_admin.patch("/tenants/acme", &quota).await.expect::<Value>(200);
    let [_, _, first, second] = running;
    for replica in [&first, &second] {
        wait_for_replicas(replica, 2.0).await;
    }
    let events: Vec<_> = (0..1000).map(|_| json!({ "source_id": "s" })).collect();
    for replica in [&first, &second] {
        let client = api_client(&format!("http://{}", replica.address)).bearer(&ada.token);
        let start = Instant::now();
        let mut accepted = 0;
        for _ in 0..5 {
            let answer = client.post("/events/batch", &events).await;
            assert!([207, 429].contains(&answer.status), "{answer}");
            accepted += answer.json()["successful_events"].as_u64().unwrap_or_default();
        }
        // Half of the quota: 50 at once, those of two seconds in advance, and 50 per second.
        let allowed = 50.0 * (3.0 + start.elapsed().as_secs_f64());
        assert!(accepted >= 150, "{accepted}");
        assert!(f64::from(u32::try_from(accepted).unwrap()) <= allowed, "{accepted} {allowed}");
    }
    let key: Value = ada.client.post("/api-keys", &json!({ "name": "k" })).await.expect(201);
    let svc = Svc::new(Path::new(program("svc").get_program()), &proxy.base_url, "acme")
        .with_api_key(key["key"].as_str().unwrap());
    let lines = "{\"source_id\":\"s\"}\n".repeat(120);
    let sent = svc.json(&["events", "send", "--file", "-"], &lines).await;
    assert_eq!((&sent["accepted"], &sent["rejected"]), (&json!(120), &json!(0)), "svc waits for the quota");

    assert_eq!(second.stop_with_open_connection().await.code(), Some(0));
    wait_for_replicas(&first, 1.0).await;
}
