//! Audit events of expired sessions: one per session.

use chrono::{DateTime, TimeDelta, Utc};
use contract::internal::SubjectRecord;
use hashing::RawToken;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use service::Clock as _;
use uuid::Uuid;

use crate::context::{Context, subject, tenant};

/// Starts a context with the sweep at an hour before the test's clock.
async fn start() -> Context {
    let context = Context::start().await;
    let mut connection = context.database.superuser().await.unwrap();
    let until = context.clock.now() - TimeDelta::hours(1);
    let update = sqlx::query("update session.expiry_sweep set audited_until = $1").bind(until);
    update.execute(&mut connection).await.unwrap();
    context
}

/// Sweeps once, for at most `max` sessions.
async fn sweep(context: &Context, max: usize) {
    let database = context.database.pool("svc_session").unwrap();
    let ids: Vec<Uuid> = (0..max).map(|_| Uuid::now_v7()).collect();
    let sweep =
        sqlx::query("select session.audit_expired_sessions($1, $2)").bind(context.clock.now()).bind(ids);
    sweep.execute(database.pool()).await.unwrap();
}

/// Returns the audit events, oldest first.
async fn events(context: &Context) -> Vec<Value> {
    let mut connection = context.database.superuser().await.unwrap();
    let select =
        "select payload from session.outbox where payload ->> 'name' = 'session_expired' order by outbox_id";
    sqlx::query_scalar(select).fetch_all(&mut connection).await.unwrap()
}

async fn credentials(context: &Context) -> Vec<String> {
    let events = events(context).await;
    events.iter().map(|event| event["event"]["credential"].as_str().unwrap().to_owned()).collect()
}

fn credential(token: &RawToken) -> String {
    token.digest().prefix()
}

fn occurred_at(event: &Value) -> DateTime<Utc> {
    serde_json::from_value(event["occurred_at"].clone()).unwrap()
}

#[tokio::test]
async fn unused_session_is_audited_a_minute_after_it_expired() {
    let (context, person) = (start().await, subject());
    let created_at = context.clock.now();
    let token = context.issue(&person, &tenant()).await.unwrap();
    context.clock.advance(TimeDelta::minutes(61) - TimeDelta::microseconds(1));
    sweep(&context, 10).await;
    assert!(events(&context).await.is_empty());
    context.clock.advance(TimeDelta::microseconds(1));
    for days in [0, 0, 1] {
        context.clock.advance(TimeDelta::days(days));
        sweep(&context, 10).await;
    }
    let events = events(&context).await;
    let session_id = context.sessions_of(&person.tenant_id).await[0];
    assert_eq!(occurred_at(&events[0]), created_at + TimeDelta::hours(1));
    let expected = json!({
        "name": "session_expired", "occurred_at": events[0]["occurred_at"], "event": {
            "event": "session_expired", "actor": {"type": "system"}, "about": "idle", "user_id": person.user_id,
            "session_id": session_id, "credential": credential(&token),
        }
    });
    assert_eq!(events, [expected]);
}

#[tokio::test]
async fn session_in_use_is_audited_at_its_absolute_lifetime_and_a_revoked_one_never() {
    let (context, person) = (start().await, subject());
    let (used, revoked) =
        (context.issue(&person, &tenant()).await.unwrap(), context.issue(&person, &tenant()).await.unwrap());
    let path = format!("/api/v1/auth/sessions/{}", context.sessions_of(&person.tenant_id).await[1]);
    assert_eq!(context.request(Method::DELETE, &path, &used, "").await.0, StatusCode::NO_CONTENT);
    for _ in 0..23 {
        context.clock.advance(TimeDelta::minutes(30));
        assert!(context.is_active(&used).await && !context.is_active(&revoked).await);
        context.wait_until_use_saved(&used).await;
        sweep(&context, 10).await;
        assert!(events(&context).await.is_empty());
    }
    context.clock.advance(TimeDelta::minutes(31));
    sweep(&context, 10).await;
    assert_eq!(events(&context).await[0]["event"]["about"], "absolute");
    assert_eq!(credentials(&context).await, [credential(&used)]);
}

#[tokio::test]
async fn concurrent_sweeps_audit_each_session_once() {
    let context = start().await;
    let people: Vec<SubjectRecord> = (0..3).map(|_| subject()).collect();
    let mut expected = Vec::new();
    for person in people.iter().cycle().take(21) {
        expected.push(credential(&context.issue(person, &tenant()).await.unwrap()));
    }
    context.clock.advance(TimeDelta::hours(2));
    let mut audited = Vec::new();
    for _ in 0..=expected.len() {
        testkit::join_all((0..4).map(|_| sweep(&context, 2))).await;
        audited = credentials(&context).await;
    }
    audited.sort();
    expected.sort();
    assert_eq!(audited, expected);
}

#[tokio::test]
async fn process_sweeps_when_it_starts() {
    let context = start().await;
    let token = context.issue(&subject(), &tenant()).await.unwrap();
    context.clock.advance(TimeDelta::hours(2));
    let _replica = context.start_replica();
    testkit::wait_until("the expired session is audited", async || {
        (credentials(&context).await == [credential(&token)]).then_some(())
    })
    .await;
}
