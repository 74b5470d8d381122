//! The unit of work on a real Postgres.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails at once")]

use std::sync::Arc;

use chrono::{DateTime, Utc};
use database::outbox::{Message, People};
use database::{Database, Error, TenantTx};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenancy::Actor;
use testkit::TestDatabase;

/// A message with any fields.
#[derive(serde::Serialize)]
struct TestMessage(Value);

impl Message for TestMessage {
    fn erased_with(&self) -> People {
        People::none()
    }
}

const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;

async fn begin(database: &TestDatabase) -> TenantTx {
    let tenant_id = "acme".parse().unwrap();
    database.pool("svc_identity").unwrap().begin(&tenant_id, Actor::PlatformAdmin, NOW).await.unwrap()
}

/// The outbox in the order of the messages.
async fn outbox(database: &TestDatabase) -> Vec<(String, String, Value, DateTime<Utc>)> {
    let rows = sqlx::query_as(
        "select tenant_id, kind, payload, created_at from identity.outbox where due_at = created_at order by outbox_id",
    );
    rows.fetch_all(&mut database.superuser().await.unwrap()).await.unwrap()
}

#[tokio::test]
async fn carries_the_tenant_the_actor_and_the_time() {
    let tx = begin(&TestDatabase::create().await.unwrap()).await;
    assert_eq!((tx.tenant_id().as_str(), tx.actor(), tx.now()), ("acme", Actor::PlatformAdmin, NOW));
}

#[tokio::test]
async fn a_commit_writes_the_messages_then_runs_the_actions_in_order() {
    let database = TestDatabase::create().await.unwrap();
    let mut tx = begin(&database).await;
    let ran = Arc::new(Mutex::new(Vec::new()));
    for name in ["first", "second"] {
        let (ran, database) = (ran.clone(), database.clone());
        tx.send(&TestMessage(json!({ "kind": name, "number": 7 })));
        tx.after_commit(async move {
            let messages = outbox(&database).await.len();
            ran.lock().push((name, messages));
        });
    }
    assert!(outbox(&database).await.is_empty());
    tx.commit().await.unwrap();
    let expected =
        ["first", "second"].map(|kind| ("acme".to_owned(), kind.to_owned(), json!({ "number": 7 }), NOW));
    assert_eq!(outbox(&database).await, expected);
    assert_eq!(*ran.lock(), [("first", 2), ("second", 2)]);
}

#[tokio::test]
async fn a_call_gives_its_function_the_messages_and_runs_its_actions_only_if_the_function_has_changed_something()
 {
    let test = TestDatabase::create().await.unwrap();
    let database = test.pool("svc_identity").unwrap();
    for (changes, expected) in [(Some(7), vec!["ran"]), (None, vec![])] {
        let tenant_id = "acme".parse().unwrap();
        let mut call = database.call(&tenant_id, Actor::PlatformAdmin, NOW);
        assert_eq!(
            (call.tenant_id().as_str(), call.actor(), call.now()),
            ("acme", Actor::PlatformAdmin, NOW)
        );
        let ran = Arc::new(Mutex::new(Vec::new()));
        let action = ran.clone();
        call.send(&TestMessage(json!({ "kind": "first", "number": 7 })));
        call.after_commit(async move { action.lock().push("ran") });
        let result = call.run(async |_, messages| {
            let message = &messages.as_array().unwrap()[0];
            assert_eq!((&message["kind"], &message["payload"]), (&json!("first"), &json!({ "number": 7 })));
            Ok(changes)
        });
        assert_eq!(result.await.unwrap(), changes);
        assert_eq!(*ran.lock(), expected);
    }
}

#[tokio::test]
async fn a_dropped_transaction_is_rolled_back_and_runs_no_action() {
    let database = TestDatabase::create().await.unwrap();
    let mut tx = begin(&database).await;
    let ran = Arc::new(Mutex::new(false));
    let action = ran.clone();
    tx.send(&TestMessage(json!({ "kind": "x" })));
    tx.after_commit(async move { *action.lock() = true });
    sqlx::query("insert into identity.tenants (tenant_id, display_name, status, created_at, updated_at) values ('acme', 'Acme', 'active', now(), now())")
        .execute(tx.connection())
        .await
        .unwrap();
    drop(tx);
    assert!(outbox(&database).await.is_empty() && !*ran.lock());
    let tenants: i64 = sqlx::query_scalar("select count(*) from identity.tenants")
        .fetch_one(&mut database.superuser().await.unwrap())
        .await
        .unwrap();
    assert_eq!(tenants, 0);
}

#[tokio::test]
async fn a_failed_commit_writes_nothing_and_runs_no_action() {
    let database = TestDatabase::create().await.unwrap();
    let mut tx = begin(&database).await;
    let ran = Arc::new(Mutex::new(false));
    let action = ran.clone();
    tx.send(&TestMessage(json!({ "kind": "x" })));
    tx.send(&TestMessage(json!("a message without a kind")));
    tx.after_commit(async move { *action.lock() = true });
    assert!(tx.commit().await.is_err());
    assert!(outbox(&database).await.is_empty() && !*ran.lock());
}

#[tokio::test]
async fn a_rejected_password_is_an_unavailable_database() {
    let database = TestDatabase::create().await.unwrap();
    let url = database.url("svc_identity");
    let (_, server) = url.rsplit_once('@').unwrap();
    let wrong = Database::new(&format!("postgres://svc_identity:wrong@{server}"), "identity").unwrap();
    let tenant_id = "acme".parse().unwrap();
    let error = wrong.begin(&tenant_id, Actor::PlatformAdmin, NOW).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
}
