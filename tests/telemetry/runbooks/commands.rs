//! The commands of the runbooks, run as the documents have them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use contract::paths::Upstream;
use e2e::{installed, output_of, program_path, required_variable};
use serde_json::Value;

use super::Watched;

/// How a command begins. `kubectl`, `helm` and `df` need a cluster.
const COMMANDS: [&str; 8] =
    ["svc ", "svc-identity ", "svc-session ", "svc-ingest ", "svc-<service> ", "nats ", "curl ", "select "];
/// How an expression of Prometheus begins.
const EXPRESSIONS: [&str; 3] = ["svc_", "rate(", "histogram_quantile("];

/// The line of a runbook with commands. It links the other forms of the commands.
const TOOLS: &str = "\nForms of the commands for Kubernetes and for processes: \
    [Tools of the runbooks](../operations.md#tools-of-the-runbooks).\n";

/// Output by command.
pub(super) type Outputs = BTreeMap<String, String>;

/// The text of a runbook.
fn runbook(alert: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    std::fs::read_to_string(root.join(format!("docs/runbooks/{alert}.md"))).unwrap()
}

/// The commands and expressions in a section of a runbook, without placeholders replaced.
pub(super) fn commands(alert: &str, section: &str) -> Vec<String> {
    let document = runbook(alert);
    let parts = document.split("\n## ").filter(|part| part.starts_with(section));
    let code = parts.flat_map(|part| part.split('`').skip(1).step_by(2)).map(|code| code.replace('\n', " "));
    code.filter(|code| COMMANDS.iter().chain(&EXPRESSIONS).any(|start| code.starts_with(start))).collect()
}

/// Returns whether the runbook has the line about the forms of commands exactly if it contains a command.
pub(super) fn links_tools_for_commands(alert: &str) -> bool {
    let document = runbook(alert);
    let mut code = document.split("\n## ").flat_map(|part| part.split('`').skip(1).step_by(2));
    let starts = [&COMMANDS[..], &["kubectl "]].concat();
    let has_commands = code.any(|code| starts.iter().any(|start| code.starts_with(start)));
    document.contains(TOOLS) == has_commands
}

impl Watched {
    /// Runs the diagnosis of a runbook. Every command must succeed, except those of a program that the fault affects: they must fail.
    pub(super) async fn diagnose(&self, alert: &str) -> Outputs {
        let mut outputs = Outputs::new();
        for command in commands(alert, "Diagnosis") {
            let is_affected = self.unavailable.iter().any(|program| command.starts_with(program));
            match self.run_documented(&command).await {
                Ok(output) if !is_affected => {
                    outputs.insert(command, output);
                }
                Err(_) if is_affected => {}
                result => panic!("{alert}: {command}: {result:?}"),
            }
        }
        outputs
    }

    /// Runs a command that the runbook has as an action. Returns its output.
    pub(super) async fn act(&self, alert: &str, command: &str) -> String {
        let actions = commands(alert, "Action");
        assert!(
            actions.iter().any(|action| action == command),
            "{alert} has no action {command}: {actions:#?}"
        );
        self.run_documented(command).await.unwrap_or_else(|error| panic!("{alert}: {command}: {error}"))
    }

    /// Runs a command, or evaluates an expression, which must have a value.
    async fn run_documented(&self, documented: &str) -> Result<String, String> {
        let mut command = documented.to_owned();
        for (placeholder, value) in &self.values {
            command = command.replace(placeholder, value);
        }
        assert!(!command.contains(['<', '…']), "unknown placeholder: {command}");
        if EXPRESSIONS.iter().any(|start| command.starts_with(start)) {
            let result = self.query(&command).await;
            return if result.as_array().unwrap().is_empty() {
                Err("no data".into())
            } else {
                Ok(result.to_string())
            };
        }
        if command.starts_with("select ") {
            command = format!("psql --no-psqlrc --set=ON_ERROR_STOP=1 --tuples-only --command=\"{command}\"");
        }
        let answer = self.run_shell(&command).await;
        match answer {
            // A person confirms at the terminal.
            Err(error) if error.contains("Pass --yes") => self.run_shell(&format!("{command} --yes")).await,
            answer => answer,
        }
    }

    async fn run_shell(&self, command: &str) -> Result<String, String> {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(self.home.path()).env("HOME", self.home.path());
        let service = if command.starts_with("svc-session") { Upstream::Session } else { Upstream::Identity };
        let service = if command.starts_with("svc-ingest") { Upstream::Ingest } else { service };
        for (name, value) in self.services.command(service).get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        shell.env("PATH", path()).env("SVC_BASE_URL", &self.proxy.base_url).env("SVC_TENANT", "acme");
        shell.env("SVC_PLATFORM_TOKEN", &self.services.platform_token);
        if command.contains(" --all-tenants") {
            shell.env_remove("SVC_TENANT");
        }
        if command.starts_with("svc invites ") {
            shell.env_remove("SVC_PLATFORM_TOKEN").env("SVC_TOKEN", &self.ada.token);
        }
        let user = if command.contains("AUDIT") { "audit-administrator" } else { "administrator" };
        shell.env("NATS_URL", self.services.nats.url_of(user));
        let url = url::Url::parse(&self.services.superuser_url()).unwrap();
        shell.env("PGHOST", url.host_str().unwrap()).env("PGPORT", url.port().unwrap_or(5432).to_string());
        shell.env("PGUSER", url.username()).env("PGPASSWORD", url.password().unwrap_or_default());
        shell.env("PGDATABASE", url.path().trim_start_matches('/'));
        let output = output_of(shell).await;
        let text =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        if output.status.success() { Ok(text) } else { Err(text) }
    }

    /// The result of an instant query.
    pub(super) async fn query(&self, expression: &str) -> Value {
        let mut url = url::Url::parse(&format!("http://{}/api/v1/query", self.address)).unwrap();
        url.query_pairs_mut().append_pair("query", expression);
        let response = testkit::client::plain_http().get(url).send().await.unwrap();
        let response: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        response["data"]["result"].clone()
    }
}

/// The programs of the test run before those of the machine.
fn path() -> std::ffi::OsString {
    let nats = installed("nats_cli").unwrap();
    let programs = [
        PathBuf::from(required_variable("SVC_TEST_POSTGRES_BIN")),
        program_path("svc").parent().unwrap().to_owned(),
        nats.parent().unwrap().to_owned(),
    ];
    let path = required_variable("PATH");
    std::env::join_paths(programs.into_iter().chain(std::env::split_paths(&path))).unwrap()
}
