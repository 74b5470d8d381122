//! Alerts and dashboards of the chart, asked of the metrics that the running services show.

use std::path::Path;
use std::process::Command;

use contract::paths::Upstream;
use e2e::{Person, Services, given, output_of, raw_client};
use serde_json::{Value, json};

const ALL: [Upstream; 3] = [Upstream::Identity, Upstream::Session, Upstream::Ingest];

#[tokio::test]
async fn alerts_and_dashboards_ask_for_what_the_services_show_and_nothing_fires_while_they_are_well() {
    let services = Services::prepare().await;
    for service in [Upstream::Identity, Upstream::Session] {
        assert!(services.migrate(service, "up").await.status.success());
    }
    // Else there is nothing to show of limits.
    let mut running = ALL.map(|service| services.start_with(service, &[("SVC_LIMIT_LOGIN", "30/min")]));
    for running in &mut running {
        running.until_ready().await;
    }
    let proxy = services.proxy().await;
    let operator = raw_client(&proxy.base_url).bearer(&services.platform_token);
    let tenant = json!({
        "tenant_id": "acme", "display_name": "Acme", "admin_email": "ada@acme.example", "delivery": "response",
    });
    let tenant: Value = operator.post("/tenants", &tenant).await.expect(201);
    let ada = Person::invited(&proxy.base_url, tenant["invite"]["token"].as_str().unwrap()).await;
    for _ in 0..2 {
        let event = json!({ "source_id": "fw", "event_id": "e1" });
        assert_eq!(ada.client.post("/events", &event).await.status, 202);
    }
    let targets = ALL.map(|service| format!("{}={}", service.name(), services.admin(service)));
    let mut asking = Command::new(given("SVC_TEST_PYTHON"));
    asking.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("chart/live.py")).args(targets);
    let asked = output_of(asking).await;
    let said = String::from_utf8_lossy(&asked.stdout);
    assert!(asked.status.success(), "{said}{}", String::from_utf8_lossy(&asked.stderr));
}
