//! The purge of invites and of deleted tenants on a manual clock.

use std::sync::Arc;

use hashing::SystemEntropy;
use serde_json::json;
use testkit::wait_until;

use super::context::Context;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

async fn invite(context: &Context, email: &str) {
    let token = context.platform_token();
    let headers = [("Authorization", token.as_str()), ("X-Tenant-ID", "acme")];
    let body = json!({ "email": email, "delivery": "response" });
    assert_eq!(context.send("/users/invite", &headers, &body).await.status(), 201);
}

/// The addresses of a table, in order.
async fn emails(context: &Context, table: &str) -> Vec<String> {
    let mut connection = context.database.superuser().await.unwrap();
    let select = format!("select email from identity.{table} order by email");
    sqlx::query_scalar(sqlx::AssertSqlSafe(select)).fetch_all(&mut connection).await.unwrap()
}

/// Restarts the service, which purges at its start, and waits until the table has these addresses.
async fn restart_until(context: &Context, table: &str, expected: &[&str]) -> Context {
    restart_with(context, &[], table, expected).await
}

async fn restart_with(
    context: &Context,
    variables: &[(&str, &str)],
    table: &str,
    expected: &[&str],
) -> Context {
    let context = context.restarted_with(variables, Arc::new(SystemEntropy));
    wait_until("the rows are purged", async || (emails(&context, table).await == expected).then_some(()))
        .await;
    context
}

#[tokio::test]
async fn an_expired_invite_loses_its_user_after_a_day_and_is_deleted_after_30_days() {
    let context = Context::start().await;
    invite(&context, "ada@acme.example").await;
    context.advance(HOUR);
    invite(&context, "ben@acme.example").await;
    // The lifetime of the first invite, and a day.
    context.advance(72 * HOUR + DAY - HOUR);
    let context = restart_until(&context, "users", &["admin@acme.example", "ben@acme.example"]).await;
    let all = ["ada@acme.example", "admin@acme.example", "ben@acme.example"];
    assert_eq!(emails(&context, "invites").await, all);

    context.advance(HOUR);
    let context = restart_until(&context, "users", &["admin@acme.example"]).await;
    assert_eq!(emails(&context, "invites").await, all);

    // 30 days after the first invite expired; the invite of the administrator was accepted earlier.
    context.advance(30 * DAY - DAY - HOUR);
    restart_until(&context, "invites", &["ben@acme.example"]).await;
}

#[tokio::test]
async fn the_retention_of_settled_invites_is_configurable() {
    let context = Context::start().await;
    invite(&context, "ada@acme.example").await;
    // The invite of the administrator was accepted before the one of Ada expires.
    let all = ["ada@acme.example", "admin@acme.example"];
    context.advance(2 * DAY);
    let context = restart_with(&context, &[("SVC_INVITE_RETENTION", "3d")], "invites", &all).await;
    context.advance(DAY);
    let variables = [("SVC_INVITE_RETENTION", "3d")];
    let context = restart_with(&context, &variables, "invites", &["ada@acme.example"]).await;
    context.advance(3 * DAY);
    // The first purge settles the expired invite, the second one deletes it.
    let context = restart_with(&context, &variables, "users", &["admin@acme.example"]).await;
    restart_with(&context, &variables, "invites", &[]).await;
}

#[tokio::test]
async fn the_purge_erases_the_users_of_a_deleted_tenant_after_a_restart() {
    let context = Context::start().await;
    context.create_tenant("other").await;
    // The process stopped before it erased the users.
    let deleted =
        "update identity.tenants set status = 'deleted', deleted_at = now() where tenant_id = 'acme'";
    context.run_sql(deleted).await;
    restart_until(&context, "users", &["admin@other.example"]).await;
}
