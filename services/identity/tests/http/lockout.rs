//! The lockout after 100 consecutive failures, and how it is lifted.

use contract::identity::{User, UserExport};
use contract::{Page, Role};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::{PASSWORD, wait_until};
use testsystem::{TestSystem, TestUser};

const EMAIL: &str = "admin@acme.example";
const NEW: &str = "another-horse-battery-10";

async fn start() -> TestSystem {
    TestSystem::start_with(&[("SVC_TRUSTED_PROXIES", "127.0.0.0/8")]).await.unwrap()
}

/// Returns the status of a login from the `n`th address.
async fn attempt(system: &TestSystem, n: usize, email: &str, password: &str) -> u16 {
    let address = format!("2001:db8:0:{n:x}::1");
    let client = system.client().header("X-Tenant-ID", "acme").header("X-Forwarded-For", &address);
    client.post("/auth/password/login", &json!({ "email": email, "password": password })).await.status
}

/// Creates a tenant with an administrator who is locked out.
async fn locked(system: &TestSystem) -> TestUser {
    let admin = system.create_tenant("acme").await;
    for n in 0..100 {
        assert_eq!(attempt(system, n, EMAIL, "wrong-password-altogether").await, 401);
    }
    assert_eq!(attempt(system, 100, EMAIL, PASSWORD).await, 401, "locked out from every address");
    admin
}

/// Returns the users of the tenant that a list shows as locked.
async fn listed_as_locked(system: &TestSystem) -> Vec<String> {
    let platform = system.platform_admin().header("X-Tenant-ID", "acme");
    let users = platform.get("/users").await.expect::<Page<User>>(200).items;
    users.into_iter().filter(|user| user.locked).map(|user| user.email).collect()
}

#[tokio::test]
async fn one_hundred_consecutive_failures_lock_the_account_and_a_success_resets_the_count() {
    let system = start().await;
    let _admin = system.create_tenant("acme").await;
    for n in 0..99 {
        assert_eq!(attempt(&system, n, EMAIL, "wrong-password-altogether").await, 401);
    }
    assert_eq!(attempt(&system, 99, EMAIL, PASSWORD).await, 200);
    for n in 100..200 {
        assert_eq!(attempt(&system, n, EMAIL, "wrong-password-altogether").await, 401);
    }
    assert_eq!(attempt(&system, 200, EMAIL, PASSWORD).await, 401);
}

#[tokio::test]
async fn a_password_reset_lifts_lockout_and_back_off() {
    let system = start().await;
    let _admin = locked(&system).await;
    assert_eq!(listed_as_locked(&system).await, [EMAIL]);
    for _ in 0..6 {
        assert_eq!(attempt(&system, 1, EMAIL, "wrong-password-altogether").await, 401);
    }
    let client = system.client().header("X-Tenant-ID", "acme");
    client.post("/auth/password/reset", &json!({ "email": EMAIL })).await.expect_empty(204);
    let mail = system.wait_for_mail(EMAIL).await;
    let token = mail.split_whitespace().find(|word| word.starts_with("svc_pr_")).unwrap();
    client
        .post("/auth/password/reset/confirm", &json!({ "token": token, "new_password": NEW }))
        .await
        .expect_empty(204);
    assert!(listed_as_locked(&system).await.is_empty());
    assert_eq!(attempt(&system, 1, EMAIL, NEW).await, 200);
}

#[tokio::test]
async fn setting_the_user_active_lifts_a_lockout_that_administrators_see() {
    let system = start().await;
    let admin = locked(&system).await;
    system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let path = format!("/users/{}", admin.user.user_id);
    let export: UserExport = admin.client.get(&format!("{path}/export")).await.expect(200);
    assert!(export.user.locked && admin.client.get(&path).await.expect::<User>(200).locked);
    assert_eq!(listed_as_locked(&system).await, [EMAIL], "and not the other user");
    let change = async |body: Value| {
        let request = admin.client.request(Method::PATCH, &path).json(&body);
        admin.client.send(request).await.expect::<Value>(200)
    };
    assert_eq!(change(json!({ "role": "admin" })).await["locked"], true);
    assert_eq!(attempt(&system, 101, EMAIL, PASSWORD).await, 401, "other changes do not lift the lockout");
    for _ in 0..2 {
        assert_eq!(change(json!({ "status": "active" })).await["locked"], false);
    }
    assert!(listed_as_locked(&system).await.is_empty());
    assert_eq!(attempt(&system, 102, EMAIL, PASSWORD).await, 200);
    let unlocked = wait_until("the change is audited", async || {
        let url = "/audit?kind=user_updated";
        let page: Value = admin.client.get(url).await.expect(200);
        Some(page["items"].as_array()?.clone()).filter(|items| !items.is_empty())
    })
    .await;
    assert_eq!((unlocked.len(), &unlocked[0]["about"]), (1, &json!("unlocked")), "{unlocked:?}");
}

#[tokio::test]
async fn accepting_an_invite_clears_earlier_failures() {
    let system = start().await;
    let admin = system.create_tenant("acme").await;
    let email = "ada@acme.example";
    let invite = json!({ "email": email, "delivery": "response" });
    let invite: Value = admin.client.post("/users/invite", &invite).await.expect(201);
    for n in 0..101 {
        assert_eq!(attempt(&system, n, email, PASSWORD).await, 401);
    }
    let accept = json!({ "token": invite["token"], "password": PASSWORD });
    system.client().post("/users/accept-invite", &accept).await.expect::<Value>(201);
    assert_eq!(attempt(&system, 1, email, PASSWORD).await, 200);
}
