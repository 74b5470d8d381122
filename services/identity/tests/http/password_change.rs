//! `/auth/password/change`.

use contract::Role;
use serde_json::{Value, json};
use testkit::{Client, PASSWORD, TestResponse};
use testsystem::{TestSystem, TestUser};

const NEW: &str = "another-horse-battery-10";

async fn change(client: &Client, person: &TestUser, current: &str, new: &str) -> TestResponse {
    let client = client.clone().header("X-User-ID", &person.user.user_id.to_string());
    client.post("/auth/password/change", &json!({ "current_password": current, "new_password": new })).await
}

#[tokio::test]
async fn a_password_change_revokes_all_sessions_but_the_current_one() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let other = system.client().bearer(system.log_in("acme", "admin@acme.example").await.session_id.expose());
    change(&admin.client, &admin, PASSWORD, NEW).await.expect_empty(204);
    other.get("/auth/session").await.expect_problem(401, "credential_invalid");
    admin.client.get("/auth/session").await.expect::<Value>(200);
    let login = async |password: &str| {
        let client = system.client().header("X-Tenant-ID", "acme");
        client
            .post("/auth/password/login", &json!({ "email": "admin@acme.example", "password": password }))
            .await
    };
    login(PASSWORD).await.expect_problem(401, "login_failed");
    login(NEW).await.expect::<Value>(200);
    let notice = system.wait_for_mail("admin@acme.example").await;
    assert!(notice.contains("Your password was changed") && !notice.contains("svc_"));
}

#[tokio::test]
async fn five_notices_are_mailed_then_one_per_twelve_minutes() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    for (current, new) in [(PASSWORD, NEW), (NEW, PASSWORD)].repeat(4) {
        change(&admin.client, &admin, current, new).await.expect_empty(204);
    }
    system.wait_for_empty_outbox().await;
    assert_eq!(system.wait_for_mails(5).await.len(), 5);
    system
        .run_sql("update identity.limits set theoretical_arrival_at = theoretical_arrival_at - interval '12 minutes' where limit_name = 'password_notice_recipient'")
        .await;
    change(&admin.client, &admin, PASSWORD, NEW).await.expect_empty(204);
    change(&admin.client, &admin, NEW, PASSWORD).await.expect_empty(204);
    system.wait_for_empty_outbox().await;
    assert_eq!(system.wait_for_mails(6).await.len(), 6);
}

#[tokio::test]
async fn a_tenant_cannot_use_up_the_notices_of_another_one() {
    let system = TestSystem::start().await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let attacker = system.add_user(&other, "admin@acme.example", Role::Member).await;
    for (current, new) in [(PASSWORD, NEW), (NEW, PASSWORD)].repeat(3) {
        change(&attacker.client, &attacker, current, new).await.expect_empty(204);
    }
    change(&acme.client, &acme, PASSWORD, NEW).await.expect_empty(204);
    system.wait_for_mails_to("admin@acme.example", "(organization ID acme)", 1).await;
}

#[tokio::test]
async fn the_addresses_of_a_mailbox_get_twenty_notices_together() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    for n in 0..6 {
        let member = system.add_user(&admin, &format!("ada+{n}@acme.example"), Role::Member).await;
        for (current, new) in [(PASSWORD, NEW), (NEW, PASSWORD)].repeat(2) {
            change(&member.client, &member, current, new).await.expect_empty(204);
        }
    }
    system.wait_for_empty_outbox().await;
    assert_eq!(system.wait_for_mails(20).await.len(), 20, "of 24");
}

#[tokio::test]
async fn without_a_bearer_a_password_change_revokes_every_session() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let client = system.client().header("X-Tenant-ID", "acme");
    change(&client, &admin, PASSWORD, NEW).await.expect_empty(204);
    admin.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
}

#[tokio::test]
async fn the_current_password_is_verified_before_the_policy() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let client = system.client().header("X-Tenant-ID", "acme");
    // The current password is verified first, so the policy reveals nothing to others.
    change(&client, &admin, "wrong-password-altogether", "short").await.expect_problem(401, "login_failed");
    change(&client, &admin, PASSWORD, "short").await.expect_problem(422, "password_too_short");
    change(&client, &admin, PASSWORD, "admin@acme.example").await.expect_problem(422, "password_context");
    change(&member.client, &admin, PASSWORD, NEW).await.expect_problem(404, "not_found");
    let dead = client.clone().bearer("svc_st_0000000000000000000000000000000000000000000_000000");
    change(&dead, &admin, PASSWORD, NEW).await.expect_problem(401, "credential_invalid");
    let elsewhere = system.client().header("X-Tenant-ID", "elsewhere");
    change(&elsewhere, &admin, PASSWORD, NEW).await.expect_problem(401, "login_failed");
    let path = "/auth/password/change";
    let body = json!({ "current_password": PASSWORD, "new_password": NEW });
    client.post(path, &body).await.expect_problem(400, "header_missing");
    client
        .clone()
        .header("X-User-ID", "no-uuid")
        .post(path, &body)
        .await
        .expect_problem(400, "header_invalid");
    admin.client.get("/auth/session").await.expect::<Value>(200);
}

#[tokio::test]
async fn a_wrong_current_password_has_its_own_text_that_reveals_no_account() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let client = system.client().header("X-Tenant-ID", "acme");
    let unknown = client.clone().header("X-User-ID", "018f0000-0000-7000-8000-000000000000");
    let body = json!({ "current_password": "wrong-password-altogether", "new_password": NEW });
    let wrong = change(&client, &admin, "wrong-password-altogether", NEW).await;
    let wrong = wrong.expect_problem(401, "login_failed");
    assert!(wrong.detail.starts_with("The current password is wrong."), "{}", wrong.detail);
    let unknown = unknown.post("/auth/password/change", &body).await.expect_problem(401, "login_failed");
    assert_eq!((unknown.title, unknown.detail), (wrong.title, wrong.detail));
}

#[tokio::test]
async fn a_change_to_the_same_password_is_rejected_and_revokes_nothing() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let client = system.client().header("X-Tenant-ID", "acme");
    let problem = change(&client, &admin, PASSWORD, PASSWORD).await.expect_problem(422, "password_unchanged");
    assert_eq!(problem.errors[0].pointer, "/new_password");
    admin.client.get("/auth/session").await.expect::<Value>(200);
}

#[tokio::test]
async fn the_problem_of_a_short_password_names_the_configured_minimum() {
    let system = TestSystem::start_with(&[("SVC_PASSWORD_MIN_LENGTH", "15")]).await.unwrap();
    let admin = system.create_tenant("acme").await;
    let problem = change(&admin.client, &admin, PASSWORD, "fourteen chars").await;
    let problem = problem.expect_problem(422, "password_too_short");
    assert!(problem.detail.starts_with("Use at least 15 characters."), "{}", problem.detail);
}

#[tokio::test]
async fn of_concurrent_password_changes_one_succeeds() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let changes = (0..4).map(|n| {
        let new = format!("{NEW}-{n}");
        let (client, admin) = (&admin.client, &admin);
        async move { change(client, admin, PASSWORD, &new).await.status }
    });
    let mut statuses = testkit::join_all(changes).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [204, 401, 401, 401]);
}
