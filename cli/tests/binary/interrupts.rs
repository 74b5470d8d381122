//! Ctrl-C and other signals at each kind of prompt, on a terminal that belongs to the command. A signal ends the command without a
//! text, and the terminal echoes afterwards.

use std::io::Write;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use contract::ProblemKind;
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};
use serde_json::json;

use crate::client::Client;
use crate::stub::{Stub, StubRequest, problem};
use crate::terminal::{answer, read_until, rest_of, terminal};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// Prompts: command, earlier input, end of the prompt, and whether it echoes.
const PROMPTS: &[(&[&str], &str, &str, bool)] = &[
    (&["users", "list"], "", "Tenant: ", true),
    (&["auth", "login", "--tenant", "acme"], "", "E-mail: ", true),
    (&["auth", "login", "--tenant", "acme", "--email", "a@acme.example"], "", "in acme: ", false),
    (
        &["auth", "login", "--tenant", "acme", "--device"],
        "",
        "Press Enter to open the page in a browser\r\n",
        true,
    ),
    (&["auth", "password", "reset", "--tenant", "acme"], "", "E-mail: ", true),
    (&["auth", "password", "change"], "", "Current password: ", false),
    (&["auth", "password", "change"], "old password\n", "characters): ", false),
    (&["auth", "password", "change"], "old password\nlong enough it is\n", "Repeat the password: ", false),
    (&["auth", "password", "confirm-reset"], "", "Reset token: ", false),
    (&["auth", "password", "confirm-reset"], "svc_pr_x\n", "[y/N]: ", true),
    (&["auth", "password", "confirm-reset"], "svc_pr_x\nn\n", "characters): ", false),
    (&["users", "accept-invite"], "", "Invite token: ", false),
    (&["users", "accept-invite"], "svc_iv_x\n", "characters): ", false),
    (&["users", "accept-invite"], "svc_iv_x\nsixteen long it is\n", "Repeat the password: ", false),
    (&["users", "disable", ID, "--tenant", "acme"], "", "[y/N]: ", true),
];

fn service(request: &StubRequest) -> (u16, String) {
    let account = json!({
        "tenant_id": "acme", "tenant_name": "Acme", "email": "bob@acme.example", "role": "member",
        "expires_at": "2030-01-01T00:00:00Z", "password_min_length": 16, "version": "1",
        "device_code": "svc_dc_x", "user_code": "BCDF-GHJK", "verification_uri": "http://127.0.0.1/device",
        "verification_uri_complete": "http://127.0.0.1/device#BCDF-GHJK", "expires_in": 600, "interval": 5,
        "user_id": ID, "status": "active", "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z", "locked": false, "subject_type": "user", "scopes": [],
    });
    match request.line.as_str() {
        "POST /api/v1/auth/device/token" => problem(ProblemKind::NotFound),
        line if line.starts_with("GET /api/v1/users") => (200, json!({"items": [account]}).to_string()),
        _ => (200, account.to_string()),
    }
}

fn client(stub: &Stub, command: &[&str]) -> Client {
    let client = Client::for_url(&stub.url);
    match command {
        ["auth", "password", "change"] => client.with_variable("SVC_TOKEN", "svc_st_x"),
        _ => client.with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x"),
    }
}

/// Types a key at a prompt. Returns the exit status, what the terminal showed after the prompt, and its modes.
fn press(
    key: u8,
    stub: &Stub,
    (words, typed, prompt, _): (&[&str], &str, &str, bool),
) -> (Option<i32>, String, String) {
    let (mut keyboard, terminal) = terminal();
    let client = client(stub, words);
    let svc = client.command(words);
    // A new session, so that the key sends a signal. The shell outlives the command, because the end of a session resets
    // its terminal.
    let script = "trap : INT QUIT; \"$@\"; code=$?; printf 'modes: '; /usr/bin/stty -a; exit $code";
    let mut session = Command::new("/usr/bin/setsid");
    session.args(["--ctty", "/bin/sh", "-c", script, "sh"]).arg(svc.get_program()).args(svc.get_args());
    session.env_clear().envs(svc.get_envs().filter_map(|(name, value)| Some((name, value?))));
    session.current_dir(svc.get_current_dir().unwrap());
    let end = || terminal.try_clone().unwrap();
    let mut child = session.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    drop((session, terminal));
    if !typed.is_empty() {
        answer(&mut keyboard, typed);
    }
    read_until(&keyboard, prompt);
    keyboard.write_all(&[key]).unwrap();
    let code = child.wait().unwrap().code();
    let rest = rest_of(keyboard);
    let (shown, modes) = rest.split_once("modes: ").unwrap_or((&rest, ""));
    (code, shown.to_owned(), modes.to_owned())
}

#[test]
fn ctrl_c_ends_each_prompt_without_a_text() {
    let stub = Stub::new(service);
    for prompt in PROMPTS {
        let (code, shown, modes) = press(3, &stub, *prompt);
        let echoed = if prompt.3 { "^C" } else { "" };
        let line_end = if prompt.2.ends_with('\n') { "" } else { "\r\n" };
        assert_eq!((code, shown), (Some(130), format!("{echoed}{line_end}")), "{prompt:?}");
        assert!(modes.contains(" echo "), "{prompt:?}: {modes}");
    }
}

#[test]
fn ctrl_backslash_does_not_leave_a_terminal_without_echo() {
    let stub = Stub::new(service);
    let (code, shown, modes) = press(0x1c, &stub, PROMPTS[2]);
    assert_eq!(code, Some(131));
    // The shell adds a text about the signal.
    assert!(shown.starts_with("\r\n") && !shown.contains("core dumped"), "{shown:?}");
    assert!(modes.contains(" echo "), "{modes}");
}

#[test]
fn sigterm_ends_each_prompt_without_a_text() {
    let stub = Stub::new(service);
    for (words, typed, prompt, echoes) in PROMPTS {
        let (mut keyboard, terminal) = terminal();
        let client = client(&stub, words);
        let mut command = client.command(words);
        let end = || terminal.try_clone().unwrap();
        let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        drop(command);
        if !typed.is_empty() {
            answer(&mut keyboard, typed);
        }
        read_until(&keyboard, prompt);
        let has_echo = || tcgetattr(&terminal).unwrap().local_modes.contains(LocalModes::ECHO);
        assert_eq!(has_echo(), *echoes, "{prompt}");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()), "{prompt}");
        assert!(has_echo(), "{prompt}");
        drop(terminal);
        assert_eq!(rest_of(keyboard), if prompt.ends_with('\n') { "" } else { "\r\n" }, "{prompt}");
    }
}
