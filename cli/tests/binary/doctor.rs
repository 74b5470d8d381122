//! `svc doctor`: finds each kind of problem and prints what to type.

use std::io::{Read, Write};
use std::net::TcpListener;

use contract::ProblemKind;
use serde_json::{Value, json};

use crate::certificates::over_tls;
use crate::client::{Client, CommandResult, assert_valid_output};
use crate::stub::{Stub, StubRequest, problem};

const USER: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn version() -> (u16, String) {
    (200, json!({"version": env!("CARGO_PKG_VERSION")}).to_string())
}

/// A service with an administrator's session `svc_st_x`, an API key `svc_ak_x`, and the platform token `svc_pt_x`; all of
/// tenant acme.
fn service(request: &StubRequest) -> (u16, String) {
    let bearer = request.header("authorization").unwrap_or_default();
    let whoami = |scopes: &[&str]| {
        let whoami = json!({
            "subject_type": "user", "user_id": USER, "tenant_id": "acme", "role": "admin", "scopes": scopes,
            "expires_at": "2030-01-01T00:00:00Z",
        });
        (200, whoami.to_string())
    };
    match (request.line.as_str(), bearer) {
        ("POST /api/v1/auth/password/login", _) => {
            let session = json!({
                "session_id": "svc_st_x", "token_type": "Bearer", "user_id": USER, "tenant_id": "acme", "role": "admin",
                "expires_at": "2030-01-01T00:00:00Z", "idle_expires_at": "2030-01-01T00:00:00Z",
            });
            (200, session.to_string())
        }
        (line, _) if line.ends_with("/api/v1/version") => version(),
        ("GET /api/v1/auth/session", "Bearer svc_st_x") => whoami(&["events:write", "events:read"]),
        ("GET /api/v1/auth/session", "Bearer svc_ak_x") => whoami(&["events:read"]),
        ("GET /api/v1/tenants/never", "Bearer svc_pt_x") => problem(ProblemKind::NotFound),
        ("GET /api/v1/tenants?limit=1", "Bearer svc_pt_x") => (200, json!({"items": []}).to_string()),
        _ => problem(ProblemKind::CredentialInvalid),
    }
}

fn log_in(client: &Client, url: &str) {
    let login = [
        "auth",
        "login",
        "--email",
        "ada@acme.example",
        "--tenant",
        "acme",
        "--password-stdin",
        "--base-url",
        url,
    ];
    let result = client.run_with(&login, "x\n");
    assert_eq!(result.code, Some(0), "{result:?}");
}

/// Answers every connection with these bytes after the head of a request.
fn raw_server(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                match stream.read(&mut byte) {
                    Ok(1) => head.push(byte[0]),
                    _ => break,
                }
            }
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

/// All checks of a run.
struct Report {
    result: CommandResult,
    report: Value,
}

impl Report {
    fn of(client: &Client, options: &[&str]) -> Self {
        let result = client.run(&[&["doctor", "--output", "json"], options].concat());
        let report: Value =
            serde_json::from_str(&result.stdout).unwrap_or_else(|error| panic!("{error}: {result:?}"));
        assert_valid_output("doctor", &report);
        assert_eq!(report["healthy"], json!(result.code == Some(0)), "{result:?}");
        Self { result, report }
    }

    fn check(&self, name: &str) -> &Value {
        let checks = self.report["checks"].as_array().unwrap();
        checks
            .iter()
            .find(|check| check["check"] == name)
            .unwrap_or_else(|| panic!("{name}: {}", self.report))
    }

    /// Asserts the status of a check. Returns its message and its remediation.
    fn expect(&self, name: &str, status: &str) -> (String, String) {
        let check = self.check(name);
        assert_eq!(check["status"], status, "{name}: {}", self.report);
        let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
        (text("message"), text("remediation"))
    }

    /// Asserts that this is the first failed check. The error has its remediation.
    fn expect_failed(&self, name: &str, code: i32, error_code: &str) -> (String, String) {
        let (message, remediation) = self.expect(name, "failed");
        let error = self.result.error();
        assert_eq!((self.result.code, error["code"].as_str()), (Some(code), Some(error_code)), "{error}");
        assert_eq!(error["remediation"], remediation.as_str());
        assert!(error["message"].as_str().unwrap().starts_with("failed checks: "), "{error}");
        (message, remediation)
    }
}

#[test]
fn a_working_login_passes_all_checks() {
    let (stub, client) = (Stub::new(service), Client::new());
    log_in(&client, &stub.url);
    let report = Report::of(&client, &["--scope", "events:write"]);
    for check in [
        "configuration",
        "logins",
        "connection",
        "proxy",
        "clock",
        "version",
        "credential",
        "tenant",
        "scopes",
    ] {
        report.expect(check, "ok");
    }
    assert_eq!((report.result.code, report.result.stderr.as_str()), (Some(0), ""));
    assert!(report.expect("configuration", "ok").0.contains("(context acme)"), "{}", report.report);
    assert!(
        report.expect("credential", "ok").0.contains("the session of ada@acme.example"),
        "{}",
        report.report
    );
    let table = client.run(&["doctor"]).stdout;
    assert!(table.contains("ok       credential"), "{table}");
}

#[test]
fn no_server_is_found() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = Client::for_url(&format!("http://{unused}"));
    let report = Report::of(&client, &[]);
    let (message, remediation) = report.expect_failed("connection", 9, "unreachable");
    assert!(message.contains("refused") && remediation.contains("--base-url"), "{message}: {remediation}");
    for check in ["clock", "version", "credential", "tenant", "scopes"] {
        report.expect(check, "skipped");
    }
    let table = client.run(&["doctor"]);
    assert!(
        table.stdout.contains("failed   connection") && table.stdout.contains("what to do: "),
        "{table:?}"
    );
}

#[test]
fn tls_to_a_plain_port_is_found() {
    let (_tls, client) = over_tls();
    let stub = Stub::new(service);
    let url = stub.url.replace("http:", "https:");
    let report = Report::of(&client, &["--base-url", &url, "--ca-file", "own.pem"]);
    let (message, remediation) = report.expect_failed("connection", 9, "unreachable");
    assert!(
        message.contains("does not answer with TLS") && remediation.contains("http://"),
        "{message}: {remediation}"
    );
}

#[test]
fn plain_http_to_a_tls_port_is_found() {
    let (stub, client) = over_tls();
    let plain = stub.url.replace("https:", "http:");
    for ca_file in ["own.pem", "other.pem"] {
        let report = Report::of(&client, &["--base-url", &plain, "--ca-file", ca_file]);
        let (message, remediation) = report.expect_failed("connection", 9, "unreachable");
        assert!(message.contains("answers with TLS"), "{message}");
        assert!(remediation.contains(&format!("svc config set base-url {}", stub.url)), "{remediation}");
    }
}

#[test]
fn another_server_at_the_base_url_is_found() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    ] {
        let report = Report::of(&Client::for_url(&raw_server(answer)), &[]);
        let (message, remediation) = report.expect_failed("connection", 1, "unexpected_response");
        assert!(message.contains("not as the service"), "{message}");
        assert!(remediation.contains("svc config set base-url URL"), "{remediation}");
    }
    let unavailable =
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>";
    let report = Report::of(&Client::for_url(&raw_server(unavailable)), &[]);
    let (_, remediation) = report.expect_failed("connection", 1, "unexpected_response");
    assert!(remediation.starts_with("If it is the address of a reverse proxy, "), "{remediation}");
    let moved = "HTTP/1.1 308 Permanent Redirect\r\nlocation: https://svc.example/api/v1/version\r\ncontent-length: 0\r\n\r\n";
    let report = Report::of(&Client::for_url(&raw_server(moved)), &[]);
    let (_, remediation) = report.expect_failed("connection", 1, "unexpected_response");
    assert!(remediation.contains("svc config set base-url https://svc.example/api/v1`"), "{remediation}");
}

#[test]
fn a_proxy_that_answers_is_found() {
    let refusal = "HTTP/1.1 403 Forbidden\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>";
    for (scheme, variable) in [("http", "HTTP_PROXY"), ("https", "HTTPS_PROXY"), ("http", "all_proxy")] {
        let proxy = raw_server(refusal);
        let client = Client::for_url(&format!("{scheme}://svc.example:8443")).with_variable(variable, &proxy);
        let report = Report::of(&client, &[]);
        let (message, remediation) = report.expect("connection", "failed");
        assert!(message.contains(&format!("the proxy {proxy}")), "{message}");
        assert!(
            remediation.contains(&format!("export NO_PROXY=svc.example`, or `unset {variable}`")),
            "{remediation}"
        );
        report.expect("proxy", "warning");
    }
}

#[test]
fn a_proxy_that_works_is_named() {
    let stub = Stub::new(service);
    let client = Client::for_url("http://svc.example")
        .with_variable("HTTP_PROXY", &stub.url.replace("http://", "http://user:hunter22@"))
        .with_variable("SVC_TOKEN", "svc_st_x");
    let report = Report::of(&client, &[]);
    let (message, _) = report.expect("proxy", "ok");
    assert!(message.contains("set by HTTP_PROXY") && !message.contains("hunter22"), "{message}");
    report.expect("connection", "ok");
}

#[test]
fn a_wrong_clock_is_found() {
    let answer = "HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\ncontent-length: 19\r\n\r\n{\"version\":\"9.0.0\"}";
    let report = Report::of(&Client::for_url(&raw_server(answer)), &[]);
    let (message, remediation) = report.expect("clock", "warning");
    assert!(message.contains(" s ahead of the service"), "{message}");
    assert!(remediation.contains("timedatectl"), "{remediation}");
}

#[test]
fn another_release_of_the_server_is_found() {
    let stub = Stub::new(|request| match request.line.as_str() {
        "GET /api/v1/version" => (200, json!({"version": "9.1.2"}).to_string()),
        _ => service(request),
    });
    let client = Client::for_url(&stub.url).with_variable("SVC_TOKEN", "svc_st_x");
    let report = Report::of(&client, &[]);
    let (message, remediation) = report.expect("version", "warning");
    assert!(message.contains("9.1.2") && remediation.contains("release 9.1"), "{message}: {remediation}");
    assert_eq!(report.result.code, Some(0), "a warning is not a failure");
}

#[test]
fn a_missing_or_expired_login_is_found() {
    let (stub, client) = (Stub::new(service), Client::new());
    let (_, remediation) =
        Report::of(&client, &["--base-url", &stub.url]).expect_failed("credential", 4, "not_logged_in");
    assert!(remediation.contains("svc auth login"), "{remediation}");

    let ended = Stub::new(|request| match request.line.as_str() {
        "GET /api/v1/auth/session" => problem(ProblemKind::CredentialInvalid),
        _ => service(request),
    });
    log_in(&client, &ended.url);
    let report = Report::of(&client, &[]);
    let (message, remediation) = report.expect_failed("credential", 4, "credential_invalid");
    assert!(message.contains("ada@acme.example"), "{message}");
    assert!(remediation.contains("svc auth login --email ada@acme.example --tenant acme"), "{remediation}");
}

#[cfg(unix)]
#[test]
fn unreadable_files_are_found() {
    use std::os::unix::fs::PermissionsExt;

    let (stub, client) = (Stub::new(service), Client::new());
    log_in(&client, &stub.url);
    let set_mode =
        |mode| std::fs::set_permissions(client.credentials(), std::fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o644);
    let (_, remediation) = Report::of(&client, &[]).expect_failed("logins", 11, "credentials_exposed");
    assert!(
        remediation.contains(&format!("chmod 600 '{}'", client.credentials().display())),
        "{remediation}"
    );
    set_mode(0o600);
    std::fs::write(client.credentials(), "{").unwrap();
    let (_, remediation) = Report::of(&client, &[]).expect_failed("logins", 11, "credentials_unusable");
    assert!(remediation.contains("credentials.json"), "{remediation}");
    std::fs::write(client.home().join(".config/svc/config.json"), "{").unwrap();
    let report = Report::of(&client, &[]);
    let (_, remediation) = report.expect_failed("configuration", 11, "configuration_invalid");
    assert!(remediation.contains("config.json"), "{remediation}");
    report.expect("connection", "skipped");
}

#[test]
fn a_wrong_tenant_is_found_where_it_is_set() {
    let (stub, client) = (Stub::new(service), Client::new());
    client.run(&["config", "set", "base-url", &stub.url]);
    client.run(&["config", "set", "tenant", "umbrella"]);
    let client = client.with_variable("SVC_API_KEY", "svc_ak_x");
    let (message, _) = Report::of(&client, &[]).expect("tenant", "warning");
    assert!(message.contains("context default names tenant umbrella"), "{message}");
    let (_, remediation) =
        Report::of(&client, &["--context", "default"]).expect_failed("tenant", 5, "tenant_mismatch");
    assert!(remediation.contains("unset SVC_API_KEY"), "{remediation}");
    let (_, remediation) =
        Report::of(&client, &["--tenant", "initech"]).expect_failed("tenant", 5, "tenant_mismatch");
    assert!(remediation.contains("--tenant acme"), "{remediation}");
    let client = client.with_variable("SVC_TENANT", "initech");
    let (_, remediation) = Report::of(&client, &[]).expect_failed("tenant", 5, "tenant_mismatch");
    assert!(remediation.contains("unset SVC_TENANT"), "{remediation}");
}

#[test]
fn a_missing_scope_is_found() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url).with_variable("SVC_API_KEY", "svc_ak_x");
    Report::of(&client, &["--scope", "events:read"]).expect("scopes", "ok");
    let report = Report::of(&client, &["--scope", "events:read", "--scope", "events:write"]);
    let (message, remediation) = report.expect_failed("scopes", 5, "scope_missing");
    assert!(message.contains("SVC_API_KEY lacks events:write; it has events:read"), "{message}");
    assert!(remediation.contains("svc api-keys create --name acme --scope events:write"), "{remediation}");
}

#[test]
fn a_platform_token_is_checked() {
    let stub = Stub::new(service);
    let with_token = |token: &str| Client::for_url(&stub.url).with_variable("SVC_PLATFORM_TOKEN", token);
    let report = Report::of(&with_token("svc_pt_x"), &[]);
    report.expect("platform_token", "ok");
    report.expect("credential", "skipped");
    // A check that was asked for fails if it is not possible.
    let report = Report::of(&with_token("svc_pt_x"), &["--scope", "events:write"]);
    report.expect_failed("scopes", 5, "scope_missing");
    let report = Report::of(&with_token("svc_pt_x"), &["--tenant", "never"]);
    report.expect_failed("tenant", 3, "not_found");
    let report = Report::of(&with_token("svc_pt_old"), &[]);
    let (_, remediation) = report.expect_failed("platform_token", 4, "credential_invalid");
    assert!(remediation.contains("SVC_PLATFORM_TOKEN"), "{remediation}");
}

#[test]
fn a_wrong_path_in_the_base_url_is_no_missing_object() {
    let stub = Stub::new(|_| problem(ProblemKind::NotFound));
    let client = Client::for_url(&format!("{}/x", stub.url)).with_variable("SVC_TOKEN", "svc_st_x");
    for command in [&["users", "get", USER][..], &["api-keys", "revoke", USER, "--yes"], &["doctor"]] {
        let result = client.run(&[command, &["--output", "json"]].concat());
        let error = result.error();
        assert_eq!((result.code, error["code"].as_str()), (Some(1), Some("unexpected_response")), "{error}");
        assert!(error["message"].as_str().unwrap().contains("has no path /x/api/v1/"), "{error}");
        assert!(error["remediation"].as_str().unwrap().contains("--base-url"), "{error}");
    }
}
