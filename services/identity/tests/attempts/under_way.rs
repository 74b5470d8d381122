//! Attempts at once, and attempts that come to no end.

use std::sync::Arc;

use hashing::{Entropy, SystemEntropy};
use serde_json::json;
use testkit::PASSWORD;
use tokio::sync::{Mutex, Notify};

use crate::context::{Context, ELSEWHERE, EMAIL, HERE, json_of};

#[tokio::test]
async fn of_guesses_at_once_a_few_are_looked_at_and_each_of_them_counts() {
    let context = Context::start().await;
    let statuses = context.at_once(40, "wrong-password-altogether").await;
    assert!(statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
    let counted = context.counted().await[0];
    // Seven were under way when the fifth failed.
    assert!((5..=12).contains(&counted), "{counted}");
    let wait = if counted > 10 { 60 } else { 1 << (counted - 5) };
    context.advance(wait - 1);
    assert!(!context.succeeds(HERE).await, "the wait is that of {counted} failures");
    context.advance(1);
    assert!(context.succeeds(HERE).await);
}

#[tokio::test]
async fn whoever_logs_in_many_times_at_once_is_never_told_that_the_password_is_wrong() {
    let context = Context::start().await;
    let mut statuses = context.at_once(12, PASSWORD).await;
    statuses.sort_unstable();
    assert_eq!(statuses[..8], [200; 8]);
    assert!(statuses[8..].iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    context.fail(4).await;
    assert_eq!(context.at_once(2, PASSWORD).await, [200; 2]);
    assert_eq!(context.counted().await, [4]);
}

#[tokio::test]
async fn attempts_whose_process_died_are_under_way_for_half_a_minute_and_then_forgotten() {
    let context = Context::start().await;
    for email in [EMAIL, "nobody@acme.example"] {
        assert_eq!(context.log_in(HERE, email, "wrong-password-altogether").await, 401);
    }
    context
        .run_sql(
            "update identity.attempts set begun = array_fill(expires_at - interval '24 hours', array[8])",
        )
        .await;
    for email in [EMAIL, "nobody@acme.example"] {
        let headers = [("X-Tenant-ID", "acme"), ("X-Forwarded-For", HERE)];
        let body = json!({ "email": email, "password": PASSWORD });
        let refused = context.send("/auth/password/login", &headers, &body).await;
        assert_eq!(refused.headers()["retry-after"], "1");
        let problem = json_of(refused).await;
        assert_eq!((&problem["status"], &problem["code"]), (&json!(429), &json!("rate_limited")));
    }
    assert!(context.succeeds(ELSEWHERE).await);
    context.advance(30);
    assert!(context.succeeds(HERE).await);
    assert_eq!(context.counted().await, [1, 1]);
}

/// Holds up the hash worker while somebody else has the turn.
#[derive(Default)]
struct Held {
    turn: Mutex<()>,
    reached: Notify,
}

impl Entropy for Held {
    fn fill(&self, buffer: &mut [u8]) {
        // Everybody else who needs random bytes goes on.
        if std::thread::current().name().is_some_and(|name| name.starts_with("hash")) {
            self.reached.notify_one();
            drop(self.turn.blocking_lock());
        }
        SystemEntropy.fill(buffer);
    }
}

#[tokio::test]
async fn an_attempt_that_was_sent_away_by_the_full_queue_leaves_nothing_behind() {
    let context = Context::start().await;
    let held = Arc::new(Held::default());
    let busy = context.restarted_with(&[("SVC_HASH_WORKERS", "1")], held.clone());
    context.fail(4).await;
    let turn = held.turn.lock().await;
    let body = json!({ "current_password": PASSWORD, "new_password": "another-horse-battery-10" });
    let mut superuser = context.database.superuser().await.unwrap();
    let user_id: uuid::Uuid =
        sqlx::query_scalar("select user_id from identity.users").fetch_one(&mut superuser).await.unwrap();
    let user_id = user_id.to_string();
    let headers = [("X-Tenant-ID", "acme"), ("X-User-ID", user_id.as_str()), ("X-Forwarded-For", ELSEWHERE)];
    let changes = busy.send("/auth/password/change", &headers, &body);
    let refused = async {
        held.reached.notified().await;
        let statuses = [busy.log_in(HERE, EMAIL, "wrong-password-altogether").await];
        drop(turn);
        statuses
    };
    let (answer, statuses) = tokio::join!(changes, refused);
    assert_eq!((answer.status().as_u16(), statuses), (204, [503]));
    assert_eq!(context.count("select sum(cardinality(begun)) from identity.attempts").await, 0);
    let again = context.log_in(HERE, EMAIL, "another-horse-battery-10").await;
    assert_eq!(again, 200, "it was told to try again");
    assert_eq!(context.counted().await, [4]);
}

#[tokio::test]
async fn an_attempt_that_nobody_could_be_told_of_leaves_nothing_behind() {
    let context = Context::start().await;
    context.fail(4).await;
    context.run_sql("revoke insert on identity.outbox from svc_identity").await;
    for _ in 0..10 {
        for password in [PASSWORD, "wrong-password-altogether"] {
            assert!(context.log_in(HERE, EMAIL, password).await >= 500);
        }
    }
    context.run_sql("grant insert on identity.outbox to svc_identity").await;
    assert!(context.succeeds(HERE).await);
    assert_eq!(context.counted().await, [4]);
}
