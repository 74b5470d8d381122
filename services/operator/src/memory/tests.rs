use std::sync::Arc;

use contract::managed::{Conflict, ConsumerLag};
use k8s_openapi::jiff::Timestamp;
use tokio::time::advance;

use super::*;
use crate::resources::{ConsumerSpec, Lag, TenantSpec};
use crate::services::CallError;
use crate::status::{Progress, Reason};

const UID: Uuid = Uuid::from_u128(1);

fn tenant() -> SvcTenant {
    let spec: TenantSpec = serde_json::from_str(r#"{ "displayName": "Acme" }"#).unwrap();
    let mut tenant = SvcTenant::new("acme", spec);
    tenant.metadata.uid = Some(UID.to_string());
    tenant.metadata.generation = Some(3);
    tenant
}

fn ready() -> State {
    State::new(Progress::Ready, Reason::Provisioned, "The tenant has the desired state.")
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_again_if_someone_else_replaced_it() {
    let (mut memory, mut tenant) = (Memory::default(), tenant());
    assert!(memory.is_new(&Subject::Tenant(Arc::new(tenant.clone())), &ready()));
    memory.put_state(&Subject::Tenant(Arc::new(tenant.clone())), ready());
    // The watch has not reported the write yet.
    memory.forget(Instant::now());
    assert!(!memory.is_new(&Subject::Tenant(Arc::new(tenant.clone())), &ready()));
    advance(MAX_WATCH_DELAY).await;
    memory.forget(Instant::now());
    tenant.status = Some(ready().status(Some(3), None));
    assert!(!memory.is_new(&Subject::Tenant(Arc::new(tenant.clone())), &ready()));
    tenant.status = Some(ready().status(Some(2), None));
    assert!(memory.is_new(&Subject::Tenant(Arc::new(tenant)), &ready()));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_again_and_again_is_repeated_less_often() {
    let (mut memory, resource) = (Memory::default(), Arc::new(tenant()));
    let write = Write::DeleteSecret { resource };
    let mut delays = Vec::new();
    for _ in 0..12 {
        memory.fail(&write, &WriteError::Call(CallError::Unavailable("down".to_owned())));
        let delay = memory.failures[&UID].retry_at - Instant::now();
        advance(delay).await;
        memory.forget(Instant::now());
        delays.push(delay.as_secs());
    }
    assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 150, 150, 150, 150]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_no_plan_repeats_is_forgotten() {
    let (mut memory, resource) = (Memory::default(), Arc::new(tenant()));
    memory.fail(&Write::DeleteSecret { resource }, &WriteError::Call(Conflict::TenantDeleted.into()));
    advance(Duration::from_secs(1)).await;
    memory.forget(Instant::now());
    assert!(memory.failures.contains_key(&UID));
    advance(MAX_WATCH_DELAY).await;
    memory.forget(Instant::now());
    assert!(memory.failures.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_changed_lag_is_written_at_most_once_a_minute() {
    let (memory, ready) = (Memory::default(), ready());
    let spec: ConsumerSpec = serde_json::from_str(r#"{ "tenant": "acme" }"#).unwrap();
    let is_new = |pending, age: Option<i64>| {
        let mut consumer = SvcConsumer::new("siem", spec.clone());
        consumer.metadata.uid = Some(UID.to_string());
        let now = DateTime::from_timestamp(Timestamp::now().as_second(), 0).unwrap();
        let common = ready.status(None, None);
        let lag = age.map(|age| Lag {
            pending: 1,
            ack_pending: 0,
            oldest_unread_seconds: 0,
            measured_at: now - chrono::TimeDelta::seconds(age),
        });
        consumer.status = Some(crate::resources::ConsumerStatus { common, lag });
        let lag = ConsumerLag { pending, ..ConsumerLag::default() };
        memory.is_new(&Subject::Consumer(Arc::new(consumer), Some(lag)), &ready)
    };
    assert!(is_new(1, None));
    assert!(!is_new(1, Some(120)), "it has not changed");
    assert!(!is_new(2, Some(30)));
    assert!(is_new(2, Some(61)));
}
