//! Confirmation of destructive commands: with `--yes`, or on a terminal.

use serde_json::json;

use crate::client::Client;
use crate::stub::{Stub, StubRequest};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// Commands that ask for confirmation, the request of each, and what a person recognises the object by.
const COMMANDS: [(&[&str], &str, &str); 5] = [
    (
        &["users", "disable", ID],
        "PATCH /api/v1/users/01890a5d-ac96-774b-bcce-b302099a8057",
        "Disable bob@acme.example",
    ),
    (
        &["users", "set-role", ID, "member", "--revoke-api-keys"],
        "PATCH /api/v1/users/01890a5d-ac96-774b-bcce-b302099a8057",
        "Revoke the sessions of bob@acme.example",
    ),
    (
        &["users", "delete", ID],
        "DELETE /api/v1/users/01890a5d-ac96-774b-bcce-b302099a8057",
        "Delete bob@acme.example",
    ),
    (
        &["invites", "revoke", ID],
        "DELETE /api/v1/users/invites/01890a5d-ac96-774b-bcce-b302099a8057",
        "the invite of bob@acme.example",
    ),
    (&["tenants", "suspend", "acme"], "PATCH /api/v1/tenants/acme", "acme (\"Acme Ltd\")"),
];

fn service(request: &StubRequest) -> (u16, String) {
    if request.line.starts_with("DELETE") {
        return (204, String::new());
    }
    let lists = request.line.starts_with("GET /api/v1/users");
    let status = match request.line.split(' ').next() {
        Some("GET") if request.line.contains("/invites") => "pending".into(),
        Some("PATCH") if request.json()["status"].is_string() => request.json()["status"].clone(),
        _ => "active".into(),
    };
    // Contains the fields of a user, an invite and a tenant.
    let all = json!({
        "user_id": ID, "invite_id": ID, "email": "bob@acme.example", "role": "member", "expires_at": "2030-01-01T00:00:00Z",
        "tenant_id": "acme", "display_name": "Acme Ltd", "quota": {}, "second_factor": "optional", "password_min_length": 12, "passkey_login": true, "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z", "status": status, "locked": false,
    });
    (200, if lists { json!({"items": [all]}) } else { all }.to_string())
}

fn client(stub: &Stub) -> Client {
    Client::for_url(&stub.url)
        .with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x")
        .with_variable("SVC_TOKEN", "svc_st_x")
        .with_variable("SVC_TENANT", "acme")
}

#[test]
fn requires_yes_without_a_terminal() {
    for (command, sent, _) in COMMANDS {
        let stub = Stub::new(service);
        let client = client(&stub);
        let result = client.run(&[command, &["--output", "json"]].concat());
        let error = result.error();
        assert_eq!((result.code, error["code"].as_str()), (Some(12), Some("input_needed")), "{result:?}");
        assert!(error["remediation"].as_str().unwrap().contains("--yes"), "{error}");
        // Neither `y` on a pipe nor the variable CI confirms.
        assert_eq!(client.run_with(command, "y\n").code, Some(12));
        assert!(stub.requests().is_empty());

        let result = client.with_variable("CI", "true").run(&[command, &["--yes"]].concat());
        assert_eq!(result.code, Some(0), "{result:?}");
        assert_eq!(stub.request_lines(), [sent]);
    }
}

#[test]
fn ci_does_not_imply_yes() {
    let stub = Stub::new(service);
    let client = client(&stub).with_variable("CI", "true");
    for (command, ..) in COMMANDS {
        assert_eq!(client.run(command).code, Some(12));
    }
    assert!(stub.requests().is_empty());
}

#[test]
fn missing_credential_is_reported_before_the_question() {
    let client = Client::new();
    for (command, ..) in COMMANDS {
        assert_eq!(client.run(command).code, Some(4), "{command:?}");
    }
}

#[cfg(target_os = "linux")]
mod at_a_terminal {
    use std::io::Read;

    use super::*;
    use crate::terminal::{run_at_terminal, terminal};

    #[test]
    fn proceeds_after_yes() {
        for (command, sent, label) in COMMANDS {
            let stub = Stub::new(service);
            let result = run_at_terminal(&client(&stub), command, "y\n");
            assert_eq!(result.code, Some(0), "{result:?}");
            assert!(result.stderr.contains("? [y/N]: "), "{result:?}");
            assert!(result.stderr.contains(label), "{result:?}");
            assert_eq!(stub.request_lines()[1..], [sent]);
        }
    }

    #[test]
    fn any_other_answer_is_exit_status_1() {
        let stub = Stub::new(service);
        for (command, ..) in COMMANDS {
            // The last one is the end of the input.
            for answer in ["n\n", "\n", "\u{4}"] {
                let result = run_at_terminal(&client(&stub), command, answer);
                assert_eq!(result.code, Some(1), "{result:?}");
                assert!(
                    result.stderr.contains("nothing was changed") && !result.stderr.contains("error"),
                    "{result:?}"
                );
            }
        }
        assert!(stub.request_lines().iter().all(|line| line.starts_with("GET")));
    }

    #[test]
    fn unanswered_question_ends_its_line() {
        use std::os::unix::process::ExitStatusExt as _;

        use rustix::process::{Pid, Signal, kill_process};

        let stub = Stub::new(service);
        let client = client(&stub).with_variable("NO_COLOR", "1");
        let result = run_at_terminal(&client, COMMANDS[0].0, "\u{4}");
        assert!(result.stderr.ends_with("[y/N]: \r\nno answer; nothing was changed\r\n"), "{result:?}");
        let json = run_at_terminal(&client, &[COMMANDS[0].0, &["-o", "json"]].concat(), "n\n");
        assert!(json.stderr.contains(r#""code":"declined""#), "{json:?}");
        for (value, code) in [("1", 12), ("true", 12), ("0", 0), ("", 0)] {
            let client = self::client(&stub).with_variable("SVC_NO_INPUT", value);
            let result = run_at_terminal(&client, COMMANDS[0].0, "y\n");
            assert_eq!(result.code, Some(code), "{value:?}: {result:?}");
        }

        let (mut keyboard, terminal) = terminal();
        let mut command = client.command(COMMANDS[0].0);
        let mut child = command.stdin(terminal.try_clone().unwrap()).stderr(terminal).spawn().unwrap();
        drop(command);
        let mut output = Vec::new();
        while !output.ends_with(b"[y/N]: ") {
            let mut byte = [0];
            keyboard.read_exact(&mut byte).unwrap();
            output.push(byte[0]);
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
        let _ = keyboard.read_to_end(&mut output);
        let output = String::from_utf8(output).unwrap();
        assert!(output.ends_with("[y/N]: \r\n"), "{output:?}");
    }

    #[test]
    fn output_on_a_terminal_has_no_control_characters() {
        let client = Client::new().with_variable("SVC_TOKEN", "x\u{9b}2J");
        let invalid = &["events", "validate", "-f", "x\u{9b}2J"][..];
        // The first prints data on standard output, the others an error.
        for (command, format, escaped, code) in [
            (&["auth", "token"][..], "json", r"x\u009b2J", 0),
            (invalid, "json", r"x\u009b2J", 7),
            (invalid, "table", r"x\u{9b}2J", 7),
        ] {
            let (mut screen, terminal) = terminal();
            let mut command = client.command(&[command, &["--output", format]].concat());
            let mut child = command.stdout(terminal.try_clone().unwrap()).stderr(terminal).spawn().unwrap();
            drop(command);
            assert_eq!(child.wait().unwrap().code(), Some(code));
            let mut output = Vec::new();
            let _ = screen.read_to_end(&mut output);
            let output = String::from_utf8(output).unwrap();
            assert!(output.contains(escaped) && !output.contains('\u{9b}'), "{output:?}");
        }
    }

    #[test]
    fn yes_and_no_input_suppress_the_question() {
        let stub = Stub::new(service);
        for (command, ..) in COMMANDS {
            let result = run_at_terminal(&client(&stub), &[command, &["--yes"]].concat(), "");
            assert_eq!(result.code, Some(0), "{result:?}");
            assert!(!result.stderr.contains('?'), "{result:?}");
            assert_eq!(
                run_at_terminal(&client(&stub), &[command, &["--no-input"]].concat(), "y\n").code,
                Some(12)
            );
            assert_eq!(
                run_at_terminal(&client(&stub).with_variable("CI", "1"), command, "y\n").code,
                Some(12)
            );
        }
        assert_eq!(stub.requests().len(), COMMANDS.len());
    }
}
