//! Servers that fail, a process that does not start, and wrong clocks.

use contract::paths::Upstream;
use e2e::{ApiUser, WrongClock, api_client};
use futures::future::join_all;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use testkit::wait_until;

use super::Watched;

#[tokio::test]
async fn a_stopped_broker_and_a_process_that_does_not_start() {
    let Some(mut watched) = Watched::start(&[]).await else { return };
    watched.services.nats.stop();
    watched.unavailable = &["nats ", "curl localhost:8222"];
    // Time passes: the event of this login waits for an hour.
    watched.log_in().await;
    let hour = "update identity.outbox set created_at = created_at - interval '1 hour'";
    watched.run_sql(hour).await;
    let alerts = ["SvcBrokerUnavailable", "SvcPublishFailing", "SvcInvalidationFeedDown", "SvcAuditDelayed"];
    let ada = watched.ada.clone();
    let send = async || {
        ada.client.post("/events", &json!({ "source_id": "fw" })).await;
    };
    let outputs = watched.expect(&alerts, &send).await;
    let listed = &outputs["svc-identity outbox list"];
    assert!(listed.contains("NATS is not available"), "the runbook names the error: {listed}");

    watched.stop(Upstream::Ingest).await;
    watched.expect(&["SvcDown"], async || ()).await;
    watched.start_again(Upstream::Ingest, &[]);
    let outputs = watched.expect(&["SvcNotReady"], async || ()).await;
    assert_eq!(outputs["curl localhost:9090/readyz"].lines().next(), Some("waiting for: stream"));

    watched.services.nats.restart().await.unwrap();
    watched.expect_recovery(async || ()).await;
    assert_eq!(watched.send_event().await, 202);
    // The commands that need NATS.
    watched.unavailable = &[];
    for alert in alerts {
        watched.diagnose(alert).await;
    }
    assert!(watched.act("SvcPublishFailing", "nats stream report").await.contains("UDM"));
    watched.act("SvcNotReady", "svc-<service> migrate up").await;
    watched.act("SvcAuditDelayed", "nats stream purge AUDIT --subject='audit.v1.<tenant>.>' --force").await;
}

#[tokio::test]
async fn a_process_that_exits_again_and_again() {
    let Some(mut watched) = Watched::start(&[]).await else { return };
    let is_restarting = |(name, _): &(String, Value)| name == "SvcRestarting";
    wait_until("SvcRestarting fires", async || {
        watched.restart(Upstream::Session, &[]).await;
        watched.firing().await.iter().any(is_restarting).then_some(())
    })
    .await;
    watched.expect(&["SvcRestarting"], async || ()).await;
    watched.expect_recovery(async || ()).await;
}

#[tokio::test]
async fn a_read_only_postgres() {
    let Some(mut watched) = Watched::start(&[("SVC_LIMIT_LOGIN", "1000/s")]).await else { return };
    let database = "select current_database()";
    let database: String =
        sqlx::query_scalar(database).fetch_one(&mut watched.superuser().await).await.unwrap();
    watched.run_sql(&format!("alter database \"{database}\" set default_transaction_read_only = on")).await;
    let end_connections = "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'svc-%' and datname = current_database()";
    watched.act("SvcDatabaseUnavailable", end_connections).await;
    let (base_url, ada) = (watched.proxy.base_url.clone(), watched.ada.clone());
    let body = json!({ "email": "ada@acme.example", "password": testkit::PASSWORD });
    let load = async || {
        let login = api_client(&base_url).header("X-Tenant-ID", "acme");
        login.post("/auth/password/login", &body).await;
        ada.client.get("/auth/sessions").await;
    };
    let alerts = [
        "SvcDatabaseUnavailable",
        "SvcRateLimiterUnavailable",
        "SvcErrorBudgetFastBurn",
        "SvcErrorBudgetSlowBurn",
    ];
    watched.expect(&alerts, load).await;
    let is_standby = watched.act("SvcDatabaseUnavailable", "select pg_is_in_recovery()").await;
    assert_eq!(is_standby.trim(), "f");

    let mut connection = PgConnection::connect(&watched.services.superuser_url()).await.unwrap();
    let writable = format!(
        "set default_transaction_read_only = off; alter database \"{database}\" reset default_transaction_read_only"
    );
    for statement in writable.split("; ") {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await.unwrap();
    }
    watched.expect_recovery(async || ()).await;
    assert_eq!(watched.log_in().await, 200);
}

#[tokio::test]
async fn more_logins_than_the_workers_can_verify() {
    let slow =
        [("SVC_HASH_WORKERS", "1"), ("SVC_ARGON2_MEMORY_COST", "65536"), ("SVC_ARGON2_TIME_COST", "3")];
    let Some(mut watched) = Watched::start(&[]).await else { return };
    watched.restart(Upstream::Identity, &slow).await;
    let base_url = watched.proxy.base_url.clone();
    let body = json!({ "email": "ada@acme.example", "password": "not-the-password-9" });
    let flood = async || {
        let login = |n: usize| {
            let email = format!("user-{n}@acme.example");
            let body = json!({ "email": email, "password": body["password"] });
            let client = api_client(&base_url).header("X-Tenant-ID", "acme");
            async move { client.post("/auth/password/login", &body).await }
        };
        join_all((0..40).map(login)).await;
    };
    watched.expect(&["SvcHashQueueFull"], flood).await;
    // The source is blocked.
    watched.expect_recovery(async || ()).await;
    assert_eq!(watched.log_in().await, 200);
}

#[tokio::test]
async fn guesses_at_the_password_of_an_account() {
    let Some(mut watched) = Watched::start(&[]).await else { return };
    let base_url = watched.proxy.base_url.clone();
    let body = json!({ "email": "ada@acme.example", "password": "not-the-password-9" });
    let guesses = async || {
        let guess = || {
            let client = api_client(&base_url).header("X-Tenant-ID", "acme");
            let body = body.clone();
            async move { client.post("/auth/password/login", &body).await }
        };
        join_all((0..20).map(|_| guess())).await;
    };
    let outputs = watched.expect(&["SvcPasswordGuessing"], guesses).await;
    let decisions = &outputs["svc_limiter_decisions_total{limit=\"account\"}"];
    assert!(decisions.contains("rejected"), "{outputs:#?}");
    watched.values.push(("<user_id>", watched.ada.user_id.clone()));
    watched.act("SvcPasswordGuessing", "svc users enable <user_id> --tenant <tenant>").await;
    watched.expect_recovery(async || ()).await;
}

#[tokio::test]
async fn clients_with_one_address_and_more_logins_than_its_limit() {
    let Some(mut watched) = Watched::start(&[("SVC_LIMIT_LOGIN", "30/min")]).await else { return };
    let base_url = watched.proxy.base_url.clone();
    let logins = async || {
        let login = |n: usize| {
            let client = api_client(&base_url).header("X-Tenant-ID", "acme");
            let email = format!("user-{n}@acme.example");
            let body = json!({ "email": email, "password": "not-the-password-9" });
            async move { client.post("/auth/password/login", &body).await }
        };
        join_all((0..20).map(login)).await;
    };
    let outputs = watched.expect(&["SvcRequestsRateLimited"], logins).await;
    let rejected = &outputs["svc_limiter_decisions_total{decision=\"rejected\"}"];
    assert!(rejected.contains("login"), "{outputs:#?}");
    watched.expect_recovery(async || ()).await;
}

#[tokio::test]
async fn a_consumer_that_does_not_read_and_wrong_clocks() {
    let Some(mut watched) = Watched::start(&[]).await else { return };
    assert_eq!(watched.send_event().await, 202);
    watched.platform.run_ok(&["consumers", "create", "archive", "--tenant", "acme"], "").await;
    let clock = WrongClock::compile();
    let ahead = clock.variables(60 * 3600);
    let ahead: Vec<_> = ahead.iter().map(|(name, value)| (*name, value.as_str())).collect();
    watched.restart(Upstream::Ingest, &ahead).await;
    watched.expect(&["SvcConsumerBehind"], async || ()).await;
    watched.act("SvcConsumerBehind", "svc consumers reset <consumer> --to new").await;
    watched.expect_recovery(async || ()).await;
    watched.act("SvcConsumerBehind", "svc consumers delete <consumer>").await;

    let (base_url, ada) = (watched.proxy.base_url.clone(), watched.ada.clone());
    let revoke = async || {
        let other = ApiUser::log_in(&base_url, "acme", "ada@acme.example").await;
        ada.client.post("/events", &json!({ "source_id": "fw" })).await;
        other.client.post("/events", &json!({ "source_id": "fw" })).await;
        api_client(&base_url).post("/auth/sessions/logout", &json!({ "session_id": other.token })).await;
    };
    watched.expect(&["SvcInvalidationsDelayed"], &revoke).await;
    // The time of the node is corrected.
    watched.restart(Upstream::Ingest, &[]).await;
    watched.expect_recovery(&revoke).await;
}
