//! Outages of Postgres and the broker: clients get 503, the system recovers by itself, no acknowledged event is lost.

use std::time::Duration;

use e2e::{
    ApiUser, EventStream, Installation, Producers, Run, Server, StoppedProcesses, api_client,
    expect_no_internals,
};
use serde_json::{Value, json};
use testkit::{PASSWORD, TestResponse, wait_until, within};

/// The limit for each response, also during an outage.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

async fn log_in(run: &Run<'_>) -> TestResponse {
    let client = api_client(&run.run_file.base_url).header("X-Tenant-ID", "demo");
    let login = json!({ "email": run.run_file.admin_email, "password": PASSWORD });
    within(RESPONSE_TIMEOUT, "login", client.post("/auth/password/login", &login)).await
}

async fn introspect(user: &ApiUser) -> TestResponse {
    within(RESPONSE_TIMEOUT, "introspection", user.client.get("/auth/session")).await
}

async fn send(user: &ApiUser, path: &str, body: &Value) -> TestResponse {
    within(RESPONSE_TIMEOUT, path, user.client.post(path, body)).await
}

fn expect_dependency_unavailable(response: &TestResponse) {
    response.expect_problem(503, "dependency_unavailable");
    assert!(response.headers.contains_key("retry-after"), "{response}");
    expect_no_internals(response);
}

async fn wait_for_login(run: &Run<'_>) {
    wait_until("login works", async || {
        let response = log_in(run).await;
        if response.status != 200 {
            expect_dependency_unavailable(&response);
        }
        (response.status == 200).then_some(())
    })
    .await;
}

/// Waits until `/health` returns this status.
async fn wait_for_health(run: &Run<'_>, status: u16) -> TestResponse {
    let client = api_client(&run.run_file.base_url);
    wait_until("health changes", async || {
        let response = within(RESPONSE_TIMEOUT, "health", client.get("/health")).await;
        (response.status == status).then_some(response)
    })
    .await
}

async fn expect_each_event_once(run: &Run<'_>, acknowledged: &[String]) {
    EventStream::connect(&run.run_file.nats_url).await.expect_each_once(acknowledged).await;
}

#[tokio::test]
async fn without_postgres_requests_get_503_until_it_is_restarted() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let user = ApiUser::first_admin(&run.run_file).await;
    let mut producers = Producers::start(&user.client);
    producers.wait_for_acknowledged(30).await;

    let blocked = run.block(Server::Postgres);
    producers.wait_for_rejected(5).await;
    expect_dependency_unavailable(&log_in(&run).await);
    expect_dependency_unavailable(&introspect(&user).await);
    let event = json!({ "source_id": "s", "event_id": "meanwhile" });
    expect_dependency_unavailable(&send(&user, "/events", &event).await);
    drop(blocked);

    wait_for_login(&run).await;
    introspect(&user).await.expect::<Value>(200);
    producers.wait_for_acknowledged(30).await;
    let run_file = run.current_run_file();
    assert_ne!(run_file.children.postgres, run.run_file.children.postgres);
    expect_each_event_once(&run, &producers.stop().await).await;
}

#[tokio::test]
async fn while_postgres_does_not_respond_requests_get_503_in_time_and_never_401() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let user = ApiUser::first_admin(&run.run_file).await;
    // Some queries are in flight when Postgres stops.
    let mut producers = Producers::start(&user.client);
    producers.wait_for_acknowledged(30).await;

    let stopped = StoppedProcesses::stop_tree(run.run_file.children.postgres);
    producers.wait_for_rejected(5).await;
    expect_dependency_unavailable(&log_in(&run).await);
    expect_dependency_unavailable(&introspect(&user).await);
    drop(stopped);

    wait_for_login(&run).await;
    introspect(&user).await.expect::<Value>(200);
    producers.wait_for_acknowledged(30).await;
    expect_each_event_once(&run, &producers.stop().await).await;
}

#[tokio::test]
async fn without_the_broker_events_get_503_and_no_acknowledged_event_is_lost() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let user = ApiUser::first_admin(&run.run_file).await;
    let mut producers = Producers::start(&user.client);
    for _ in 0..2 {
        producers.wait_for_acknowledged(50).await;
        let blocked = run.block(Server::Nats);
        producers.wait_for_rejected(5).await;
        expect_dependency_unavailable(&wait_for_health(&run, 503).await);
        let event = json!({ "source_id": "s", "event_id": "meanwhile" });
        expect_dependency_unavailable(&send(&user, "/events", &event).await);
        let batch = json!([{ "source_id": "s" }, { "source_id": "s" }]);
        let response = send(&user, "/events/batch", &batch).await;
        let results: Value = response.expect(503);
        assert!(response.headers.contains_key("retry-after"), "{response}");
        assert_eq!(
            (&results["failed_events"], &results["results"][0]["retryable"]),
            (&json!(2), &json!(true))
        );
        // Requests that do not need the broker succeed.
        introspect(&user).await.expect::<Value>(200);
        assert_eq!(log_in(&run).await.status, 200);
        drop(blocked);
        wait_for_health(&run, 200).await;
    }
    producers.wait_for_acknowledged(50).await;
    assert_ne!(run.current_run_file().children.nats, run.run_file.children.nats);
    expect_each_event_once(&run, &producers.stop().await).await;
}

#[tokio::test]
async fn while_the_broker_does_not_respond_events_get_503_in_time_and_none_is_stored_twice() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let user = ApiUser::first_admin(&run.run_file).await;
    let mut producers = Producers::start(&user.client);
    producers.wait_for_acknowledged(50).await;
    let stopped = StoppedProcesses::stop_tree(run.run_file.children.nats);
    producers.wait_for_rejected(6).await;
    wait_for_health(&run, 503).await;
    drop(stopped);
    wait_for_health(&run, 200).await;
    producers.wait_for_acknowledged(50).await;
    expect_each_event_once(&run, &producers.stop().await).await;
}
