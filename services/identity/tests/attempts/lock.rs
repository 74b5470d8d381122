//! What a hundred failures in a row from anywhere lock, and what is kept of failures.

use std::sync::Arc;

use hashing::SystemEntropy;

use crate::context::{Context, ELSEWHERE, EMAIL, HERE};

#[tokio::test]
async fn no_stranger_locks_an_account_where_it_was_logged_in_to_within_a_month() {
    let context = Context::start().await;
    assert!(context.succeeds(HERE).await);
    context.lock(EMAIL).await;
    assert!(!context.succeeds(ELSEWHERE).await, "a new address of the owner is locked out");
    assert!(context.succeeds(HERE).await);
    assert!(!context.succeeds(ELSEWHERE).await, "that unlocks it nowhere else");
    context.fail(5).await;
    assert!(!context.succeeds(HERE).await, "one's own failures count");
    // Strangers go on all the time, and nothing is purged but what is over.
    context.advance(30 * 24 * 60 * 60 - 1);
    let context = context.restarted_with(&[], Arc::new(SystemEntropy));
    let strangers = "select count(*) from identity.attempts where last_success_at is null";
    testkit::wait_until("the rows of unknown accounts are purged", async || {
        (context.count(strangers).await == 0).then_some(())
    })
    .await;
    assert!(context.succeeds(HERE).await);
    context.advance(30 * 24 * 60 * 60);
    assert!(!context.succeeds(HERE).await, "a month later it is a source like any other");
}

#[tokio::test]
async fn a_month_later_only_accounts_that_exist_are_still_locked() {
    let context = Context::start().await;
    let rows = "select count(*) from identity.failures";
    for email in [EMAIL, "nobody@acme.example"] {
        context.lock(email).await;
    }
    context.fail(1).await;
    assert_eq!(context.count(rows).await, 2);
    context.advance(30 * 24 * 60 * 60);
    let context = context.restarted_with(&[], Arc::new(SystemEntropy));
    testkit::wait_until("one row is left", async || (context.count(rows).await == 1).then_some(())).await;
    assert!(!context.succeeds(ELSEWHERE).await);
}

#[tokio::test]
async fn an_attempt_that_does_not_count_leaves_no_row_of_failures() {
    let context = Context::start().await;
    context.fail(5).await;
    context.run_sql("delete from identity.failures").await;
    context.fail(1).await;
    assert_eq!(context.count("select count(*) from identity.failures").await, 0);
}
