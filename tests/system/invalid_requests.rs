//! Invalid, oversized and incomplete requests.

use std::io::Write as _;
use std::time::Duration;
use testkit::{Client, within};

use e2e::{ApiUser, Installation, Run, api_client, expect_no_internals};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const JSON: &str = "application/json";

/// Larger than the limit of each route.
const LARGE: usize = 20 * 1024 * 1024;

/// The head of a request with this `Content-Length`.
fn head(path: &str, user: &ApiUser, length: usize) -> String {
    format!(
        "POST /api/v1{path} HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nX-Tenant-ID: demo\r\n\
         Authorization: Bearer {}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
        user.token
    )
}

/// Sends head and body and nothing more. Reads the response while sending.
async fn exchange(run: &Run<'_>, head: &str, body: &[u8]) -> String {
    let address = run.run_file.base_url.strip_prefix("http://").unwrap();
    let (mut reader, mut writer) = TcpStream::connect(address).await.unwrap().into_split();
    let sending = async {
        writer.write_all(head.as_bytes()).await.unwrap();
        // The server may close the connection before it has read the body.
        let _ = writer.write_all(body).await;
    };
    let mut response = Vec::new();
    let reading = async {
        let _ = reader.read_to_end(&mut response).await;
    };
    within(Duration::from_secs(10), "a response", async { tokio::join!(sending, reading) }).await;
    String::from_utf8(response).unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn an_incomplete_body_times_out() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let user = ApiUser::first_admin(&run.run_file).await;
    for path in ["/events", "/events/batch", "/auth/password/login"] {
        let response = exchange(&run, &head(path, &user, 100), b"{").await;
        assert!(
            response.starts_with("HTTP/1.1 408 ") && response.contains("body_timeout"),
            "{path}: {response}"
        );
    }
}

#[tokio::test]
async fn an_oversized_body_is_rejected_before_it_is_processed() {
    // Before the first connection is open: compression blocks the clients of this thread for longer than an idle connection lasts.
    let bomb = gzip(&vec![b' '; 400 * 1024 * 1024]);
    assert!(bomb.len() < 1024 * 1024);
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let user = ApiUser::first_admin(&run.run_file).await;
    let event_routes = [("/events", "event_too_large"), ("/events/batch", "batch_too_large")];
    let other_routes = ["/auth/password/login", "/users/accept-invite"].map(|path| (path, "body_too_large"));
    for (path, code) in event_routes.into_iter().chain(other_routes) {
        let response = exchange(&run, &head(path, &user, LARGE), &vec![b' '; LARGE]).await;
        assert!(response.starts_with("HTTP/1.1 413 ") && response.contains(code), "{path}: {response}");
    }
    for (path, code) in event_routes {
        let client = user.client.clone().header("Content-Encoding", "gzip");
        client.post_bytes(path, JSON, bomb.clone()).await.expect_problem(413, code);
    }
    let many = vec![json!({ "source_id": "s" }); 10_001];
    user.client.post("/events/batch", &many).await.expect_problem(413, "batch_too_large");
    assert_eq!(run.run_file.running_processes().len(), 3);
    user.client.post("/events", &json!({ "source_id": "s" })).await.expect::<Value>(202);
}

/// A request, and the status and code of the expected problem.
struct Case<'a> {
    client: &'a Client,
    /// Method and path.
    line: &'static str,
    media_type: &'static str,
    body: &'static str,
    problem: (u16, &'static str),
}

impl<'a> Case<'a> {
    fn new(client: &'a Client, line: &'static str, media_type: &'static str, body: &'static str) -> Self {
        Self { client, line, media_type, body, problem: (0, "") }
    }

    fn is(self, status: u16, code: &'static str) -> Self {
        Self { problem: (status, code), ..self }
    }

    async fn expect_rejected(&self) {
        let (method, path) = self.line.split_once(' ').unwrap();
        let mut request = self.client.request(method.parse().unwrap(), path).body(self.body);
        if !self.media_type.is_empty() {
            request = request.header("Content-Type", self.media_type);
        }
        let response = self.client.send(request).await;
        let (status, code) = self.problem;
        assert_eq!(response.status, status, "{} {}: {response}", self.line, self.body);
        response.expect_problem(status, code);
        let has_challenge = status == 401 || code == "insufficient_scope";
        assert_eq!(response.headers.contains_key("www-authenticate"), has_challenge, "{response}");
        assert_eq!(response.headers.contains_key("allow"), status == 405, "{response}");
        expect_no_internals(&response);
    }
}

fn anonymous_cases(client: &Client) -> Vec<Case<'_>> {
    const LOGIN: &str = "POST /auth/password/login";
    let case = |line, media_type, body| Case::new(client, line, media_type, body);
    let accept = r#"{"token":"x","password":"y"}"#;
    vec![
        case(LOGIN, JSON, "{").is(400, "malformed_json"),
        case(LOGIN, JSON, "\u{0}\u{1}").is(400, "malformed_json"),
        case(LOGIN, JSON, "[]").is(422, "validation_failed"),
        case(LOGIN, "text/plain", "{}").is(415, "media_type"),
        case(LOGIN, "", "{}").is(415, "media_type"),
        case("GET /auth/password/login", "", "").is(405, "method_not_allowed"),
        case("PUT /events", JSON, "{}").is(405, "method_not_allowed"),
        case("DELETE /auth/session", "", "").is(405, "method_not_allowed"),
        case("GET /nowhere", "", "").is(404, "not_found"),
        case("GET /events/nowhere", "", "").is(404, "not_found"),
        case("GET /auth/sessions/nowhere/else", "", "").is(404, "not_found"),
        case("POST /users/accept-invite", JSON, accept).is(400, "token_invalid"),
        case("POST /events", JSON, "{}").is(401, "unauthenticated"),
        case("GET /auth/session", "", "").is(401, "unauthenticated"),
        case("GET /tenants", "", "").is(401, "unauthenticated"),
    ]
}

fn user_cases(client: &Client) -> Vec<Case<'_>> {
    let case = |line, media_type, body| Case::new(client, line, media_type, body);
    vec![
        case("POST /events", JSON, "{").is(400, "malformed_json"),
        case("POST /events", JSON, "{}").is(422, "validation_failed"),
        case("POST /events", "text/plain", "{}").is(415, "media_type"),
        case("POST /events/batch", JSON, "[]").is(400, "empty_batch"),
        case("POST /events/batch", JSON, "{}").is(422, "validation_failed"),
        case("POST /events/batch", "application/xml", "[]").is(415, "media_type"),
        case("GET /tenants", "", "").is(403, "forbidden"),
    ]
}

#[tokio::test]
async fn each_rejection_is_a_problem_document_without_internal_details() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let user = ApiUser::first_admin(&run.run_file).await;
    let anonymous = api_client(&run.run_file.base_url).header("X-Tenant-ID", "demo");
    for case in anonymous_cases(&anonymous).iter().chain(&user_cases(&user.client)) {
        case.expect_rejected().await;
    }
    let wrong_checksum = format!("{}~", &user.token[..user.token.len() - 1]);
    let unknown = "svc_st_BZFHO5g1QqRoY3FsCUH9fdWgpQoGrgx9qqFqlToxRrV_1frfpQ";
    for token in ["garbage", &wrong_checksum, unknown, &"x".repeat(8000)] {
        let client = anonymous.clone().bearer(token);
        Case::new(&client, "POST /events", JSON, "{}").is(401, "credential_invalid").expect_rejected().await;
        Case::new(&client, "GET /auth/session", "", "").is(401, "credential_invalid").expect_rejected().await;
    }
    for (name, value, line, status, code) in [
        ("Content-Encoding", "br", "POST /events", 415, "content_encoding"),
        ("Content-Encoding", "gzip", "POST /events", 400, "malformed_encoding"),
        ("X-Tenant-ID", "other", "GET /auth/session", 403, "tenant_mismatch"),
        ("X-Tenant-ID", "other", "POST /events", 403, "tenant_mismatch"),
        ("X-Tenant-ID", "other", "POST /events/batch", 403, "tenant_mismatch"),
        ("X-Tenant-ID", "-", "GET /auth/session", 400, "header_invalid"),
        ("X-User-ID", "x", "GET /auth/sessions", 400, "header_invalid"),
        ("X-Session-ID", "x", "POST /auth/sessions/logout", 404, "session_not_found"),
    ] {
        let client = user.client.clone().header(name, value);
        Case::new(&client, line, JSON, "{}").is(status, code).expect_rejected().await;
    }
}

#[tokio::test]
async fn a_valid_request_id_is_returned_and_an_invalid_one_is_replaced() {
    let installation = Installation::new(&[]);
    let run = installation.up().await;
    let client = api_client(&run.run_file.base_url);
    for path in ["/health", "/nowhere", "/auth/session"] {
        let accepted = client.clone().header("X-Request-Id", "Mine_1.2-3").get(path).await;
        assert_eq!(accepted.headers["x-request-id"], "Mine_1.2-3", "{accepted}");
        for invalid in ["with blank", "a/b", &"x".repeat(129)] {
            let replaced = client.clone().header("X-Request-Id", invalid).get(path).await;
            let id = replaced.headers["x-request-id"].to_str().unwrap();
            assert!(id != invalid && (1..=128).contains(&id.len()), "{replaced}");
        }
    }
}
