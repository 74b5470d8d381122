//! Events sent with the token of a Kubernetes service account.

use contract::events::{AcceptedEvent, BatchResponse};
use contract::managed::{Producer, producer_path};
use serde_json::json;
use service::Clock as _;
use service::clock::SystemClock;
use testkit::{Client, TestResponse, wait_until};
use testsystem::SystemWithOperator;
use uuid::Uuid;

use super::stream::{header, messages};

const COLLECTOR: &str = "apps/collector";
const UID: Uuid = Uuid::from_u128(1);

/// Starts a system in which `apps/collector` sends events of the source `fw-1` for the tenant `acme`.
async fn start() -> SystemWithOperator {
    let running = SystemWithOperator::start().await.unwrap();
    running.system.create_tenant("acme").await;
    let producer = Producer {
        tenant_id: "acme".parse().unwrap(),
        service_account: COLLECTOR.parse().unwrap(),
        source_ids: vec!["fw-1".to_owned()],
        generation: 1,
    };
    running.operator_at_session().put(&producer_path(UID), &producer).await.expect_empty(204);
    running
}

/// A pod of the service account.
fn pod(running: &SystemWithOperator, service_account: &str) -> Client {
    running.system.client().bearer(&running.token(service_account, "svc-ingest"))
}

async fn send(client: &Client, source: &str) -> TestResponse {
    client.post("/events", &json!({ "source_id": source })).await
}

#[tokio::test]
async fn a_pod_sends_events_of_its_sources_with_its_token() {
    let running = start().await;
    let collector = pod(&running, COLLECTOR);
    send(&collector, "fw-1").await.expect::<AcceptedEvent>(202);
    send(&collector, "fw-2").await.expect_problem(403, "source_not_allowed");
    let batch = json!([{ "source_id": "fw-1" }, { "source_id": "fw-2" }]);
    let batch: BatchResponse = collector.post("/events/batch", &batch).await.expect(207);
    assert_eq!((batch.successful_events, batch.failed_events), (1, 1));
    let stored = messages(&running.system).await;
    assert_eq!(stored.len(), 2);
    assert_eq!(header(&stored[0], "Udm-Credential"), "serviceaccount:apps/collector");
}

#[tokio::test]
async fn a_new_token_of_the_service_account_is_accepted_too() {
    let running = start().await;
    for _ in 0..3 {
        send(&pod(&running, COLLECTOR), "fw-1").await.expect::<AcceptedEvent>(202);
    }
    assert_eq!(running.reviews.reviews(), 3 + 1, "one review per token, and one of the operator");
}

#[tokio::test]
async fn tokens_of_other_accounts_audiences_and_expired_tokens_are_rejected() {
    let running = start().await;
    let invalid = testkit::service_account_token(SystemClock.now());
    let for_api_server = running.token(COLLECTOR, "https://kubernetes.default.svc");
    for client in [
        pod(&running, "apps/other"),
        pod(&running, "other/collector"),
        running.system.client().bearer(&for_api_server),
        running.system.client().bearer(&invalid),
    ] {
        send(&client, "fw-1").await.expect_problem(401, "credential_invalid");
    }
    // The digest under which session finds the producer is not a credential.
    let digest = authn::service_account_digest(&COLLECTOR.parse().unwrap()).to_hex();
    send(&running.system.client().bearer(&digest), "fw-1").await.expect_problem(401, "credential_invalid");
    assert_eq!(messages(&running.system).await.len(), 0);
}

#[tokio::test]
async fn a_pod_can_only_send_events() {
    let running = start().await;
    let collector = pod(&running, COLLECTOR);
    for path in ["/events/stream", "/audit"] {
        let problem = collector.get(path).await;
        assert_eq!(problem.status, 403, "{path}: {problem}");
    }
    for path in ["/auth/session", "/users", "/tenants/acme"] {
        collector.get(path).await.expect_problem(401, "credential_invalid");
    }
}

#[tokio::test]
async fn a_deleted_producer_is_rejected_although_its_token_is_cached() {
    let running = start().await;
    let collector = pod(&running, COLLECTOR);
    send(&collector, "fw-1").await.expect::<AcceptedEvent>(202);
    let delete = format!("{}?tenant_id=acme", producer_path(UID));
    running.operator_at_session().delete(&delete).await.expect_empty(204);
    let reviews = running.reviews.reviews();
    wait_until("the producer is rejected", async || {
        (send(&collector, "fw-1").await.status == 401).then_some(())
    })
    .await;
    assert_eq!(running.reviews.reviews(), reviews);
}

#[tokio::test]
async fn without_the_api_server_known_tokens_are_accepted_and_others_get_503_with_retry_after() {
    let running = start().await;
    let collector = pod(&running, COLLECTOR);
    send(&collector, "fw-1").await.expect::<AcceptedEvent>(202);
    running.reviews.respond_with(500);
    send(&collector, "fw-1").await.expect::<AcceptedEvent>(202);
    let unknown = send(&pod(&running, COLLECTOR), "fw-1").await;
    unknown.expect_problem(503, "dependency_unavailable");
    assert!(unknown.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn session_tokens_and_api_keys_are_never_sent_to_the_api_server() {
    let running = SystemWithOperator::start().await.unwrap();
    let admin = running.system.create_tenant("acme").await;
    let (_, key) = running.system.create_api_key(&admin, &json!({ "name": "firewall" })).await;
    for client in [&admin.client, &key] {
        send(client, "fw-1").await.expect::<AcceptedEvent>(202);
    }
    for text in ["svc_st_wrong", "eyJ", "eyJ.a", "wrong"] {
        send(&running.system.client().bearer(text), "fw-1").await.expect_problem(401, "credential_invalid");
    }
    assert_eq!(running.reviews.reviews(), 0);
}

#[tokio::test]
async fn without_workload_identity_no_token_of_a_service_account_is_accepted() {
    let system = testsystem::TestSystem::start().await.unwrap();
    let token = testkit::service_account_token(SystemClock.now() + chrono::TimeDelta::hours(1));
    let answer = send(&system.client().bearer(&token), "fw-1").await;
    answer.expect_problem(401, "credential_invalid");
}
