//! Sessions that run out are told of, each once.

use chrono::{DateTime, TimeDelta, Utc};
use contract::internal::SubjectRecord;
use hashing::RawToken;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use service::Clock as _;
use uuid::Uuid;

use crate::context::{Context, subject, tenant};

/// A context whose sweep has come near the test's clock.
async fn start() -> Context {
    let context = Context::start().await;
    let mut connection = context.database.superuser().await.unwrap();
    let begin = context.clock.now() - TimeDelta::hours(1);
    let begin = sqlx::query("update session.expiry_sweep set told_until = $1").bind(begin);
    begin.execute(&mut connection).await.unwrap();
    context
}

/// One turn of the sweep, which tells of so many sessions at most.
async fn sweep(context: &Context, most: usize) {
    let database = context.database.pool("svc_session").unwrap();
    let ids: Vec<Uuid> = (0..most).map(|_| Uuid::now_v7()).collect();
    let sweep = sqlx::query("select session.tell_expired($1, $2)").bind(context.clock.now()).bind(ids);
    sweep.execute(database.pool()).await.unwrap();
}

/// What was told, in the order it was.
async fn told(context: &Context) -> Vec<Value> {
    let mut connection = context.database.superuser().await.unwrap();
    let told =
        "select payload from session.outbox where payload ->> 'name' = 'session_expired' order by outbox_id";
    sqlx::query_scalar(told).fetch_all(&mut connection).await.unwrap()
}

async fn credentials(context: &Context) -> Vec<String> {
    let told = told(context).await;
    told.iter().map(|told| told["event"]["credential"].as_str().unwrap().to_owned()).collect()
}

fn credential(token: &RawToken) -> String {
    token.digest().prefix()
}

fn time(told: &Value) -> DateTime<Utc> {
    serde_json::from_value(told["occurred_at"].clone()).unwrap()
}

#[tokio::test]
async fn a_session_that_is_left_alone_is_told_of_a_minute_after_its_end() {
    let (context, person) = (start().await, subject());
    let begun = context.clock.now();
    let token = context.issue(&person, &tenant()).await.unwrap();
    context.clock.advance(TimeDelta::minutes(61) - TimeDelta::microseconds(1));
    sweep(&context, 10).await;
    assert!(told(&context).await.is_empty());
    context.clock.advance(TimeDelta::microseconds(1));
    for days in [0, 0, 1] {
        context.clock.advance(TimeDelta::days(days));
        sweep(&context, 10).await;
    }
    let told = told(&context).await;
    let session_id = context.sessions_of(&person.tenant_id).await[0];
    assert_eq!(time(&told[0]), begun + TimeDelta::hours(1));
    let expected = json!({
        "tenant_exists": true, "name": "session_expired", "occurred_at": told[0]["occurred_at"], "event": {
            "event": "session_expired", "actor": {"type": "system"}, "about": "idle", "user_id": person.user_id,
            "session_id": session_id, "credential": credential(&token),
        }
    });
    assert_eq!(told, [expected]);
}

#[tokio::test]
async fn a_session_is_told_of_when_it_really_ends_and_one_that_was_ended_is_not() {
    let (context, person) = (start().await, subject());
    let (used, ended) =
        (context.issue(&person, &tenant()).await.unwrap(), context.issue(&person, &tenant()).await.unwrap());
    let path = format!("/api/v1/auth/sessions/{}", context.sessions_of(&person.tenant_id).await[1]);
    assert_eq!(context.ask(Method::DELETE, &path, &used, "").await.0, StatusCode::NO_CONTENT);
    for _ in 0..23 {
        context.clock.advance(TimeDelta::minutes(30));
        assert!(context.lives(&used).await && !context.lives(&ended).await);
        sweep(&context, 10).await;
        assert!(told(&context).await.is_empty());
    }
    context.clock.advance(TimeDelta::minutes(31));
    sweep(&context, 10).await;
    assert_eq!(told(&context).await[0]["event"]["about"], "absolute");
    assert_eq!(credentials(&context).await, [credential(&used)]);
}

#[tokio::test]
async fn of_many_that_end_at_once_each_is_told_of_once_however_many_look() {
    let context = start().await;
    let people: Vec<SubjectRecord> = (0..3).map(|_| subject()).collect();
    let mut expected = Vec::new();
    for person in people.iter().cycle().take(21) {
        expected.push(credential(&context.issue(person, &tenant()).await.unwrap()));
    }
    context.clock.advance(TimeDelta::hours(2));
    let mut told = Vec::new();
    for _ in 0..=expected.len() {
        testkit::join_all((0..4).map(|_| sweep(&context, 2))).await;
        told = credentials(&context).await;
    }
    told.sort();
    expected.sort();
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_process_looks_by_itself() {
    let context = start().await;
    let token = context.issue(&subject(), &tenant()).await.unwrap();
    context.clock.advance(TimeDelta::hours(2));
    // The first look is when the process starts.
    let _restarted = context.restarted();
    testkit::wait_until("the expired sessions are gone", async || {
        (credentials(&context).await == [credential(&token)]).then_some(())
    })
    .await;
}
