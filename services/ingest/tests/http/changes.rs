//! Audit events of changes of consumers and quarantined items.

use contract::Page;
use contract::audit::AuditRecord;
use contract::consumers::{Consumer, CreatedConsumer, DeadLetter};
use contract::internal::IngestChange;
use serde_json::{Value, json};
use tenancy::Actor;
use testkit::Client;
use testsystem::TestSystem;

/// Returns the audit events of changes in ingest that a client can read, in the order in which they were recorded.
pub(super) async fn recorded(system: &TestSystem, client: &Client) -> Vec<AuditRecord> {
    system.wait_for_empty_outbox().await;
    let page: Page<AuditRecord> = client.get("/audit?kind=authz_admin&limit=200").await.expect(200);
    let mut records = page.items;
    records.retain(|record| record.request_id.is_some());
    // Events arrive slightly out of order.
    records.sort_by_key(|record| record.id);
    records
}

pub(super) fn abouts(records: &[AuditRecord]) -> Vec<&str> {
    records.iter().filter_map(|record| record.about.as_deref()).collect()
}

#[tokio::test]
async fn each_change_of_a_consumer_is_an_audit_event_of_its_tenant() {
    let system = TestSystem::start().await.unwrap();
    let (acme, beta) = (system.create_tenant("acme").await, system.create_tenant("beta").await);
    let platform = system.platform_admin().header("X-Request-Id", "req-7");
    let request = json!({ "name": "siem", "tenant_id": "acme" });
    platform.post("/consumers", &request).await.expect::<CreatedConsumer>(201);
    platform.post("/consumers/siem/rotate-login", &json!({})).await.expect::<CreatedConsumer>(200);
    for (action, body) in [("pause", json!({})), ("resume", json!({})), ("reset", json!({ "to": "new" }))] {
        platform.post(&format!("/consumers/siem/{action}"), &body).await.expect::<Consumer>(200);
    }
    platform.delete("/consumers/siem").await.expect_empty(204);
    platform.delete("/consumers/siem").await.expect_problem(404, "not_found");
    let records = recorded(&system, &acme.client).await;
    let expected = [
        "consumer_created",
        "consumer_login_replaced",
        "consumer_paused",
        "consumer_resumed",
        "consumer_reset",
        "consumer_deleted",
    ];
    assert_eq!(abouts(&records), expected);
    for record in &records {
        assert_eq!((record.actor, record.context.as_str()), (Actor::PlatformAdmin, "session"), "{record:?}");
        assert_eq!(record.consumer.as_deref(), Some("siem"), "{record:?}");
        assert_eq!(record.request_id.as_deref(), Some("req-7"), "{record:?}");
        assert!(record.ip.is_some(), "{record:?}");
    }
    assert_eq!(recorded(&system, &beta.client).await, []);
}

#[tokio::test]
async fn a_consumer_is_not_changed_if_its_audit_event_cannot_be_recorded() {
    let system = TestSystem::start().await.unwrap();
    let platform = system.platform_admin();
    let request = |name: &str| json!({ "name": name, "tenant_id": "acme" });
    platform.post("/consumers", &request("old")).await.expect::<CreatedConsumer>(201);
    system.wait_for_empty_outbox().await;
    system.run_sql("revoke insert on session.outbox from svc_session").await;
    platform.post("/consumers", &request("new")).await.expect_problem(503, "dependency_unavailable");
    platform.post("/consumers/old/pause", &json!({})).await.expect_problem(503, "dependency_unavailable");
    platform.delete("/consumers/old").await.expect_problem(503, "dependency_unavailable");
    let page: Page<Consumer> = platform.get("/consumers").await.expect(200);
    let stored: Vec<_> =
        page.items.iter().map(|consumer| (consumer.name.as_str(), consumer.paused)).collect();
    assert_eq!(stored, [("old", false)]);
    system.run_sql("grant insert on session.outbox to svc_session").await;
    platform.delete("/consumers/old").await.expect_empty(204);
}

#[tokio::test]
async fn the_deletion_of_quarantined_items_is_an_audit_event_of_the_administrator() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let invalid = json!({ "source_id": "fw", "metadata": { "event_timestamp": "yesterday" } });
    admin.client.post("/events?invalid=quarantine", &invalid).await.expect::<Value>(202);
    let items = admin.client.get("/events/quarantine").await.expect::<Page<DeadLetter>>(200).items;
    let body = json!({ "sequences": [items[0].sequence] });
    for _ in 0..2 {
        admin.client.post("/events/quarantine/delete", &body).await.expect::<Value>(200);
    }
    let records = recorded(&system, &admin.client).await;
    assert_eq!(abouts(&records), ["quarantined_deleted"], "the second request deletes nothing");
    assert_eq!(records[0].actor, Actor::User { user_id: admin.session.user_id });
    assert_eq!(records[0].consumer, None);
}

#[test]
fn the_document_lists_each_change() {
    let document = include_str!("../../../../docs/audit.md");
    for change in IngestChange::ALL {
        assert!(document.contains(&format!("`{change}`")), "{change}");
    }
}
