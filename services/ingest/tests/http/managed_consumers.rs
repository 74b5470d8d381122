//! Consumers that the operator manages.

use contract::consumers::{ConsumerAccounts, CreatedConsumer};
use contract::managed::{
    CONSUMERS, Conflict, ConsumerReference, ManagedConsumer, OperatorId, StoredConsumer, WrittenConsumer,
    consumer_path, login_path,
};
use contract::{ProblemKind, consumers::Consumer};
use hashing::TokenDigest;
use serde_json::{Value, json};
use tenancy::Actor;
use testsystem::{BLUE, GREEN, SystemWithOperator};
use uuid::Uuid;

use super::changes::{abouts, recorded};

const UID: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);

fn write(generation: i64, change: &Value) -> ManagedConsumer {
    let mut write = json!({ "name": "siem", "tenant_id": "acme", "start": "all", "generation": generation });
    write.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    serde_json::from_value(write).unwrap()
}

fn reference(is_final: bool) -> ConsumerReference {
    ConsumerReference { name: "siem".parse().unwrap(), is_final }
}

fn deletion(uid: Uuid, is_final: bool) -> String {
    format!("{}?name=siem&is_final={is_final}", consumer_path(uid))
}

/// The passwords in the accounts of the broker are hashes. Returns whether there is a user of the consumer.
async fn has_login(running: &SystemWithOperator) -> bool {
    let accounts: ConsumerAccounts =
        running.system.platform_admin().get("/consumers/_accounts").await.expect(200);
    accounts.content.contains("user: \"siem\"")
}

#[tokio::test]
async fn only_tokens_of_the_operator_for_ingest_are_accepted() {
    let running = SystemWithOperator::start().await.unwrap();
    let (path, body) = (consumer_path(UID), write(1, &json!({})));
    let put = async |token: &str| running.ingest().bearer(token).put(&path, &body).await;
    running.ingest().put(&path, &body).await.expect_problem(401, "unauthenticated");
    put(&running.system.service_token).await.expect_problem(401, "credential_invalid");
    put(&running.system.platform_token).await.expect_problem(401, "credential_invalid");
    put(&running.token("svc/operator", "svc-session")).await.expect_problem(401, "credential_invalid");
    put(&running.token("apps/collector", "svc-ingest")).await.expect_problem(403, "forbidden");
    running.at_ingest(BLUE).put(&path, &body).await.expect::<WrittenConsumer>(200);
    // The public listener has no such route.
    running.system.client().get(CONSUMERS).await.expect_problem(404, ProblemKind::NotFound.code());
}

#[tokio::test]
async fn a_new_consumer_has_a_login_that_is_replaced_and_removed_while_its_position_remains() {
    let running = SystemWithOperator::start().await.unwrap();
    let operator = running.at_ingest(BLUE);
    let created: WrittenConsumer = operator.put(&consumer_path(UID), &write(1, &json!({}))).await.expect(200);
    let digest = |written: &WrittenConsumer| {
        let login = written.login.as_ref().unwrap();
        Some(TokenDigest::from_text(login.password.expose()).to_hex())
    };
    assert_eq!(created.stored.login_digest, digest(&created));
    assert_eq!(created.stored.streams, ["UDM"]);
    let again: WrittenConsumer = operator.put(&consumer_path(UID), &write(1, &json!({}))).await.expect(200);
    assert!(again.login.is_none());
    assert_eq!(again.stored, created.stored);

    let renewed: WrittenConsumer = operator.post(&login_path(UID), &reference(false)).await.expect(200);
    assert_eq!(renewed.stored.login_digest, digest(&renewed));
    assert_ne!(renewed.stored.login_digest, created.stored.login_digest);
    assert!(has_login(&running).await);
    let created_at = async || {
        running.system.platform_admin().get("/consumers/siem").await.expect::<Consumer>(200).created_at
    };
    let before = created_at().await;
    operator.delete(&deletion(UID, false)).await.expect_empty(204);
    assert!(!has_login(&running).await);
    let listed: Vec<StoredConsumer> = operator.get(CONSUMERS).await.expect(200);
    assert_eq!((listed.len(), listed[0].login_digest.clone()), (1, None));
    operator.post(&login_path(UID), &reference(false)).await.expect::<WrittenConsumer>(200);
    assert!(has_login(&running).await);
    assert_eq!(created_at().await, before);

    for _ in 0..2 {
        operator.delete(&deletion(UID, true)).await.expect_empty(204);
    }
    assert!(!has_login(&running).await);
    assert_eq!(operator.get(CONSUMERS).await.expect::<Vec<StoredConsumer>>(200), []);
    operator.post(&login_path(UID), &reference(false)).await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn filter_and_limits_change_with_the_resource_while_tenant_and_start_cannot() {
    let running = SystemWithOperator::start().await.unwrap();
    let (operator, path) = (running.at_ingest(BLUE), consumer_path(UID));
    let created: WrittenConsumer = operator.put(&path, &write(1, &json!({}))).await.expect(200);
    let change = json!({ "event_types": ["USER_LOGIN"], "ack_wait_seconds": 60, "max_ack_pending": 5 });
    let changed: WrittenConsumer = operator.put(&path, &write(2, &change)).await.expect(200);
    assert_eq!(changed.stored.consumer, write(2, &change).consumer);
    assert_eq!(changed.stored.login_digest, created.stored.login_digest);
    let consumer: Consumer = running.system.platform_admin().get("/consumers/siem").await.expect(200);
    assert_eq!((consumer.ack_wait_seconds, consumer.max_ack_pending), (60, 5));
    let broker = async_nats::jetstream::new(running.system.nats.connect("administrator").await.unwrap());
    let stream = broker.get_stream("UDM").await.unwrap();
    let config = stream.consumer_info("siem").await.unwrap().config;
    assert_eq!(config.filter_subjects, ["udm.v1.*.acme.GENERIC_EVENT", "udm.v1.*.acme.USER_LOGIN"]);
    assert_eq!((config.ack_wait.as_secs(), config.max_ack_pending), (60, 5));
    let stale: Conflict = operator.put(&path, &write(1, &json!({}))).await.expect(409);
    assert_eq!(stale, Conflict::Stale);
    // A reset does not change what the operator compares with the resource.
    let reset = json!({ "to": "new" });
    running.system.platform_admin().post("/consumers/siem/reset", &reset).await.expect::<Consumer>(200);
    operator.put(&path, &write(3, &change)).await.expect::<WrittenConsumer>(200);
    for change in [json!({ "start": "new" }), json!({ "tenant_id": "beta" }), json!({ "max_ack_pending": 0 })]
    {
        operator.put(&path, &write(3, &change)).await.expect_problem(422, "validation_failed");
    }
}

#[tokio::test]
async fn a_change_of_the_operator_is_an_audit_event_and_an_equal_consumer_is_not_audited_again() {
    let running = SystemWithOperator::start().await.unwrap();
    let (admin, operator) = (running.system.create_tenant("acme").await, running.at_ingest(BLUE));
    for generation in [1, 1, 2] {
        let write = write(generation, &json!({}));
        operator.put(&consumer_path(UID), &write).await.expect::<WrittenConsumer>(200);
    }
    operator.post(&login_path(UID), &reference(false)).await.expect::<WrittenConsumer>(200);
    for is_final in [false, true, true] {
        operator.delete(&deletion(UID, is_final)).await.expect_empty(204);
    }
    let records = recorded(&running.system, &admin.client).await;
    let expected = [
        "consumer_created",
        "consumer_changed",
        "consumer_login_replaced",
        "consumer_login_removed",
        "consumer_deleted",
    ];
    assert_eq!(abouts(&records), expected);
    assert!(records.iter().all(|record| record.actor == Actor::System), "{records:?}");
}

#[tokio::test]
async fn a_consumer_of_another_owner_is_never_changed() {
    let running = SystemWithOperator::start().await.unwrap();
    let (platform, blue, green) =
        (running.system.platform_admin(), running.at_ingest(BLUE), running.at_ingest(GREEN));
    let request = json!({ "name": "siem", "tenant_id": "acme" });
    platform.post("/consumers", &request).await.expect::<CreatedConsumer>(201);
    let put = async |client: &testkit::Client, uid, write: &ManagedConsumer| {
        client.put(&consumer_path(uid), write).await.expect::<Conflict>(409)
    };
    assert_eq!(put(&blue, UID, &write(1, &json!({}))).await, Conflict::ConsumerTaken);
    blue.delete(&deletion(UID, true)).await.expect_empty(204);
    assert!(has_login(&running).await, "it is not the consumer of this resource");
    platform.delete("/consumers/siem").await.expect_empty(204);

    blue.put(&consumer_path(UID), &write(1, &json!({}))).await.expect::<WrittenConsumer>(200);
    let elsewhere = Conflict::ManagedElsewhere { operator: BLUE.parse::<OperatorId>().unwrap() };
    assert_eq!(put(&blue, OTHER, &write(9, &json!({}))).await, Conflict::ConsumerTaken);
    assert_eq!(put(&green, OTHER, &write(9, &json!({}))).await, elsewhere);
    assert_eq!(green.post(&login_path(UID), &reference(false)).await.expect::<Conflict>(409), elsewhere);
    assert_eq!(green.delete(&deletion(UID, true)).await.expect::<Conflict>(409), elsewhere);
    assert_eq!(green.get(CONSUMERS).await.expect::<Vec<StoredConsumer>>(200), []);
    let after = blue.get(&format!("{CONSUMERS}?after={UID}")).await.expect::<Vec<StoredConsumer>>(200);
    assert_eq!(after, []);

    let taking = write(1, &json!({ "take_over_from": [BLUE] }));
    let taken: WrittenConsumer = green.put(&consumer_path(OTHER), &taking).await.expect(200);
    assert_eq!((taken.stored.owner.uid, taken.login.is_none()), (OTHER, true));
    blue.delete(&deletion(UID, true)).await.expect_empty(204);
    assert_eq!(green.get(CONSUMERS).await.expect::<Vec<StoredConsumer>>(200).len(), 1);
}
