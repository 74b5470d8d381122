//! The keyring: a real GNOME Keyring where it is installed, and the file where no keyring can be used.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use contract::ProblemKind;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Client, CommandResult};
use crate::stub::{Stub, StubRequest, problem};

/// A service that issues and ends sessions of tenant acme.
fn service(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "POST /api/v1/auth/password/login" => {
            let session = json!({
                "session_id": "svc_st_x", "token_type": "Bearer", "user_id": "01890a5d-ac96-774b-bcce-b302099a8057",
                "tenant_id": "acme", "role": "admin", "expires_at": "2030-01-01T00:00:00Z",
                "idle_expires_at": "2030-01-01T00:00:00Z",
            });
            (200, session.to_string())
        }
        "POST /api/v1/auth/sessions/logout" | "DELETE /api/v1/auth/sessions?keep_current=true" => {
            (204, String::new())
        }
        _ => problem(ProblemKind::NotFound),
    }
}

fn log_in(client: &Client, stub: &Stub, options: &[&str]) -> CommandResult {
    let login = ["auth", "login", "--email", "ada@acme.example", "--tenant", "acme", "--password-stdin"];
    client.run_with(&[&login[..], &["--base-url", &stub.url], options].concat(), "x\n")
}

/// Where a login stores the session.
fn place_of_login(client: &Client, stub: &Stub) -> Value {
    log_in(client, stub, &["--output", "json"]).json()["stored_in"].clone()
}

fn file_of(client: &Client) -> String {
    std::fs::read_to_string(client.credentials()).unwrap()
}

/// A D-Bus session.
struct Bus {
    daemon: Child,
    address: String,
    home: TempDir,
}

impl Bus {
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut daemon = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--print-address=1"])
            .env("HOME", home.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { daemon, address: address.trim().to_owned(), home }
    }

    /// Starts GNOME Keyring and unlocks it with a password.
    fn unlocked_keyring(&self) -> Child {
        let mut keyring = Command::new("gnome-keyring-daemon")
            .args(["--foreground", "--components=secrets", "--unlock"])
            .env("HOME", self.home.path())
            .env("XDG_RUNTIME_DIR", self.home.path())
            .env("DBUS_SESSION_BUS_ADDRESS", &self.address)
            .env_remove("XDG_DATA_HOME")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        keyring.stdin.take().unwrap().write_all(b"password of the keyring").unwrap();
        // It prints its control directory once it serves requests.
        BufReader::new(keyring.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        keyring
    }

    fn client(&self) -> Client {
        Client::new().with_variable("DBUS_SESSION_BUS_ADDRESS", &self.address)
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.daemon.kill().unwrap();
        self.daemon.wait().unwrap();
    }
}

fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

#[test]
fn a_real_keyring_keeps_the_token_out_of_the_file() {
    if !is_installed("gnome-keyring-daemon") || !is_installed("dbus-daemon") {
        eprintln!("NOT TESTED: gnome-keyring-daemon and dbus-daemon are not installed");
        return;
    }
    let (bus, stub) = (Bus::start(), Stub::new(service));
    let client = bus.client();
    let mut keyring = bus.unlocked_keyring();

    let login = log_in(&client, &stub, &[]);
    assert!(login.stderr.contains("stored in the keyring"), "{login:?}");
    assert!(!file_of(&client).contains("svc_st_x"));
    assert_eq!(client.run(&["auth", "token"]).stdout, "svc_st_x\n");
    let without_token = file_of(&client);

    // The previous session is revoked with its token, and the token leaves the keyring.
    client.run(&["config", "set", "credential-store", "file"]);
    assert_eq!(place_of_login(&client, &stub), "file");
    assert!(file_of(&client).contains("svc_st_x"));
    assert_eq!(stub.requests().last().unwrap().header("x-session-id"), Some("svc_st_x"));
    std::fs::write(client.credentials(), &without_token).unwrap();
    let error = client.run(&["auth", "token", "--output", "json"]).error();
    assert!(error["message"].as_str().unwrap().contains("no such item"), "{error}");

    client.run(&["config", "set", "credential-store", "keyring"]);
    assert_eq!(place_of_login(&client, &stub), "keyring");
    let logout = client.run(&["auth", "logout", "--output", "json"]).json();
    assert_eq!(logout["forgotten"], true);
    std::fs::write(client.credentials(), &without_token).unwrap();
    assert_eq!(client.run(&["auth", "token"]).code, Some(11), "logout removes the token from the keyring");

    // Without its keyring, a stored session cannot be read, and the remediation leads to the file.
    assert_eq!(place_of_login(&client, &stub), "keyring");
    keyring.kill().unwrap();
    keyring.wait().unwrap();
    let error = client.run(&["auth", "token", "--output", "json"]).error();
    assert_eq!(
        (error["code"].as_str(), error["exit_code"].as_i64()),
        (Some("credentials_unusable"), Some(11))
    );
    assert!(
        error["remediation"].as_str().unwrap().contains("svc config set credential-store file"),
        "{error}"
    );
}

/// Writes the files of a login to a service with its token in the keyring.
pub(crate) fn store_login_in_keyring(client: &Client, url: &str) {
    let context = json!({"base_url": url, "tenant": "acme"});
    let configuration = json!({"current_context": "acme", "contexts": {"acme": context}});
    let session = json!({
        "base_url": url, "tenant": "acme", "user_id": "01890a5d-ac96-774b-bcce-b302099a8057",
        "email": "ada@acme.example", "role": "admin", "expires_at": "2030-01-01T00:00:00Z",
    });
    let credentials = json!({"sessions": {"acme": session}});
    std::fs::create_dir_all(client.credentials().parent().unwrap()).unwrap();
    std::fs::write(client.credentials().with_file_name("config.json"), configuration.to_string()).unwrap();
    std::fs::write(client.credentials(), credentials.to_string()).unwrap();
    std::fs::set_permissions(client.credentials(), Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn the_contexts_are_listed_without_the_keyring_of_a_login() {
    let client = Client::new();
    store_login_in_keyring(&client, "http://127.0.0.1:1");
    let listed = client.run(&["config", "list"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.stdout.contains("ada@acme.example"), "{listed:?}");
    let warning = "the session of ada@acme.example is stored in the keyring: there is no D-Bus session";
    assert!(listed.stderr.contains(warning), "{listed:?}");
}

#[test]
fn a_logout_without_the_keyring_keeps_the_login_and_its_remediation_revokes_the_session() {
    let (stub, client) = (Stub::new(service), Client::new());
    store_login_in_keyring(&client, &stub.url);
    let logout = client.run(&["auth", "logout", "--output", "json"]);
    let error = logout.error();
    assert_eq!((logout.code, error["code"].as_str()), (Some(11), Some("credentials_unusable")));
    assert!(file_of(&client).contains("ada@acme.example"), "it can be repeated with the keyring");
    assert!(stub.requests().is_empty(), "{:?}", stub.request_lines());

    let remediation = error["remediation"].as_str().unwrap();
    assert!(remediation.contains("active until 2030-01-01T00:00:00Z at the latest"), "{remediation}");
    let commands: Vec<_> = remediation.split('`').skip(1).step_by(2).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for (command, answer) in commands.iter().zip([&[][..], &["--password-stdin"], &["--yes"]]) {
        let words: Vec<_> =
            command.strip_prefix("svc ").unwrap().split(' ').chain(answer.iter().copied()).collect();
        let result = client.run_with(&words, "x\n");
        assert_eq!(result.code, Some(0), "{result:?}");
    }
    let expected = ["POST /api/v1/auth/password/login", "DELETE /api/v1/auth/sessions?keep_current=true"];
    assert_eq!(stub.request_lines(), expected);
}

#[test]
fn without_a_keyring_the_login_reports_the_file() {
    let (stub, client) = (Stub::new(service), Client::new());
    let login = log_in(&client, &stub, &[]);
    let line = login.stderr.lines().find(|line| line.contains("stored in")).unwrap_or_default();
    assert!(line.contains(client.credentials().to_str().unwrap()), "{login:?}");
    assert!(line.ends_with("The keyring cannot be used: there is no D-Bus session."), "{login:?}");
    assert!(file_of(&client).contains("svc_st_x"));
    client.run(&["config", "set", "credential-store", "file"]);
    let login = log_in(&client, &stub, &[]);
    assert!(login.stderr.contains("stored in") && !login.stderr.contains("keyring"), "{login:?}");
}

#[test]
fn a_keyring_that_does_not_answer_is_not_used() {
    let (stub, client) = (Stub::new(service), Client::new());
    let socket = client.home().join("bus");
    let _silent = UnixListener::bind(&socket).unwrap();
    let client = client.with_variable("XDG_RUNTIME_DIR", socket.parent().unwrap().to_str().unwrap());
    let login = log_in(&client, &stub, &[]);
    assert!(login.stderr.contains("The keyring cannot be used: it did not answer within 3 s."), "{login:?}");
    assert!(file_of(&client).contains("svc_st_x"));
}

#[test]
fn a_required_keyring_is_checked_before_the_login() {
    let (stub, client) = (Stub::new(service), Client::new());
    client.run(&["config", "set", "credential-store", "keyring"]);
    let error = log_in(&client, &stub, &["--output", "json"]).error();
    assert_eq!(
        (error["code"].as_str(), error["exit_code"].as_i64()),
        (Some("configuration_invalid"), Some(11))
    );
    assert!(
        error["remediation"].as_str().unwrap().contains("svc config set credential-store file"),
        "{error}"
    );
    assert!(stub.requests().is_empty(), "{:?}", stub.request_lines());
    let unset = client.run(&["config", "unset", "credential-store", "--output", "json"]).json();
    assert_eq!((&unset["value"], &unset["previous"]), (&Value::Null, &json!("keyring")));
    assert_eq!(place_of_login(&client, &stub), "file");
    let invalid = client.run(&["config", "set", "credential-store", "disk", "--output", "json"]);
    assert_eq!((invalid.code, invalid.error()["code"].as_str()), (Some(7), Some("input_invalid")));
}
