//! The session of the page of own sessions: a cookie that is valid for requests of that page only.

use contract::session::{PageSession, Session};
use contract::{Page, Role};
use serde_json::json;
use testkit::{Client, PASSWORD, TestResponse};
use testsystem::{TestSystem, TestUser};

const EMAIL: &str = "admin@acme.example";

async fn log_in(system: &TestSystem, password: &str) -> TestResponse {
    let client = system.client().header("X-Tenant-ID", "acme");
    client.post("/pages/sessions/login", &json!({ "email": EMAIL, "password": password })).await
}

/// The cookie as a browser sends it.
fn cookie(response: &TestResponse) -> String {
    let cookie = response.headers["set-cookie"].to_str().unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

fn of_page(system: &TestSystem, user: &TestUser, cookie: &str) -> Client {
    let client = system.client().header("Cookie", cookie);
    client.header("X-User-ID", &user.user.user_id.to_string())
}

#[tokio::test]
async fn the_login_sets_a_cookie_for_the_page_only_and_returns_no_token() {
    let system = TestSystem::start().await.unwrap();
    let user = system.create_tenant("acme").await;
    log_in(&system, "wrong").await.expect_problem(401, "login_failed");
    let response = log_in(&system, PASSWORD).await;
    let attributes = "; Path=/api/v1/auth/sessions; Max-Age=900; HttpOnly; SameSite=Strict";
    assert!(response.headers["set-cookie"].to_str().unwrap().ends_with(attributes), "{response}");
    assert_eq!(response.headers["cache-control"], "no-store");
    assert!(!response.body.contains("svc_st_"), "{response}");
    let cookie = cookie(&response);
    let login: PageSession = response.expect(200);
    assert_eq!(login.user_id, user.user.user_id);
    let sessions: Page<Session> = of_page(&system, &user, &cookie).get("/auth/sessions").await.expect(200);
    let current = sessions.items.iter().find(|session| session.current == Some(true)).unwrap();
    assert_eq!((current.expires_at - current.created_at).num_minutes(), 15);
    // Logging out revokes the session.
    let client = of_page(&system, &user, &cookie).header("Origin", &system.base_url);
    client.delete(&format!("/auth/sessions/{}", current.id)).await.expect_empty(204);
    client.get("/auth/sessions").await.expect_problem(401, "credential_invalid");
}

#[tokio::test]
async fn the_cookie_is_not_valid_in_requests_of_other_sites() {
    let system = TestSystem::start().await.unwrap();
    let user = system.create_tenant("acme").await;
    let client = of_page(&system, &user, &cookie(&log_in(&system, PASSWORD).await));
    let path = format!("/auth/sessions/{}", uuid::Uuid::now_v7());
    for (name, value) in [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Origin", "https://evil.example"),
    ] {
        let foreign = client.clone().header(name, value);
        foreign.get("/auth/sessions").await.expect_problem(401, "unauthenticated");
        foreign.delete(&path).await.expect_problem(401, "unauthenticated");
    }
    client.delete(&path).await.expect_problem(401, "unauthenticated");
    for (name, value) in [("Sec-Fetch-Site", "same-origin"), ("Origin", system.base_url.as_str())] {
        client.clone().header(name, value).delete(&path).await.expect_problem(404, "not_found");
    }
}

#[tokio::test]
async fn the_cookie_of_an_administrator_is_valid_for_own_sessions_only() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let session = ada.client.clone().header("X-User-ID", &ada.user.user_id.to_string());
    let sessions: Page<Session> = session.get("/auth/sessions").await.expect(200);
    let cookie = cookie(&log_in(&system, PASSWORD).await);
    // As in a second tab, in which the page still shows another account.
    let page = of_page(&system, &ada, &cookie).header("Sec-Fetch-Site", "same-origin");
    page.get("/auth/sessions").await.expect_problem(404, "not_found");
    page.delete(&format!("/auth/sessions/{}", sessions.items[0].id)).await.expect_problem(404, "not_found");
    ada.client.get("/auth/session").await.expect::<serde_json::Value>(200);
}

#[tokio::test]
async fn the_page_ends_all_other_sessions_of_its_user_only() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let cookie = cookie(&log_in(&system, PASSWORD).await);
    let others = "/auth/sessions?keep_current=true";
    let of_ada = of_page(&system, &ada, &cookie).header("Sec-Fetch-Site", "same-origin");
    of_ada.delete(others).await.expect_problem(404, "not_found");
    let own = of_page(&system, &admin, &cookie);
    own.clone()
        .header("Sec-Fetch-Site", "cross-site")
        .delete(others)
        .await
        .expect_problem(401, "unauthenticated");
    own.delete(others).await.expect_problem(401, "unauthenticated");
    admin.client.get("/auth/session").await.expect::<serde_json::Value>(200);
    own.clone().header("Sec-Fetch-Site", "same-origin").delete(others).await.expect_empty(204);
    admin.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    ada.client.get("/auth/session").await.expect::<serde_json::Value>(200);
    let sessions: Page<Session> = own.get("/auth/sessions").await.expect(200);
    assert_eq!(sessions.items.len(), 1);
}

#[tokio::test]
async fn the_token_of_the_cookie_is_not_a_bearer_credential_and_other_tokens_are_no_cookies() {
    let system = TestSystem::start().await.unwrap();
    let user = system.create_tenant("acme").await;
    let cookie = cookie(&log_in(&system, PASSWORD).await);
    let (name, token) = cookie.split_once('=').unwrap();
    let bearer = system.client().bearer(token).header("X-User-ID", &user.user.user_id.to_string());
    for path in ["/auth/session", "/auth/sessions", "/users"] {
        bearer.get(path).await.expect_problem(401, "credential_invalid");
    }
    bearer.post("/events", &json!({ "source_id": "s" })).await.expect_problem(401, "credential_invalid");
    let other = format!("{name}={}", user.session.session_id.expose());
    of_page(&system, &user, &other).get("/auth/sessions").await.expect_problem(401, "credential_invalid");
    // Other routes read no cookies.
    of_page(&system, &user, &cookie).get("/auth/session").await.expect_problem(401, "unauthenticated");
}
