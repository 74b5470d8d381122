//! What needs no service: help, usage errors, refusals, and a service that is not there.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use crate::client::{Client, assert_valid_output};

/// An address where nobody listens: the port was free a moment ago.
fn nowhere() -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("http://127.0.0.1:{port}")
}

/// The next connection, unless the client ends without making one.
fn connection_to(listener: TcpListener) -> TcpStream {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(listener.accept().unwrap().0));
    receiver.recv_timeout(Duration::from_secs(20)).unwrap()
}

#[test]
fn a_service_that_is_not_there_is_exit_status_9() {
    let client = Client::of(&nowhere()).with("SVC_TOKEN", "svc_st_x");
    let ran = client.run(&["auth", "whoami", "--output", "json"]);
    assert_eq!(ran.code, Some(9), "{ran:?}");
    assert_eq!(ran.stdout, "");
    let error = ran.error();
    assert_eq!(error["code"], "unreachable");
    assert_eq!(error["retryable"], true);
    assert!(error["request_id"].is_string());
}

#[test]
fn a_service_that_does_not_answer_in_time_is_exit_status_9() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let client =
        Client::of(&format!("http://{}", silent.local_addr().unwrap())).with("SVC_TOKEN", "svc_st_x");
    let ran = client.run(&["auth", "whoami", "--output", "json", "--timeout", "200ms"]);
    assert_eq!((ran.code, ran.error()["code"].as_str()), (Some(9), Some("timed_out")));
}

#[test]
fn an_error_has_exactly_the_fields_of_the_design() {
    let error = Client::new().run(&["auth", "whoami", "--output", "json"]).error();
    let mut fields: Vec<_> = error.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["code", "exit_code", "message", "remediation", "request_id", "retryable"]);
    assert_eq!((error["code"].as_str(), error["exit_code"].as_i64()), (Some("not_logged_in"), Some(4)));
}

#[test]
fn errors_for_people_say_what_to_do() {
    let ran = Client::new().run(&["auth", "whoami"]);
    assert!(ran.stderr.starts_with("error: no login to http://127.0.0.1:8080 is stored\n"), "{ran:?}");
    assert!(ran.stderr.contains("what to do: Run `svc auth login`"), "{ran:?}");
    assert!(!ran.stderr.contains('\u{1b}'), "no colour without a terminal");
}

#[test]
fn usage_errors_are_exit_status_2_and_json_where_asked_for() {
    for arguments in
        [&["nonsense"][..], &["auth", "login", "--nonsense"], &["auth", "sessions", "revoke"], &["auth"], &[]]
    {
        let client = Client::new();
        assert_eq!(client.run(arguments).code, Some(2), "{arguments:?}");
        let structured = [arguments, &["--output", "json"]].concat();
        let error = client.run(&structured).error();
        assert_eq!(error["code"], "usage", "{arguments:?}");
        assert_eq!(Client::new().with("SVC_OUTPUT", "json").run(arguments).error()["code"], "usage");
    }
}

#[test]
fn a_command_without_its_noun_is_named_in_full() {
    let client = Client::new();
    for (line, meant) in [
        ("login", "`svc auth login`"),
        ("logout", "`svc auth logout`"),
        ("whoami", "`svc auth whoami`"),
        ("sessions list", "`svc auth sessions`"),
        ("send --file x", "`svc events send`"),
        ("validate", "`svc events validate` or `svc catalog validate`"),
    ] {
        let ran = client.run(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(&format!("did you mean {meant}?")), "{ran:?}");
    }
    let structured = client.run(&["login", "--output", "json"]).error();
    assert!(structured["message"].as_str().unwrap().contains("did you mean `svc auth login`?"));
    assert!(!client.run(&["nonsense"]).stderr.contains("did you mean"));
}

#[test]
fn a_usage_line_does_not_depend_on_the_environment() {
    let set = Client::of("http://127.0.0.1:1").with("SVC_TENANT", "acme").with("SVC_OUTPUT", "table");
    for line in
        ["events send", "auth login --nonsense", "auth nonsense", "auth sessions revoke", "users list x"]
    {
        let words: Vec<_> = line.split_whitespace().collect();
        let ran = set.run(&words);
        assert_eq!(ran.stderr, Client::new().run(&words).stderr);
        assert!(ran.stderr.contains("Usage: svc") && !ran.stderr.contains("<URL>\n"), "{ran:?}");
    }
    let send = set.run(&["events", "send"]).stderr;
    assert!(send.contains("Usage: svc events send [OPTIONS] --file <FILE>\n"), "{send}");
}

#[test]
fn help_and_version_are_data() {
    let client = Client::new();
    for arguments in [&["--help"][..], &["auth", "--help"], &["events", "send", "--help"], &["--version"]] {
        let ran = client.run(arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        assert!(!ran.stdout.is_empty());
    }
    let help = client.run(&["--help"]).stdout;
    for expected in ["Identity:", "Events:", "Tools:", "Examples:", "svc auth login"] {
        assert!(help.contains(expected), "{expected}: {help}");
    }
    assert_eq!(client.run(&["version", "--output", "json"]).json()["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn where_nobody_can_be_asked_the_missing_option_is_named() {
    let client = Client::of(&nowhere());
    let cases: [(&[&str], &str); 4] = [
        (&["auth", "login"], "--tenant"),
        (&["auth", "login", "--tenant", "acme"], "--email"),
        (&["auth", "login", "--tenant", "acme", "--email", "a@acme.example"], "--password-stdin"),
        (&["users", "accept-invite", "svc_iv_x"], "--password-stdin"),
    ];
    for (arguments, option) in cases {
        let ran = client.run(&[arguments, &["--output", "json"]].concat());
        assert_eq!(ran.code, Some(12), "{ran:?}");
        assert!(ran.error()["remediation"].as_str().unwrap().contains(option), "{ran:?}");
    }
}

#[test]
fn a_base_url_that_is_none_is_exit_status_11() {
    let ran = Client::of("svc.example").with("SVC_TOKEN", "x").run(&["auth", "whoami", "--output", "json"]);
    assert_eq!((ran.code, ran.error()["code"].as_str()), (Some(11), Some("configuration_invalid")));
}

#[test]
fn plain_http_to_elsewhere_is_warned_of_once_and_a_flag_wins_over_its_variable() {
    let client = Client::of(&nowhere()).with("SVC_TOKEN", "x");
    let elsewhere =
        ["auth", "whoami", "--base-url", "http://192.0.2.1:9", "--timeout", "100ms", "--output", "json"];
    let ran = client.run(&elsewhere);
    assert_eq!(ran.stderr.lines().count(), 2, "{ran:?}");
    assert!(ran.stderr.starts_with(r#"{"warning":"#) && ran.stderr.contains("192.0.2.1"), "{ran:?}");
    assert!(!client.run(&["auth", "whoami"]).stderr.contains("warning"));
}

#[cfg(unix)]
#[test]
fn credentials_that_others_can_read_are_refused_with_what_to_type() {
    use std::os::unix::fs::PermissionsExt;

    let client = Client::new();
    std::fs::create_dir_all(client.credentials().parent().unwrap()).unwrap();
    std::fs::write(client.credentials(), "{}").unwrap();
    std::fs::set_permissions(client.credentials(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let ran = client.run(&["auth", "status", "--output", "json"]);
    let error = ran.error();
    assert_eq!((ran.code, error["code"].as_str()), (Some(11), Some("credentials_exposed")));
    let advice = error["remediation"].as_str().unwrap();
    assert!(advice.contains(&format!("chmod 600 '{}'", client.credentials().display())), "{advice}");
    // Commands that need no credentials are not held up by them.
    assert_eq!(client.run(&["version"]).code, Some(0));
    assert_eq!(client.run(&["config", "path"]).code, Some(0));
}

#[test]
fn the_catalog_is_printed_as_it_is_checked_in_and_validates_itself() {
    let client = Client::new();
    let checked_in = concat!(env!("CARGO_MANIFEST_DIR"), "/../catalog/svc.catalog.json");
    let printed = client.run(&["catalog", "show", "--output", "json"]).stdout;
    assert!(printed == std::fs::read_to_string(checked_in).unwrap(), "the checked-in catalog is stale");
    assert_eq!(client.run(&["catalog", "validate", checked_in, "--output", "json"]).json()["valid"], true);

    let broken = client.home().join("broken.json");
    std::fs::write(&broken, printed.replace("\"agent_notes\"", "\"notes\"")).unwrap();
    let ran = client.run(&["catalog", "validate", broken.to_str().unwrap(), "--output", "json"]);
    assert_eq!((ran.code, ran.error()["code"].as_str()), (Some(7), Some("input_invalid")));
}

#[test]
fn nothing_in_the_catalog_depends_on_the_machine() {
    let printed = Client::new().run(&["catalog", "show"]).stdout;
    let elsewhere =
        Client::of("https://elsewhere.example").with("SVC_TENANT", "umbrella").with("COLUMNS", "40");
    assert_eq!(elsewhere.run(&["catalog", "show"]).stdout, printed);
    for trace in [env!("CARGO_MANIFEST_DIR"), "/home/", "/root", "/tmp"] {
        assert!(!printed.contains(trace), "{trace}");
    }
}

#[test]
fn completion_scripts_are_printed_as_they_are() {
    let client = Client::new();
    for shell in ["bash", "zsh", "fish"] {
        let ran = client.run(&["completion", shell]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("accept-invite") && !ran.stdout.contains("\\u{"), "{shell}");
    }
}

#[test]
fn the_raw_output_of_offline_commands_is_valid_against_its_schema() {
    let client = Client::new().with("SVC_TOKEN", "svc_st_x");
    for line in ["version", "config path", "auth status", "auth token", "completion bash", "catalog show"] {
        let arguments: Vec<_> = line.split(' ').chain(["--output", "json"]).collect();
        let printed = client.run(&arguments).json();
        assert_valid_output(line.trim_end_matches(" bash"), &printed);
    }
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_ends_it_quietly_with_141() {
    let client = Client::new();
    let mut child = client.command(&["catalog", "show"]).spawn().unwrap();
    // The catalog is larger than a pipe's buffer, so the client is still writing when the pipe closes.
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(141), ""));
}

#[cfg(unix)]
#[test]
fn an_interrupt_is_130_and_a_termination_143() {
    use rustix::process::{Pid, Signal, kill_process};

    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let client =
            Client::of(&format!("http://{}", silent.local_addr().unwrap())).with("SVC_TOKEN", "svc_st_x");
        let mut child = client.command(&["auth", "whoami"]).stderr(Stdio::null()).spawn().unwrap();
        // Once it has connected, it listens for signals.
        let _connection = connection_to(silent);
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }
}
