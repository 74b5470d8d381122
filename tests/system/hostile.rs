//! A client that means harm, or knows no better.

use std::io::Write as _;
use std::time::Duration;
use testkit::{Client, within};

use e2e::{Installation, Person, Run, expect_nothing_of_the_inside};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const JSON: &str = "application/json";

/// More than any route takes.
const LARGE: usize = 20 * 1024 * 1024;

/// The head of a request whose body is said to have a length.
fn head(path: &str, person: &Person, length: usize) -> String {
    format!(
        "POST /api/v1{path} HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\nX-Tenant-ID: demo\r\n\
         Authorization: Bearer {}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n",
        person.token
    )
}

/// What is answered to head and body, read while they are being sent, when nothing more follows them.
async fn answered(run: &Run<'_>, head: &str, body: &[u8]) -> String {
    let address = run.run_file.base_url.strip_prefix("http://").unwrap();
    let (mut from, mut to) = TcpStream::connect(address).await.unwrap().into_split();
    let sending = async {
        to.write_all(head.as_bytes()).await.unwrap();
        // Whoever refuses early may stop reading.
        let _ = to.write_all(body).await;
    };
    let mut answer = Vec::new();
    let reading = async {
        let _ = from.read_to_end(&mut answer).await;
    };
    within(Duration::from_secs(10), "an answer", async { tokio::join!(sending, reading) }).await;
    String::from_utf8(answer).unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_given_up() {
    let installation = Installation::with_cheap_hashes();
    let run = installation.up().await;
    let person = Person::first_of(&run.run_file).await;
    for path in ["/events", "/events/batch", "/auth/password/login"] {
        let answer = answered(&run, &head(path, &person, 100), b"{").await;
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("body_timeout"), "{path}: {answer}");
    }
}

#[tokio::test]
async fn what_is_too_large_is_refused_before_it_costs_anything() {
    let installation = Installation::with_cheap_hashes();
    let run = installation.up().await;
    let person = Person::first_of(&run.run_file).await;
    let of_events = [("/events", "event_too_large"), ("/events/batch", "batch_too_large")];
    let of_others = ["/auth/password/login", "/users/accept-invite"].map(|path| (path, "body_too_large"));
    for (path, code) in of_events.into_iter().chain(of_others) {
        let answer = answered(&run, &head(path, &person, LARGE), &vec![b' '; LARGE]).await;
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains(code), "{path}: {answer}");
    }
    let bomb = gzip(&vec![b' '; 400 * 1024 * 1024]);
    assert!(bomb.len() < 1024 * 1024);
    for (path, code) in of_events {
        let client = person.client.clone().header("Content-Encoding", "gzip");
        client.post_bytes(path, JSON, bomb.clone()).await.expect_problem(413, code);
    }
    let many = vec![json!({ "source_id": "s" }); 1001];
    person.client.post("/events/batch", &many).await.expect_problem(413, "batch_too_large");
    assert_eq!(run.run_file.alive().len(), 3);
    person.client.post("/events", &json!({ "source_id": "s" })).await.expect::<Value>(202);
}

/// A request, and the status and code that must refuse it.
struct Case<'a> {
    client: &'a Client,
    /// Method and path.
    line: &'static str,
    media_type: &'static str,
    body: &'static str,
    refusal: (u16, &'static str),
}

impl<'a> Case<'a> {
    fn new(client: &'a Client, line: &'static str, media_type: &'static str, body: &'static str) -> Self {
        Self { client, line, media_type, body, refusal: (0, "") }
    }

    fn is(self, status: u16, code: &'static str) -> Self {
        Self { refusal: (status, code), ..self }
    }

    async fn expect_refused(&self) {
        let (method, path) = self.line.split_once(' ').unwrap();
        let mut request = self.client.request(method.parse().unwrap(), path).body(self.body);
        if !self.media_type.is_empty() {
            request = request.header("Content-Type", self.media_type);
        }
        let answer = self.client.send(request).await;
        let (status, code) = self.refusal;
        assert_eq!(answer.status, status, "{} {}: {answer}", self.line, self.body);
        answer.expect_problem(status, code);
        assert_eq!(answer.headers.contains_key("www-authenticate"), status == 401, "{answer}");
        assert_eq!(answer.headers.contains_key("allow"), status == 405, "{answer}");
        expect_nothing_of_the_inside(&answer);
    }
}

fn of_a_stranger(client: &Client) -> Vec<Case<'_>> {
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

fn of_a_person(client: &Client) -> Vec<Case<'_>> {
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
async fn every_refusal_is_a_problem_with_its_code_and_without_its_cause() {
    let installation = Installation::with_cheap_hashes();
    let run = installation.up().await;
    let person = Person::first_of(&run.run_file).await;
    let stranger = e2e::raw_client(&run.run_file.base_url).header("X-Tenant-ID", "demo");
    for case in of_a_stranger(&stranger).iter().chain(&of_a_person(&person.client)) {
        case.expect_refused().await;
    }
    let wrong_sum = format!("{}~", &person.token[..person.token.len() - 1]);
    let unknown = "svc_st_BZFHO5g1QqRoY3FsCUH9fdWgpQoGrgx9qqFqlToxRrV_1frfpQ";
    for token in ["garbage", &wrong_sum, unknown, &"x".repeat(8000)] {
        let client = stranger.clone().bearer(token);
        Case::new(&client, "POST /events", JSON, "{}").is(401, "credential_invalid").expect_refused().await;
        Case::new(&client, "GET /auth/session", "", "").is(401, "credential_invalid").expect_refused().await;
    }
    for (name, value, line, status, code) in [
        ("Content-Encoding", "br", "POST /events", 415, "content_encoding"),
        ("Content-Encoding", "gzip", "POST /events", 400, "malformed_encoding"),
        ("X-Tenant-ID", "other", "GET /auth/session", 403, "tenant_mismatch"),
        ("X-Tenant-ID", "-", "GET /auth/session", 400, "header_invalid"),
        ("X-User-ID", "x", "GET /auth/sessions", 400, "header_invalid"),
        ("X-Session-ID", "x", "POST /auth/sessions/logout", 404, "session_not_found"),
    ] {
        let client = person.client.clone().header(name, value);
        Case::new(&client, line, JSON, "{}").is(status, code).expect_refused().await;
    }
}

#[tokio::test]
async fn a_request_id_is_echoed_when_it_has_the_form_of_one_and_made_when_not() {
    let installation = Installation::with_cheap_hashes();
    let run = installation.up().await;
    let client = e2e::raw_client(&run.run_file.base_url);
    for path in ["/health", "/nowhere", "/auth/session"] {
        let given = client.clone().header("X-Request-Id", "Mine_1.2-3").get(path).await;
        assert_eq!(given.headers["x-request-id"], "Mine_1.2-3", "{given}");
        for odd in ["with blank", "a/b", &"x".repeat(129)] {
            let made = client.clone().header("X-Request-Id", odd).get(path).await;
            let id = made.headers["x-request-id"].to_str().unwrap();
            assert!(id != odd && (1..=128).contains(&id.len()), "{made}");
        }
    }
}
