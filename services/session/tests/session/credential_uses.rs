//! Uses of credentials are recorded outside of the requests.

use chrono::TimeDelta;
use contract::Page;
use contract::session::{Session, Whoami};
use http::{Method, Request};
use service::Clock as _;
use sqlx::PgConnection;

use crate::context::{Context, subject, tenant};

/// Blocks changes of sessions, but no reads, until the connection commits.
async fn block_writes(context: &Context) -> PgConnection {
    let mut connection = context.database.superuser().await.unwrap();
    let lock = "begin; lock table session.sessions in exclusive mode";
    sqlx::raw_sql(lock).execute(&mut connection).await.unwrap();
    connection
}

async fn permit_writes(mut connection: PgConnection) {
    sqlx::raw_sql("commit").execute(&mut connection).await.unwrap();
}

#[tokio::test]
async fn a_check_shows_its_use_before_it_is_saved() {
    let context = Context::start().await;
    let user = subject();
    let token = context.issue(&user, &tenant()).await.unwrap();
    context.clock.advance(TimeDelta::minutes(50));
    let (now, idle_expires_at) = (context.clock.now(), context.clock.now() + TimeDelta::hours(1));
    let blocked = block_writes(&context).await;
    let (_, body) = context.request(Method::GET, "/api/v1/auth/session", &token, "").await;
    let whoami: Whoami = serde_json::from_slice(&body).unwrap();
    assert_eq!(whoami.idle_expires_at, Some(idle_expires_at));
    let request = Request::get("/api/v1/auth/sessions")
        .header("authorization", format!("Bearer {}", token.expose()))
        .header("x-user-id", user.user_id.to_string())
        .body(axum::body::Body::empty());
    let body = context.send(request.unwrap()).await.into_body();
    let listed = serde_json::from_slice::<Page<Session>>(&body).unwrap().items.remove(0);
    assert_eq!((listed.last_seen_at, listed.idle_expires_at), (now, idle_expires_at));
    permit_writes(blocked).await;
    context.wait_until_use_saved(&token).await;
}

#[tokio::test]
async fn a_shutdown_saves_the_uses_that_wait() {
    let context = Context::start().await;
    let one = context.issue(&subject(), &tenant()).await.unwrap();
    let two = context.issue(&subject(), &tenant()).await.unwrap();
    context.clock.advance(TimeDelta::minutes(1));
    let blocked = block_writes(&context).await;
    assert!(context.is_active(&one).await);
    // The save of the first use has started, so that the second one waits for the next save.
    context.wait_until_blocked("credential.save_uses").await;
    assert!(context.is_active(&two).await);
    tokio::join!(context.tasks.shut_down(), permit_writes(blocked));
    assert_eq!(context.last_seen_at(&one).await, context.clock.now());
    assert_eq!(context.last_seen_at(&two).await, context.clock.now());
}

#[tokio::test]
async fn the_use_of_a_session_that_is_locked_is_saved_later() {
    let context = Context::start().await;
    let one = context.issue(&subject(), &tenant()).await.unwrap();
    let two = context.issue(&subject(), &tenant()).await.unwrap();
    context.clock.advance(TimeDelta::minutes(1));
    let mut lock = context.database.superuser().await.unwrap();
    sqlx::raw_sql("begin").execute(&mut lock).await.unwrap();
    let statement = sqlx::query("select from session.sessions where digest = $1 for no key update");
    statement.bind(one.digest().as_bytes()).execute(&mut lock).await.unwrap();
    assert!(context.is_active(&one).await && context.is_active(&two).await);
    // The statement with the first use, or a later one.
    context.wait_until_use_saved(&two).await;
    permit_writes(lock).await;
    context.wait_until_use_saved(&one).await;
}

async fn rename_function(context: &Context, from: &str, to: &str) {
    let mut connection = context.database.superuser().await.unwrap();
    let statement = format!("alter function session.{from} rename to {to}");
    sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
}

#[tokio::test]
async fn a_use_is_saved_after_an_error_but_not_after_30_seconds() {
    let context = Context::start().await;
    let one = context.issue(&subject(), &tenant()).await.unwrap();
    let two = context.issue(&subject(), &tenant()).await.unwrap();
    context.clock.advance(TimeDelta::minutes(1));
    rename_function(&context, "save_uses", "missing").await;
    assert!(context.is_active(&one).await);
    rename_function(&context, "missing", "save_uses").await;
    context.wait_until_use_saved(&one).await;
    let saved_at = context.clock.now();
    context.clock.advance(TimeDelta::minutes(1));
    rename_function(&context, "save_uses", "missing").await;
    assert!(context.is_active(&one).await);
    context.clock.advance(TimeDelta::seconds(30));
    rename_function(&context, "missing", "save_uses").await;
    assert!(context.is_active(&two).await);
    context.wait_until_use_saved(&two).await;
    assert_eq!(context.last_seen_at(&one).await, saved_at);
}

/// The server of the tests does not wait for the disk, so the statement sets the opposite first.
#[tokio::test]
async fn the_commit_of_uses_does_not_wait_for_the_disk() {
    let context = Context::start().await;
    let mut connection = context.database.superuser().await.unwrap();
    let statements =
        "begin; set local synchronous_commit = on; select session.save_uses('{}', '{}', '{}', '1 minute')";
    sqlx::raw_sql(statements).execute(&mut connection).await.unwrap();
    let setting: String =
        sqlx::query_scalar("show synchronous_commit").fetch_one(&mut connection).await.unwrap();
    assert_eq!(setting, "off");
}
