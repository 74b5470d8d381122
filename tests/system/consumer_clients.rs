//! Clients that are not of this project read with the login of a consumer, and with the options that they have by default. A
//! client that is not installed is skipped.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use async_nats::{Client, ConnectOptions};
use e2e::{Installation, Process, installed, output_of};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};

use super::consumer_examples::{
    OLDEST_NATS_GO, OLDEST_NATS_JS, System, build_go, install_javascript, java, nats_js, node, python,
};

const FILTER: &str = "udm.v1.*.demo.>";
/// More than the clients read.
const EVENTS: usize = 100;
/// The package of version 2 of nats.js: the oldest version that docs/consumers.md lists, and the last one.
const NATS_JS_2: [&str; 2] = ["2.14.0", "2.29.3"];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("consumers").join(name)
}

async fn start(installation: &Installation) -> System<'_> {
    let system = System::start_with(installation, json!({ "name": "consumer", "tenant_id": "demo" })).await;
    system.send_plain("event", EVENTS).await;
    system
}

/// Runs a program that ends with an error if a call has an unexpected result.
async fn run(system: &System<'_>, name: &str, mut command: Command) {
    system.configure(command.arg(FILTER));
    let output = output_of(command).await;
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{name}: {}", texts.concat());
}

#[tokio::test]
async fn clients_read_the_durable_with_default_options_and_learn_why_they_cannot_create_another() {
    let installation = Installation::new(&[]);
    let system = start(&installation).await;
    for library in ["nats_py_path", "oldest_nats_py_path"] {
        let path = installed(library).unwrap();
        run(&system, library, python(&source("clients.py"), path.as_os_str())).await;
    }
    for library in ["jnats_path", "oldest_jnats_path"] {
        if let Some(java) = java(&source("Clients.java"), library) {
            run(&system, library, java).await;
        }
    }
    if let Some(go) = installed("go") {
        let program = std::fs::read_to_string(source("clients.go")).unwrap();
        for version in [None, Some(OLDEST_NATS_GO)] {
            let home = tempfile::tempdir().unwrap();
            let built = build_go(&go, home.path(), version, &program).await;
            run(&system, &format!("nats.go {version:?}"), Command::new(built)).await;
        }
    }
    let program = std::fs::read_to_string(source("clients.mjs")).unwrap();
    let version_2 = NATS_JS_2.map(|version| json!({ "dependencies": { "nats": version } }));
    for package in [nats_js(None), nats_js(Some(OLDEST_NATS_JS))].into_iter().chain(version_2) {
        let home = tempfile::tempdir().unwrap();
        if let Some(program) = install_javascript(home.path(), &program, &package).await {
            run(&system, &package.to_string(), node(&program)).await;
        }
    }
}

#[tokio::test]
async fn benthos_reads_the_durable_with_default_options() {
    let Some(benthos) = installed("benthos") else { return };
    let installation = Installation::new(&[]);
    let system = start(&installation).await;
    let login = &system.consumer["login"];
    let [user, password] = ["user", "password"].map(|field| login[field].as_str().unwrap());
    let (_, address) = system.run.run_file.nats_url.split_once('@').unwrap();
    let (configuration, output) = (installation.path("benthos.yaml"), installation.path("events"));
    // The input is that of docs/consumers.md.
    let settings = json!({
        "input": { "nats_jetstream": {
            "urls": [format!("nats://{user}:{password}@{address}")],
            "stream": "UDM",
            "durable": "consumer",
            "bind": true,
        } },
    });
    std::fs::write(&configuration, settings.to_string()).unwrap();
    let mut command = Command::new(benthos);
    command.args([&configuration, &output]);
    let mut processes = [Process::start(&mut command, &installation.path("benthos"))];
    system.wait_until_handled(&mut processes, 0).await;
    let events = std::fs::read_to_string(output).unwrap();
    let id = |event: &str| serde_json::from_str::<Value>(event).unwrap()["event_id"].to_string();
    let ids: HashSet<_> = events.lines().map(id).collect();
    assert_eq!([events.lines().count(), ids.len()], [EVENTS, EVENTS], "{events}");
}

#[tokio::test]
async fn the_nats_command_line_reads_and_shows_the_durable_with_default_options() {
    let Some(nats) = installed("nats_cli") else { return };
    let installation = Installation::new(&[]);
    let system = start(&installation).await;
    let no_consumer = "login `consumer` cannot create a consumer: read its durable `consumer`";
    let reads = "Acknowledged message";
    for (arguments, is_success, expected) in [
        ("consumer next UDM consumer --ack", true, reads),
        ("consumer next UDM consumer --ack --count 3", true, reads),
        ("consumer sub UDM consumer --ack", true, reads),
        ("sub --stream UDM --durable consumer --count 1 --ack", true, "event-"),
        ("stream ls", true, "UDM"),
        ("stream ls --names", true, "UDM"),
        ("stream info UDM", true, "udm.v1.>"),
        ("stream report", true, "UDM"),
        ("consumer ls UDM", true, "consumer"),
        ("consumer ls UDM --names", true, "consumer"),
        ("consumer info UDM consumer", true, FILTER),
        ("consumer report UDM", true, "consumer"),
        ("account info", true, "consumer"),
        ("rtt", true, "nats://"),
        ("sub --stream UDM --count 1", false, no_consumer),
        ("consumer add UDM other --pull --defaults", false, no_consumer),
        ("stream get UDM 1", false, "no responders"),
        ("stream rm UDM --force", false, "no responders"),
    ] {
        let mut command = Command::new(&nats);
        command.args(arguments.split(' ')).env("HOME", installation.path(""));
        system.configure(&mut command);
        let output = output_of(command).await;
        let text =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert_eq!(output.status.success(), is_success, "{arguments}: {text}");
        assert!(text.contains(expected), "{arguments}: {text}");
    }
}

/// Connects with the login in a response, and with default options.
async fn connect(system: &System<'_>, consumer: &Value) -> Client {
    let [user, password] = ["user", "password"].map(|field| consumer["login"][field].as_str().unwrap());
    let options = ConnectOptions::with_user_and_password(user.to_owned(), password.to_owned());
    options.connect(system.run.run_file.nats_url.split_once('@').unwrap().1).await.unwrap()
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "sends requests without waiting for their responses")]
async fn requests_of_one_login_above_its_limit_are_dropped_and_those_of_others_are_answered() {
    const LIST: &str = "$JS.API.CONSUMER.LIST.UDM";
    let installation = Installation::new(&[]);
    let system = start(&installation).await;
    let request = json!({ "name": "other", "tenant_id": "demo" });
    let other = connect(&system, &system.platform("POST", "/consumers", request).await).await;
    let flooding = connect(&system, &system.consumer).await;
    let mut answers = flooding.subscribe("answers").await.unwrap();
    for _ in 0..5000 {
        flooding.publish_with_reply(LIST, "answers", "".into()).await.unwrap();
    }
    flooding.flush().await.unwrap();
    // ingest has admitted or dropped all previous requests before this one.
    let answer = other.request(LIST, "".into()).await.unwrap();
    let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
    assert_eq!(answer["consumers"][0]["name"], "other");
    let count = async { std::iter::from_fn(|| answers.next().now_or_never().flatten()).count() };
    let received = tokio::task::unconstrained(count).await;
    assert!((1..1500).contains(&received), "{received} of 5000 requests were answered");
}
