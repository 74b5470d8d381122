//! The alerts and dashboards of the chart, evaluated with the metrics of running services.

use std::path::Path;
use std::process::Command;

use contract::paths::Upstream;
use e2e::{ALL_SERVICES, ApiUser, Services, api_client, output_of, required_variable};
use serde_json::{Value, json};
use testkit::wait_until;

#[tokio::test]
async fn alerts_and_dashboards_use_existing_metrics_and_no_alert_fires_on_a_healthy_system() {
    let services = Services::prepare().await;
    services.migrate_all().await;
    // Without a limit the metrics of the limiter do not exist.
    let mut running =
        ALL_SERVICES.map(|service| services.start_with(service, &[("SVC_LIMIT_LOGIN", "30/min")]));
    for running in &mut running {
        running.wait_until_ready().await;
    }
    let proxy = services.start_proxy().await;
    let ada = ApiUser::create_acme(&proxy.base_url, &services.platform_token, "ada@acme.example").await;
    for _ in 0..2 {
        let event = json!({ "source_id": "fw", "event_id": "e1" });
        assert_eq!(ada.client.post("/events", &event).await.status, 202);
    }
    let platform = api_client(&proxy.base_url).bearer(&services.platform_token);
    let consumer = json!({ "name": "archive", "tenant_id": "acme" });
    platform.post("/consumers", &consumer).await.expect::<Value>(201);
    let admin = services.admin(Upstream::Ingest);
    wait_until("the consumer is measured", async || {
        let response =
            testkit::client::plain_http().get(format!("http://{admin}/metrics")).send().await.ok()?;
        response.text().await.ok()?.contains("svc_consumer_pending_events{").then_some(())
    })
    .await;
    let targets = ALL_SERVICES.map(|service| format!("{}={}", service.name(), services.admin(service)));
    let mut command = Command::new(required_variable("SVC_TEST_PYTHON"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("chart/live.py")).args(targets);
    let output = output_of(command).await;
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
}
