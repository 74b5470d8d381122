//! Rate limits per source address.

use contract::identity::{Delivery, Invite, InviteUser};
use contract::{Role, Secret};
use hashing::{RawToken, SystemEntropy, TokenKind};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::{Client, LIMITS_OFF, PASSWORD, TestResponse};
use testsystem::TestSystem;

/// Starts a system that trusts this test as its proxy.
async fn behind_a_proxy(limits: &[(&str, &str)]) -> TestSystem {
    let proxies = [("SVC_TRUSTED_PROXIES", "127.0.0.0/8")];
    TestSystem::start_with(&[limits, &proxies].concat()).await.unwrap()
}

fn from(client: &Client, address: &str) -> Client {
    client.clone().header("X-Forwarded-For", address)
}

async fn log_in(client: &Client) -> TestResponse {
    let client = client.clone().header("X-Tenant-ID", "acme");
    client
        .post("/auth/password/login", &json!({ "email": "unknown@acme.example", "password": PASSWORD }))
        .await
}

#[tokio::test]
async fn a_rate_limited_address_gets_429_with_retry_after() {
    let system = behind_a_proxy(&[("SVC_LIMIT_LOGIN", "2/h")]).await;
    let (client, neighbour) = (from(&system.client(), "192.0.2.1"), from(&system.client(), "192.0.2.2"));
    for _ in 0..2 {
        log_in(&client).await.expect_problem(401, "login_failed");
    }
    let answer = log_in(&client).await;
    let problem = answer.expect_problem(429, "rate_limited");
    let after: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1790..=1800).contains(&after), "{answer}");
    assert_eq!(problem.retry_after_ms.unwrap().div_ceil(1000), after);
    log_in(&neighbour).await.expect_problem(401, "login_failed");
    // A malformed request is not counted.
    let malformed = client.header("X-Tenant-ID", "acme").post("/auth/password/login", &json!({})).await;
    malformed.expect_problem(422, "validation_failed");
}

#[tokio::test]
async fn an_ipv6_64_is_one_source_and_a_mapped_address_counts_as_ipv4() {
    let system = behind_a_proxy(&[("SVC_LIMIT_LOGIN", "1/h")]).await;
    for (first, second) in [("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"), ("192.0.2.9", "::ffff:192.0.2.9")] {
        log_in(&from(&system.client(), first)).await.expect_problem(401, "login_failed");
        log_in(&from(&system.client(), second)).await.expect_problem(429, "rate_limited");
    }
    log_in(&from(&system.client(), "2001:db8:1:3::1")).await.expect_problem(401, "login_failed");
}

#[tokio::test]
async fn a_forged_x_forwarded_for_does_not_bypass_the_limit() {
    let system = TestSystem::start_with(&[("SVC_LIMIT_LOGIN", "1/h")]).await.unwrap();
    log_in(&from(&system.client(), "192.0.2.1")).await.expect_problem(401, "login_failed");
    for forwarded_for in ["192.0.2.2", "127.0.0.1", "nonsense", "192.0.2.3, 192.0.2.4", ""] {
        log_in(&from(&system.client(), forwarded_for)).await.expect_problem(429, "rate_limited");
    }
    // Behind a proxy, a client can only add entries to the left of the proxy's entry.
    let system = behind_a_proxy(&[("SVC_LIMIT_LOGIN", "1/h")]).await;
    log_in(&from(&system.client(), "192.0.2.1")).await.expect_problem(401, "login_failed");
    for forwarded_for in ["192.0.2.2, 192.0.2.1", "nonsense, 192.0.2.1", "127.0.0.1,192.0.2.1,127.0.0.2"] {
        log_in(&from(&system.client(), forwarded_for)).await.expect_problem(429, "rate_limited");
    }
}

#[tokio::test]
async fn a_session_stores_the_client_address_behind_the_proxy() {
    let system = behind_a_proxy(&[]).await;
    let admin = system.create_tenant("acme").await;
    let client = from(&system.client(), "198.51.100.1, 192.0.2.77").header("X-Tenant-ID", "acme");
    let body = json!({ "email": "admin@acme.example", "password": PASSWORD });
    client.post("/auth/password/login", &body).await.expect::<Value>(200);
    let client = admin.client.header("X-User-ID", &admin.user.user_id.to_string());
    let sessions: Value = client.get("/auth/sessions").await.expect(200);
    let addresses: Vec<_> =
        sessions["items"].as_array().unwrap().iter().map(|session| &session["ip"]).collect();
    assert!(addresses.contains(&&json!("192.0.2.77")), "{sessions}");
}

/// Credential routes, each with a well-formed body, because a malformed request is not counted.
const CREDENTIAL_ROUTES: [(&str, &str, &str); 4] = [
    ("SVC_LIMIT_LOGIN", "/auth/password/login", r#"{"email":"a@b.example","password":"x"}"#),
    ("SVC_LIMIT_LOGIN", "/auth/password/change", r#"{"current_password":"x","new_password":"y"}"#),
    ("SVC_LIMIT_TOKEN", "/auth/password/reset/confirm", r#"{"token":"x","new_password":"y"}"#),
    ("SVC_LIMIT_TOKEN", "/users/accept-invite", r#"{"token":"x","password":"y"}"#),
];

#[tokio::test]
async fn credential_routes_have_their_own_limits() {
    for (variable, path, body) in CREDENTIAL_ROUTES {
        let system = TestSystem::start_with(&[(variable, "1/h")]).await.unwrap();
        let client = system
            .client()
            .header("X-Tenant-ID", "acme")
            .header("X-User-ID", "018f0000-0000-7000-8000-000000000000");
        assert_ne!(client.post_bytes(path, "application/json", body).await.status, 429, "{path}");
        let answer = client.post_bytes(path, "application/json", body).await;
        answer.expect_problem(429, "rate_limited");
        assert!(answer.headers.contains_key("retry-after"), "{path}");
        // Other routes are not affected.
        client.get("/version").await.expect::<Value>(200);
    }
}

/// The limits of an installation without settings.
const DEFAULTS: [(&str, &str); 4] = [
    ("SVC_LIMIT_TOKEN", "10/min"),
    ("SVC_LIMIT_DEFAULT", "120/min"),
    ("SVC_LIMIT_LOGIN", "30/min"),
    ("SVC_LIMIT_RESET", "5/h"),
];

async fn invite(system: &TestSystem, email: &str) -> String {
    let invite = InviteUser { email: email.to_owned(), role: Role::Member, delivery: Delivery::Response };
    let admin = system.platform_admin().header("X-Tenant-ID", "acme");
    let invite: Invite = admin.post("/users/invite", &invite).await.expect(201);
    invite.token.as_ref().map(Secret::expose).unwrap().to_owned()
}

/// The addresses of the files that a page loads.
fn files(page: &TestResponse) -> Vec<&str> {
    let paths = page.body.split('"').filter_map(|text| text.strip_prefix("/api/v1"));
    paths.filter(|path| path.starts_with("/pages/files/")).collect()
}

#[tokio::test]
async fn people_behind_one_address_accept_thirty_invites_in_a_minute() {
    let system = behind_a_proxy(&DEFAULTS).await;
    let _admin = system.create_tenant("acme").await;
    let client = &from(&system.client(), "192.0.2.1");
    let mut tokens = Vec::new();
    for n in 0..30 {
        tokens.push(invite(&system, &format!("user-{n}@acme.example")).await);
    }
    // All open the page at the same time.
    let open = tokens.iter().map(async |token| {
        let page = client.get("/pages/accept-invite").await;
        assert_eq!(page.status, 200, "{page}");
        for file in files(&page) {
            assert_eq!(client.get(file).await.status, 200, "{file}");
        }
        client.post("/users/accept-invite/inspect", &json!({ "token": token })).await.expect::<Value>(200);
    });
    testkit::join_all(open).await;
    for token in &tokens {
        let accept = json!({ "token": token, "password": PASSWORD });
        client.post("/users/accept-invite", &accept).await.expect::<Value>(201);
    }
}

#[tokio::test]
async fn an_address_that_guesses_tokens_is_limited_also_between_valid_ones() {
    let system = behind_a_proxy(&[("SVC_LIMIT_TOKEN", "10/h")]).await;
    let _admin = system.create_tenant("acme").await;
    let attacker = &from(&system.client(), "192.0.2.1");
    // The routes with a token, each with the field of a password.
    let routes = [
        (TokenKind::Invite, "/users/accept-invite", Some("password")),
        (TokenKind::Invite, "/users/accept-invite/inspect", None),
        (TokenKind::PasswordReset, "/auth/password/reset/confirm", Some("new_password")),
        (TokenKind::PasswordReset, "/auth/password/reset/inspect", None),
    ];
    let guess = async |(kind, path, field): (TokenKind, &str, Option<&str>)| {
        let mut body = json!({ "token": RawToken::generate(kind, &SystemEntropy).expose() });
        if let Some(field) = field {
            body[field] = json!(PASSWORD);
        }
        attacker.post(path, &body).await
    };
    for (n, route) in routes.into_iter().cycle().take(10).enumerate() {
        let token = invite(&system, &format!("user-{n}@acme.example")).await;
        attacker.post("/users/accept-invite/inspect", &json!({ "token": token })).await.expect::<Value>(200);
        guess(route).await.expect_problem(400, "token_invalid");
    }
    for route in routes {
        guess(route).await.expect_problem(429, "rate_limited");
    }
    // Otherwise the attacker could continue to guess and ignore 429.
    let token = json!({ "token": invite(&system, "ada@acme.example").await });
    attacker.post("/users/accept-invite/inspect", &token).await.expect_problem(429, "rate_limited");
    let other = from(&system.client(), "192.0.2.2");
    other.post("/users/accept-invite/inspect", &token).await.expect::<Value>(200);
}

#[tokio::test]
async fn requests_with_one_valid_token_are_limited_and_do_not_limit_other_tokens() {
    let system = behind_a_proxy(&[("SVC_LIMIT_TOKEN", "3/h")]).await;
    let _admin = system.create_tenant("acme").await;
    let [first, second] =
        [invite(&system, "ada@acme.example").await, invite(&system, "bob@acme.example").await];
    let inspect = async |address: &str, token: &str| {
        let client = from(&system.client(), address);
        client.post("/users/accept-invite/inspect", &json!({ "token": token })).await
    };
    for n in 0..3 {
        inspect(&format!("192.0.2.{n}"), &first).await.expect::<Value>(200);
    }
    inspect("192.0.2.9", &first).await.expect_problem(429, "rate_limited");
    inspect("192.0.2.9", &second).await.expect::<Value>(200);
}

#[tokio::test]
async fn a_token_above_its_limit_needs_no_statement() {
    let system = behind_a_proxy(&[("SVC_LIMIT_TOKEN", "1/h")]).await;
    let _admin = system.create_tenant("acme").await;
    let body = json!({ "email": "admin@acme.example" });
    let client = system.client().header("X-Tenant-ID", "acme");
    client.post("/auth/password/reset", &body).await.expect_empty(204);
    let mail = system.wait_for_mail("admin@acme.example").await;
    let reset = mail.split_whitespace().find(|word| word.starts_with("svc_pr_")).unwrap();
    let tokens = [
        ("/users/accept-invite/inspect", invite(&system, "ada@acme.example").await),
        ("/auth/password/reset/inspect", reset.to_owned()),
    ];
    let inspect = async |n: u8| {
        let mut answers = Vec::new();
        for (path, token) in &tokens {
            let client = from(&system.client(), &format!("192.0.2.{n}"));
            answers.push(client.post(path, &json!({ "token": token })).await);
        }
        answers
    };
    for answer in inspect(1).await {
        answer.expect::<Value>(200);
    }
    for answer in inspect(2).await {
        answer.expect_problem(429, "rate_limited");
    }
    // Every statement that counts or refunds would fail.
    system.run_sql("alter table identity.limits rename to gone").await;
    for n in 3..6 {
        for answer in inspect(n).await {
            answer.expect_problem(429, "rate_limited");
        }
    }
}

#[tokio::test]
async fn files_of_pages_have_no_limit() {
    let system = behind_a_proxy(&[("SVC_LIMIT_DEFAULT", "1/h")]).await;
    let client = from(&system.client(), "192.0.2.1");
    let page = client.get("/pages/sessions").await;
    client.get("/pages/sessions").await.expect_problem(429, "rate_limited");
    assert!(files(&page).iter().any(|file| file.ends_with("/sessions.js")), "{page}");
    for file in files(&page) {
        assert_eq!(client.get(file).await.status, 200, "{file}");
    }
}

#[tokio::test]
async fn every_other_route_counts_against_the_default_limit() {
    let routes = [
        (Method::GET, "/tenants"),
        (Method::POST, "/users/invite"),
        (Method::GET, "/users/invites"),
        (Method::GET, "/users/018f0000-0000-7000-8000-000000000000"),
        (Method::GET, "/version"),
        (Method::GET, "/pages/accept-invite"),
        (Method::GET, "/auth/session"),
        (Method::POST, "/auth/sessions/logout"),
        (Method::GET, "/a/path/that/does/not/exist"),
    ];
    let system = behind_a_proxy(&[("SVC_LIMIT_DEFAULT", "1/h")]).await;
    for (n, (method, path)) in routes.into_iter().enumerate() {
        let client = from(&system.client(), &format!("192.0.2.{n}"));
        assert_ne!(client.send(client.request(method.clone(), path)).await.status, 429, "{path}");
        let answer = client.send(client.request(method, path)).await;
        answer.expect_problem(429, "rate_limited");
    }
    // Ingest has no address limit.
    for _ in 0..3 {
        system.client().get("/events").await.expect_problem(405, "method_not_allowed");
    }
}

#[tokio::test]
async fn a_rate_limited_reset_is_dropped_and_answered_with_204() {
    let system = TestSystem::start_with(&[("SVC_LIMIT_RESET", "2/h")]).await.unwrap();
    let _admin = system.create_tenant("acme").await;
    let client = system.client().header("X-Tenant-ID", "acme");
    for _ in 0..3 {
        let body = json!({ "email": "admin@acme.example" });
        client.post("/auth/password/reset", &body).await.expect_empty(204);
        system.wait_for_empty_outbox().await;
    }
    assert_eq!(system.wait_for_mails(2).await.len(), 2);
}

#[tokio::test]
async fn one_account_does_not_use_up_the_resets_of_others_behind_the_same_address() {
    let system = behind_a_proxy(&[("SVC_LIMIT_RESET", "2/h")]).await;
    let admin = system.create_tenant("acme").await;
    let _member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let request = async |address: &str, email: &str| {
        let client = from(&system.client(), address).header("X-Tenant-ID", "acme");
        client.post("/auth/password/reset", &json!({ "email": email })).await.expect_empty(204);
    };
    for _ in 0..3 {
        request("192.0.2.1", "admin@acme.example").await;
        system.wait_for_empty_outbox().await;
    }
    request("192.0.2.1", "ada@acme.example").await;
    system.wait_for_empty_outbox().await;
    let mails = system.wait_for_mails(3).await;
    assert_eq!(mails.iter().filter(|mail| mail.contains("To: ada@acme.example")).count(), 1);
    assert_eq!(mails.len(), 3);

    // All accounts together: twelve times the limit, 24, of which 3 are used.
    for n in 0..21 {
        request("192.0.2.1", &format!("unknown-{n}@acme.example")).await;
    }
    request("192.0.2.1", "ada@acme.example").await;
    system.wait_for_empty_outbox().await;
    assert_eq!(system.wait_for_mails(3).await.len(), 3);
    request("192.0.2.2", "ada@acme.example").await;
    system.wait_for_mails(4).await;
}

#[tokio::test]
async fn without_the_limits_table_credential_routes_answer_503_and_others_continue() {
    let on: Vec<_> = LIMITS_OFF.iter().map(|(variable, _)| (*variable, "100/s")).collect();
    let system = TestSystem::start_with(&on).await.unwrap();
    let admin = system.create_tenant("acme").await;
    system
        .run_sql("alter table identity.limits rename to gone; revoke all on session.limits from svc_session")
        .await;
    let client = system
        .client()
        .header("X-Tenant-ID", "acme")
        .header("X-User-ID", "018f0000-0000-7000-8000-000000000000");
    for (_, path, body) in CREDENTIAL_ROUTES {
        let answer = client.post_bytes(path, "application/json", body).await;
        answer.expect_problem(503, "dependency_unavailable");
        assert!(answer.headers.contains_key("retry-after"), "{path}");
    }
    let reset = json!({ "email": "admin@acme.example" });
    client.post("/auth/password/reset", &reset).await.expect_empty(204);
    admin.client.get("/auth/session").await.expect::<Value>(200);
    admin.client.get("/users").await.expect::<Value>(200);
}
