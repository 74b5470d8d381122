//! `PUT /internal/v1/api-key-notices/{key_id}`: repeated reports, and the limit of notices.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use contract::Scope;
use contract::internal::{ApiKeyNotice, api_key_notice_path};
use hashing::SystemEntropy;
use serde_json::json;
use tempfile::TempDir;
use tenancy::{KeyId, UserId};

use crate::context::{Context, SECRET};

/// A service with mail.
async fn with_mails() -> (Context, TempDir) {
    let mails = tempfile::tempdir().unwrap();
    let directory = mails.path().to_str().unwrap();
    let context =
        Context::start().await.restarted_with(&[("SVC_MAIL_DIR", directory)], Arc::new(SystemEntropy));
    (context, mails)
}

async fn notice(context: &Context) -> ApiKeyNotice {
    let time = DateTime::<Utc>::UNIX_EPOCH;
    ApiKeyNotice {
        key_id: KeyId::generate(),
        tenant_id: "acme".parse().unwrap(),
        name: "firewalls".to_owned(),
        scopes: vec![Scope::EventsWrite],
        created_by: context.user_id().await.parse::<UserId>().unwrap(),
        created_at: time,
        expires_at: time,
    }
}

async fn report(context: &Context, notice: &ApiKeyNotice) {
    let path = api_key_notice_path(notice.key_id);
    assert_eq!(context.put_internal(&path, Some(SECRET), notice).await, 204);
}

/// The number of notices in the outbox. These tests run no relay.
async fn count_notices(context: &Context) -> i64 {
    context.count("select count(*) from identity.outbox where kind = 'mail_api_key_notice'").await
}

#[tokio::test]
async fn a_repeated_report_sends_one_notice() {
    let (context, _mails) = with_mails().await;
    let notice = notice(&context).await;
    for _ in 0..3 {
        report(&context, &notice).await;
    }
    testkit::join_all((0..3).map(|_| report(&context, &notice))).await;
    context.advance(3600);
    report(&context, &notice).await;
    assert_eq!(count_notices(&context).await, 1);
}

#[tokio::test]
async fn an_administrator_gets_ten_notices_then_one_per_six_minutes() {
    let (context, _mails) = with_mails().await;
    for _ in 0..12 {
        report(&context, &ApiKeyNotice { key_id: KeyId::generate(), ..notice(&context).await }).await;
    }
    assert_eq!(count_notices(&context).await, 10);
    context.advance(6 * 60);
    for _ in 0..2 {
        report(&context, &notice(&context).await).await;
    }
    assert_eq!(count_notices(&context).await, 11);
}

#[tokio::test]
async fn a_notice_is_sent_to_the_twenty_oldest_administrators() {
    let (context, _mails) = with_mails().await;
    let notice = notice(&context).await;
    context
        .run_sql(
            "insert into identity.users (
                user_id, tenant_id, email, email_key, email_skeleton, role, status, password_digest, created_at, updated_at
            )
            select
                ('ffffffff-ffff-7fff-bfff-' || lpad(number::text, 12, '0'))::uuid, tenant_id, number || email,
                number || email_key, number || email_skeleton, role, status, password_digest, created_at, updated_at
            from identity.users, generate_series(1, 30) as number",
        )
        .await;
    report(&context, &notice).await;
    let token = context.platform_token();
    let headers = [("Authorization", token.as_str()), ("X-Tenant-ID", "acme")];
    let invite = json!({ "email": "ada@acme.example", "role": "admin", "delivery": "response" });
    assert_eq!(context.send("/users/invite", &headers, &invite).await.status(), 201);
    let count =
        "select count(*) from identity.outbox where kind in ('mail_api_key_notice', 'mail_admin_notice')";
    assert_eq!(context.count(count).await, 2 * 20);
    // The first administrator is the oldest one, and 19 others follow.
    let youngest = "select max(right(payload ->> 'recipient', 4)::bigint) from identity.outbox
        where payload ->> 'recipient' like 'ffffffff-%'";
    assert_eq!(context.count(youngest).await, 19);
}

#[tokio::test]
async fn the_internal_api_requires_the_service_token_and_a_matching_id() {
    let (context, _mails) = with_mails().await;
    let notice = notice(&context).await;
    let path = api_key_notice_path(notice.key_id);
    for token in [None, Some("another secret of thirty-two characters"), Some("")] {
        assert_eq!(context.put_internal(&path, token, &notice).await, 401);
        assert_eq!(context.put_internal("/internal/v1/nowhere", token, &notice).await, 401);
    }
    let other = api_key_notice_path(KeyId::generate());
    assert_eq!(context.put_internal(&other, Some(SECRET), &notice).await, 422);
    assert_eq!(context.put_internal("/internal/v1/nowhere", Some(SECRET), &notice).await, 404);
    let unknown = ApiKeyNotice { tenant_id: "unknown".parse().unwrap(), ..notice };
    report(&context, &unknown).await;
    assert_eq!(count_notices(&context).await, 0);
}

#[tokio::test]
async fn without_mail_a_report_has_no_effect() {
    let context = Context::start().await;
    report(&context, &notice(&context).await).await;
    assert_eq!(context.count("select count(*) from identity.api_key_reports").await, 0);
}
