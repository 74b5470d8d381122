//! The examples of docs/consumers.md, run as written there against the real system. A program that is not installed is skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::{
    ApiUser, Installation, Process, Run, api_client, program_path, required_variable, tools, variable,
};
use serde_json::{Value, json};
use testkit::{wait_until, within};

const BUILD_DEADLINE: std::time::Duration = std::time::Duration::from_mins(5);

/// A running system with the consumer `consumer`.
struct System<'a> {
    run: Run<'a>,
    user: ApiUser,
    platform_token: String,
}

impl<'a> System<'a> {
    async fn start(installation: &'a Installation) -> Self {
        let run = installation.up().await;
        let platform_token = std::fs::read_to_string(&run.run_file.platform_token_file).unwrap();
        let user = ApiUser::first_admin(&run.run_file).await;
        let system = Self { run, user, platform_token: platform_token.trim().to_owned() };
        let types = ["USER_LOGIN", "GENERIC_EVENT"];
        system.platform("POST", "/consumers", json!({ "name": "consumer", "event_types": types })).await;
        // The last ones have the subject of GENERIC_EVENT, and reach the consumer.
        for first in [0, 503] {
            let invented = (first..first + 503).map(|number| format!("INVENTED_{number}"));
            let events: Vec<_> = invented
                .map(|name| json!({ "source_id": "fw", "metadata": { "event_type": name } }))
                .collect();
            system.user.client.post("/events/batch", &events).await.expect::<Value>(202);
        }
        system
    }

    async fn platform(&self, method: &str, path: &str, body: Value) -> Value {
        let client = api_client(&self.run.run_file.base_url).bearer(&self.platform_token);
        let response = if method == "POST" { client.post(path, &body).await } else { client.get(path).await };
        assert!(response.status < 300, "{response}");
        serde_json::from_str(&response.body).unwrap()
    }

    /// Sends two events that an example prints and one that it rejects. Returns the lines that it prints.
    async fn send(&self, prefix: &str) -> [String; 2] {
        let events = json!([
            { "source_id": "fw 1/ä", "event_id": format!("{prefix}-1"), "metadata": { "event_type": "USER_LOGIN" } },
            { "source_id": "fw 1/ä", "event_id": format!("{prefix}-large"), "note": "x".repeat(100_000) },
            { "source_id": "fw-2", "event_id": format!("{prefix}-2") },
        ]);
        self.user.client.post("/events/batch", &events).await.expect::<Value>(202);
        [format!("demo fw 1/ä {prefix}-1 USER_LOGIN"), format!("demo fw-2 {prefix}-2 GENERIC_EVENT")]
    }

    /// Sets the variables of the examples.
    fn configure(&self, command: &mut Command) {
        let url = &self.run.run_file.consumer_nats_url;
        let (credentials, address) = url.strip_prefix("nats://").unwrap().split_once('@').unwrap();
        let (user, password) = credentials.split_once(':').unwrap();
        command.env("NATS_URL", format!("nats://{address}"));
        command.env("NATS_USER", user).env("NATS_PASSWORD", password);
    }

    /// Runs an example until it has handled all events.
    async fn check(&self, name: &str, mut command: Command, output: &Path) {
        let mut lines = self.send(name).await;
        self.configure(&mut command);
        let mut process = Process::start(&mut command, output);
        wait_until("all events are handled", async || {
            process.expect_running();
            let consumers = self.platform("GET", "/consumers", Value::Null).await;
            let [pending, unacknowledged] =
                ["pending", "ack_pending"].map(|field| consumers["items"][0][field].as_u64().unwrap());
            (pending + unacknowledged == 0).then_some(())
        })
        .await;
        let output = process.output();
        let mut printed: Vec<_> = output.lines().filter(|line| line.starts_with("demo ")).collect();
        // Different sources have no order.
        printed.sort_unstable();
        lines.sort_unstable();
        assert_eq!(printed, lines, "{name}: {output}");
        let letters = self.platform("GET", "/consumers/consumer/dead-letters", Value::Null).await;
        let letter = letters["items"].as_array().unwrap().last().unwrap();
        assert_eq!(letter["event_id"], format!("{name}-large"), "{letter}");
        assert_eq!(letter["reason"], "too large for this consumer", "{name}");
    }
}

fn documented(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/consumers").join(name)
}

fn installed(name: &str) -> Option<PathBuf> {
    let path = tools()[name].as_str().map(PathBuf::from);
    if path.is_none() {
        eprintln!("{name} is not installed: skipping its example");
    }
    path
}

async fn build_go_example(go: &Path, home: &Path) -> PathBuf {
    std::fs::copy(documented("read_events.go"), home.join("main.go")).unwrap();
    std::fs::copy(documented("go.mod"), home.join("go.mod")).unwrap();
    std::fs::copy(documented("go.sum"), home.join("go.sum")).unwrap();
    let mut build = tokio::process::Command::new(go);
    build.args(["build", "-o", "read_events", "."]).current_dir(home).env("GOTOOLCHAIN", "local");
    let output = within(BUILD_DEADLINE, "go build", build.kill_on_drop(true).output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    home.join("read_events")
}

#[tokio::test]
async fn the_examples_read_all_events_and_keep_those_that_they_reject() {
    let installation = Installation::with_cheap_hashes();
    let system = System::start(&installation).await;

    let mut python = Command::new(variable("SVC_TEST_PYTHON").unwrap_or_else(|| "python3".into()));
    python.arg(documented("read_events.py")).env("PYTHONPATH", required_variable("SVC_TEST_NATS_PY"));
    system.check("python", python, &installation.path("python")).await;

    let rust = Command::new(program_path("examples/read_events"));
    system.check("rust", rust, &installation.path("rust")).await;

    if let Some(go) = installed("go") {
        let home = tempfile::tempdir().unwrap();
        let program = build_go_example(&go, home.path()).await;
        system.check("go", Command::new(program), &installation.path("go")).await;
    }
}

#[tokio::test]
async fn the_nats_command_line_reads_an_event() {
    let Some(nats) = installed("nats_cli") else { return };
    let installation = Installation::with_cheap_hashes();
    let system = System::start(&installation).await;
    system.send("cli").await;
    let mut command = Command::new(nats);
    command.args(["--js-api-prefix", "JS.API", "--inbox-prefix", "_INBOX.consumer"]);
    command
        .args(["consumer", "next", "UDM", "consumer", "--ack", "--count", "9"])
        .env("HOME", installation.path(""));
    system.configure(&mut command);
    let output = e2e::output_of(command).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
    for id in ["cli-1", "cli-large", "cli-2"] {
        assert!(text.contains(id), "{text}");
    }
}
