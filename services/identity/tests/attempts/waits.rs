//! How long whoever fails waits, and where.

use std::sync::Arc;

use hashing::SystemEntropy;
use serde_json::json;
use testkit::PASSWORD;

use crate::context::{Context, ELSEWHERE, EMAIL, HERE, SECRET};

#[tokio::test]
async fn four_failures_are_free_and_then_the_right_password_waits_too() {
    let context = Context::start().await;
    context.fail(4).await;
    assert!(context.succeeds(HERE).await);
    context.fail(1).await;
    assert!(!context.succeeds(HERE).await, "the fifth failure costs a second");
    context.advance(1);
    assert!(context.succeeds(HERE).await);
    // The day's failures are not forgotten by a success.
    context.fail(1).await;
    context.advance(1);
    assert!(!context.succeeds(HERE).await, "the sixth costs two");
    context.advance(1);
    assert!(context.succeeds(HERE).await);
}

#[tokio::test]
async fn an_attempt_inside_a_wait_is_not_counted_again() {
    let context = Context::start().await;
    context.fail(5).await;
    context.fail(20).await;
    assert!(!context.succeeds(HERE).await);
    assert_eq!(context.counted().await, [5]);
    context.advance(1);
    assert!(context.succeeds(HERE).await);
}

#[tokio::test]
async fn a_stranger_elsewhere_keeps_nobody_out() {
    let context = Context::start().await;
    context.fail(10).await;
    assert!(!context.succeeds(HERE).await);
    assert!(context.succeeds(ELSEWHERE).await);
    assert!(!context.succeeds(HERE).await);
}

#[tokio::test]
async fn from_the_fiftieth_failure_of_a_day_on_the_wait_is_a_quarter_of_an_hour() {
    let context = Context::start().await;
    for _ in 0..49 {
        context.fail(1).await;
        context.advance(60);
    }
    context.fail(1).await;
    context.advance(15 * 60 - 1);
    assert!(!context.succeeds(HERE).await);
    context.advance(1);
    assert!(context.succeeds(HERE).await);
    context.fail(1).await;
    assert!(!context.succeeds(HERE).await);
    // A day after the first one, they begin anew.
    context.advance(24 * 60 * 60);
    context.fail(4).await;
    assert!(context.succeeds(HERE).await);
}

#[tokio::test]
async fn who_does_not_exist_is_counted_like_who_does() {
    let context = Context::start().await;
    for email in ["nobody@acme.example", "NOBODY@acme.example ", EMAIL, "ADMIN@acme.example"] {
        for _ in 0..2 {
            assert_eq!(context.log_in(HERE, email, "wrong-password-altogether").await, 401);
        }
    }
    assert_eq!(context.counted().await, [4, 4]);
}

#[tokio::test]
async fn a_password_change_counts_like_a_login() {
    let context = Context::start().await;
    let mut superuser = context.database.superuser().await.unwrap();
    let user_id: uuid::Uuid =
        sqlx::query_scalar("select user_id from identity.users").fetch_one(&mut superuser).await.unwrap();
    for user_id in [user_id, uuid::Uuid::now_v7()] {
        let user_id = user_id.to_string();
        let headers = [("X-Tenant-ID", "acme"), ("X-User-ID", user_id.as_str()), ("X-Forwarded-For", HERE)];
        let body = json!({ "current_password": "wrong-password-altogether", "new_password": "x" });
        for _ in 0..5 {
            assert_eq!(context.send("/auth/password/change", &headers, &body).await.status(), 401);
        }
    }
    assert_eq!(context.counted().await, [5, 5], "under the address, or under the id where there is none");
    assert!(!context.succeeds(HERE).await);
    context.advance(1);
    // The right current password is no failure, even when the new one is refused.
    let user_id = user_id.to_string();
    let headers = [("X-Tenant-ID", "acme"), ("X-User-ID", user_id.as_str()), ("X-Forwarded-For", HERE)];
    let body = json!({ "current_password": PASSWORD, "new_password": "short" });
    assert_eq!(context.send("/auth/password/change", &headers, &body).await.status(), 422);
    assert!(context.succeeds(HERE).await);
}

#[tokio::test]
async fn a_rotated_key_forgets_nothing_while_the_one_before_it_is_named() {
    let context = Context::start().await;
    context.fail(10).await;
    let variables = [
        ("SVC_LIMITER_KEY", "another secret of thirty-two characters or more"),
        ("SVC_LIMITER_KEY_PREVIOUS", SECRET),
    ];
    let rotated = context.restarted_with(&variables, Arc::new(SystemEntropy));
    assert!(!rotated.succeeds(HERE).await);
    assert_eq!(rotated.counted().await.len(), 1);
    rotated.advance(60);
    assert!(rotated.succeeds(HERE).await);
}
