//! What shuts people out is done only when somebody says so: with `--yes`, or at a terminal.

use serde_json::json;

use crate::client::Client;
use crate::stub::{Asked, Stub};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// The commands that ask, and what each one sends.
const ASKING: [(&[&str], &str); 3] = [
    (&["users", "disable", ID], "PATCH /api/v1/users/01890a5d-ac96-774b-bcce-b302099a8057"),
    (&["invites", "revoke", ID], "DELETE /api/v1/users/invites/01890a5d-ac96-774b-bcce-b302099a8057"),
    (&["tenants", "suspend", "acme"], "PATCH /api/v1/tenants/acme"),
];

fn service(asked: &Asked) -> (u16, String) {
    if asked.line.starts_with("DELETE") {
        return (204, String::new());
    }
    // A user and a tenant in one: each reads what it knows.
    let both = json!({
        "user_id": ID, "email": "bob@acme.example", "role": "member", "updated_at": "2026-01-01T00:00:00Z",
        "tenant_id": "acme", "display_name": "Acme", "quota": {}, "created_at": "2026-01-01T00:00:00Z",
        "status": asked.json()["status"],
    });
    (200, both.to_string())
}

fn client(stub: &Stub) -> Client {
    Client::of(&stub.url).with("SVC_PLATFORM_TOKEN", "svc_pt_x").with("SVC_TENANT", "acme")
}

#[test]
fn without_a_terminal_nothing_happens_unless_yes_is_passed() {
    for (command, sent) in ASKING {
        let stub = Stub::answering(service);
        let client = client(&stub);
        let ran = client.run(&[command, &["--output", "json"]].concat());
        let error = ran.error();
        assert_eq!((ran.code, error["code"].as_str()), (Some(12), Some("input_needed")), "{ran:?}");
        assert!(error["remediation"].as_str().unwrap().contains("--yes"), "{error}");
        // Neither a yes on standard input nor automation is a confirmation.
        assert_eq!(client.run_with(command, "y\n").code, Some(12));
        assert!(stub.asked().is_empty());

        let ran = client.with("CI", "true").run(&[command, &["--yes"]].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(stub.lines(), [sent]);
    }
}

#[test]
fn automation_alone_confirms_nothing() {
    let stub = Stub::answering(service);
    let client = client(&stub).with("CI", "true");
    for (command, _) in ASKING {
        assert_eq!(client.run(command).code, Some(12));
    }
    assert!(stub.asked().is_empty());
}

#[test]
fn who_cannot_act_is_told_so_before_being_asked() {
    let client = Client::new();
    for (command, _) in ASKING {
        assert_eq!(client.run(command).code, Some(4), "{command:?}");
    }
}

#[cfg(target_os = "linux")]
mod at_a_terminal {
    use std::io::Read;

    use super::*;
    use crate::terminal::{terminal, typing};

    #[test]
    fn a_yes_does_it() {
        for (command, sent) in ASKING {
            let stub = Stub::answering(service);
            let ran = typing(&client(&stub), command, "y\n");
            assert_eq!(ran.code, Some(0), "{ran:?}");
            assert!(ran.stderr.contains("? [y/N]: "), "{ran:?}");
            assert!(ran.stderr.contains(command[2]), "{ran:?}");
            assert_eq!(stub.lines(), [sent]);
        }
    }

    #[test]
    fn anything_else_is_exit_status_1_and_does_nothing() {
        let stub = Stub::answering(service);
        for (command, _) in ASKING {
            // The last is the end of the input.
            for answer in ["n\n", "\n", "\u{4}"] {
                let ran = typing(&client(&stub), command, answer);
                assert_eq!(ran.code, Some(1), "{ran:?}");
                assert!(ran.stderr.contains("--yes"), "{ran:?}");
            }
        }
        assert!(stub.asked().is_empty());
    }

    #[test]
    fn a_question_that_nobody_answers_ends_its_line() {
        use rustix::process::{Pid, Signal, kill_process};

        let stub = Stub::answering(service);
        let client = client(&stub).with("NO_COLOR", "1");
        let ran = typing(&client, ASKING[0].0, "\u{4}");
        assert!(ran.stderr.contains("[y/N]: \r\nerror: nothing was typed"), "{ran:?}");

        let (mut keyboard, terminal) = terminal();
        let mut command = client.command(ASKING[0].0);
        let mut child = command.stdin(terminal.try_clone().unwrap()).stderr(terminal).spawn().unwrap();
        drop(command);
        let mut said = Vec::new();
        while !said.ends_with(b"[y/N]: ") {
            let mut byte = [0];
            keyboard.read_exact(&mut byte).unwrap();
            said.push(byte[0]);
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        let _ = keyboard.read_to_end(&mut said);
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains("[y/N]: \r\nerror: Interrupted"), "{said:?}");
    }

    #[test]
    fn what_json_shows_at_a_terminal_cannot_steer_it() {
        let client = Client::new().with("SVC_TOKEN", "x\u{9b}2J");
        // One is data on standard output, the other an error.
        for (command, code) in [(&["auth", "token"][..], 0), (&["events", "validate", "-f", "x\u{9b}2J"], 7)]
        {
            let (mut screen, terminal) = terminal();
            let mut command = client.command(&[command, &["--output", "json"]].concat());
            let mut child = command.stdout(terminal.try_clone().unwrap()).stderr(terminal).spawn().unwrap();
            drop(command);
            assert_eq!(child.wait().unwrap().code(), Some(code));
            let mut said = Vec::new();
            let _ = screen.read_to_end(&mut said);
            let said = String::from_utf8(said).unwrap();
            assert!(said.contains(r"x\u009b2J") && !said.contains('\u{9b}'), "{said:?}");
        }
    }

    #[test]
    fn who_has_said_yes_or_asks_not_to_be_asked_is_not() {
        let stub = Stub::answering(service);
        for (command, _) in ASKING {
            let ran = typing(&client(&stub), &[command, &["--yes"]].concat(), "");
            assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
            assert_eq!(typing(&client(&stub), &[command, &["--no-input"]].concat(), "y\n").code, Some(12));
            assert_eq!(typing(&client(&stub).with("CI", "1"), command, "y\n").code, Some(12));
        }
        assert_eq!(stub.asked().len(), ASKING.len());
    }
}
