//! Lost responses: after a request that is not idempotent, no error calls the command retryable.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;

use contract::{API_PREFIX, ProblemKind, routes};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::client::{Client, CommandResult};
use crate::stub::{Stub, StubRequest, problem};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const PASSWORDS: &str = "correct horse battery\nanother horse battery\n";
const RESET: &str = "svc_pr_x\ncorrect horse battery\n";
const INVITE: &str = "svc_iv_x\ncorrect horse battery\n";

/// Commands with a request that is not idempotent: arguments, standard input, and the command that shows what happened.
const COMMANDS: &[(&[&str], &str, &str)] = &[
    (
        &["auth", "login", "--email", "a@acme.example", "--password-stdin"],
        PASSWORDS,
        "svc auth sessions list",
    ),
    (&["auth", "login", "--device"], "", "svc auth sessions list"),
    (&["auth", "password", "change", "--password-stdin"], PASSWORDS, "svc auth login"),
    (&["auth", "password", "reset", "--email", "a@acme.example"], "", "Wait for the mail"),
    (&["auth", "password", "confirm-reset", "-", "--password-stdin"], RESET, "svc auth login"),
    (&["auth", "factors", "recovery-codes", "--yes"], "", "Run the command again"),
    (&["auth", "device", "approve", "BCDF-GHJK", "--yes"], "", "svc auth sessions list"),
    (&["auth", "device", "deny", "BCDF-GHJK", "--yes"], "", "svc auth sessions list"),
    (&["users", "invite", "--email", "bob@acme.example"], "", "svc invites list"),
    (&["users", "accept-invite", "-", "--password-stdin"], INVITE, "svc auth login"),
    (&["invites", "resend", ID], "", "svc invites list"),
    (&["tenants", "create", "globex"], "", "svc tenants get"),
    (&["api-keys", "create", "--name", "k"], "", "svc api-keys list"),
    (&["consumers", "rotate-login", "archive", "--yes"], "", "Run the command again"),
    (&["events", "dlq", "replay", "archive", "17"], "", "svc events dlq list"),
    (&["api", "POST", "/api-keys", "--data", "{}"], "", "GET request"),
    (&["api", "POST", "/no-such-route"], "", "GET request"),
];

/// Commands with only requests that can be repeated.
const REPEATABLE: &[&[&str]] = &[
    &["users", "list"],
    &["users", "enable", ID],
    &["users", "delete", ID, "--yes"],
    &["api-keys", "revoke", ID, "--yes"],
    &["auth", "sessions", "revoke", ID],
    &["auth", "factors", "rename", ID, "laptop"],
    &["auth", "logout"],
    &["tenants", "suspend", "globex", "--yes"],
    &["consumers", "create", "archive"],
    &["events", "dlq", "delete", "archive", "17"],
    &["api", "GET", "/users"],
    &["api", "PUT", "/no-such-route"],
    &["api", "PATCH", "/tenants/globex", "--data", "{}"],
];

/// Further commands with an effect.
const OTHERS: &[&[&str]] = &[
    &["auth", "factors", "remove", ID, "--yes"],
    &["users", "disable", ID, "--yes"],
    &["users", "set-role", ID, "member"],
    &["users", "reset-factors", ID, "--yes"],
    &["invites", "revoke", ID, "--yes"],
    &["tenants", "update", "globex", "--display-name", "Globex"],
    &["tenants", "resume", "globex"],
    &["tenants", "delete", "globex", "--yes"],
    &["consumers", "pause", "archive"],
    &["consumers", "resume", "archive"],
    &["consumers", "reset", "archive", "--to", "all", "--yes"],
    &["consumers", "delete", "archive", "--yes"],
    &["events", "send", "--file", "-"],
];

/// A server that reads a whole request and answers with bytes, or closes the connection.
struct Server {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// The function returns the bytes of the response to a method and a path.
    fn new(respond: fn(&str, &str) -> String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let recorded = Arc::clone(&requests);
        // Ends with the process.
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let Some(request) = read_request(connection.as_ref().unwrap()) else { continue };
                let (method, path) = request.split_once(' ').unwrap();
                let response = respond(method, path.strip_prefix(API_PREFIX).unwrap());
                recorded.lock().push(request.clone());
                connection.unwrap().write_all(response.as_bytes()).unwrap();
            }
        });
        Self { url, requests }
    }

    /// Number of requests that are not idempotent.
    fn count_of_effects(&self) -> usize {
        let all = self.requests.lock();
        let requests = all.iter().map(|request| request.split_once(' ').unwrap());
        requests
            .filter(|(method, path)| !is_idempotent(method, path.strip_prefix(API_PREFIX).unwrap()))
            .count()
    }
}

/// Method and path of the next request.
fn read_request(connection: &TcpStream) -> Option<String> {
    let mut reader = BufReader::new(connection);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    first.rsplit_once(' ').map(|(request, _)| request.to_owned())
}

fn is_idempotent(method: &str, path: &str) -> bool {
    match routes::match_request(method, path) {
        Some(route) => route.is_idempotent(),
        None => method != "POST",
    }
}

fn ok(body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// Answers requests that are idempotent, and closes the connection after all others.
fn loses_effects(method: &str, path: &str) -> String {
    if !is_idempotent(method, path) {
        return String::new();
    }
    ok(&json!({
        "tenant_id": "acme", "tenant_name": "Acme", "email": "bob@acme.example", "role": "member", "version": "1",
        "expires_at": "2030-01-01T00:00:00Z", "password_min_length": 12, "user_id": ID, "subject_type": "user",
        "scopes": [], "items": [], "created_at": "2026-01-01T00:00:00Z",
    }))
}

fn run(url: &str, arguments: &[&str], input: &str) -> CommandResult {
    let client = Client::for_url(url)
        .with_variable("SVC_TOKEN", "svc_st_x")
        .with_variable("SVC_PLATFORM_TOKEN", "svc_pt_x")
        .with_variable("SVC_TENANT", "acme");
    client.run_with(&[arguments, &["--output", "json"]].concat(), input)
}

fn assert_uncertain(result: &CommandResult, check: &str) {
    let error = result.error();
    assert_eq!((result.code, &error["code"]), (Some(13), &json!("response_lost")), "{result:?}");
    assert_eq!(error["retryable"], false, "{result:?}");
    assert!(error["remediation"].as_str().unwrap().contains(check), "{result:?}");
    assert!(!error["message"].as_str().unwrap().contains("cannot connect"), "{result:?}");
}

#[test]
fn a_request_that_creates_something_is_sent_once_and_not_called_retryable() {
    for (arguments, input, check) in COMMANDS {
        let server = Server::new(loses_effects);
        assert_uncertain(&run(&server.url, arguments, input), check);
        assert_eq!(server.count_of_effects(), 1, "{arguments:?}");
    }
}

/// Names of the commands in the extended catalog.
fn commands_with(is_selected: impl Fn(&Value) -> bool) -> BTreeSet<String> {
    let catalog = Client::new().run(&["catalog", "show", "--extended", "--output", "json"]).json();
    let commands = catalog["commands"].as_array().unwrap().iter().filter(|command| is_selected(command));
    commands.map(|command| command["name"].as_str().unwrap().to_owned()).collect()
}

fn has_error(command: &Value, code: &str) -> bool {
    command["errors"].as_array().unwrap().iter().any(|error| error["code"] == code)
}

fn is_called(arguments: &[&str], name: &str) -> bool {
    (arguments.join(" ") + " ").starts_with(&format!("{name} "))
}

#[test]
fn a_page_in_place_of_the_service_is_no_success() {
    /// Answers what the commands read before, and has a page for requests with an effect.
    fn page(request: &StubRequest) -> (u16, String) {
        if request.line.starts_with("GET ") || request.line.ends_with("/inspect") {
            let response = loses_effects("GET", "/");
            return (200, response.rsplit_once("\r\n\r\n").unwrap().1.to_owned());
        }
        (200, "<html>Log in to the network</html>".to_owned())
    }
    let mut names =
        commands_with(|command| command["effect"] != "reads" && has_error(command, "unexpected_response"));
    // Needs a terminal, prints any response, and only reads from the service.
    for name in ["auth factors add totp", "api", "consumers config"] {
        assert!(names.remove(name), "{name}");
    }
    let commands = COMMANDS.iter().map(|(arguments, input, _)| (*arguments, *input));
    let others = REPEATABLE.iter().chain(OTHERS).map(|arguments| (*arguments, "{\"source_id\":\"fw\"}\n"));
    let stub = Stub::new(page);
    for (arguments, input) in commands.chain(others) {
        if arguments[0] == "api" || is_called(arguments, "users list") {
            continue;
        }
        let result = run(&stub.url, arguments, input);
        let error = result.error();
        assert_eq!((result.code, &error["code"]), (Some(1), &json!("unexpected_response")), "{result:?}");
        assert_eq!(error["retryable"], false, "{result:?}");
        names.retain(|name| !is_called(arguments, name));
    }
    assert_eq!(names, BTreeSet::new());
}

#[test]
fn the_list_of_commands_is_complete() {
    let mut names = commands_with(|command| has_error(command, "response_lost"));
    // Needs a terminal.
    assert!(names.remove("auth factors add totp"));
    // Only their output can be lost.
    assert!(names.remove("consumers create") && names.remove("events send"));
    assert!(names.iter().all(|name| COMMANDS.iter().any(|(words, ..)| is_called(words, name))), "{names:?}");
    assert!(
        REPEATABLE.iter().all(|words| words[0] == "api" || !names.iter().any(|name| is_called(words, name)))
    );
}

#[test]
fn a_request_that_can_be_repeated_is_retryable_after_a_lost_response() {
    for arguments in REPEATABLE {
        let server = Server::new(|_, _| String::new());
        let result = run(&server.url, arguments, "");
        let error = result.error();
        assert_eq!((result.code, &error["code"]), (Some(9), &json!("unreachable")), "{result:?}");
        assert_eq!(error["retryable"], true, "{result:?}");
        assert!(!error["message"].as_str().unwrap().contains("cannot connect"), "{result:?}");
    }
}

#[test]
fn a_response_that_breaks_off_and_one_of_a_proxy_are_lost_too() {
    let create = &["api-keys", "create", "--name", "k"];
    for respond in [
        (|_, _| "HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{\"id\":".to_owned())
            as fn(&str, &str) -> String,
        |_, _| "HTTP/1.1 201 Crea".to_owned(),
        |_, _| "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 3\r\n\r\nbad".to_owned(),
        |_, _| "HTTP/1.1 504 Gateway Timeout\r\ncontent-length: 3\r\n\r\nbad".to_owned(),
    ] {
        let server = Server::new(respond);
        assert_uncertain(&run(&server.url, create, ""), "svc api-keys list");
        assert_eq!(server.count_of_effects(), 1);
    }
}

#[test]
fn a_response_that_does_not_come_in_time_is_lost() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let create = &["api-keys", "create", "--name", "k", "--timeout", "300ms"];
    assert_uncertain(&run(&url, create, ""), "svc api-keys list");
}

#[test]
fn a_request_that_was_not_sent_is_retryable() {
    let create = &["api-keys", "create", "--name", "k", "--timeout", "300ms"];
    let assert_not_sent = |url: &str, code: &str| {
        let result = run(url, create, "");
        let error = result.error();
        assert_eq!((result.code, error["code"].as_str()), (Some(9), Some(code)), "{result:?}");
        assert_eq!(error["retryable"], true, "{result:?}");
        assert!(error["message"].as_str().unwrap().contains("cannot connect"), "{result:?}");
    };
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_not_sent(&format!("http://{address}"), "unreachable");

    // A port with a full queue drops further connections.
    let full = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(full.as_fd(), 0).unwrap();
    let address = full.local_addr().unwrap();
    let _queued = TcpStream::connect(address).unwrap();
    assert_not_sent(&format!("http://{address}"), "timed_out");
}

#[test]
fn a_dependency_that_was_lost_while_something_is_created_is_not_retryable() {
    fn unavailable(request: &StubRequest) -> (u16, String) {
        let (method, path) = request.line.split_once(' ').unwrap();
        let path = path.strip_prefix(API_PREFIX).unwrap();
        if is_idempotent(method, path) {
            let response = loses_effects(method, path);
            return (200, response.rsplit_once("\r\n\r\n").unwrap().1.to_owned());
        }
        problem(ProblemKind::DependencyUnavailable)
    }
    let stub = Stub::new(unavailable);
    for (arguments, input, check) in COMMANDS {
        let result = run(&stub.url, arguments, input);
        let error = result.error();
        assert_eq!((result.code, &error["code"]), (Some(9), &json!("dependency_unavailable")), "{result:?}");
        assert_eq!(error["retryable"], false, "{result:?}");
        assert!(error["remediation"].as_str().unwrap().contains(check), "{result:?}");
    }
    let stub = Stub::new(|_| problem(ProblemKind::DependencyUnavailable));
    for arguments in REPEATABLE {
        let result = run(&stub.url, &[arguments, &["--timeout", "500ms"][..]].concat(), "");
        assert_eq!(result.error()["retryable"], true, "{result:?}");
    }
}

#[test]
fn a_lost_session_of_a_device_login_is_not_a_denial() {
    fn respond(_: &str, path: &str) -> String {
        if path == "/auth/device/code" {
            return ok(&json!({
                "device_code": "svc_dc_x", "user_code": "BCDF-GHJK", "verification_uri": "http://127.0.0.1/device",
                "verification_uri_complete": "http://127.0.0.1/device#BCDF-GHJK", "expires_in": 3, "interval": 1,
            }));
        }
        String::new()
    }
    let server = Server::new(respond);
    let result = run(&server.url, &["auth", "login", "--device"], "");
    assert_uncertain(&result, "svc auth sessions list");
}

#[test]
fn sending_events_is_retryable_only_if_another_run_continues_at_a_checkpoint() {
    let server = Server::new(|_, _| String::new());
    let client = Client::for_url(&server.url).with_variable("SVC_API_KEY", "svc_ak_x");
    let event = "{\"source_id\":\"fw\"}\n";
    std::fs::write(client.home().join("events.ndjson"), event).unwrap();
    for (file, checkpoint, retryable) in
        [("-", false, false), ("events.ndjson", false, false), ("events.ndjson", true, true)]
    {
        let mut send = vec!["events", "send", "-f", file, "--timeout", "500ms", "--output", "json"];
        if checkpoint {
            send.extend(["--checkpoint", "events.checkpoint"]);
        }
        let error = client.run_with(&send, event).error();
        assert_eq!(error["retryable"], retryable, "{file}: {error}");
        let names_rejects = error["remediation"].as_str().unwrap().contains("send only the rejects");
        assert_eq!(names_rejects, !retryable, "{error}");
    }
}
