//! Prompts for secrets on a terminal.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt as _;

use contract::ProblemKind;
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::json;

use crate::client::Client;
use crate::stub::{Stub, StubRequest, problem};
use crate::terminal::{read_until, rest_of, run_at_terminal, terminal};

const LOGIN: [&str; 6] = ["auth", "login", "--email", "ada@acme.example", "--tenant", "acme"];

fn service(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "GET /api/v1/version" => (200, json!({"version": "1"}).to_string()),
        "POST /api/v1/users/accept-invite/inspect" => match request.json()["token"].as_str() {
            Some("svc_iv_good") => {
                let invite = json!({
                    "tenant_id": "acme", "tenant_name": "Acme", "email": "bob@acme.example", "role": "member",
                    "expires_at": "2030-01-01T00:00:00Z", "password_min_length": 16,
                });
                (200, invite.to_string())
            }
            _ => problem(ProblemKind::TokenInvalid),
        },
        "POST /api/v1/users/accept-invite" if request.json()["password"] == "passwordpassword" => {
            problem(ProblemKind::PasswordCommon)
        }
        "POST /api/v1/users/accept-invite" => {
            let accepted = json!({
                "user_id": "01890a5d-ac96-774b-bcce-b302099a8057", "tenant_id": "acme", "email": "bob@acme.example",
                "role": "member",
            });
            (201, accepted.to_string())
        }
        "POST /api/v1/auth/password/reset/inspect" => match request.json()["token"].as_str() {
            Some("svc_pr_good") => {
                let reset = json!({
                    "tenant_id": "acme", "tenant_name": "Acme", "email": "bob@acme.example",
                    "expires_at": "2030-01-01T00:00:00Z", "password_min_length": 16,
                });
                (200, reset.to_string())
            }
            _ => problem(ProblemKind::TokenInvalid),
        },
        "POST /api/v1/auth/password/reset/confirm" | "POST /api/v1/auth/password/change" => {
            match request.json()["new_password"].as_str() {
                Some("passwordpassword") => problem(ProblemKind::PasswordCommon),
                _ => (204, String::new()),
            }
        }
        "GET /api/v1/auth/session" => {
            let whoami = json!({
                "subject_type": "user", "user_id": "01890a5d-ac96-774b-bcce-b302099a8057", "tenant_id": "acme",
                "role": "member", "scopes": [], "expires_at": "2030-01-01T00:00:00Z",
            });
            (200, whoami.to_string())
        }
        _ => problem(ProblemKind::NotFound),
    }
}

fn echoes(terminal: &File) -> bool {
    tcgetattr(terminal).unwrap().local_modes.contains(LocalModes::ECHO)
}

#[test]
fn a_signal_at_a_secret_prompt_ends_the_command_and_restores_the_echo() {
    let stub = Stub::new(service);
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        let (keyboard, terminal) = terminal();
        let client = Client::for_url(&stub.url);
        let mut command = client.command(&LOGIN);
        let (stdin, stderr) = (terminal.try_clone().unwrap(), terminal.try_clone().unwrap());
        let mut child = command.stdin(stdin).stderr(stderr).spawn().unwrap();
        drop(command);
        read_until(&keyboard, "in acme: ");
        assert!(!echoes(&terminal));
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
        assert!(echoes(&terminal));
        drop(terminal);
        assert_eq!(rest_of(keyboard), "\r\n", "no error text");
    }
}

#[test]
fn a_typed_password_is_not_echoed() {
    let stub = Stub::new(service);
    let (mut keyboard, terminal) = terminal();
    let client = Client::for_url(&stub.url);
    let mut command = client.command(&LOGIN);
    let (stdin, stderr) = (terminal.try_clone().unwrap(), terminal.try_clone().unwrap());
    let mut child = command.stdin(stdin).stderr(stderr).spawn().unwrap();
    drop(command);
    read_until(&keyboard, "in acme: ");
    keyboard.write_all(b"correct horse\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(echoes(&terminal));
    drop(terminal);
    let rest = rest_of(keyboard);
    assert!(!rest.contains("correct horse"), "{rest:?}");
    assert_eq!(stub.requests()[1].json()["password"], "correct horse");
}

/// Switches the echo on, as a shell does when it stops a command.
fn switch_echo_on(terminal: &File) {
    let mut modes = tcgetattr(terminal).unwrap();
    modes.local_modes.insert(LocalModes::ECHO);
    tcsetattr(terminal, OptionalActions::Now, &modes).unwrap();
}

#[test]
fn a_password_stays_hidden_after_the_command_was_stopped_and_continued() {
    let stub = Stub::new(service);
    let (mut keyboard, terminal) = terminal();
    let client = Client::for_url(&stub.url);
    let mut command = client.command(&LOGIN);
    let (stdin, stderr) = (terminal.try_clone().unwrap(), terminal.try_clone().unwrap());
    let mut child = command.stdin(stdin).stderr(stderr).spawn().unwrap();
    drop(command);
    read_until(&keyboard, "in acme: ");
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    switch_echo_on(&terminal);
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    // The question is repeated when the echo is off.
    read_until(&keyboard, "in acme: ");
    assert!(!echoes(&terminal));
    keyboard.write_all(b"correct horse\nrm -rf x\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(echoes(&terminal));
    assert_eq!(rustix::io::ioctl_fionread(&terminal).unwrap(), 0, "the shell would run the rest of a paste");
    drop(terminal);
    assert!(!rest_of(keyboard).contains("correct horse"));
}

#[test]
fn a_server_that_does_not_answer_is_reported_before_the_questions() {
    let client = Client::for_url("http://127.0.0.1:1");
    let result = run_at_terminal(&client, &["auth", "login"], "\x04");
    assert_eq!(result.code, Some(9), "{result:?}");
    assert!(!result.stderr.contains("Tenant:") && !result.stderr.contains("Password"), "{result:?}");
}

#[test]
fn an_invalid_token_is_reported_before_a_password() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url);
    for (command, token) in [
        (&["users", "accept-invite"][..], "svc_iv_used\n"),
        (&["auth", "password", "confirm-reset"], "svc_pr_used\n"),
    ] {
        let result = run_at_terminal(&client, command, token);
        assert_eq!(result.code, Some(7), "{result:?}");
        assert!(!result.stderr.contains("assword (at least"), "{result:?}");
    }
}

#[test]
fn a_token_of_another_kind_leads_to_its_command() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url);
    for (command, token, advice) in [
        (&["users", "accept-invite"][..], "svc_pr_good", "svc auth password confirm-reset"),
        (&["auth", "password", "confirm-reset"], "svc_iv_good", "svc users accept-invite"),
        (
            &["users", "accept-invite"],
            "iv_good",
            "or from the output that shows it, such as that of `make up`.",
        ),
        (&["auth", "password", "confirm-reset"], "pr_good", "Copy the whole token from the mail."),
    ] {
        let result = run_at_terminal(&client, command, &format!("{token}\n"));
        assert_eq!(result.code, Some(7), "{result:?}");
        assert!(result.stderr.contains(advice) && !result.stderr.contains("assword (at least"), "{result:?}");
    }
    assert!(stub.requests().is_empty());
}

#[test]
fn a_session_that_has_ended_is_reported_before_the_passwords() {
    let stub = Stub::new(|_| problem(ProblemKind::CredentialInvalid));
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    let result = run_at_terminal(&client, &["auth", "password", "change"], "\x04");
    assert_eq!(result.code, Some(4), "{result:?}");
    assert!(!result.stderr.contains("password: "), "{result:?}");
}

#[test]
fn a_new_password_has_the_minimum_length_of_the_service() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url);
    let input = "svc_iv_good\nthirteen long\nsixteen long it is\nsixteen long it is\n";
    let result = run_at_terminal(&client, &["users", "accept-invite"], input);
    assert_eq!(result.code, Some(0), "{result:?}");
    for text in ["bob@acme.example", "at least 16 characters", "Repeat the password: "] {
        assert!(result.stderr.contains(text), "{result:?}");
    }
    assert_eq!(stub.requests()[1].json()["password"], "sixteen long it is");
}

#[test]
fn a_rejected_password_can_be_replaced_without_the_token() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url);
    let typed =
        ["svc_iv_good", "passwordpassword", "passwordpassword", "sixteen long it is", "sixteen long it is"];
    let result = run_at_terminal(&client, &["users", "accept-invite"], &(typed.join("\n") + "\n"));
    assert_eq!(result.code, Some(0), "{result:?}");
    let error = "\r\nUse a password that is not on lists of common passwords.\r\n";
    assert!(result.stderr.contains(error), "{result:?}");
    assert_eq!(stub.requests().last().unwrap().json()["password"], "sixteen long it is");
    // The end of the input ends the command.
    let result = run_at_terminal(&client, &["users", "accept-invite"], &(typed[..3].join("\n") + "\n\x04"));
    assert_eq!(result.code, Some(7), "{result:?}");
}

#[test]
fn a_reset_with_a_rejected_password_asks_only_for_another_password() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url);
    let typed = [
        "svc_pr_good",
        "y",
        "passwordpassword",
        "passwordpassword",
        "sixteen long it is",
        "sixteen long it is",
    ];
    let confirm = ["auth", "password", "confirm-reset"];
    let result = run_at_terminal(&client, &confirm, &(typed.join("\n") + "\n"));
    assert_eq!(result.code, Some(0), "{result:?}");
    let error = "\r\nUse a password that is not on lists of common passwords.\r\n";
    assert!(result.stderr.contains(error), "{result:?}");
    let [inspect, rejected, accepted] = &stub.requests()[..] else { panic!("{:?}", stub.request_lines()) };
    assert_eq!(inspect.json(), json!({ "token": "svc_pr_good" }));
    for (request, password) in [(rejected, "passwordpassword"), (accepted, "sixteen long it is")] {
        let sent = json!({ "token": "svc_pr_good", "new_password": password, "revoke_api_keys": true });
        assert_eq!(request.json(), sent);
    }
    // The end of the input ends the command.
    let result = run_at_terminal(&client, &confirm, &(typed[..4].join("\n") + "\n\x04"));
    assert_eq!(result.code, Some(7), "{result:?}");
}

#[test]
fn a_change_with_a_rejected_password_asks_only_for_another_password() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    let typed =
        ["old password", "passwordpassword", "passwordpassword", "sixteen long it is", "sixteen long it is"];
    let result = run_at_terminal(&client, &["auth", "password", "change"], &(typed.join("\n") + "\n"));
    assert_eq!(result.code, Some(0), "{result:?}");
    let last = stub.requests().last().unwrap().json();
    assert_eq!(last, json!({ "current_password": "old password", "new_password": "sixteen long it is" }));
}

#[test]
fn a_command_that_reads_its_input_from_the_terminal_announces_it() {
    let stub = Stub::new(|_| problem(ProblemKind::NotFound));
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    for (line, typed, expected) in [
        ("users accept-invite -", "svc_iv_x\n", "reading the token from the terminal; end with Enter"),
        (
            "auth sessions revoke -",
            "svc_st_x\n",
            "reading the session token or id from the terminal; end with Enter",
        ),
        (
            "auth login --email a@x --tenant acme --password-stdin",
            "secret\n",
            "reading the password from the terminal;",
        ),
        ("api POST /events --data -", "{}\n\x04", "reading the body from the terminal; end with Ctrl-D"),
        ("catalog validate -", "{}\n\x04", "reading the catalog from the terminal; end with Ctrl-D"),
        ("events send --file -", "\x04", "reading the events from the terminal; end with Ctrl-D"),
    ] {
        let result = run_at_terminal(&client, &line.split(' ').collect::<Vec<_>>(), typed);
        assert!(result.stderr.contains(expected), "{result:?}");
    }
}
