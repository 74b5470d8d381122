//! Changes of account status (role, disable, suspend) take effect in the session service.

use contract::identity::{Tenant, User};
use contract::session::Whoami;
use contract::{Page, Role};
use serde_json::{Value, json};
use testsystem::TestSystem;

#[tokio::test]
async fn disabling_a_user_revokes_sessions_and_enabling_does_not_restore_them() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let path = format!("/users/{}", ada.user.user_id);
    let user: User = admin.client.patch(&path, &json!({ "status": "disabled" })).await.expect(200);
    assert_eq!(user.status.as_str(), "disabled");
    ada.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    admin.client.patch(&path, &json!({ "status": "active" })).await.expect::<User>(200);
    ada.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    system.log_in("acme", "ada@acme.example").await;
}

#[tokio::test]
async fn a_stale_session_neither_enables_a_user_nor_changes_an_administrator() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let users = [("ada@acme.example", Role::Admin), ("ben@acme.example", Role::Member)];
    let [ada, ben] = users.map(async |(email, role)| {
        let user = system.add_user(&admin, email, role).await;
        format!("/users/{}", user.user.user_id)
    });
    let (ada, ben) = (ada.await, ben.await);
    system.run_sql("update session.sessions set created_at = created_at - interval '1 hour'").await;
    let (disable, enable) = (json!({ "status": "disabled" }), json!({ "status": "active" }));
    let operator = system.platform_admin().header("X-Tenant-ID", "acme");
    // Enabling an active user would end its lockout.
    for body in [&disable, &enable, &json!({ "revoke_api_keys": true })] {
        admin.client.patch(&ada, body).await.expect_problem(403, "reauthentication_required");
    }
    operator.patch(&ada, &disable).await.expect::<User>(200);
    // A member can be stopped at once.
    admin.client.patch(&ben, &disable).await.expect::<User>(200);
    for path in [&ada, &ben] {
        admin.client.patch(path, &enable).await.expect_problem(403, "reauthentication_required");
    }
}

#[tokio::test]
async fn a_role_change_applies_to_the_next_request_of_the_same_session() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let path = format!("/users/{}", ada.user.user_id);
    admin.client.patch(&path, &json!({ "role": "admin" })).await.expect::<User>(200);
    assert_eq!(ada.client.get("/auth/session").await.expect::<Whoami>(200).role, Some(Role::Admin));
    ada.client.get("/users/invites").await.expect::<Value>(200);
    admin.client.patch(&path, &json!({ "role": "member" })).await.expect::<User>(200);
    ada.client.get("/users/invites").await.expect_problem(403, "forbidden");
}

#[tokio::test]
async fn the_last_administrator_cannot_be_removed_even_concurrently() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let own = format!("/users/{}", admin.user.user_id);
    for body in [json!({ "role": "member" }), json!({ "status": "disabled" })] {
        admin.client.patch(&own, &body).await.expect_problem(409, "last_admin");
    }
    let operator = system.platform_admin().header("X-Tenant-ID", "acme");
    operator.patch(&own, &json!({ "status": "disabled" })).await.expect_problem(409, "last_admin");

    let ada = system.add_user(&admin, "ada@acme.example", Role::Admin).await;
    let other = format!("/users/{}", ada.user.user_id);
    let demote = json!({ "role": "member" });
    let (first, second) = tokio::join!(admin.client.patch(&other, &demote), ada.client.patch(&own, &demote));
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    // The second request fails: the target is the last administrator, or the caller no longer is one.
    assert_eq!(statuses[0], 200);
    assert!(matches!(statuses[1], 403 | 409), "{statuses:?}");
}

#[tokio::test]
async fn only_administrators_change_users_of_their_tenant() {
    let system = TestSystem::start().await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let path = format!("/users/{}", ada.user.user_id);
    let body = json!({ "role": "admin" });
    ada.client.patch(&path, &body).await.expect_problem(403, "forbidden");
    other.client.patch(&path, &body).await.expect_problem(404, "not_found");
    system.client().patch(&path, &body).await.expect_problem(401, "unauthenticated");
    let operator = system.platform_admin().header("X-Tenant-ID", "acme");
    operator.patch(&path, &body).await.expect_problem(403, "forbidden");
    operator.patch(&path, &json!({ "status": "disabled" })).await.expect::<User>(200);
    admin.client.patch(&path, &json!({ "status": "invited" })).await.expect_problem(422, "validation_failed");
    let invite = json!({ "email": "bob@acme.example", "delivery": "response" });
    admin.client.post("/users/invite", &invite).await.expect::<Value>(201);
    let invited: Page<User> = admin.client.get("/users?email=BOB@acme.example").await.expect(200);
    let path = format!("/users/{}", invited.items[0].user_id);
    admin.client.patch(&path, &json!({ "status": "active" })).await.expect_problem(409, "user_invited");
}

#[tokio::test]
async fn only_administrators_list_users() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let emails = async |path: &str| {
        let page: Page<User> = admin.client.get(path).await.expect(200);
        page.items.into_iter().map(|user| user.email).collect::<Vec<_>>()
    };
    assert_eq!(emails("/users").await, ["admin@acme.example", "ada@acme.example"]);
    assert_eq!(emails("/users?status=invited").await, [] as [&str; 0]);
    assert_eq!(emails("/users?email=ADA@acme.example").await, ["ada@acme.example"]);
    admin.client.get("/users?limit=0").await.expect_problem(422, "validation_failed");
    ada.client.get("/users").await.expect_problem(403, "forbidden");
}

#[tokio::test]
async fn suspension_revokes_all_sessions_and_resuming_requires_a_new_login() {
    let system = TestSystem::start().await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let tenant: Tenant =
        system.platform_admin().patch("/tenants/acme", &json!({ "status": "suspended" })).await.expect(200);
    assert_eq!(tenant.status.as_str(), "suspended");
    admin.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    admin
        .client
        .post_bytes("/events", "application/json", "{}")
        .await
        .expect_problem(401, "credential_invalid");
    other.client.get("/auth/session").await.expect::<Whoami>(200);
    system
        .platform_admin()
        .patch("/tenants/acme", &json!({ "status": "active" }))
        .await
        .expect::<Tenant>(200);
    admin.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    system.log_in("acme", "admin@acme.example").await;

    let renamed: Tenant = system
        .platform_admin()
        .patch("/tenants/acme", &json!({ "display_name": "Acme & Sons" }))
        .await
        .expect(200);
    assert_eq!((renamed.display_name.as_str(), renamed.status.as_str()), ("Acme & Sons", "active"));
    system
        .platform_admin()
        .patch("/tenants/acme", &json!({ "display_name": "" }))
        .await
        .expect_problem(422, "validation_failed");
    system.platform_admin().patch("/tenants/nowhere", &json!({})).await.expect_problem(404, "not_found");
    admin.client.patch("/tenants/acme", &json!({})).await.expect_problem(403, "forbidden");
}

#[tokio::test]
async fn a_new_user_is_known_to_the_session_service_and_has_no_sessions() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let invite = json!({ "email": "ada@acme.example", "delivery": "response" });
    let invite = admin.client.post("/users/invite", &invite).await.json();
    let accept = json!({ "token": invite["token"], "password": testkit::PASSWORD });
    let user = system.client().post("/users/accept-invite", &accept).await.json();
    system.wait_for_empty_outbox().await;
    let client = admin.client.clone().header("X-User-ID", user["user_id"].as_str().unwrap());
    assert_eq!(client.get("/auth/sessions").await.expect::<Value>(200), json!({ "items": [] }));
}

/// Account status messages are retried without limit.
#[tokio::test]
async fn account_status_is_delivered_after_many_failed_attempts() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    system.wait_for_empty_outbox().await;
    system.run_sql("revoke insert, update on session.subjects from svc_session").await;
    let path = format!("/users/{}", ada.user.user_id);
    admin.client.patch(&path, &json!({ "status": "disabled" })).await.expect::<User>(200);
    system.wait_for_text_in_database("\"last_error\":\"the session service is not available").await;
    system.run_sql("update identity.outbox set attempts = 99, due_at = now()").await;
    system.wait_for_text_in_database("\"attempts\":100").await;
    system.run_sql("grant insert, update on session.subjects to svc_session").await;
    system.run_sql("update identity.outbox set due_at = now() where dead_lettered_at is null").await;
    system.wait_for_empty_outbox().await;
    ada.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    assert!(
        !system.dump_database().await.contains("push_user_status"),
        "the message was delivered, not dead-lettered"
    );
}

#[tokio::test]
async fn a_mail_with_too_many_attempts_is_dead_lettered_and_others_are_sent() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    system
        .run_sql(
            "insert into identity.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at, attempts)
            values (gen_random_uuid(), 'acme', 'mail_notice', '{}', now(), now(), 9999)",
        )
        .await;
    let invite = json!({ "email": "ada@acme.example" });
    admin.client.post("/users/invite", &invite).await.expect::<Value>(201);
    system.wait_for_mail("ada@acme.example").await;
    system.wait_for_text_in_database("no attempt completed").await;
}
