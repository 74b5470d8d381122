//! Device login: this client as the device, and as the person who lets another one in.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::client::{Client, Ran, assert_valid_output};
use crate::stub::{Asked, Stub, problem};

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

fn refused(error: &str) -> (u16, String) {
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

fn user(asked: &Asked) -> (u16, String) {
    assert_eq!(asked.header("authorization"), Some("Bearer svc_st_good"));
    let user = json!({
        "user_id": USER, "email": "ada@acme.example", "role": "member", "status": "active",
        "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
    });
    (200, user.to_string())
}

/// Lets the device in when it asks.
fn approving(asked: &Asked) -> (u16, String) {
    match asked.line.as_str() {
        "POST /api/v1/auth/device/code" => codes(600),
        "POST /api/v1/auth/device/token" => session(),
        _ => user(asked),
    }
}

/// Lets it in when it asks for the second time.
fn approving_late(asked: &Asked) -> (u16, String) {
    static PENDING: AtomicBool = AtomicBool::new(true);
    if asked.line.ends_with("/token") && PENDING.swap(false, Ordering::SeqCst) {
        return refused("authorization_pending");
    }
    approving(asked)
}

fn denying(asked: &Asked) -> (u16, String) {
    if asked.line.ends_with("/code") { codes(600) } else { refused("access_denied") }
}

fn forgetting(asked: &Asked) -> (u16, String) {
    if asked.line.ends_with("/code") { codes(2) } else { refused("authorization_pending") }
}

fn log_in(stub: &Stub, options: &[&str]) -> (Client, Ran) {
    let client = Client::of(&stub.url);
    let ran = client.run(&[&["auth", "login", "--device", "--tenant", "acme"], options].concat());
    (client, ran)
}

#[test]
fn the_address_and_the_code_are_always_told_and_the_session_is_kept() {
    let stub = Stub::answering(approving_late);
    // Not even `--quiet` leaves them out.
    let (client, ran) = log_in(&stub, &["--quiet"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let told = "Open https://svc.example/api/v1/pages/device in a browser and enter the code BCDF-GHJK\n";
    assert_eq!(ran.stderr, told);
    assert!(ran.stdout.contains("ada@acme.example") && !ran.stdout.contains("svc_st_good"), "{ran:?}");
    assert_eq!(client.run(&["auth", "token"]).stdout, "svc_st_good\n");

    let [code, pending, token, user] = &stub.asked()[..] else { panic!("{:?}", stub.lines()) };
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
fn programs_read_the_address_and_the_code_as_json() {
    let stub = Stub::answering(approving);
    let (_, ran) = log_in(&stub, &["--output", "json"]);
    let told: Value = serde_json::from_str(ran.stderr.lines().next().unwrap()).unwrap();
    assert_eq!(told["device"]["user_code"], "BCDF-GHJK");
    assert_eq!(
        told["device"]["verification_uri_complete"],
        "https://svc.example/api/v1/pages/device#user_code=BCDF-GHJK"
    );
    assert_valid_output("auth login", &ran.json());
}

#[test]
fn who_is_denied_or_forgotten_is_told_apart_and_keeps_nothing() {
    for (answers, code, error) in
        [(denying as fn(&Asked) -> _, 5, "device_refused"), (forgetting, 8, "device_pending")]
    {
        let (client, ran) = log_in(&Stub::answering(answers), &["--output", "json"]);
        assert_eq!((ran.code, ran.error()["code"].as_str()), (Some(code), Some(error)), "{ran:?}");
        assert!(!client.credentials().exists());
    }
}

#[test]
fn a_password_and_a_device_do_not_go_together() {
    for option in [&["--email", "a@b.example"][..], &["--password-stdin"], &["--password-file", "x"]] {
        let ran = Client::new().run(&[&["auth", "login", "--device", "--tenant", "acme"], option].concat());
        assert_eq!(ran.code, Some(2), "{ran:?}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_ends_the_wait() {
    use std::io::{BufRead as _, BufReader};

    use rustix::process::{Pid, Signal, kill_process};

    let stub = Stub::answering(
        |asked| if asked.line.ends_with("/code") { codes(600) } else { refused("slow_down") },
    );
    let client = Client::of(&stub.url);
    let mut command = client.command(&["auth", "login", "--device", "--tenant", "acme"]);
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    let mut told = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut told).unwrap();
    assert!(told.contains("BCDF-GHJK"), "{told}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// A service at which a device waits.
fn waiting(asked: &Asked) -> (u16, String) {
    let known = asked.json()["user_code"] == "bcdfghjk";
    match asked.line.as_str() {
        _ if asked.header("authorization") != Some("Bearer svc_st_fresh") => {
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
fn a_decision_is_sent_once_it_is_confirmed() {
    for (command, approved) in [("approve", true), ("deny", false)] {
        let stub = Stub::answering(waiting);
        let client = Client::of(&stub.url).with("SVC_TOKEN", "svc_st_fresh");
        let line = ["auth", "device", command, "bcdfghjk", "--output", "json"];
        let ran = client.run(&line);
        assert_eq!((ran.code, ran.error()["code"].as_str()), (Some(12), Some("input_needed")));
        assert_eq!(stub.lines(), ["POST /api/v1/auth/device/inspect"]);

        let ran = client.run(&[&line[..], &["--yes"]].concat());
        assert_eq!(ran.json()["approved"], approved);
        assert_valid_output(&format!("auth device {command}"), &ran.json());
        assert_eq!(
            stub.asked().last().unwrap().json(),
            json!({"user_code": "bcdfghjk", "decision": command})
        );
    }
}

#[test]
fn an_unknown_code_is_not_found_and_an_old_login_is_not_enough() {
    let stub = Stub::answering(waiting);
    let approve = ["auth", "device", "approve", "ZZZZ-ZZZZ", "--yes", "--output", "json"];
    let ran = Client::of(&stub.url).with("SVC_TOKEN", "svc_st_fresh").run(&approve);
    assert_eq!((ran.code, ran.error()["code"].as_str()), (Some(3), Some("not_found")));
    let ran = Client::of(&stub.url).with("SVC_TOKEN", "svc_st_old").run(&approve);
    assert_eq!((ran.code, ran.error()["code"].as_str()), (Some(4), Some("reauthentication_required")));
}

#[cfg(target_os = "linux")]
mod at_a_terminal {
    use std::fs;
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::terminal::{terminal, typing};

    #[test]
    fn what_asks_is_shown_and_cannot_steer_the_terminal() {
        let stub = Stub::answering(waiting);
        let client = Client::of(&stub.url).with("SVC_TOKEN", "svc_st_fresh");
        let ran = typing(&client, &["auth", "device", "approve", "bcdfghjk"], "y\n");
        let asked = r#"A device that calls itself "Television\u{1b}[2J" asked from 203.0.113.9 at 2026-01-01T00:00:00Z. Let it act as you? [y/N]: "#;
        assert!(ran.stderr.contains(asked), "{ran:?}");
        assert_eq!((ran.code, stub.lines().len()), (Some(0), 2));
        let ran = typing(&client, &["auth", "device", "deny", "bcdfghjk"], "n\n");
        assert_eq!((ran.code, stub.lines().len()), (Some(1), 3), "{ran:?}");
    }

    /// Lets the device in once a browser was opened.
    fn approving_after_the_browser(asked: &Asked) -> (u16, String) {
        static OPENED: AtomicBool = AtomicBool::new(false);
        match asked.line.as_str() {
            "GET /opened" => {
                OPENED.store(true, Ordering::SeqCst);
                (200, String::new())
            }
            "POST /api/v1/auth/device/token" if !OPENED.load(Ordering::SeqCst) => {
                refused("authorization_pending")
            }
            _ => approving(asked),
        }
    }

    #[test]
    fn a_browser_is_opened_after_enter() {
        let stub = Stub::answering(approving_after_the_browser);
        let bin = tempfile::tempdir().unwrap();
        let opener = bin.path().join("xdg-open");
        let address = stub.url.trim_start_matches("http://").replace(':', "/");
        // The stand-in for a desktop tells the service that it was called, and this test with what.
        let script = format!(
            "#!/bin/bash\necho \"$1\" > {}/opened\nexec 3<>/dev/tcp/{address}\n\
             printf 'GET /opened HTTP/1.0\\r\\n\\r\\n' >&3\ncat <&3\n",
            bin.path().display()
        );
        fs::write(&opener, script).unwrap();
        fs::set_permissions(&opener, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", bin.path().display());
        let client = Client::of(&stub.url).with("PATH", &path);

        let (mut keyboard, screen) = terminal();
        let mut command = client.command(&["auth", "login", "--device", "--tenant", "acme"]);
        let mut child = command.stdin(screen.try_clone().unwrap()).stderr(screen).spawn().unwrap();
        drop(command);
        let mut said = Vec::new();
        while !said.ends_with(b"Press Enter to open it in a browser here\r\n") {
            let mut byte = [0];
            keyboard.read_exact(&mut byte).unwrap();
            said.push(byte[0]);
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
