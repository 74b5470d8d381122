//! The examples of docs/consumers.md, run as written there against the real system. A program that is not installed is skipped.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::{
    ApiUser, Installation, Process, Run, api_client, installed, program_path, required_variable, variable,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use service::Clock as _;
use service::clock::SystemClock;
use testkit::{wait_until, within};

const BUILD_DEADLINE: std::time::Duration = std::time::Duration::from_mins(5);
/// The oldest versions that docs/consumers.md lists. `deploy/local/fetch.py` has those of Python and Java.
pub(super) const OLDEST_NATS_GO: &str = "v1.31.0";
pub(super) const OLDEST_NATS_JS: &str = "3.0.0";

/// A running system with the consumer `consumer`.
pub(super) struct System<'a> {
    pub(super) run: Run<'a>,
    pub(super) user: ApiUser,
    platform_token: String,
    /// The response with the login of the consumer.
    pub(super) consumer: Value,
}

impl<'a> System<'a> {
    /// Starts the system with a consumer of some event types. An event is delivered again after `ack_wait` seconds.
    async fn start(installation: &'a Installation, ack_wait: u32) -> Self {
        let types = ["USER_LOGIN", "GENERIC_EVENT"];
        let request = json!({
            "name": "consumer", "tenant_id": "demo", "event_types": types, "ack_wait_seconds": ack_wait,
        });
        let system = Self::start_with(installation, request).await;
        // The last ones have the subject of GENERIC_EVENT, and reach the consumer.
        for first in [0, 503] {
            let invented = (first..first + 503).map(|number| format!("INVENTED_{number}"));
            let events: Vec<_> = invented
                .map(
                    |name| json!({ "source_id": "fw", "event_id": name, "metadata": { "event_type": name } }),
                )
                .collect();
            // The broker reads its configuration again with the new consumer, and stores nothing meanwhile.
            wait_until("the events are stored", async || {
                let response = system.user.client.post("/events/batch", &events).await;
                (response.status == 202).then_some(())
            })
            .await;
        }
        system
    }

    /// Starts the system with this consumer.
    pub(super) async fn start_with(installation: &'a Installation, consumer: Value) -> Self {
        let run = installation.up().await;
        let platform_token = std::fs::read_to_string(&run.run_file.platform_token_file).unwrap();
        let user = ApiUser::first_admin(&run.run_file).await;
        let platform_token = platform_token.trim().to_owned();
        let mut system = Self { run, user, platform_token, consumer: Value::Null };
        system.consumer = system.platform("POST", "/consumers", consumer).await;
        system
    }

    pub(super) async fn platform(&self, method: &str, path: &str, body: Value) -> Value {
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
    pub(super) fn configure(&self, command: &mut Command) {
        let (_, address) = self.run.run_file.nats_url.split_once('@').unwrap();
        command.env("NATS_URL", format!("nats://{address}"));
        for (variable, field) in [("NATS_USER", "user"), ("NATS_PASSWORD", "password")] {
            command.env(variable, self.consumer["login"][field].as_str().unwrap());
        }
    }

    /// Waits until all events but `open` are acknowledged, while the processes run.
    pub(super) async fn wait_until_handled(&self, processes: &mut [Process], open: u64) {
        wait_until("all events are handled", async || {
            processes.iter_mut().for_each(Process::expect_running);
            let client = api_client(&self.run.run_file.base_url).bearer(&self.platform_token);
            let response = client.get("/consumers/consumer").await;
            // After a restart of the broker, each connection of ingest takes its own time.
            let consumer: Value = (response.status != 503).then(|| response.json())?;
            let counts = ["pending", "ack_pending"].map(|field| consumer[field].as_u64().unwrap());
            (counts == [0, open]).then_some(())
        })
        .await;
    }

    /// Sends events of different sources, with ids that have this prefix.
    pub(super) async fn send_plain(&self, prefix: &str, count: usize) {
        let event =
            |number| json!({ "source_id": format!("s{number}"), "event_id": format!("{prefix}-{number}") });
        let events: Vec<_> = (0..count).map(event).collect();
        self.user.client.post("/events/batch", &events).await.expect::<Value>(202);
    }

    /// Runs three processes with a handler that takes a second. Each event must be handled once.
    async fn share(&self, name: &str, command: impl Fn() -> Command, installation: &Installation) {
        let mut processes: Vec<_> = (0..3)
            .map(|number| {
                let mut command = command();
                self.configure(&mut command);
                Process::start(&mut command, &installation.path(&format!("{name}-{number}")))
            })
            .collect();
        self.send_plain(name, 30).await;
        self.wait_until_handled(&mut processes, 0).await;
        let output: String = processes.iter().map(Process::output).collect();
        let of_this = |line: &&str| line.contains(&format!(" {name}-"));
        let mut handled: Vec<_> = output.lines().filter(of_this).collect();
        assert_eq!(handled.len(), 30, "{name}: {output}");
        handled.sort_unstable();
        handled.dedup();
        assert_eq!(handled.len(), 30, "{name}: {output}");
    }

    /// Resets the durable while a process handles the second event of four, each for a second. Only events that it had handled are
    /// handled again.
    async fn reset(&self, name: &str, mut command: Command, output: &Path) {
        let prefix = format!("{name}-reset");
        let start = SystemClock.now();
        self.send_plain(&prefix, 4).await;
        self.configure(&mut command);
        let mut process = Process::start(&mut command, output);
        let count =
            |output: &str| output.lines().filter(|line| line.contains(&format!(" {prefix}-"))).count();
        wait_until("an event is handled", async || (count(&process.output()) == 1).then_some(())).await;
        self.platform("POST", "/consumers/consumer/reset", json!({ "to": start })).await;
        self.wait_until_handled(std::slice::from_mut(&mut process), 0).await;
        let output = process.output();
        assert!((5..=6).contains(&count(&output)), "{name}: {output}");
        assert_eq!(output.matches(&format!("{prefix}-3 ")).count(), 1, "{name}: {output}");
    }

    /// Runs an example while the stream of dead letters is full, and kills the broker while a handler runs. The handler prints `half` and
    /// the id of its event after half of its time. Each event must be handled once.
    async fn disturb(&self, name: &str, mut command: Command, output: &Path) {
        self.configure(&mut command);
        let mut processes = [Process::start(&mut command, output)];
        let large = json!({ "source_id": "large", "note": "x".repeat(100_000) });
        self.user.client.post("/events", &large).await.expect::<Value>(202);
        // The large event waits.
        self.wait_until_handled(&mut processes, 1).await;
        self.send_plain(name, 5).await;
        wait_until("the third event is being handled", async || {
            processes[0].expect_running();
            (processes[0].output().matches(&format!("half {name}-")).count() >= 3).then_some(())
        })
        .await;
        let before = self.run.current_run_file().children.nats;
        e2e::kill(before, Signal::KILL);
        wait_until("the broker runs again", async || {
            (self.run.current_run_file().children.nats != before).then_some(())
        })
        .await;
        wait_until("events are accepted", async || {
            let event = json!({ "source_id": "s", "event_id": format!("{name}-last") });
            (self.user.client.post("/events", &event).await.status == 202).then_some(())
        })
        .await;
        // Without the acknowledgement of the third event, this takes longer than the test waits.
        self.wait_until_handled(&mut processes, 1).await;
        let [process] = processes;
        let output = process.output();
        let printed = output.lines().filter(|line| line.starts_with("demo "));
        let mut handled: Vec<_> = printed.filter_map(|line| line.split(' ').nth(2)).collect();
        handled.sort_unstable();
        let sent = ["0", "1", "2", "3", "4", "last"].map(|number| format!("{name}-{number}"));
        assert_eq!(handled, sent, "{output}");
        self.platform("POST", "/consumers/consumer/reset", json!({ "to": "new" })).await;
    }

    /// Runs an example while its login is suspended. Then it must read again.
    async fn suspend(&self, name: &str, mut command: Command, output: &Path) {
        self.configure(&mut command);
        let mut process = Process::start(&mut command, output);
        // The broker reads its configuration again when a login changes, and serves nothing meanwhile.
        let send = async |part: &str| {
            let event = json!({ "source_id": "s", "event_id": format!("{name}-{part}") });
            wait_until("the event is accepted", async || {
                (self.user.client.post("/events", &event).await.status == 202).then_some(())
            })
            .await;
        };
        send("first").await;
        self.wait_until_handled(std::slice::from_mut(&mut process), 0).await;
        let (_, address) = self.run.run_file.nats_url.split_once('@').unwrap();
        let password = self.consumer["login"]["password"].as_str().unwrap();
        within(testkit::DEADLINE, "the suspension", e2e::flood(address, "consumer", password)).await;
        wait_until("the login is rejected three times", async || {
            process.expect_running();
            let output = process.output().to_lowercase();
            (output.matches("authorization violation").count() >= 3).then_some(())
        })
        .await;
        let platform = api_client(&self.run.run_file.base_url).bearer(&self.platform_token);
        wait_until("the suspension ends", async || {
            (platform.post("/consumers/consumer/resume", &json!({})).await.status == 200).then_some(())
        })
        .await;
        send("last").await;
        self.wait_until_handled(std::slice::from_mut(&mut process), 0).await;
        assert!(process.output().contains(&format!("{name}-last")), "{}", process.output());
    }

    /// Runs an example until it has handled all events.
    async fn check(&self, name: &str, mut command: Command, output: &Path) {
        let mut lines = self.send(name).await;
        self.configure(&mut command);
        let mut process = Process::start(&mut command, output);
        self.wait_until_handled(std::slice::from_mut(&mut process), 0).await;
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
        // The event is not in the dead letter, which refers to it.
        assert_eq!(letter["event"]["note"], "x".repeat(100_000), "{name}");
    }
}

fn documented(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/consumers").join(name)
}

pub(super) fn python(program: &Path, library: &OsStr) -> Command {
    let mut python = Command::new(variable("SVC_TEST_PYTHON").unwrap_or_else(|| "python3".into()));
    python.arg(program).env("PYTHONPATH", library);
    python
}

/// Writes the Python example with this line at the beginning of its handler.
fn write_python_example(file: &Path, line: &str) {
    let handler = "    if len(event.data) > MAX_PAYLOAD:\n";
    let source = std::fs::read_to_string(documented("read_events.py")).unwrap();
    assert!(source.contains(handler));
    std::fs::write(file, source.replacen(handler, &format!("{line}\n{handler}"), 1)).unwrap();
}

/// The Python example with the current library.
fn python_example(program: &Path) -> Command {
    python(program, &required_variable("SVC_TEST_NATS_PY"))
}

/// Runs a source file with the packages in a directory of `tools.json`. `None` without Java.
pub(super) fn java(source: &Path, library: &str) -> Option<Command> {
    let mut java = Command::new("java");
    java.args(["-XX:TieredStopAtLevel=1", "-cp", &format!("{}/*", installed(library)?.display())])
        .arg(source);
    Some(java)
}

/// The Java example with the current library, and with a statement at the beginning of its handler.
fn java_example(installation: &Installation, statement: &str) -> Option<Command> {
    let file = installation.path("ReadEvents.java");
    let handler = "    private static void handle(Message event) throws Exception {\n";
    let source = std::fs::read_to_string(documented("ReadEvents.java")).unwrap();
    assert!(source.contains(handler));
    std::fs::write(&file, source.replacen(handler, &format!("{handler}{statement}"), 1)).unwrap();
    java(&file, "jnats_path")
}

pub(super) fn node(program: &Path) -> Command {
    let mut node = Command::new("node");
    node.arg(program);
    node
}

/// The packages of the example, in another version if one is given.
pub(super) fn nats_js(version: Option<&str>) -> Value {
    let text = std::fs::read_to_string(documented("package.json")).unwrap();
    let mut package: Value = serde_json::from_str(&text).unwrap();
    if let Some(version) = version {
        for pinned in package["dependencies"].as_object_mut().unwrap().values_mut() {
            *pinned = version.into();
        }
    }
    package
}

/// Installs the packages of the example, in another version if one is given, and adds a statement at the beginning of its handler. `None`
/// without Node.js.
async fn install_javascript_example(
    installation: &Installation,
    version: Option<&str>,
    statement: &str,
) -> Option<PathBuf> {
    let handler = "async function handle(event) {\n";
    let source = std::fs::read_to_string(documented("read_events.mjs")).unwrap();
    let source = source.replacen(handler, &format!("{handler}{statement}"), 1);
    let home = installation.path(&format!("javascript-{}", version.unwrap_or("newest")));
    install_javascript(&home, &source, &nats_js(version)).await
}

/// Writes a program into a new directory, and installs packages for it. `None` without Node.js.
pub(super) async fn install_javascript(home: &Path, source: &str, package: &Value) -> Option<PathBuf> {
    std::fs::create_dir_all(home).unwrap();
    std::fs::write(home.join("program.mjs"), source).unwrap();
    std::fs::write(home.join("package.json"), package.to_string()).unwrap();
    let mut install = tokio::process::Command::new("npm");
    install.args(["install", "--no-package-lock", "--no-audit", "--no-fund"]).current_dir(home);
    let Ok(output) = within(BUILD_DEADLINE, "npm install", install.kill_on_drop(true).output()).await else {
        eprintln!("Node.js is not installed: skipping its programs");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(home.join("program.mjs"))
}

/// Builds the example with a statement at the beginning of its handler.
async fn build_go_example(go: &Path, home: &Path, version: Option<&str>, statement: &str) -> PathBuf {
    let handler = "func handle(event jetstream.Msg) error {\n";
    let source = std::fs::read_to_string(documented("read_events.go")).unwrap();
    build_go(go, home, version, &source.replacen(handler, &format!("{handler}{statement}"), 1)).await
}

/// Builds a program with the packages of the example, with another version of nats.go if one is given.
pub(super) async fn build_go(go: &Path, home: &Path, version: Option<&str>, source: &str) -> PathBuf {
    std::fs::write(home.join("main.go"), source).unwrap();
    std::fs::copy(documented("go.mod"), home.join("go.mod")).unwrap();
    std::fs::copy(documented("go.sum"), home.join("go.sum")).unwrap();
    if let Some(version) = version {
        run_go(go, home, &["get", &format!("github.com/nats-io/nats.go/jetstream@{version}")]).await;
    }
    run_go(go, home, &["build", "-o", "read_events", "."]).await;
    home.join("read_events")
}

async fn run_go(go: &Path, home: &Path, arguments: &[&str]) {
    let mut command = tokio::process::Command::new(go);
    command.args(arguments).current_dir(home).env("GOTOOLCHAIN", "local").kill_on_drop(true);
    let output = within(BUILD_DEADLINE, &format!("go {}", arguments[0]), command.output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn the_examples_read_all_events_and_keep_those_that_they_reject() {
    let installation = Installation::new(&[]);
    let system = System::start(&installation, 30).await;

    for (name, library) in [("python", "nats_py_path"), ("python-oldest", "oldest_nats_py_path")] {
        let library = installed(library).unwrap();
        let program = python(&documented("read_events.py"), library.as_os_str());
        system.check(name, program, &installation.path(name)).await;
    }

    for (name, version) in [("javascript", None), ("javascript-oldest", Some(OLDEST_NATS_JS))] {
        if let Some(program) = install_javascript_example(&installation, version, "").await {
            system.check(name, node(&program), &installation.path(name)).await;
        }
    }

    let rust = Command::new(program_path("examples/read_events"));
    system.check("rust", rust, &installation.path("rust")).await;

    for (name, library) in [("java", "jnats_path"), ("java-oldest", "oldest_jnats_path")] {
        if let Some(program) = java(&documented("ReadEvents.java"), library) {
            system.check(name, program, &installation.path(name)).await;
        }
    }

    if let Some(go) = installed("go") {
        for (name, version) in [("go", None), ("go-oldest", Some(OLDEST_NATS_GO))] {
            let home = tempfile::tempdir().unwrap();
            let program = build_go_example(&go, home.path(), version, "").await;
            system.check(name, Command::new(program), &installation.path(name)).await;
        }
    }
}

#[tokio::test]
async fn slow_handlers_in_three_processes_handle_each_event_once_and_after_a_reset_only_handled_ones_again() {
    let installation = Installation::new(&[]);
    // A batch of ten takes three times as long.
    let system = System::start(&installation, 3).await;
    let slow = installation.path("slow.py");
    write_python_example(&slow, "    import time; time.sleep(1)");
    system.share("python", || python_example(&slow), &installation).await;
    system.reset("python", python_example(&slow), &installation.path("python-reset")).await;

    let java = || java_example(&installation, "Thread.sleep(1000);\n");
    if java().is_some() {
        system.share("java", || java().unwrap(), &installation).await;
        system.reset("java", java().unwrap(), &installation.path("java-reset")).await;
    }

    if let Some(program) = install_javascript_example(&installation, None, "  await sleep(1000);\n").await {
        system.share("javascript", || node(&program), &installation).await;
        system.reset("javascript", node(&program), &installation.path("javascript-reset")).await;
    }

    if let Some(go) = installed("go") {
        let home = tempfile::tempdir().unwrap();
        let program = build_go_example(&go, home.path(), None, "time.Sleep(time.Second)\n").await;
        system.share("go", || Command::new(&program), &installation).await;
        system.reset("go", Command::new(&program), &installation.path("go-reset")).await;
    }
}

#[tokio::test]
async fn the_examples_continue_while_no_dead_letter_can_be_stored_and_after_a_restart_of_the_broker() {
    let installation = Installation::new(&[]);
    // The broker delivers an event without an acknowledgement again after an hour, which no test waits for.
    let system = System::start(&installation, 3600).await;
    let client = bus::connect(&bus::Config::new(&system.run.run_file.nats_url, "test")).await.unwrap();
    let context = async_nats::jetstream::new(client);
    let mut stream = context.get_stream("UDM_DLQ").await.unwrap();
    let config = stream.info().await.unwrap().config.clone();
    context.update_stream(async_nats::jetstream::stream::Config { max_bytes: 16, ..config }).await.unwrap();

    let program = installation.path("half.py");
    let half = r#"    import time; time.sleep(0.5); print("half", event.headers["ce-id"], flush=True); time.sleep(0.5)"#;
    write_python_example(&program, half);
    system.disturb("python", python_example(&program), &installation.path("python")).await;
    let half =
        r#"Thread.sleep(500); System.out.println("half " + header(event, "ce-id")); Thread.sleep(500);"#;
    if let Some(program) = java_example(&installation, &format!("{half}\n")) {
        system.disturb("java", program, &installation.path("java")).await;
    }
    let half = r#"await sleep(500); console.log("half", event.headers.get("ce-id")); await sleep(500);"#;
    if let Some(program) = install_javascript_example(&installation, None, &format!("{half}\n")).await {
        system.disturb("javascript", node(&program), &installation.path("javascript")).await;
    }
    if let Some(go) = installed("go") {
        let home = tempfile::tempdir().unwrap();
        let half = r#"time.Sleep(time.Second / 2); fmt.Println("half", event.Headers().Get("ce-id")); time.Sleep(time.Second / 2)"#;
        let program = build_go_example(&go, home.path(), None, &format!("{half}\n")).await;
        system.disturb("go", Command::new(program), &installation.path("go")).await;
    }
}

#[tokio::test]
async fn the_example_in_javascript_reads_again_after_a_suspension_of_its_login() {
    let installation = Installation::new(&[]);
    let system = System::start(&installation, 30).await;
    for (name, version) in [("javascript", None), ("javascript-oldest", Some(OLDEST_NATS_JS))] {
        if let Some(program) = install_javascript_example(&installation, version, "").await {
            system.suspend(name, node(&program), &installation.path(name)).await;
        }
    }
}
