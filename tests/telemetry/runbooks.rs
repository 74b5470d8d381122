//! Real faults fire the alerts of the chart, and the actions of their runbooks end them. Prometheus evaluates the alerts; a minute of
//! an alert is a second here, and an hour a minute.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use contract::paths::Upstream;
use e2e::{
    ALL_SERVICES, ApiUser, Proxy, Service, Services, Svc, WrongClock, api_client, installed, output_of,
    program_path, required_variable,
};
use futures::future::join_all;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use testkit::wait_until;

/// Alerts that a test of this file fires.
const FIRED_HERE: &[&str] = &[
    "SvcAuditDelayed",
    "SvcBrokerUnavailable",
    "SvcConsumerBehind",
    "SvcDatabaseUnavailable",
    "SvcDown",
    "SvcErrorBudgetFastBurn",
    "SvcErrorBudgetSlowBurn",
    "SvcHashQueueFull",
    "SvcInvalidationFeedDown",
    "SvcInvalidationsDelayed",
    "SvcNotReady",
    "SvcPublishFailing",
    "SvcRateLimiterUnavailable",
];

/// Other alerts, with a test that causes their condition or a similar one.
const CAUSED_ELSEWHERE: &[(&str, &str)] = &[
    ("SvcDatabaseSaturated", "libs/database/tests/pool.rs"),
    ("SvcHighLatency", "tests/system/outages.rs"),
    ("SvcMigrationFailed", "tests/cluster/rejections.py"),
    ("SvcOperatorWithoutLeader", "tests/cluster/managed_faults.py"),
    ("SvcOutboxDeadLettered", "tests/telemetry/metrics.rs"),
    ("SvcOutboxDelayed", "tests/telemetry/metrics.rs"),
    ("SvcQuarantineNearlyFull", "services/ingest/tests/http/quarantine.rs"),
    ("SvcQuotaExceeded", "tests/system/quotas.rs"),
    ("SvcReleasesHeld", "services/operator/src/tests.rs"),
    ("SvcResourceStalled", "services/operator/src/tests.rs"),
    ("SvcStreamGrowing", "tests/system/faults.rs"),
    ("SvcStreamNearlyFull", "tests/system/faults.rs"),
];

/// Running services that Prometheus watches.
struct Watched {
    services: Services,
    running: Vec<Option<Service>>,
    proxy: Proxy,
    platform: Svc,
    ada: ApiUser,
    prometheus: Child,
    address: String,
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Its standard input ends with it.
        drop(self.prometheus.stdin.take());
        let _ = self.prometheus.wait();
    }
}

impl Watched {
    /// `None` without Prometheus.
    async fn start(variables: &[(&str, &str)]) -> Option<Self> {
        installed("prometheus")?;
        let services = Services::prepare().await;
        services.migrate_all().await;
        let mut running = Vec::new();
        for service in ALL_SERVICES {
            let mut started = services.start_with(service, variables);
            started.wait_until_ready().await;
            running.push(Some(started));
        }
        let proxy = services.start_proxy().await;
        let ada = ApiUser::create_acme(&proxy.base_url, &services.platform_token, "ada@acme.example").await;
        let platform = Svc::new(&program_path("svc"), &proxy.base_url, "acme")
            .with_variable("SVC_PLATFORM_TOKEN", &services.platform_token);
        let (prometheus, address) = start_prometheus(&services);
        Some(Self { services, running, proxy, platform, ada, prometheus, address })
    }

    async fn stop(&mut self, service: Upstream) {
        let index = ALL_SERVICES.iter().position(|other| *other == service).unwrap();
        let mut stopped = self.running[index].take().unwrap();
        stopped.process.interrupt();
        stopped.process.wait().await;
    }

    async fn restart(&mut self, service: Upstream, variables: &[(&str, &str)]) {
        self.stop(service).await;
        self.start_again(service, variables).wait_until_ready().await;
    }

    fn start_again(&mut self, service: Upstream, variables: &[(&str, &str)]) -> &mut Service {
        let index = ALL_SERVICES.iter().position(|other| *other == service).unwrap();
        self.running[index].insert(self.services.start_with(service, variables))
    }

    /// The firing alerts with their labels.
    async fn firing(&self) -> Vec<(String, Value)> {
        let url = format!("http://{}/api/v1/alerts", self.address);
        let response = testkit::client::plain_http().get(url).send().await.unwrap();
        let response: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        let alerts = response["data"]["alerts"].as_array().unwrap().iter();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        firing
            .map(|alert| (alert["labels"]["alertname"].as_str().unwrap().to_owned(), alert["labels"].clone()))
            .collect()
    }

    /// Continues the load until all these alerts have fired at the same time.
    async fn expect(&mut self, alerts: &[&str], mut load: impl AsyncFnMut()) {
        wait_until(&format!("{alerts:?} fire"), async || {
            load().await;
            let firing = self.firing().await;
            alerts.iter().all(|alert| firing.iter().any(|(name, _)| name == alert)).then_some(())
        })
        .await;
    }

    /// Waits until no alert fires, except those that look back over hours.
    async fn expect_recovery(&self, mut load: impl AsyncFnMut()) {
        wait_until("no alert fires", async || {
            load().await;
            let firing = self.firing().await;
            firing.iter().all(|(name, _)| name.starts_with("SvcErrorBudget")).then_some(())
        })
        .await;
    }

    async fn superuser(&self) -> PgConnection {
        PgConnection::connect(&self.services.superuser_url()).await.unwrap()
    }

    async fn run_sql(&self, statement: &str) {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
            .execute(&mut self.superuser().await)
            .await
            .unwrap();
    }

    /// Runs `svc-identity` with the variables of the service, as the runbooks do.
    async fn svc_identity(&self, arguments: &[&str]) -> String {
        let mut command = self.services.command(Upstream::Identity);
        command.args(arguments);
        let output = output_of(command).await;
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn send_event(&self) -> u16 {
        self.ada.client.post("/events", &json!({ "source_id": "fw" })).await.status
    }

    async fn log_in(&self) -> u16 {
        let body = json!({ "email": "ada@acme.example", "password": testkit::PASSWORD });
        let client = api_client(&self.proxy.base_url).header("X-Tenant-ID", "acme");
        client.post("/auth/password/login", &body).await.status
    }
}

fn start_prometheus(services: &Services) -> (Child, String) {
    use std::io::BufRead as _;
    let targets = ALL_SERVICES.map(|service| format!("{}={}", service.name(), services.admin(service)));
    let mut command = Command::new(required_variable("SVC_TEST_PYTHON"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("chart/live.py")).arg("--serve").args(targets);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut address = String::new();
    std::io::BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
    (child, address.trim().to_owned())
}

#[test]
fn each_alert_is_fired_by_a_test_of_this_file_or_caused_by_another_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let files = std::fs::read_dir(root.join("helm/svc/alerts")).unwrap();
    let alerts: BTreeSet<String> =
        files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    let covered = FIRED_HERE.iter().chain(CAUSED_ELSEWHERE.iter().map(|(alert, _)| alert));
    assert_eq!(alerts, covered.map(|alert| (*alert).to_owned()).collect());
    for (alert, test) in CAUSED_ELSEWHERE {
        assert!(root.join(test).exists(), "{alert}: {test}");
    }
}

#[tokio::test]
async fn a_stopped_broker_and_a_process_that_does_not_start() {
    let Some(mut watched) = Watched::start(&[]).await else { return };
    watched.services.nats.stop();
    // Time passes: the event of this login waits for an hour.
    watched.log_in().await;
    let hour = "update identity.outbox set created_at = created_at - interval '1 hour'";
    watched.run_sql(hour).await;
    let alerts = ["SvcBrokerUnavailable", "SvcPublishFailing", "SvcInvalidationFeedDown", "SvcAuditDelayed"];
    let ada = watched.ada.clone();
    let send = async || {
        ada.client.post("/events", &json!({ "source_id": "fw" })).await;
    };
    watched.expect(&alerts, &send).await;
    let listed = watched.svc_identity(&["outbox", "list"]).await;
    assert!(listed.contains("NATS is not available"), "the runbook names the error: {listed}");

    watched.stop(Upstream::Ingest).await;
    watched.expect(&["SvcDown"], async || ()).await;
    watched.start_again(Upstream::Ingest, &[]);
    watched.expect(&["SvcNotReady"], async || ()).await;

    watched.services.nats.restart().await.unwrap();
    watched.expect_recovery(async || ()).await;
    assert_eq!(watched.send_event().await, 202);
}

#[tokio::test]
async fn a_read_only_postgres() {
    let Some(mut watched) = Watched::start(&[("SVC_LIMIT_LOGIN", "1000/s")]).await else { return };
    let database = "select current_database()";
    let database: String =
        sqlx::query_scalar(database).fetch_one(&mut watched.superuser().await).await.unwrap();
    let end_connections = "select pg_terminate_backend(pid) from pg_stat_activity
        where application_name like 'svc-%' and datname = current_database()";
    watched.run_sql(&format!("alter database \"{database}\" set default_transaction_read_only = on")).await;
    watched.run_sql(end_connections).await;
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
    let Some(mut watched) = Watched::start(&slow).await else { return };
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
async fn a_consumer_that_does_not_read_and_wrong_clocks() {
    let Some(mut watched) = Watched::start(&[]).await else { return };
    assert_eq!(watched.send_event().await, 202);
    watched.platform.run_ok(&["consumers", "create", "archive", "--tenant", "acme"], "").await;
    let clock = WrongClock::compile();
    let ahead = clock.variables(60 * 3600);
    let ahead: Vec<_> = ahead.iter().map(|(name, value)| (*name, value.as_str())).collect();
    watched.restart(Upstream::Ingest, &ahead).await;
    watched.expect(&["SvcConsumerBehind"], async || ()).await;
    watched.platform.run_ok(&["consumers", "reset", "archive", "--to", "new", "--yes"], "").await;
    watched.expect_recovery(async || ()).await;

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
