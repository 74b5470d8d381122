//! Real faults fire the alerts of the chart. The commands of their runbooks run as the documents have them, and their actions end the
//! alerts. Prometheus evaluates the alerts; a minute of an alert is a second here, and an hour a minute.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use contract::paths::Upstream;
use e2e::{
    ALL_SERVICES, ApiUser, KeptAccounts, Proxy, Service, Services, Svc, api_client, installed, program_path,
    required_variable,
};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tempfile::TempDir;
use testkit::wait_until;

mod commands;
mod factors;
mod faults;
mod load;
mod mails;

/// The other alerts need Kubernetes. A test causes their condition.
const NOT_FIRED: &[(&str, &str)] = &[
    ("SvcMigrationFailed", "tests/cluster/rejections.py"),
    ("SvcPodsUnavailable", "tests/cluster/rejections.py"),
    ("SvcOperatorWithoutLeader", "tests/cluster/managed_faults.py"),
    ("SvcReleasesHeld", "services/operator/src/tests.rs"),
    ("SvcResourceStalled", "services/operator/src/tests.rs"),
];

/// Actions that no test executes, with the reason.
const NOT_EXECUTED: &[(&str, &str)] = &[("nats stream edit", "its options depend on the difference")];

/// Running services that Prometheus watches.
struct Watched {
    services: Services,
    accounts: KeptAccounts,
    running: Vec<Option<Service>>,
    proxy: Proxy,
    platform: Svc,
    ada: ApiUser,
    prometheus: Child,
    address: String,
    /// Values of the placeholders in commands.
    values: Vec<(&'static str, String)>,
    /// How commands begin that fail because of the fault.
    unavailable: &'static [&'static str],
    /// Where the commands run.
    home: TempDir,
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
        installed("prometheus").and(installed("nats_cli"))?;
        let (accounts, nats) = KeptAccounts::start_server().await;
        let services = Services::prepare_with(nats).await;
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
        let values = vec![
            ("localhost:8222", accounts.monitor.to_string()),
            ("localhost:9090", services.admin(Upstream::Ingest).to_string()),
            ("<tenant>", "acme".to_owned()),
            ("<consumer>", "archive".to_owned()),
            ("<stream>", "UDM".to_owned()),
            ("<service>", "identity".to_owned()),
        ];
        let home = tempfile::Builder::new().prefix("svc-e2e-runbook-").tempdir().unwrap();
        Some(Self {
            services,
            accounts,
            running,
            proxy,
            platform,
            ada,
            prometheus,
            address,
            values,
            unavailable: &[],
            home,
        })
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

    /// Continues the load until all these alerts have fired at the same time. Returns the output of the commands of their diagnoses.
    async fn expect(&mut self, alerts: &[&str], mut load: impl AsyncFnMut()) -> commands::Outputs {
        wait_until(&format!("{alerts:?} fire"), async || {
            load().await;
            let firing = self.firing().await;
            alerts.iter().all(|alert| firing.iter().any(|(name, _)| name == alert)).then_some(())
        })
        .await;
        let mut outputs = commands::Outputs::new();
        for alert in alerts {
            outputs.extend(self.diagnose(alert).await);
        }
        outputs
    }

    /// Waits until no alert fires, except those that look back over hours.
    async fn expect_recovery(&self, mut load: impl AsyncFnMut()) {
        let mut last = String::new();
        wait_until("no alert fires", async || {
            load().await;
            let mut firing = self.firing().await;
            firing.retain(|(name, _)| !name.starts_with("SvcErrorBudget"));
            let now = format!("{firing:?}");
            if last != now {
                eprintln!("firing: {now}");
                last = now;
            }
            firing.is_empty().then_some(())
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

/// The sources of the tests.
fn sources() -> String {
    let files = [
        include_str!("runbooks/factors.rs"),
        include_str!("runbooks/faults.rs"),
        include_str!("runbooks/load.rs"),
        include_str!("runbooks/mails.rs"),
    ];
    files.concat()
}

/// The names of all alerts.
fn alerts() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let files = std::fs::read_dir(root.join("helm/svc/alerts")).unwrap();
    files.map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn each_runbook_with_commands_links_their_forms_for_kubernetes_and_for_processes() {
    let mut alerts = alerts();
    assert!(alerts.len() > 20, "{alerts:?}");
    alerts.retain(|alert| !commands::links_tools_for_commands(alert));
    assert_eq!(alerts, BTreeSet::new());
}

#[test]
fn a_test_fires_each_alert_and_executes_each_command_of_its_runbook() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let alerts = alerts();
    let sources = sources();
    let missing = |text: &String| !sources.contains(&format!("{text:?}"));
    let not_fired: BTreeSet<_> = NOT_FIRED.iter().map(|(alert, _)| (*alert).to_owned()).collect();
    assert_eq!(alerts.iter().filter(|alert| missing(alert)).cloned().collect::<BTreeSet<_>>(), not_fired);
    for (alert, test) in NOT_FIRED {
        assert!(root.join(test).exists(), "{alert}: {test}");
    }
    // The diagnosis of an alert runs when it fires.
    let actions = alerts.difference(&not_fired).flat_map(|alert| commands::commands(alert, "Action"));
    let not_executed: BTreeSet<_> = actions.filter(missing).collect();
    assert_eq!(not_executed, NOT_EXECUTED.iter().map(|(command, _)| (*command).to_owned()).collect());
}
