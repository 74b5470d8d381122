//! Back-off after failed attempts, per account and source.

use std::sync::Arc;

use hashing::SystemEntropy;
use serde_json::json;
use testkit::PASSWORD;

use crate::context::{Context, ELSEWHERE, EMAIL, HERE, SECRET, json_of};

#[tokio::test]
async fn the_fifth_failure_starts_a_back_off_that_rejects_the_correct_password() {
    let context = Context::start().await;
    context.fail(5).await;
    assert!(!context.succeeds(HERE).await, "the back-off is one second");
    context.advance(1);
    context.fail(1).await;
    context.advance(1);
    assert!(!context.succeeds(HERE).await, "the back-off is two seconds");
    context.advance(1);
    assert!(context.succeeds(HERE).await);
}

#[tokio::test]
async fn a_success_ends_the_back_off_of_its_source() {
    let context = Context::start().await;
    for _ in 0..2 {
        context.fail(5).await;
        context.advance(1);
        assert!(context.succeeds(HERE).await);
        context.fail(4).await;
        assert!(context.succeeds(HERE).await, "a mistyped password after a login causes no back-off");
    }
    context.fail(4).await;
    assert!(context.succeeds(ELSEWHERE).await);
    context.fail(1).await;
    assert!(!context.succeeds(HERE).await, "a success elsewhere does not count here");
}

#[tokio::test]
async fn an_attempt_during_the_back_off_does_not_count() {
    let context = Context::start().await;
    context.fail(5).await;
    context.fail(20).await;
    assert!(!context.succeeds(HERE).await);
    assert_eq!(context.failures().await, [5]);
    context.advance(1);
    assert!(context.succeeds(HERE).await);
}

#[tokio::test]
async fn a_back_off_does_not_apply_to_other_sources() {
    let context = Context::start().await;
    context.fail(10).await;
    assert!(!context.succeeds(HERE).await);
    assert!(context.succeeds(ELSEWHERE).await);
    assert!(!context.succeeds(HERE).await);
}

#[tokio::test]
async fn from_the_fiftieth_failure_of_a_day_the_back_off_is_15_minutes() {
    let context = Context::start().await;
    for _ in 0..49 {
        context.fail(1).await;
        context.advance(60);
    }
    context.fail(1).await;
    context.advance(15 * 60 - 1);
    assert!(!context.succeeds(HERE).await);
    context.advance(1);
    context.fail(1).await;
    context.advance(60);
    assert!(!context.succeeds(HERE).await);
    // The count resets a day after the first failure.
    context.advance(24 * 60 * 60);
    context.fail(4).await;
    assert!(context.succeeds(HERE).await);
}

#[tokio::test]
async fn unknown_accounts_are_counted_like_known_ones() {
    let context = Context::start().await;
    for email in ["unknown@acme.example", "UNKNOWN@acme.example ", EMAIL, "ADMIN@acme.example"] {
        for _ in 0..2 {
            assert_eq!(context.log_in(HERE, email, "wrong-password-altogether").await, 401);
        }
    }
    assert_eq!(context.failures().await, [4, 4]);
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
    assert_eq!(context.failures().await, [5, 5], "by address, or by id if the account does not exist");
    assert!(!context.succeeds(HERE).await);
    context.advance(1);
    // The correct current password is not a failure, even if the new one is rejected.
    let user_id = user_id.to_string();
    let headers = [("X-Tenant-ID", "acme"), ("X-User-ID", user_id.as_str()), ("X-Forwarded-For", HERE)];
    let body = json!({ "current_password": PASSWORD, "new_password": "short" });
    assert_eq!(context.send("/auth/password/change", &headers, &body).await.status(), 422);
    assert!(context.succeeds(HERE).await);
}

#[tokio::test]
async fn a_rotated_key_keeps_the_failures_while_the_previous_key_is_configured() {
    let context = Context::start().await;
    context.fail(10).await;
    let keys = format!("another secret of thirty-two characters or more\n{SECRET}");
    let rotated = context.restarted_with(&[("SVC_LIMITER_KEY", &keys)], Arc::new(SystemEntropy));
    assert!(!rotated.succeeds(HERE).await);
    assert_eq!(rotated.failures().await.len(), 1);
    rotated.advance(60);
    assert!(rotated.succeeds(HERE).await);
}

#[tokio::test]
async fn the_deletion_of_a_user_erases_failures_that_were_counted_under_the_previous_key() {
    let context = Context::start().await;
    let accept = json!({ "token": context.invite_token("ada@acme.example").await, "password": PASSWORD });
    let ada = json_of(context.send("/users/accept-invite", &[], &accept).await).await;
    assert_eq!(context.log_in(HERE, "ada@acme.example", "wrong-password-altogether").await, 401);
    assert_eq!(context.failures().await, [1]);
    let keys = format!("another secret of thirty-two characters or more\n{SECRET}");
    let rotated = context.restarted_with(&[("SVC_LIMITER_KEY", &keys)], Arc::new(SystemEntropy));
    let login = json!({ "email": EMAIL, "password": PASSWORD });
    let headers = [("X-Tenant-ID", "acme"), ("X-Forwarded-For", HERE)];
    let session = json_of(rotated.send("/auth/password/login", &headers, &login).await).await;
    let path = format!("/users/{}", ada["user_id"].as_str().unwrap());
    assert_eq!(rotated.delete(&path, session["session_id"].as_str().unwrap()).await, 204);
    assert!(rotated.failures().await.is_empty());
}
