//! Lockout after 100 consecutive failures, and deletion of expired failures.

use std::sync::Arc;

use hashing::SystemEntropy;

use crate::context::{Context, ELSEWHERE, EMAIL, HERE};

#[tokio::test]
async fn the_lockout_skips_sources_with_a_login_in_the_last_30_days() {
    let context = Context::start().await;
    assert!(context.succeeds(HERE).await);
    context.lock_out(EMAIL).await;
    assert!(!context.succeeds(ELSEWHERE).await, "a new address of the owner is locked out");
    assert!(context.succeeds(HERE).await);
    assert!(!context.succeeds(ELSEWHERE).await, "the login does not end the lockout");
    context.fail(5).await;
    assert!(!context.succeeds(HERE).await, "failures of an exempt source count for the back-off");
    // The purge deletes expired rows only.
    context.advance(30 * 24 * 60 * 60 - 1);
    let context = context.restarted_with(&[], Arc::new(SystemEntropy));
    let untrusted = "select count(*) from identity.login_attempts where last_success_at is null";
    testkit::wait_until("the rows of unknown accounts are purged", async || {
        (context.count(untrusted).await == 0).then_some(())
    })
    .await;
    assert!(context.succeeds(HERE).await);
    context.advance(30 * 24 * 60 * 60);
    assert!(!context.succeeds(HERE).await, "the exemption ends after 30 days");
}

#[tokio::test]
async fn after_a_day_only_accounts_with_a_password_are_still_locked() {
    let context = Context::start().await;
    context.invite_token("invited@acme.example").await;
    let rows = "select count(*) from identity.login_failures";
    for email in [EMAIL, "invited@acme.example", "unknown@acme.example"] {
        context.lock_out(email).await;
    }
    context.fail(1).await;
    assert_eq!(context.count(rows).await, 3);
    context.advance(24 * 60 * 60);
    let context = context.restarted_with(&[], Arc::new(SystemEntropy));
    testkit::wait_until("one row is left", async || (context.count(rows).await == 1).then_some(())).await;
    assert!(!context.succeeds(ELSEWHERE).await);
}

#[tokio::test]
async fn an_attempt_that_does_not_count_writes_no_failures() {
    let context = Context::start().await;
    context.fail(5).await;
    context.run_sql("delete from identity.login_failures").await;
    context.fail(1).await;
    assert_eq!(context.count("select count(*) from identity.login_failures").await, 0);
}

/// Postgres truncates unlogged tables after a crash.
#[tokio::test]
async fn lockouts_are_in_a_table_that_survives_a_crash_of_postgres() {
    let context = Context::start().await;
    let durable = "select count(*) from pg_class
        where oid = 'identity.login_failures'::regclass and relpersistence = 'p'";
    assert_eq!(context.count(durable).await, 1);
}
