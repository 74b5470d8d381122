//! Producers that the operator manages.

use contract::Page;
use contract::audit::AuditRecord;
use contract::internal::{INTROSPECT, Introspect, Introspected};
use contract::managed::{ManagedProducer, PRODUCERS, Producer, StoredProducer, producer_path};
use serde_json::{Value, json};
use testkit::wait_until;
use testsystem::{BLUE, GREEN, SystemWithOperator};
use uuid::Uuid;

const UID: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);

fn producer(generation: i64) -> Producer {
    Producer {
        tenant_id: "acme".parse().unwrap(),
        service_account: "apps/collector".parse().unwrap(),
        source_ids: vec!["fw-1".to_owned()],
        generation,
    }
}

/// Starts a system with the tenant `acme`, which session knows.
async fn start() -> SystemWithOperator {
    let running = SystemWithOperator::start().await.unwrap();
    running.system.create_tenant("acme").await;
    running
}

/// Returns the active subject of `apps/collector`.
async fn subject(running: &SystemWithOperator) -> Value {
    let digest = authn::service_account_digest(&producer(1).service_account);
    let client = running.session().bearer(&running.system.service_token);
    let introspected = client.post(INTROSPECT, &Introspect { digests: vec![digest.to_hex()] }).await;
    let Introspected { subjects } = introspected.expect(200);
    serde_json::to_value(&subjects[0]).unwrap()
}

#[tokio::test]
async fn only_tokens_of_the_operator_for_session_are_accepted() {
    let running = start().await;
    let path = producer_path(UID);
    let put = async |token: &str| running.session().bearer(token).put(&path, &producer(1)).await;
    running.session().put(&path, &producer(1)).await.expect_problem(401, "unauthenticated");
    put(&running.system.service_token).await.expect_problem(401, "credential_invalid");
    put(&running.token("svc/operator", "svc-identity")).await.expect_problem(401, "credential_invalid");
    put(&running.token("svc/other", "svc-session")).await.expect_problem(403, "forbidden");
    running.reviews.respond_with(500);
    put(&running.token("svc/operator", "svc-session")).await.expect_problem(503, "dependency_unavailable");
    running.reviews.respond_with(201);
    running.operator_at_session().put(&path, &producer(1)).await.expect_empty(204);
}

#[tokio::test]
async fn a_producer_is_active_until_it_is_deleted_or_its_tenant_suspended() {
    let running = start().await;
    let (operator, path) = (running.operator_at_session(), producer_path(UID));
    assert_eq!(subject(&running).await, Value::Null);
    operator.put(&path, &producer(1)).await.expect_empty(204);
    let active = subject(&running).await;
    assert_eq!(active["credential"]["kind"], "service_account");
    assert_eq!(active["credential"]["source_ids"], json!(["fw-1"]));
    assert_eq!(active["tenant_id"], "acme");

    let set_status = async |status: &str| {
        let admin = running.system.platform_admin();
        admin.patch("/tenants/acme", &json!({ "status": status })).await.expect::<Value>(200);
    };
    set_status("suspended").await;
    assert_eq!(subject(&running).await, Value::Null);
    set_status("active").await;
    assert_eq!(subject(&running).await["tenant_id"], "acme");

    let listed: Vec<StoredProducer> = operator.get(PRODUCERS).await.expect(200);
    assert_eq!(listed, [StoredProducer { uid: UID, producer: producer(1) }]);
    let delete = format!("{path}?tenant_id=acme");
    operator.delete(&delete).await.expect_empty(204);
    operator.delete(&delete).await.expect_empty(204);
    assert_eq!(subject(&running).await, Value::Null);
    assert_eq!(operator.get(PRODUCERS).await.expect::<Vec<Value>>(200), [Value::Null; 0]);
}

#[tokio::test]
async fn a_stale_write_and_one_after_the_final_deletion_change_nothing() {
    let running = start().await;
    let (operator, path) = (running.operator_at_session(), producer_path(UID));
    let changed = Producer { source_ids: vec!["fw-2".to_owned()], ..producer(2) };
    operator.put(&path, &producer(1)).await.expect_empty(204);
    operator.put(&path, &changed).await.expect_empty(204);
    let stale: Value = operator.put(&path, &producer(1)).await.expect(409);
    assert_eq!(stale, json!({ "conflict": "stale" }));
    assert_eq!(subject(&running).await["credential"]["source_ids"], json!(["fw-2"]));
    operator.delete(&format!("{path}?tenant_id=acme")).await.expect_empty(204);
    operator.put(&path, &changed).await.expect_empty(204);
    operator.delete(&format!("{path}?tenant_id=acme&is_final=true")).await.expect_empty(204);
    let released: Value = operator.put(&path, &changed).await.expect(409);
    assert_eq!(released, json!({ "conflict": "released" }));
    assert_eq!(subject(&running).await, Value::Null);
}

#[tokio::test]
async fn a_producer_that_was_deleted_by_mistake_returns_with_a_change_or_after_ten_minutes() {
    let running = start().await;
    let (operator, path) = (running.operator_at_session(), producer_path(UID));
    let delete = format!("{path}?tenant_id=acme&is_final=true");
    operator.put(&path, &producer(1)).await.expect_empty(204);
    operator.delete(&delete).await.expect_empty(204);
    operator.put(&path, &producer(2)).await.expect_empty(204);
    assert_eq!(subject(&running).await["tenant_id"], "acme");
    operator.delete(&delete).await.expect_empty(204);
    assert_eq!(operator.put(&path, &producer(2)).await.status, 409);
    running
        .system
        .run_sql("update session.producers set deleted_at = deleted_at - interval '10 minutes'")
        .await;
    operator.put(&path, &producer(2)).await.expect_empty(204);
    assert_eq!(subject(&running).await["tenant_id"], "acme");
}

#[tokio::test]
async fn an_operator_of_another_cluster_lists_and_deletes_only_its_own_producers() {
    let running = start().await;
    let (blue, green) = (running.operator_at_session(), running.at_session(GREEN));
    blue.put(&producer_path(UID), &producer(1)).await.expect_empty(204);
    assert_eq!(green.get(PRODUCERS).await.expect::<Vec<Value>>(200), [Value::Null; 0]);
    let elsewhere = json!({ "conflict": "managed_elsewhere", "operator": BLUE });
    for final_ in ["", "&is_final=true"] {
        let delete = format!("{}?tenant_id=acme{final_}", producer_path(UID));
        assert_eq!(green.delete(&delete).await.expect::<Value>(409), elsewhere);
    }
    for uid in [UID, OTHER] {
        assert_eq!(green.put(&producer_path(uid), &producer(9)).await.expect::<Value>(409), elsewhere);
    }
    assert_eq!(subject(&running).await["tenant_id"], "acme");
}

#[tokio::test]
async fn an_operator_takes_over_the_producer_of_one_that_it_names_without_an_interruption() {
    let running = start().await;
    let (blue, green) = (running.operator_at_session(), running.at_session(GREEN));
    blue.put(&producer_path(UID), &producer(5)).await.expect_empty(204);
    let take_over_from = vec![BLUE.parse().unwrap()];
    let taking = ManagedProducer { producer: producer(1), take_over_from };
    green.put(&producer_path(OTHER), &taking).await.expect_empty(204);
    let listed: Vec<StoredProducer> = green.get(PRODUCERS).await.expect(200);
    assert_eq!(listed, [StoredProducer { uid: OTHER, producer: producer(1) }]);
    // The first operator has nothing left to delete.
    assert_eq!(blue.get(PRODUCERS).await.expect::<Vec<Value>>(200), [Value::Null; 0]);
    let delete = format!("{}?tenant_id=acme&is_final=true", producer_path(UID));
    blue.delete(&delete).await.expect_empty(204);
    assert_eq!(subject(&running).await["tenant_id"], "acme");
}

#[tokio::test]
async fn a_service_account_has_one_producer() {
    let running = start().await;
    let operator = running.operator_at_session();
    operator.put(&producer_path(UID), &producer(1)).await.expect_empty(204);
    running.system.create_tenant("globex").await;
    let other = Producer { tenant_id: "globex".parse().unwrap(), ..producer(1) };
    let taken: Value = operator.put(&producer_path(OTHER), &other).await.expect(409);
    assert_eq!(taken, json!({ "conflict": "service_account_taken" }));
    operator.delete(&format!("{}?tenant_id=acme", producer_path(UID))).await.expect_empty(204);
    operator.put(&producer_path(OTHER), &other).await.expect_empty(204);
    assert_eq!(subject(&running).await["tenant_id"], "globex");
}

#[tokio::test]
async fn a_resource_with_a_producer_in_another_tenant_is_a_conflict() {
    let running = start().await;
    let (operator, path) = (running.operator_at_session(), producer_path(UID));
    operator.put(&path, &producer(1)).await.expect_empty(204);
    running.system.create_tenant("globex").await;
    let service_account = "apps/sensor".parse().unwrap();
    let moved = Producer { tenant_id: "globex".parse().unwrap(), service_account, ..producer(2) };
    let conflict: Value = operator.put(&path, &moved).await.expect(409);
    assert_eq!(conflict, json!({ "conflict": "stale" }));
    assert_eq!(subject(&running).await["tenant_id"], "acme");
    operator.delete(&format!("{path}?tenant_id=acme")).await.expect_empty(204);
    operator.put(&path, &moved).await.expect_empty(204);
}

#[tokio::test]
async fn a_producer_needs_a_tenant_that_exists_and_valid_values() {
    let running = start().await;
    let operator = running.operator_at_session();
    let put = async |producer: Producer| operator.put(&producer_path(UID), &producer).await;
    let unknown = Producer { tenant_id: "globex".parse().unwrap(), ..producer(1) };
    assert_eq!(put(unknown).await.expect::<Value>(409), json!({ "conflict": "tenant_not_found" }));
    let mut named = producer(1);
    named.service_account.name = "two\nlines".to_owned();
    let many = (0..101).map(|number| format!("fw-{number}")).collect();
    for invalid in [
        named,
        Producer { source_ids: Vec::new(), ..producer(1) },
        Producer { source_ids: many, ..producer(1) },
        Producer { source_ids: vec![" ".to_owned()], ..producer(1) },
    ] {
        put(invalid).await.expect_problem(422, "validation_failed");
    }
}

#[tokio::test]
async fn an_equal_producer_is_not_written_and_audited_again() {
    let running = SystemWithOperator::start().await.unwrap();
    let (admin, operator) = (running.system.create_tenant("acme").await, running.operator_at_session());
    for _ in 0..3 {
        operator.put(&producer_path(UID), &producer(1)).await.expect_empty(204);
    }
    operator.put(&producer_path(UID), &producer(2)).await.expect_empty(204);
    operator.delete(&format!("{}?tenant_id=acme", producer_path(UID))).await.expect_empty(204);
    running.system.wait_for_empty_outbox().await;
    let mut page: Page<AuditRecord> = admin.client.get("/audit?limit=200").await.expect(200);
    // Events arrive slightly out of order.
    page.items.sort_by_key(|record| record.id);
    let abouts = page.items.iter().filter_map(|record| record.about.as_deref());
    let abouts: Vec<_> = abouts.filter(|about| about.starts_with("producer")).collect();
    assert_eq!(abouts, ["producer_changed", "producer_changed", "producer_deleted"], "{page:?}");
}

#[tokio::test]
async fn erasure_of_a_tenant_deletes_its_producers() {
    let running = start().await;
    running.operator_at_session().put(&producer_path(UID), &producer(1)).await.expect_empty(204);
    let platform = running.system.platform_admin();
    platform.patch("/tenants/acme", &json!({ "status": "suspended" })).await.expect::<Value>(200);
    platform.delete("/tenants/acme").await.expect_empty(204);
    let erase = "select session.erase_tenants(now(), 1000)";
    wait_until("the row is deleted", async || {
        running.system.run_sql(erase).await;
        (!running.system.dump_database().await.contains("collector")).then_some(())
    })
    .await;
}
