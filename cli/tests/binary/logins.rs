//! Several logins: each context has its own session, and no session is created that cannot be stored.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Child;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::client::{Client, CommandResult};
use crate::stub::{Stub, StubRequest, problem};
use crate::terminal::{read_until, rest_of, terminal};

/// A service that issues a session for each e-mail address.
fn service(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "POST /api/v1/auth/password/login" => {
            let session = json!({
                "session_id": format!("svc_st_{}", request.json()["email"].as_str().unwrap()), "token_type": "Bearer",
                "user_id": "01890a5d-ac96-774b-bcce-b302099a8057", "tenant_id": "acme", "role": "admin",
                "expires_at": "2030-01-01T00:00:00Z", "idle_expires_at": "2030-01-01T00:00:00Z",
            });
            (200, session.to_string())
        }
        "POST /api/v1/auth/sessions/logout" => (204, String::new()),
        _ => problem(contract::ProblemKind::CredentialInvalid),
    }
}

fn log_in(client: &Client, stub: &Stub, email: &str, more: &[&str]) -> CommandResult {
    let login =
        ["auth", "login", "--email", email, "--tenant", "acme", "--password-stdin", "--base-url", &stub.url];
    client.run_with(&[&login[..], &["--output", "json"], more].concat(), "correct horse battery\n")
}

/// Starts a login at a terminal and types the password. Returns both ends of the terminal and the process.
fn log_in_at_terminal(client: &Client, stub: &Stub) -> (File, File, Child) {
    let (mut keyboard, terminal) = terminal();
    let login = ["auth", "login", "--email", "ada@x", "--tenant", "acme", "--base-url", &stub.url];
    let (stdin, stderr) = (terminal.try_clone().unwrap(), terminal.try_clone().unwrap());
    let child = client.command(&login).stdin(stdin).stderr(stderr).spawn().unwrap();
    read_until(&keyboard, "in acme: ");
    keyboard.write_all(b"correct horse battery\n").unwrap();
    (keyboard, terminal, child)
}

fn token(client: &Client, context: &str) -> String {
    client.run(&["auth", "token", "--context", context]).stdout.trim().to_owned()
}

fn revoked(stub: &Stub) -> Vec<String> {
    let requests = stub.requests();
    let logouts = requests.iter().filter_map(|request| request.header("x-session-id"));
    logouts.map(str::to_owned).collect()
}

#[test]
fn a_login_in_one_context_keeps_that_of_another_one() {
    let (stub, client) = (Stub::new(service), Client::new());
    assert_eq!(log_in(&client, &stub, "ada@x", &[]).json()["context"], "acme");
    assert_eq!(log_in(&client, &stub, "chloe@x", &["--context", "second"]).json()["context"], "second");
    // Without a name, another account gets its own context.
    assert_eq!(log_in(&client, &stub, "bob@x", &[]).json()["context"], "bob");
    assert_eq!(revoked(&stub), [] as [&str; 0]);
    let tokens = ["acme", "second", "bob"].map(|context| token(&client, context));
    assert_eq!(tokens, ["svc_st_ada@x", "svc_st_chloe@x", "svc_st_bob@x"]);
    let status = client.run(&["auth", "status", "--output", "json"]).json();
    let current: Vec<_> =
        status["items"].as_array().unwrap().iter().filter(|item| item["current"] == true).collect();
    assert_eq!((current.len(), &current[0]["email"]), (1, &json!("bob@x")));
    // The same account again replaces only its own session.
    assert_eq!(log_in(&client, &stub, "bob@x", &[]).json()["context"], "bob");
    assert_eq!(revoked(&stub), ["svc_st_bob@x"]);
    let logout = client.run(&["auth", "logout", "--context", "second"]);
    assert_eq!(logout.code, Some(0), "{logout:?}");
    assert_eq!(
        client.run(&["auth", "token", "--context", "second"]).code,
        Some(4),
        "not that of another account"
    );
    assert_eq!(token(&client, "acme"), "svc_st_ada@x");
}

#[test]
fn without_a_context_only_an_unambiguous_login_is_used() {
    let (stub, client) = (Stub::new(service), Client::new());
    log_in(&client, &stub, "ada@x", &[]);
    client.run(&["config", "set", "base-url", "https://other.example", "--context", "other"]);
    client.run(&["config", "use-context", "other"]);
    let options = ["auth", "token", "--base-url", &stub.url, "--tenant", "acme", "--output", "json"];
    assert_eq!(client.run(&options).json()["token"], "svc_st_ada@x");
    log_in(&client, &stub, "bob@x", &["--context", "bob"]);
    client.run(&["config", "use-context", "other"]);
    let ambiguous = client.run(&options);
    assert_eq!(ambiguous.code, Some(4), "{ambiguous:?}");
    let error = ambiguous.error();
    assert!(error["message"].as_str().unwrap().contains("acme (ada@x), bob (bob@x)"), "{error}");
    assert_eq!(client.run(&[&options[..], &["--context", "bob"]].concat()).json()["token"], "svc_st_bob@x");
}

#[test]
fn a_login_that_cannot_be_stored_sends_no_password() {
    let (stub, client) = (Stub::new(service), Client::new().with_variable("HOME", "/dev/null"));
    let result = log_in(&client, &stub, "ada@x", &[]);
    assert_eq!(result.code, Some(11), "{result:?}");
    assert!(result.error()["remediation"].as_str().unwrap().contains("SVC_TOKEN"), "{result:?}");
    assert_eq!(stub.requests().len(), 0);
}

/// The file that becomes a directory at the next login, and so cannot be written.
static BROKEN: Mutex<Option<PathBuf>> = Mutex::new(None);

fn breaking_service(request: &StubRequest) -> (u16, String) {
    if request.line.ends_with("/login")
        && let Some(path) = BROKEN.lock().take()
    {
        let _ = std::fs::remove_file(&path);
        std::fs::create_dir(path).unwrap();
    }
    service(request)
}

#[test]
fn a_session_that_is_not_stored_is_revoked_and_a_missing_context_is_a_warning() {
    let (stub, client) = (Stub::new(breaking_service), Client::new());
    *BROKEN.lock() = Some(client.credentials());
    let result = log_in(&client, &stub, "ada@x", &[]);
    assert_eq!(
        (result.code, result.error()["code"].as_str()),
        (Some(11), Some("credentials_unusable")),
        "{result:?}"
    );
    assert_eq!(revoked(&stub), ["svc_st_ada@x"]);
    std::fs::remove_dir(client.credentials()).unwrap();

    let configuration = client.home().join(".config/svc/config.json");
    *BROKEN.lock() = Some(configuration.clone());
    let result = log_in(&client, &stub, "ada@x", &[]);
    assert_eq!((result.code, revoked(&stub).len()), (Some(0), 1), "{result:?}");
    assert!(result.stderr.contains("the context is not stored"), "{result:?}");
    std::fs::remove_dir(configuration).unwrap();
    let used =
        client.run(&["auth", "token", "--base-url", &stub.url, "--tenant", "acme", "--output", "json"]);
    assert_eq!(used.json()["token"], Value::from("svc_st_ada@x"));
}

/// The response of a login with the right password that is not complete.
fn challenged(kind: contract::ProblemKind, factor: &str) -> (u16, String) {
    let mut body: Value = serde_json::from_str(&problem(kind).1).unwrap();
    let challenge = json!({
        "challenge": "svc_ch_x", "methods": [factor, "recovery_code"], "expires_at": "2030-01-01T00:00:00Z",
    });
    body.as_object_mut().unwrap().extend(challenge.as_object().unwrap().clone());
    (403, body.to_string())
}

/// A service with one account, which has a second factor.
fn service_with_factor(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "POST /api/v1/auth/password/login" => challenged(contract::ProblemKind::SecondFactorRequired, "totp"),
        "POST /api/v1/auth/second-factor" if request.json()["code"] == "123 456" => {
            let line = "POST /api/v1/auth/password/login".to_owned();
            let body = json!({ "email": "ada@x" }).to_string().into();
            service(&StubRequest { line, body, ..request.clone() })
        }
        "POST /api/v1/auth/second-factor" => problem(contract::ProblemKind::SecondFactorFailed),
        _ => service(request),
    }
}

#[test]
fn a_login_reads_the_code_of_a_second_factor_from_the_second_line() {
    let (stub, client) = (Stub::new(service_with_factor), Client::new());
    let login = [
        "auth",
        "login",
        "--email",
        "ada@x",
        "--tenant",
        "acme",
        "--password-stdin",
        "--code-stdin",
        "--base-url",
        &stub.url,
        "--output",
        "json",
    ];
    let result = client.run_with(&login, "correct horse battery\n123 456\n");
    assert_eq!(result.code, Some(0), "{result:?}");
    assert_eq!(token(&client, "acme"), "svc_st_ada@x");
    let request = stub.requests()[1].clone();
    assert_eq!(request.json(), json!({ "challenge": "svc_ch_x", "code": "123 456" }));
    assert_eq!(request.header("x-tenant-id"), Some("acme"));
    let wrong = client.run_with(&login, "correct horse battery\nABCD-EFGH-IJKL-MNOP\n");
    assert_eq!((wrong.code, wrong.error()["code"].as_str()), (Some(4), Some("second_factor_failed")));
    assert_eq!(stub.requests().last().unwrap().json()["recovery_code"], "ABCD-EFGH-IJKL-MNOP");
}

#[test]
fn without_a_terminal_a_login_with_a_second_factor_names_the_option_of_the_code() {
    let (stub, client) = (Stub::new(service_with_factor), Client::new());
    let result = log_in(&client, &stub, "ada@x", &[]);
    assert_eq!(result.code, Some(12), "{result:?}");
    assert!(result.error()["remediation"].as_str().unwrap().contains("--code-stdin"), "{result:?}");
}

/// A service with one account, which has a passkey and no app. A device login is approved at once.
fn service_with_passkey(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "POST /api/v1/auth/password/login" => {
            challenged(contract::ProblemKind::SecondFactorRequired, "passkey")
        }
        "POST /api/v1/auth/device/code" => {
            let codes = json!({
                "device_code": "svc_dc_secret", "user_code": "BCDF-GHJK", "verification_uri": "https://svc.example/device",
                "verification_uri_complete": "https://svc.example/device#user_code=BCDF-GHJK", "expires_in": 600, "interval": 1,
            });
            (200, codes.to_string())
        }
        "POST /api/v1/auth/device/token" => {
            let line = "POST /api/v1/auth/password/login".to_owned();
            let body = json!({ "email": "ada@x" }).to_string().into();
            let (_, session) = service(&StubRequest { line, body, ..request.clone() });
            let mut session: Value = serde_json::from_str(&session).unwrap();
            let token = session["session_id"].clone();
            let of_device = json!({ "access_token": token, "scope": "", "expires_in": 60 });
            session.as_object_mut().unwrap().extend(of_device.as_object().unwrap().clone());
            (200, session.to_string())
        }
        "GET /api/v1/users/01890a5d-ac96-774b-bcce-b302099a8057" => {
            let user = json!({
                "user_id": "01890a5d-ac96-774b-bcce-b302099a8057", "email": "ada@x", "role": "admin", "status": "active",
                "locked": false, "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
            });
            (200, user.to_string())
        }
        _ => service(request),
    }
}

#[test]
fn without_a_terminal_a_login_with_a_passkey_names_the_device_login() {
    let (stub, client) = (Stub::new(service_with_passkey), Client::new());
    let result = log_in(&client, &stub, "ada@x", &[]);
    assert_eq!(result.code, Some(12), "{result:?}");
    assert!(result.error()["remediation"].as_str().unwrap().contains("--device"), "{result:?}");
}

#[test]
fn at_a_terminal_enter_continues_a_login_with_a_passkey_in_a_browser() {
    let (stub, client) = (Stub::new(service_with_passkey), Client::new());
    let (mut keyboard, terminal, mut child) = log_in_at_terminal(&client, &stub);
    read_until(&keyboard, "Enter to use a passkey in a browser");
    keyboard.write_all(b"\n").unwrap();
    read_until(&keyboard, "enter the code BCDF-GHJK");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(terminal);
    assert_eq!(token(&client, "acme"), "svc_st_ada@x");
}

/// A service with one account, which must set up a second factor.
fn service_that_requires_a_factor(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "POST /api/v1/auth/password/login" => {
            challenged(contract::ProblemKind::SecondFactorSetupRequired, "totp")
        }
        "POST /api/v1/auth/second-factor/totp" => {
            let app = json!({
                "factor_id": "01890a5d-ac96-774b-bcce-b302099a8057", "secret": "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ",
                "uri": "otpauth://totp/svc:ada?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=svc", "qr_code": "<svg/>",
            });
            (201, app.to_string())
        }
        "POST /api/v1/auth/second-factor" => {
            let (status, body) = service_with_factor(request);
            if status != 200 {
                return (status, body);
            }
            let mut session: Value = serde_json::from_str(&body).unwrap();
            session["recovery_codes"] = json!(["MZXW-6YTB-OI2D-G7QA"]);
            (200, session.to_string())
        }
        _ => service(request),
    }
}

#[test]
fn at_a_terminal_a_login_sets_up_the_factor_that_the_tenant_requires() {
    let (stub, client) = (Stub::new(service_that_requires_a_factor), Client::new());
    let (mut keyboard, terminal, mut child) = log_in_at_terminal(&client, &stub);
    let shown = read_until(&keyboard, "Code of the app: ");
    // The secret as a QR code, as text and as an address.
    for part in ["\u{2588}\u{2588}", "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", "otpauth://totp/svc:ada?secret="] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    keyboard.write_all(b"000 000\n").unwrap();
    read_until(&keyboard, "Code of the app: ");
    keyboard.write_all(b"123 456\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(terminal);
    let rest = rest_of(keyboard);
    assert!(rest.contains("MZXW-6YTB-OI2D-G7QA") && rest.contains("not shown again"), "{rest}");
    assert_eq!(token(&client, "acme"), "svc_st_ada@x");
    let confirmed = stub.requests().into_iter().rfind(|request| request.line.ends_with("/second-factor"));
    assert_eq!(confirmed.unwrap().json(), json!({ "challenge": "svc_ch_x", "code": "123 456" }));
}

#[test]
fn without_a_terminal_a_login_that_must_set_up_a_factor_ends_and_names_where_to_do_it() {
    let (stub, client) = (Stub::new(service_that_requires_a_factor), Client::new());
    for options in [&[][..], &["--no-input"]] {
        let result = log_in(&client, &stub, "ada@x", options);
        let error = result.error();
        assert_eq!(
            (result.code, error["code"].as_str()),
            (Some(4), Some("second_factor_setup_required")),
            "{result:?}"
        );
        let remediation = error["remediation"].as_str().unwrap();
        assert!(
            remediation.contains("in a terminal") && remediation.contains("/pages/factors"),
            "{result:?}"
        );
        assert!(!stub.requests().iter().any(|request| request.line.contains("second-factor")));
    }
}
