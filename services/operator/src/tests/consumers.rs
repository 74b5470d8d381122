//! Consumers as resources: their Secrets, their owners, and what removes their access.

use contract::consumers::{Consumer, ConsumerAccounts, CreatedConsumer, Partitions};
use hashing::TokenDigest;

use super::*;

const SIEM: &str = "/apis/svc.internal/v1alpha1/namespaces/apps/svcconsumers/siem";
const LOGIN: &str = "/api/v1/namespaces/apps/secrets/svc-consumer-siem";

impl Cluster {
    /// Creates the tenant `acme`, and the consumer `siem` in a namespace that it allows.
    fn apply_consumer(&self, spec: &Value) {
        self.apply_tenant(&json!({}));
        self.api.apply(APPS, &json!({ "metadata": { "labels": { "tenant": "acme" } } }));
        let mut full = json!({ "tenant": "acme", "start": "all" });
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.api.apply(SIEM, &json!({ "spec": full }));
    }

    async fn consumer(&self) -> Consumer {
        self.running.system.platform_admin().get("/consumers/siem").await.expect(200)
    }

    /// Returns the values of the Secret, if its password is that of the login at the broker.
    async fn login(&self) -> Option<Value> {
        let secret = self.api.get(LOGIN)?;
        let decoded = |value: &Value| {
            String::from_utf8(data_encoding::BASE64.decode(value.as_str().unwrap().as_bytes()).unwrap())
                .unwrap()
        };
        let data = secret["data"].as_object()?.iter();
        let data: Value = data.map(|(key, value)| (key.clone(), Value::String(decoded(value)))).collect();
        let operator = self.running.at_ingest(BLUE);
        let stored: Value = operator.get(contract::managed::CONSUMERS).await.expect(200);
        let digest = TokenDigest::from_text(data["NATS_PASSWORD"].as_str()?).to_hex();
        (stored[0]["login_digest"] == digest).then_some(data)
    }

    /// Waits until the Secret has the login with another password than the given one.
    async fn login_after(&self, password: &Value) -> Value {
        wait_until("the Secret has another login", async || {
            self.login().await.filter(|data| data["NATS_PASSWORD"] != *password)
        })
        .await
    }

    /// Returns whether the broker has a user of the consumer.
    async fn has_user(&self) -> bool {
        let platform = self.running.system.platform_admin();
        let accounts: ConsumerAccounts = platform.get("/consumers/_accounts").await.expect(200);
        accounts.content.contains("user: \"siem\"")
    }
}

#[tokio::test]
async fn a_consumer_has_a_login_in_a_secret_while_its_tenant_allows_its_namespace() {
    let cluster = Cluster::start().await;
    let spec = json!({ "tenant": "acme", "start": "new", "eventTypes": ["USER_LOGIN"], "maxAckPending": 7,
        "partitions": { "first": 0, "last": 31 } });
    cluster.api.apply(SIEM, &json!({ "spec": spec }));
    cluster.wait(SIEM, "False", "TenantNotFound").await;
    cluster.apply_consumer(&spec);
    cluster.wait(SIEM, "True", "Provisioned").await;
    let data = cluster.login_after(&Value::Null).await;
    let expected = json!({ "NATS_URL": "nats://nats.example", "NATS_USER": "siem",
        "NATS_PASSWORD": data["NATS_PASSWORD"], "NATS_STREAM": "UDM", "NATS_DURABLE": "siem" });
    assert_eq!(data, expected);
    let secret = cluster.api.get(LOGIN).unwrap();
    assert_eq!(secret["metadata"]["ownerReferences"][0]["kind"], "SvcConsumer");
    assert!(!cluster.api.get(SIEM).unwrap().to_string().contains(data["NATS_PASSWORD"].as_str().unwrap()));
    let consumer = cluster.consumer().await;
    assert_eq!((consumer.event_types, consumer.max_ack_pending), (vec!["USER_LOGIN".to_owned()], 7));
    assert_eq!(consumer.partitions, Some(Partitions { first: 0, last: 31 }));

    cluster.api.apply(APPS, &json!({ "metadata": { "labels": { "tenant": "other" } } }));
    cluster.wait(SIEM, "False", "NamespaceNotAllowed").await;
    wait_until("the Secret is deleted", async || cluster.api.get(LOGIN).is_none().then_some(())).await;
    wait_until("the login is removed", async || (!cluster.has_user().await).then_some(())).await;
    let kept = cluster.consumer().await;
    assert_eq!(kept.created_at, consumer.created_at, "its position remains");

    cluster.apply_consumer(&spec);
    let again = cluster.login_after(&data["NATS_PASSWORD"]).await;
    cluster.wait(SIEM, "True", "Provisioned").await;
    assert!(cluster.has_user().await);
    assert_ne!(again["NATS_PASSWORD"], data["NATS_PASSWORD"]);
    cluster.api.delete(SIEM);
    wait_until("the login is removed", async || (!cluster.has_user().await).then_some(())).await;
    let platform = cluster.running.system.platform_admin();
    platform.get("/consumers/siem").await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn a_lost_or_changed_secret_and_a_login_that_someone_else_has_replaced_are_repaired() {
    let cluster = Cluster::start().await;
    cluster.apply_consumer(&json!({}));
    cluster.wait(SIEM, "True", "Provisioned").await;
    let mut password = cluster.login_after(&Value::Null).await["NATS_PASSWORD"].clone();
    cluster.api.delete(LOGIN);
    password = cluster.login_after(&password).await["NATS_PASSWORD"].clone();
    cluster.api.apply(LOGIN, &json!({ "data": { "NATS_PASSWORD": "b3RoZXI=" } }));
    password = cluster.login_after(&password).await["NATS_PASSWORD"].clone();
    cluster.api.apply(LOGIN, &json!({ "data": { "NATS_DURABLE": "b3RoZXI=" } }));
    let same = wait_until("the durable is restored", async || {
        cluster.login().await.filter(|data| data["NATS_DURABLE"] == "siem")
    })
    .await;
    assert_eq!(same["NATS_PASSWORD"], password, "its login is not replaced");
    let platform = cluster.running.system.platform_admin();
    platform.post("/consumers/siem/rotate-login", &json!({})).await.expect::<CreatedConsumer>(200);
    cluster.login_after(&password).await;
}

#[tokio::test]
async fn a_change_of_the_spec_keeps_the_position_and_the_login() {
    let cluster = Cluster::start().await;
    cluster.apply_consumer(&json!({}));
    cluster.wait(SIEM, "True", "Provisioned").await;
    let (login, before) = (cluster.login_after(&Value::Null).await, cluster.consumer().await);
    cluster.apply_consumer(&json!({ "eventTypes": ["USER_LOGIN"], "ackWaitSeconds": 60 }));
    cluster.wait(SIEM, "True", "Provisioned").await;
    let after = cluster.consumer().await;
    assert_eq!((after.event_types, after.ack_wait_seconds), (vec!["USER_LOGIN".to_owned()], 60));
    assert_eq!((after.created_at, cluster.login().await), (before.created_at, Some(login)));
    // Deleted by the platform administrator, against the resource.
    cluster.running.system.platform_admin().delete("/consumers/siem").await.expect_empty(204);
    wait_until("the consumer exists again", async || cluster.login().await).await;
}

#[tokio::test]
async fn a_consumer_of_another_owner_and_a_secret_of_someone_else_are_left_as_they_are() {
    let cluster = Cluster::start().await;
    let platform = cluster.running.system.platform_admin();
    let request = json!({ "name": "siem", "tenant_id": "acme" });
    let created: CreatedConsumer = platform.post("/consumers", &request).await.expect(201);
    let foreign =
        json!({ "metadata": { "labels": { "app": "other" } }, "data": { "NATS_PASSWORD": "b3RoZXI=" } });
    cluster.api.apply(LOGIN, &foreign);
    cluster.apply_consumer(&json!({}));
    cluster.wait(SIEM, "False", "SecretTaken").await;
    assert_eq!(cluster.api.get(LOGIN).unwrap()["data"], foreign["data"]);
    cluster.api.delete(LOGIN);
    let taken = cluster.wait(SIEM, "False", "ConsumerTaken").await;
    assert!(message(&taken).contains("another owner"), "{taken}");
    assert_eq!(
        (cluster.consumer().await.created_at, cluster.api.get(LOGIN)),
        (created.consumer.created_at, None)
    );
    platform.delete("/consumers/siem").await.expect_empty(204);
    cluster.wait(SIEM, "True", "Provisioned").await;

    // A resource of another namespace with the same name.
    let other = SIEM.replace("/apps/", "/shop/");
    cluster.api.apply("/api/v1/namespaces/shop", &json!({ "metadata": { "labels": { "tenant": "acme" } } }));
    cluster.api.apply(&other, &json!({ "spec": { "tenant": "acme", "start": "all" } }));
    cluster.wait(&other, "False", "ConsumerTaken").await;
    assert!(cluster.login().await.is_some());
    cluster.api.delete(SIEM);
    cluster.wait(&other, "True", "Provisioned").await;
}

#[tokio::test]
async fn the_status_has_the_lag_of_the_consumer() {
    let cluster = Cluster::start().await;
    cluster.apply_producer();
    cluster.apply_tenant(&json!({}));
    cluster.wait(COLLECTOR, "True", "Provisioned").await;
    cluster.wait_for_status(202).await;
    cluster.apply_consumer(&json!({}));
    let ready = cluster.wait(SIEM, "True", "Provisioned").await;
    let lag = &ready["status"]["lag"];
    assert!(lag["pending"].as_u64() >= Some(1), "{ready}");
    assert!(lag["oldestUnreadSeconds"].is_u64() && lag["measuredAt"].is_string(), "{ready}");
}
