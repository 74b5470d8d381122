//! `/health`, and behavior while NATS is unavailable.

use contract::events::{AcceptedEvent, BatchResponse, Health, HealthStatus};
use testkit::wait_until;
use testsystem::TestSystem;

use super::stream::messages;

#[tokio::test]
async fn events_are_rejected_as_retryable_during_an_outage_and_accepted_afterwards() {
    let mut system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let send = async |id: u32| {
        let body = format!(r#"{{"source_id":"s","event_id":"{id}"}}"#);
        admin.client.post_bytes("/events", "application/json", body).await
    };
    assert_eq!(system.client().get("/health").await.expect::<Health>(200).status, HealthStatus::Ok);
    send(1).await.expect::<AcceptedEvent>(202);

    system.nats.stop();
    wait_until("health fails", async || (system.client().get("/health").await.status == 503).then_some(()))
        .await;
    system.client().get("/health").await.expect_problem(503, "dependency_unavailable");
    send(2).await.expect_problem(503, "dependency_unavailable");
    let body = r#"[{"source_id":"s","event_id":"3"},{"source_id":"s","event_id":"4"}]"#;
    let answer = admin.client.post_bytes("/events/batch", "application/json", body).await;
    assert_eq!(answer.headers["retry-after"], "1");
    let batch: BatchResponse = answer.expect(503);
    assert!(batch.results.iter().all(|result| result.retryable == Some(true)));

    system.nats.restart().await.unwrap();
    wait_until("health recovers", async || {
        (system.client().get("/health").await.status == 200).then_some(())
    })
    .await;
    assert!(send(1).await.expect::<AcceptedEvent>(202).duplicate, "the acknowledged event is still stored");
    send(2).await.expect::<AcceptedEvent>(202);
    assert_eq!(messages(&system).await.len(), 2);
}
