//! What clients see while a server is away or stands still, and that nothing acknowledged is lost.

use std::time::Duration;
use testkit::{PASSWORD, TestResponse, within};

use e2e::{Broker, Frozen, Installation, Person, Producers, Run, Server, expect_nothing_of_the_inside};
use serde_json::{Value, json};

/// No answer may take longer, whatever is broken.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

async fn log_in(run: &Run<'_>) -> TestResponse {
    let client = e2e::raw_client(&run.run_file.base_url).header("X-Tenant-ID", "demo");
    let login = json!({ "email": run.run_file.admin_email, "password": PASSWORD });
    within(ANSWER_LIMIT, "login", client.post("/auth/password/login", &login)).await
}

async fn introspect(person: &Person) -> TestResponse {
    within(ANSWER_LIMIT, "introspection", person.client.get("/auth/session")).await
}

fn expect_dependency_unavailable(answer: &TestResponse) {
    answer.expect_problem(503, "dependency_unavailable");
    assert!(answer.headers.contains_key("retry-after"), "{answer}");
    expect_nothing_of_the_inside(answer);
}

async fn until_login_works(run: &Run<'_>) {
    testkit::wait_until("login works again", async || {
        let answer = log_in(run).await;
        if answer.status != 200 {
            expect_dependency_unavailable(&answer);
        }
        (answer.status == 200).then_some(())
    })
    .await;
}

/// Every event that was acknowledged stands in the stream once, and none twice.
async fn expect_in_stream_once(run: &Run<'_>, acknowledged: &[String]) {
    let ids = Broker::connect(&run.run_file.nats_url).await.message_ids().await;
    let by_event: std::collections::HashMap<_, _> =
        ids.iter().map(|(id, times)| (id.rsplit(':').next().unwrap(), *times)).collect();
    let lost: Vec<_> = acknowledged.iter().filter(|id| !by_event.contains_key(id.as_str())).collect();
    assert!(
        lost.is_empty(),
        "{} of {} acknowledged events are lost: {lost:?}",
        lost.len(),
        acknowledged.len()
    );
    let twice: Vec<_> = by_event.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[tokio::test]
async fn without_postgres_logins_and_sessions_answer_503_and_recover_by_themselves() {
    let installation = Installation::with_cheap_hashes();
    let run = installation.up().await;
    let person = Person::first_of(&run.run_file).await;
    let mut producers = Producers::start(&person.client);
    producers.until_acknowledged(30).await;

    let away = run.take_away(Server::Postgres);
    producers.until_refused(5).await;
    expect_dependency_unavailable(&log_in(&run).await);
    expect_dependency_unavailable(&introspect(&person).await);
    let event = json!({ "source_id": "s", "event_id": "meanwhile" });
    let answer = within(ANSWER_LIMIT, "an event", person.client.post("/events", &event)).await;
    expect_dependency_unavailable(&answer);
    drop(away);

    until_login_works(&run).await;
    introspect(&person).await.expect::<Value>(200);
    producers.until_acknowledged(30).await;
    let run_file = run.facts_now();
    assert_ne!(run_file.children.postgres, run.run_file.children.postgres);
    expect_in_stream_once(&run, &producers.stop().await).await;
}

#[tokio::test]
async fn while_postgres_stands_still_nobody_waits_for_long_and_nobody_is_taken_for_a_stranger() {
    let installation = Installation::with_cheap_hashes();
    let run = installation.up().await;
    let person = Person::first_of(&run.run_file).await;
    // Some questions are under way when it stops.
    let mut producers = Producers::start(&person.client);
    producers.until_acknowledged(30).await;

    let frozen = Frozen::tree(run.run_file.children.postgres);
    producers.until_refused(5).await;
    expect_dependency_unavailable(&log_in(&run).await);
    expect_dependency_unavailable(&introspect(&person).await);
    drop(frozen);

    until_login_works(&run).await;
    introspect(&person).await.expect::<Value>(200);
    producers.until_acknowledged(30).await;
    expect_in_stream_once(&run, &producers.stop().await).await;
}

/// `/health` comes to this status.
async fn until_health_is(run: &Run<'_>, status: u16) -> TestResponse {
    let client = e2e::raw_client(&run.run_file.base_url);
    testkit::wait_until("health changes", async || {
        let answer = within(ANSWER_LIMIT, "health", client.get("/health")).await;
        (answer.status == status).then_some(answer)
    })
    .await
}

#[tokio::test]
async fn without_the_broker_events_answer_503_and_no_acknowledged_one_is_lost() {
    let installation = Installation::with_cheap_hashes();
    let run = installation.up().await;
    let person = Person::first_of(&run.run_file).await;
    let mut producers = Producers::start(&person.client);
    for _ in 0..2 {
        producers.until_acknowledged(50).await;
        let away = run.take_away(Server::Nats);
        producers.until_refused(5).await;
        expect_dependency_unavailable(&until_health_is(&run, 503).await);
        let event = json!({ "source_id": "s", "event_id": "meanwhile" });
        let answer = within(ANSWER_LIMIT, "an event", person.client.post("/events", &event)).await;
        expect_dependency_unavailable(&answer);
        let list = json!([{ "source_id": "s" }, { "source_id": "s" }]);
        let answer = within(ANSWER_LIMIT, "a batch", person.client.post("/events/batch", &list)).await;
        let results: Value = answer.expect(503);
        assert!(answer.headers.contains_key("retry-after"), "{answer}");
        assert_eq!(
            (&results["failed_events"], &results["results"][0]["retryable"]),
            (&json!(2), &json!(true))
        );
        // Who needs no stream does not notice.
        introspect(&person).await.expect::<Value>(200);
        assert_eq!(log_in(&run).await.status, 200);
        drop(away);
        until_health_is(&run, 200).await;
    }
    producers.until_acknowledged(50).await;
    assert_ne!(run.facts_now().children.nats, run.run_file.children.nats);
    expect_in_stream_once(&run, &producers.stop().await).await;
}

#[tokio::test]
async fn while_the_broker_stands_still_events_answer_503_in_time_and_none_is_kept_twice() {
    let installation = Installation::with_cheap_hashes();
    let run = installation.up().await;
    let person = Person::first_of(&run.run_file).await;
    let mut producers = Producers::start(&person.client);
    producers.until_acknowledged(50).await;
    let frozen = Frozen::tree(run.run_file.children.nats);
    producers.until_refused(6).await;
    until_health_is(&run, 503).await;
    drop(frozen);
    until_health_is(&run, 200).await;
    producers.until_acknowledged(50).await;
    expect_in_stream_once(&run, &producers.stop().await).await;
}
