//! Device login: the client as the device, and as the user who approves or denies it.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, CommandResult, assert_valid_output};
use crate::stub::{Stub, StubRequest, problem};

const USER: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn codes(expires_in: u64) -> (u16, String) {
    let codes = json!({
        "device_code": "svc_dc_secret", "user_code": "BCDF-GHJK",
        "verification_uri": "https://svc.example/api/v1/pages/device",
        "verification_uri_complete": "https://svc.example/api/v1/pages/device#user_code=BCDF-GHJK",
        "expires_in": expires_in, "interval": 1,
    });
    (200, codes.to_string())
}

fn error(error: &str) -> (u16, String) {
    (400, json!({"error": error, "error_description": "In words."}).to_string())
}

fn session() -> (u16, String) {
    let session = json!({
        "session_id": "svc_st_good", "access_token": "svc_st_good", "token_type": "Bearer", "user_id": USER,
        "tenant_id": "acme", "role": "member", "scope": "events:write", "expires_in": 60,
        "expires_at": "2030-01-01T00:00:00Z", "idle_expires_at": "2030-01-01T00:00:00Z",
    });
    (200, session.to_string())
}

fn user(request: &StubRequest) -> (u16, String) {
    assert_eq!(request.header("authorization"), Some("Bearer svc_st_good"));
    let user = json!({
        "user_id": USER, "email": "ada@acme.example", "role": "member", "status": "active",
        "locked": false, "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
    });
    (200, user.to_string())
}

/// Approves at the first poll.
fn approving(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "POST /api/v1/auth/device/code" => codes(600),
        "POST /api/v1/auth/device/token" => session(),
        _ => user(request),
    }
}

/// Approves at the second poll.
fn approving_second_poll(request: &StubRequest) -> (u16, String) {
    static PENDING: AtomicBool = AtomicBool::new(true);
    if request.line.ends_with("/token") && PENDING.swap(false, Ordering::SeqCst) {
        return error("authorization_pending");
    }
    approving(request)
}

fn denying(request: &StubRequest) -> (u16, String) {
    if request.line.ends_with("/code") { codes(600) } else { error("access_denied") }
}

fn expiring(request: &StubRequest) -> (u16, String) {
    if request.line.ends_with("/code") { codes(2) } else { error("authorization_pending") }
}

fn log_in(stub: &Stub, options: &[&str]) -> (Client, CommandResult) {
    let client = Client::for_url(&stub.url);
    let result = client.run(&[&["auth", "login", "--device", "--tenant", "acme"], options].concat());
    (client, result)
}

#[test]
fn prints_url_and_code_and_stores_the_session() {
    let stub = Stub::new(approving_second_poll);
    // `--quiet` does not suppress them.
    let (client, result) = log_in(&stub, &["--quiet"]);
    assert_eq!(result.code, Some(0), "{result:?}");
    let printed = "Open https://svc.example/api/v1/pages/device in a browser and enter the code BCDF-GHJK\n";
    assert_eq!(result.stderr, printed);
    assert!(
        result.stdout.contains("ada@acme.example") && !result.stdout.contains("svc_st_good"),
        "{result:?}"
    );
    assert_eq!(client.run(&["auth", "token"]).stdout, "svc_st_good\n");

    let [code, pending, token, user] = &stub.requests()[..] else { panic!("{:?}", stub.request_lines()) };
    assert_eq!(code.header("x-tenant-id"), Some("acme"));
    assert!(code.json()["client_name"].as_str().unwrap().starts_with("svc on "), "{}", code.json());
    for poll in [pending, token] {
        assert_eq!(poll.json()["grant_type"], "urn:ietf:params:oauth:grant-type:device_code");
        assert_eq!(poll.json()["device_code"], "svc_dc_secret");
        assert_eq!(poll.header("authorization"), None);
    }
    assert_eq!(user.line, format!("GET /api/v1/users/{USER}"));
}

#[test]
fn prints_url_and_code_as_json() {
    let stub = Stub::new(approving);
    let (_, result) = log_in(&stub, &["--output", "json"]);
    let printed: Value = serde_json::from_str(result.stderr.lines().next().unwrap()).unwrap();
    assert_eq!(printed["device"]["user_code"], "BCDF-GHJK");
    assert_eq!(
        printed["device"]["verification_uri_complete"],
        "https://svc.example/api/v1/pages/device#user_code=BCDF-GHJK"
    );
    assert_valid_output("auth login", &result.json());
}

#[test]
fn denied_and_expired_logins_differ_and_store_nothing() {
    for (answers, code, error) in
        [(denying as fn(&StubRequest) -> _, 5, "device_denied"), (expiring, 8, "device_pending")]
    {
        let (client, result) = log_in(&Stub::new(answers), &["--output", "json"]);
        assert_eq!((result.code, result.error()["code"].as_str()), (Some(code), Some(error)), "{result:?}");
        assert!(!client.credentials().exists());
    }
}

#[test]
fn rejects_password_options_with_device() {
    for option in [&["--email", "a@b.example"][..], &["--password-stdin"], &["--password-file", "x"]] {
        let result =
            Client::new().run(&[&["auth", "login", "--device", "--tenant", "acme"], option].concat());
        assert_eq!(result.code, Some(2), "{result:?}");
    }
}

#[cfg(unix)]
#[test]
fn interrupt_ends_the_polling() {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::ExitStatusExt as _;

    use rustix::process::{Pid, Signal, kill_process};

    let stub =
        Stub::new(|request| if request.line.ends_with("/code") { codes(600) } else { error("slow_down") });
    let client = Client::for_url(&stub.url);
    let mut command = client.command(&["auth", "login", "--device", "--tenant", "acme"]);
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    let mut printed = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut printed).unwrap();
    assert!(printed.contains("BCDF-GHJK"), "{printed}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
}

/// A service with a pending device login.
fn waiting(request: &StubRequest) -> (u16, String) {
    let known = request.json()["user_code"] == "bcdfghjk";
    match request.line.as_str() {
        _ if request.header("authorization") != Some("Bearer svc_st_fresh") => {
            problem(ProblemKind::ReauthenticationRequired)
        }
        _ if !known => problem(ProblemKind::NotFound),
        "POST /api/v1/auth/device/inspect" => {
            let asking = json!({
                "client_name": "Television\u{1b}[2J", "ip": "203.0.113.9", "created_at": "2026-01-01T00:00:00Z",
            });
            (200, asking.to_string())
        }
        _ => (204, String::new()),
    }
}

#[test]
fn sends_the_decision_after_confirmation() {
    for (command, approved) in [("approve", true), ("deny", false)] {
        let stub = Stub::new(waiting);
        let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_fresh");
        let line = ["auth", "device", command, "bcdfghjk", "--output", "json"];
        let result = client.run(&line);
        assert_eq!((result.code, result.error()["code"].as_str()), (Some(12), Some("input_needed")));
        assert_eq!(stub.request_lines(), ["POST /api/v1/auth/device/inspect"]);

        let result = client.run(&[&line[..], &["--yes"]].concat());
        assert_eq!(result.json()["approved"], approved);
        assert_valid_output(&format!("auth device {command}"), &result.json());
        assert_eq!(
            stub.requests().last().unwrap().json(),
            json!({"user_code": "bcdfghjk", "decision": command})
        );
    }
}

#[test]
fn unknown_code_is_not_found_and_old_login_is_rejected() {
    let stub = Stub::new(waiting);
    let approve = ["auth", "device", "approve", "ZZZZ-ZZZZ", "--yes", "--output", "json"];
    let result = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_fresh").run(&approve);
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(3), Some("not_found")));
    assert_eq!(
        result.error()["remediation"],
        "Compare the code with the device, and check --tenant. A code is valid for ten minutes: to get a new one, run `svc auth login --device` on the device again."
    );
    let result = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_old").run(&approve);
    assert_eq!((result.code, result.error()["code"].as_str()), (Some(4), Some("reauthentication_required")));
}

#[cfg(target_os = "linux")]
mod at_a_terminal {
    use std::fs;
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::terminal::{run_at_terminal, terminal};

    #[test]
    fn question_shows_the_escaped_device_name() {
        let stub = Stub::new(waiting);
        let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_fresh");
        let result = run_at_terminal(&client, &["auth", "device", "approve", "bcdfghjk"], "y\n");
        let device = r#"Device "Television\u{1b}[2J" requested a login from 203.0.113.9 "#;
        assert!(result.stderr.contains(device), "{result:?}");
        assert!(result.stderr.ends_with(". Allow it to act as you? [y/N]: y\r\n"), "{result:?}");
        assert_eq!((result.code, stub.request_lines().len()), (Some(0), 2));
        let result = run_at_terminal(&client, &["auth", "device", "deny", "bcdfghjk"], "n\n");
        assert_eq!((result.code, stub.request_lines().len()), (Some(1), 3), "{result:?}");
    }

    /// Approves after the browser was opened.
    fn approving_after_the_browser(request: &StubRequest) -> (u16, String) {
        static OPENED: AtomicBool = AtomicBool::new(false);
        match request.line.as_str() {
            "GET /opened" => {
                OPENED.store(true, Ordering::SeqCst);
                (200, String::new())
            }
            "POST /api/v1/auth/device/token" if !OPENED.load(Ordering::SeqCst) => {
                error("authorization_pending")
            }
            _ => approving(request),
        }
    }

    #[test]
    fn opens_a_browser_after_enter() {
        let stub = Stub::new(approving_after_the_browser);
        let bin = tempfile::tempdir().unwrap();
        let opener = bin.path().join("xdg-open");
        let address = stub.url.trim_start_matches("http://").replace(':', "/");
        // Replaces the browser: records its argument in a file and sends a request to the stub.
        let script = format!(
            "#!/bin/bash\necho \"$1\" > {}/opened\nexec 3<>/dev/tcp/{address}\n\
             printf 'GET /opened HTTP/1.0\\r\\n\\r\\n' >&3\ncat <&3\n",
            bin.path().display()
        );
        fs::write(&opener, script).unwrap();
        fs::set_permissions(&opener, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", bin.path().display());
        let client = Client::for_url(&stub.url).with_variable("PATH", &path);

        let (mut keyboard, screen) = terminal();
        let mut command = client.command(&["auth", "login", "--device", "--tenant", "acme"]);
        let mut child = command.stdin(screen.try_clone().unwrap()).stderr(screen).spawn().unwrap();
        drop(command);
        let mut output = Vec::new();
        while !output.ends_with(b"Press Enter to open the page in a browser\r\n") {
            let mut byte = [0];
            keyboard.read_exact(&mut byte).unwrap();
            output.push(byte[0]);
        }
        assert!(!bin.path().join("opened").exists());
        keyboard.write_all(b"\n").unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_eq!(
            fs::read_to_string(bin.path().join("opened")).unwrap(),
            "https://svc.example/api/v1/pages/device#user_code=BCDF-GHJK\n"
        );
    }
}
