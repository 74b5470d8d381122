//! Concurrent attempts, and attempts that are not settled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashing::{Entropy, SystemEntropy};
use serde_json::json;
use testkit::{PASSWORD, wait_until};
use tokio::sync::{Mutex, MutexGuard, Notify};

use crate::context::{Context, ELSEWHERE, EMAIL, HERE, json_of};

#[tokio::test]
async fn at_most_eight_concurrent_guesses_are_verified_and_each_counts() {
    let context = Context::start().await;
    let statuses = context.concurrent_logins(40, "wrong-password-altogether").await;
    assert!(statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
    let failures = context.failures().await[0];
    // Seven attempts were in flight when the fifth failed.
    assert!((5..=12).contains(&failures), "{failures}");
    let back_off = if failures > 10 { 60 } else { 1 << (failures - 5) };
    context.advance(back_off - 1);
    assert!(!context.succeeds(HERE).await, "the back-off is that of {failures} failures");
    context.advance(1);
    assert!(context.succeeds(HERE).await);
}

#[tokio::test]
async fn concurrent_logins_with_the_correct_password_never_get_401() {
    let context = Context::start().await;
    let mut statuses = context.concurrent_logins(12, PASSWORD).await;
    statuses.sort_unstable();
    assert_eq!(statuses[..8], [200; 8]);
    assert!(statuses[8..].iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    context.fail(4).await;
    assert_eq!(context.concurrent_logins(2, PASSWORD).await, [200; 2]);
    assert_eq!(context.failures().await.len(), 0);
}

#[tokio::test]
async fn an_attempt_of_a_crashed_process_expires_after_30_seconds() {
    let context = Context::start().await;
    for email in [EMAIL, "unknown@acme.example"] {
        assert_eq!(context.log_in(HERE, email, "wrong-password-altogether").await, 401);
    }
    context
        .run_sql(
            "update identity.login_attempts
            set in_flight = array_fill(window_ends_at - interval '24 hours', array[8])",
        )
        .await;
    for email in [EMAIL, "unknown@acme.example"] {
        let headers = [("X-Tenant-ID", "acme"), ("X-Forwarded-For", HERE)];
        let body = json!({ "email": email, "password": PASSWORD });
        let response = context.send("/auth/password/login", &headers, &body).await;
        assert_eq!(response.headers()["retry-after"], "1");
        let problem = json_of(response).await;
        assert_eq!((&problem["status"], &problem["code"]), (&json!(429), &json!("rate_limited")));
    }
    assert!(context.succeeds(ELSEWHERE).await);
    context.advance(30);
    assert_eq!(context.failures().await, [1, 1]);
    assert!(context.succeeds(HERE).await);
    assert_eq!(context.failures().await, [1]);
}

#[tokio::test]
async fn password_changes_in_flight_do_not_limit_logins() {
    let context = Context::start().await;
    let user_id = context.user_id().await;
    let headers = [("X-Tenant-ID", "acme"), ("X-User-ID", user_id.as_str()), ("X-Forwarded-For", HERE)];
    let body = json!({ "current_password": "wrong-password-altogether", "new_password": "x" });
    let change = async || context.send("/auth/password/change", &headers, &body).await.status();
    assert_eq!(change().await, 401);
    context
        .run_sql(
            "update identity.login_attempts
            set changes_in_flight = array_fill(window_ends_at - interval '24 hours', array[8])",
        )
        .await;
    assert_eq!(change().await, 429);
    // Otherwise a person who knows a user id could test which address belongs to it.
    for email in [EMAIL, "unknown@acme.example"] {
        assert_eq!(context.log_in(HERE, email, "wrong-password-altogether").await, 401, "{email}");
    }
}

/// Entropy that blocks the hash worker until the test releases it.
#[derive(Default)]
struct BlockedEntropy {
    gate: Mutex<()>,
    reached: Notify,
}

impl Entropy for BlockedEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        // Other threads are not blocked.
        if std::thread::current().name().is_some_and(|name| name.starts_with("hash")) {
            self.reached.notify_one();
            drop(self.gate.blocking_lock());
        }
        SystemEntropy.fill(buffer);
    }
}

/// Changes the password from [`ELSEWHERE`], which blocks the only hash worker until `during` drops the guard. Returns its output.
async fn while_the_worker_is_blocked<T>(
    context: &Context,
    busy: &Context,
    blocked: &BlockedEntropy,
    during: impl AsyncFnOnce(MutexGuard<'_, ()>) -> T,
) -> T {
    let gate = blocked.gate.lock().await;
    let body = json!({ "current_password": PASSWORD, "new_password": "another-horse-battery-10" });
    let user_id = context.user_id().await;
    let headers = [("X-Tenant-ID", "acme"), ("X-User-ID", user_id.as_str()), ("X-Forwarded-For", ELSEWHERE)];
    let change = busy.send("/auth/password/change", &headers, &body);
    let blocked = async {
        blocked.reached.notified().await;
        during(gate).await
    };
    let (response, output) = tokio::join!(change, blocked);
    assert_eq!(response.status().as_u16(), 204);
    output
}

#[tokio::test]
async fn an_attempt_that_a_full_hash_queue_rejects_does_not_count() {
    let context = Context::start().await;
    let blocked = Arc::new(BlockedEntropy::default());
    let busy = context.restarted_with(&[("SVC_HASH_WORKERS", "1")], blocked.clone());
    context.fail(4).await;
    let wrong = async |_gate: MutexGuard<'_, ()>| busy.log_in(HERE, EMAIL, "wrong-password-altogether").await;
    assert_eq!(while_the_worker_is_blocked(&context, &busy, &blocked, wrong).await, 503);
    assert_eq!(context.failures().await, [4]);
    assert_eq!(context.count("select sum(cardinality(in_flight)) from identity.login_attempts").await, 0);
    let again = context.log_in(HERE, EMAIL, "another-horse-battery-10").await;
    assert_eq!(again, 200, "the retry succeeds, and the four failures do not count any more");
    assert_eq!(context.failures().await.len(), 0);
}

#[tokio::test]
async fn a_login_that_a_full_hash_queue_rejects_counts_for_its_address_and_not_for_the_account() {
    let context = Context::start().await;
    let blocked = Arc::new(BlockedEntropy::default());
    let variables = [("SVC_HASH_WORKERS", "1"), ("SVC_LIMIT_LOGIN", "1/h")];
    let busy = context.restarted_with(&variables, blocked.clone());
    // More addresses than the queue has places.
    let addresses: Vec<_> = (0..60).map(|n| format!("198.51.100.{n}")).collect();
    let from_each_address = || {
        testkit::join_all(
            addresses.iter().map(|address| busy.log_in(address, EMAIL, "wrong-password-altogether")),
        )
    };
    let flood = async |_gate: MutexGuard<'_, ()>| from_each_address().await;
    let statuses = while_the_worker_is_blocked(&context, &busy, &blocked, flood).await;
    assert_eq!(statuses, [503; 60]);
    assert_eq!(from_each_address().await, [429; 60]);
    assert_eq!(context.count("select sum(cardinality(in_flight)) from identity.login_attempts").await, 0);
    assert_eq!(context.failures().await.len(), 0);
}

/// Sends requests that fill the reserved lane of the only hash worker, until eight of them are shed. Then logs in the administrator
/// of another tenant from a known address. Returns the status of the login.
async fn log_in_during_flood(context: &Context, flood: impl AsyncFn(&Context, usize) -> u16) -> u16 {
    const VICTIM: &str = "203.0.113.1";
    const REQUESTS: usize = 24;
    context.create_tenant("other").await;
    let headers = [("X-Tenant-ID", "other"), ("X-Forwarded-For", VICTIM)];
    let body = json!({ "email": "admin@other.example", "password": PASSWORD });
    let log_in = async |context: &Context| {
        context.send("/auth/password/login", &headers, &body).await.status().as_u16()
    };
    assert_eq!(log_in(context).await, 200);
    let blocked = Arc::new(BlockedEntropy::default());
    let busy = context.restarted_with(&[("SVC_HASH_WORKERS", "1")], blocked.clone());
    let shed = AtomicUsize::new(0);
    let during = async |gate: MutexGuard<'_, ()>| {
        let flood = testkit::join_all((0..REQUESTS).map(|n| {
            let (flood, busy, shed) = (&flood, &busy, &shed);
            async move {
                if flood(busy, n).await == 503 {
                    shed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
        let victim = async {
            wait_until("the lane is full", async || (shed.load(Ordering::Relaxed) >= 8).then_some(())).await;
            let mut request = Box::pin(log_in(&busy));
            let queued = wait_until("the login is in flight", async || {
                let count = "select sum(cardinality(in_flight)) from identity.login_attempts where source = '203.0.113.1'";
                (context.count(count).await == 1).then_some(())
            });
            tokio::select! {
                status = &mut request => status,
                () = queued => {
                    drop(gate);
                    request.await
                }
            }
        };
        tokio::join!(flood, victim).1
    };
    while_the_worker_is_blocked(context, &busy, &blocked, during).await
}

#[tokio::test]
async fn a_member_with_many_known_addresses_cannot_stop_the_logins_of_another_tenant() {
    let context = Context::start().await;
    for n in 0..24 {
        assert!(context.succeeds(&format!("198.51.100.{n}")).await);
    }
    let wrong = async |busy: &Context, n: usize| {
        busy.log_in(&format!("198.51.100.{n}"), EMAIL, "wrong-password-altogether").await
    };
    assert_eq!(log_in_during_flood(&context, wrong).await, 200);
}

#[tokio::test]
async fn the_invite_tokens_of_one_tenant_cannot_stop_the_logins_of_another_tenant() {
    let context = Context::start().await;
    let mut tokens = Vec::new();
    for n in 0..24 {
        tokens.push(context.invite_token(&format!("user{n}@acme.example")).await);
    }
    let accept = async |busy: &Context, n: usize| {
        let body = json!({ "token": tokens[n], "password": PASSWORD });
        let address = format!("198.51.100.{n}");
        busy.send("/users/accept-invite", &[("X-Forwarded-For", &address)], &body).await.status().as_u16()
    };
    assert_eq!(log_in_during_flood(&context, accept).await, 200);
}

#[tokio::test]
async fn an_attempt_does_not_count_if_its_result_cannot_be_recorded() {
    let context = Context::start().await;
    context.fail(4).await;
    context.run_sql("revoke insert on identity.outbox from svc_identity").await;
    for _ in 0..10 {
        for password in [PASSWORD, "wrong-password-altogether"] {
            assert!(context.log_in(HERE, EMAIL, password).await >= 500);
        }
    }
    context.run_sql("grant insert on identity.outbox to svc_identity").await;
    assert_eq!(context.failures().await, [4]);
    assert!(context.succeeds(HERE).await);
}

/// A password reset deletes the failures of an account in this order. Another order could deadlock with a login.
#[tokio::test]
async fn a_settled_attempt_locks_the_account_before_the_source() {
    let context = Context::start().await;
    context.fail(1).await;
    let mut reset = context.database.superuser().await.unwrap();
    let statements = "begin; select from identity.login_failures for update";
    sqlx::raw_sql(statements).execute(&mut reset).await.unwrap();
    let login = context.log_in(HERE, EMAIL, "wrong-password-altogether");
    let reset = async {
        let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        wait_until("the login waits for the account", async || {
            (context.count(waiting).await == 1).then_some(())
        })
        .await;
        let locked =
            sqlx::query("select from identity.login_attempts for update nowait").execute(&mut reset).await;
        sqlx::raw_sql("rollback").execute(&mut reset).await.unwrap();
        locked.map(|rows| rows.rows_affected())
    };
    let (status, locked) = tokio::join!(login, reset);
    assert_eq!((status, locked.unwrap()), (401, 1));
}
