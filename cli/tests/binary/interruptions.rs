//! `svc events send` that is interrupted, and checkpoints.

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use contract::ProblemKind;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::client::{Client, CommandResult, assert_valid_output};
use crate::events::{client, events, service};
use crate::stub::{Stub, StubRequest, problem};
use crate::terminal::{read_until, rest_of, terminal};

const DEADLINE: Duration = Duration::from_secs(30);

/// Waits until the stub has received this number of requests.
fn wait_for_requests(stub: &Stub, count: usize) {
    let started = Instant::now();
    while stub.requests().len() < count {
        assert!(started.elapsed() < DEADLINE, "{} requests", stub.requests().len());
        std::thread::yield_now();
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_signal_ends_the_command_after_the_summary_without_an_error() {
    for signal_sent in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        for format in ["json", "table"] {
            let stub = Stub::new(service);
            let send = ["events", "send", "-f", "-", "--output", format];
            let mut child = client(&stub).command(&send).stdin(std::process::Stdio::piped()).spawn().unwrap();
            let mut input = child.stdin.take().unwrap();
            input.write_all(b"{\"source_id\":\"fw\"}\n").unwrap();
            wait_for_requests(&stub, 1);
            signal(&child, signal_sent);
            let result = CommandResult::of(child.wait_with_output().unwrap());
            drop(input);
            let ended = (result.signal, result.stderr.as_str());
            assert_eq!(ended, (Some(signal_sent.as_raw()), ""), "{result:?}");
            if format == "json" {
                let summary: Value = serde_json::from_str(&result.stdout).unwrap();
                assert_eq!((&summary["accepted"], &summary["stopped_before_line"]), (&json!(1), &json!(2)));
                assert_valid_output("events send", &summary);
            } else {
                assert!(result.stdout.contains("accepted"), "{result:?}");
            }
        }
    }
}

#[test]
fn a_second_ctrl_c_does_not_wait_for_requests() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::for_url(&format!("http://{}", silent.local_addr().unwrap()))
        .with_variable("SVC_API_KEY", "svc_ak_x");
    std::fs::write(client.home().join("events.ndjson"), "{\"source_id\":\"fw\"}\n").unwrap();
    let (keyboard, terminal) = terminal();
    let mut command = client.command(&["events", "send", "-f", "events.ndjson"]);
    let child = command.stderr(terminal).spawn().unwrap();
    drop(command);
    let _connection = silent.accept().unwrap();
    signal(&child, Signal::INT);
    read_until(&keyboard, "waiting for 1 request; press Ctrl-C again to end at once\r\n");
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    let signal = output.status.signal();
    assert_eq!((signal, output.stdout.len()), (Some(Signal::INT.as_raw()), 0), "no summary");
    assert!(!rest_of(keyboard).contains("error"));
}

/// Does not accept the third batch at first, and asks for a long pause.
fn third_batch_waits(request: &StubRequest) -> (u16, String) {
    static REJECTED: AtomicBool = AtomicBool::new(false);
    if events(request)[0]["n"] == 20 && !REJECTED.swap(true, Ordering::Relaxed) {
        let (status, body) = problem(ProblemKind::Overloaded);
        let mut body: Value = serde_json::from_str(&body).unwrap();
        body["retry_after_ms"] = json!(50_000);
        return (status, body.to_string());
    }
    service(request)
}

/// 50 events, an invalid line after the tenth and an event that the service rejects at the end.
fn input() -> String {
    let line = |n: u32| format!("{{\"source_id\":\"fw\",\"n\":{n}}}\n");
    (0..10).map(line).collect::<String>()
        + "nonsense\n"
        + &(10..50).map(line).collect::<String>()
        + "{\"source_id\":\"bad\",\"n\":50}\n"
}

fn run_until_killed(stub: &Stub, client: &Client, command: &[&str]) {
    let mut child =
        client.command(&[command, &["--concurrency", "1", "--timeout", "60s"]].concat()).spawn().unwrap();
    wait_for_requests(stub, 3);
    signal(&child, Signal::KILL);
    child.wait().unwrap();
}

#[test]
fn a_killed_run_continues_at_its_checkpoint_without_loss_and_repetition() {
    let stub = Stub::new(third_batch_waits);
    let client = client(&stub);
    std::fs::write(client.home().join("events.ndjson"), input()).unwrap();
    let send = [
        "events",
        "send",
        "-f",
        "events.ndjson",
        "--checkpoint",
        "c",
        "--batch-size",
        "10",
        "--output",
        "json",
    ];
    run_until_killed(&stub, &client, &send);
    // A write of the killed run that the checkpoint does not know.
    let rejects = client.home().join("c.rejects.ndjson");
    let mut file = std::fs::OpenOptions::new().append(true).open(&rejects).unwrap();
    file.write_all(b"{\"line\":").unwrap();

    let result = client.run(&send);
    let summary: Value = serde_json::from_str(&result.stdout).unwrap();
    assert_valid_output("events send", &summary);
    let counts = ["total", "accepted", "rejected", "failed"].map(|name| summary[name].as_u64().unwrap());
    assert_eq!(counts, [52, 50, 2, 0], "{summary}");
    assert_eq!(result.code, Some(10), "{result:?}");
    let requests = stub.requests();
    let all: Vec<_> = requests.iter().flat_map(events).map(|event| event["n"].as_u64().unwrap()).collect();
    // The batch without a response is sent again, and no other.
    assert!(requests[3..].iter().any(|request| events(request) == events(&requests[2])), "{all:?}");
    let mut once = [&all[..20], &all[30..]].concat();
    once.sort_unstable();
    assert_eq!(once, (0..51).collect::<Vec<_>>());
    let kept = std::fs::read_to_string(&rejects).unwrap();
    let lines: Vec<_> =
        kept.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["line"].clone()).collect();
    assert_eq!(lines, [json!(11), json!(52)]);

    let count = stub.requests().len();
    let repeated = client.run(&send);
    let again: Value = serde_json::from_str(&repeated.stdout).unwrap();
    assert_eq!((stub.requests().len(), &again["skipped"]), (count, &json!(52)), "nothing is sent again");
    assert_eq!((repeated.code, &again["rejects_file"]), (Some(10), &json!("c.rejects.ndjson")));
    for result in [result, repeated] {
        let error = result.error();
        assert_eq!(error["retryable"], false, "repeating sends nothing: {error}");
        assert!(
            error["remediation"].as_str().unwrap().contains("correct the events and send only"),
            "{error}"
        );
    }
    assert!(std::fs::metadata(client.home().join("c")).unwrap().len() < 1_000);
}

#[test]
fn two_runs_do_not_use_one_checkpoint() {
    let stub = Stub::new(service);
    let client = client(&stub);
    std::fs::write(client.home().join("a"), "{\"source_id\":\"fw\"}\n").unwrap();
    let send = ["events", "send", "--checkpoint", "c", "--output", "json", "-f", "a"];
    assert_eq!(client.run(&send).json()["accepted"], 1);
    let held = std::fs::File::open(client.home().join("c")).unwrap();
    held.lock().unwrap();
    let result = client.run(&send);
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(7), Some("input_unreadable")));
    assert!(result.error()["message"].as_str().unwrap().contains("another run uses the checkpoint c"));
    drop(held);
    assert_eq!(client.run(&send).json()["skipped"], 1);
}

#[test]
fn no_event_is_sent_without_a_checkpoint_that_can_record_it() {
    let stub = Stub::new(service);
    let client = client(&stub);
    std::fs::write(client.home().join("a"), "{\"source_id\":\"fw\"}\n").unwrap();
    let send = |checkpoint| ["events", "send", "-f", "a", "--output", "json", "--checkpoint", checkpoint];
    let result = client.run(&send("missing/c"));
    assert_eq!(
        (result.code, result.error()["code"].as_str()),
        (Some(1), Some("output_failed")),
        "{result:?}"
    );
    // Another run has created the file and recorded nothing yet.
    let started = std::fs::File::create(client.home().join("c")).unwrap();
    started.lock().unwrap();
    let result = client.run(&send("c"));
    assert_eq!(
        (result.code, result.error()["code"].as_str()),
        (Some(7), Some("input_unreadable")),
        "{result:?}"
    );
    // It was killed. A power failure can leave an empty file too, and then events were sent.
    drop(started);
    let error = client.run(&send("c")).error();
    assert_eq!(error["message"], "cannot read the checkpoint c: it is empty");
    std::os::unix::fs::symlink("missing", client.home().join("link")).unwrap();
    let error = client.run(&send("link")).error();
    assert_eq!(error["message"], "cannot write to link: it is a link to a file that does not exist");
    assert_eq!(stub.requests().len(), 0);
}

#[test]
fn a_checkpoint_that_is_lost_during_the_delivery_leaves_a_partial_success() {
    /// Removes the directory that the event names.
    fn removes_the_directory(request: &StubRequest) -> (u16, String) {
        std::fs::remove_dir_all(events(request)[0]["directory"].as_str().unwrap()).unwrap();
        service(request)
    }
    let stub = Stub::new(removes_the_directory);
    let client = client(&stub);
    let directory = client.home().join("d");
    std::fs::create_dir(&directory).unwrap();
    let event = json!({"source_id": "fw", "directory": directory});
    std::fs::write(client.home().join("a"), format!("{event}\n")).unwrap();
    let result = client.run(&["events", "send", "-f", "a", "--checkpoint", "d/c", "--output", "json"]);
    let error = result.error();
    assert_eq!((result.code, error["code"].as_str()), (Some(10), Some("partial_success")), "{result:?}");
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("1 accepted, 0 rejected; stopped"), "{error}");
    assert!(message.contains("cannot write to d/c"), "{error}");
    let summary: Value = serde_json::from_str(&result.stdout).unwrap();
    assert_eq!(summary["accepted"], 1);
}

#[test]
fn a_checkpoint_belongs_to_one_input_and_one_service() {
    let stub = Stub::new(service);
    let client = client(&stub);
    std::fs::write(client.home().join("a"), "{\"source_id\":\"fw\"}\n").unwrap();
    std::fs::write(client.home().join("b"), "{\"source_id\":\"gw\"}\n").unwrap();
    let send = |file: &'static str| ["events", "send", "--checkpoint", "c", "--output", "json", "-f", file];
    assert_eq!(client.run(&send("a")).json()["accepted"], 1);
    let count = stub.requests().len();
    let other_input = client.run(&send("b"));
    assert!(
        other_input.error()["message"].as_str().unwrap().contains("another input (19 bytes"),
        "{other_input:?}"
    );
    let other_service = client.run(&[&send("a")[..], &["--base-url", "http://127.0.0.1:1"]].concat());
    assert!(
        other_service.error()["message"].as_str().unwrap().contains("another service"),
        "{other_service:?}"
    );
    std::fs::write(client.home().join("c"), "{}").unwrap();
    let invalid = client.run(&send("a"));
    for (result, code) in
        [(other_input, "input_invalid"), (other_service, "input_invalid"), (invalid, "input_unreadable")]
    {
        assert_eq!((result.code, result.error()["code"].as_str()), (Some(7), Some(code)), "{result:?}");
    }
    let standard_input = client.run_with(&send("-"), "{\"source_id\":\"fw\"}\n");
    assert_eq!(standard_input.code, Some(2), "{standard_input:?}");
    assert_eq!(stub.requests().len(), count);
}

#[test]
fn after_a_failed_request_the_same_command_continues() {
    fn fails_once(request: &StubRequest) -> (u16, String) {
        static FAILED: AtomicBool = AtomicBool::new(false);
        if events(request)[0]["n"] == 20 && !FAILED.swap(true, Ordering::Relaxed) {
            return problem(ProblemKind::CredentialInvalid);
        }
        service(request)
    }
    let stub = Stub::new(fails_once);
    let client = client(&stub);
    let lines: Vec<_> = (0..50).map(|n| format!("{{\"source_id\":\"fw\",\"n\":{n}}}\n")).collect();
    std::fs::write(client.home().join("events.ndjson"), lines.concat()).unwrap();
    let send = [
        "events",
        "send",
        "-f",
        "events.ndjson",
        "--checkpoint",
        "c",
        "--batch-size",
        "10",
        "--output",
        "json",
    ];
    let stopped = client.run(&send);
    let error = stopped.error();
    assert_eq!(stopped.code, Some(10), "{stopped:?}");
    assert!(
        error["remediation"]
            .as_str()
            .unwrap()
            .ends_with("Run the same command again: it continues with the events that are not settled.")
    );
    let summary = client.run(&send).json();
    assert_eq!((&summary["accepted"], &summary["rejects_file"]), (&json!(50), &Value::Null));
    let requests = stub.requests();
    let mut numbers: Vec<_> =
        requests.iter().flat_map(events).map(|event| event["n"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    let twice = (20..30).flat_map(|n| [n, n]);
    assert_eq!(numbers, (0..20).chain(twice).chain(30..50).collect::<Vec<_>>());
}

#[cfg(target_os = "linux")]
#[test]
fn a_summary_that_could_not_be_printed_hides_no_stored_events() {
    let stub = Stub::new(service);
    let client = client(&stub);
    for (source, exit, code, remediation) in [
        ("fw", 13, "response_lost", "Do not send the input again"),
        ("bad", 10, "partial_success", "send only the rejects"),
    ] {
        let events = format!("{{\"source_id\":\"fw\"}}\n{{\"source_id\":\"{source}\"}}\n");
        std::fs::write(client.home().join("a"), events).unwrap();
        let result = client.run_without_output(&["events", "send", "-f", "a"], true);
        let error = result.error();
        assert_eq!((result.code, error["code"].as_str()), (Some(exit), Some(code)), "{result:?}");
        assert!(error["remediation"].as_str().unwrap().contains(remediation), "{error}");
    }
}

#[test]
fn a_page_of_a_proxy_has_the_code_of_other_commands_and_stores_nothing() {
    for (stub, code, exit) in [
        (Stub::new(|_| (200, "<html>Log in</html>".to_owned())), "unexpected_response", 1),
        (Stub::new(|_| (202, "<html>Log in</html>".to_owned())), "unexpected_response", 1),
        (Stub::new(|_| (407, "<html>Log in</html>".to_owned())), "unexpected_response", 1),
        (Stub::new(|_| (429, "<html>Wait</html>".to_owned())), "unreachable", 9),
    ] {
        let client = client(&stub);
        let send = ["events", "send", "-f", "-", "--timeout", "500ms", "--output", "json"];
        let result = client.run_with(&send, "{\"source_id\":\"fw\"}\n");
        assert_eq!((result.code, result.error()["code"].as_str()), (Some(exit), Some(code)), "{result:?}");
        let summary: Value = serde_json::from_str(&result.stdout).unwrap();
        assert_eq!(summary["accepted"], 0);
    }
}
