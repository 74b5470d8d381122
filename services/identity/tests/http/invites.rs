//! `/users/invite` and `/users/invites`.

use contract::identity::{AcceptedInvite, Invite, InviteStatus, User};
use contract::{Page, Role};
use serde_json::json;
use testkit::PASSWORD;
use testsystem::{TestSystem, TestUser};

#[tokio::test]
async fn an_invite_mail_contains_a_working_token() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let invite: Invite =
        admin.client.post("/users/invite", &json!({ "email": "ada@acme.example" })).await.expect(201);
    assert_eq!((invite.role, invite.status), (Role::Member, InviteStatus::Pending));
    assert!(invite.token.is_none(), "a mailed token is only in the mail");

    let mail = system.wait_for_mail("ada@acme.example").await;
    let token =
        mail.split_whitespace().find(|word| word.starts_with("svc_iv_")).expect("the mail holds the token");
    let accept = json!({ "token": token, "password": PASSWORD });
    let user: AcceptedInvite = system.client().post("/users/accept-invite", &accept).await.expect(201);
    assert_eq!((user.email.as_str(), user.role), ("ada@acme.example", Role::Member));
}

#[tokio::test]
async fn equivalent_spellings_of_an_address_cannot_be_invited_twice() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let invite = async |email: &str| admin.client.post("/users/invite", &json!({ "email": email })).await;
    invite("Ada@Acme.example").await.expect::<Invite>(201);
    invite(" ada@acme.EXAMPLE ").await.expect_problem(409, "invite_pending");
    invite("ADMIN@acme.example").await.expect_problem(409, "user_exists");
    invite("not an address").await.expect_problem(422, "validation_failed");
}

#[tokio::test]
async fn an_address_that_looks_like_that_of_another_user_cannot_be_invited() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let other = system.create_tenant("other").await;
    let invite = |email: &str| json!({ "email": email, "delivery": "response" });
    // Full-width, dotless, Cyrillic in the name, Cyrillic in the domain.
    for email in ["ａdmin@acme.example", "admın@acme.example", "аdmin@acme.example", "admin@аcme.example"]
    {
        let rejected = admin.client.post("/users/invite", &invite(email)).await;
        rejected.expect_problem(409, "email_similar");
    }
    other.client.post("/users/invite", &invite("admın@acme.example")).await.expect::<Invite>(201);
    for email in ["corn@acme.example", "com@acme.example", "jose@acme.example", "josé@acme.example"] {
        admin.client.post("/users/invite", &invite(email)).await.expect::<Invite>(201);
    }
}

#[tokio::test]
async fn the_advice_for_an_existing_user_is_true_for_the_status_of_the_user() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let body = json!({ "email": "ada@acme.example" });
    let invite =
        async || admin.client.post("/users/invite", &body).await.expect_problem(409, "user_exists").detail;
    assert!(invite().await.contains("log in or reset the password"));
    let path = format!("/users/{}", ada.user.user_id);
    admin.client.patch(&path, &json!({ "status": "disabled" })).await.expect::<User>(200);
    let detail = invite().await;
    assert!(detail.contains("Enable the user") && !detail.contains("reset"), "{detail}");
    let page: Page<Invite> = admin.client.get("/users/invites?status=accepted").await.expect(200);
    let path = format!("/users/invites/{}", page.items.last().unwrap().invite_id);
    let detail = admin.client.delete(&path).await.expect_problem(409, "user_exists").detail;
    assert!(detail.contains("disable or delete the user"), "{detail}");
}

#[tokio::test]
async fn concurrent_invites_of_one_address_create_one_invite() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let body = json!({ "email": "ada@acme.example", "delivery": "response" });
    let attempts = (0..8).map(|_| async { admin.client.post("/users/invite", &body).await.status });
    let mut statuses = testkit::join_all(attempts).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409, 409, 409, 409, 409, 409, 409]);
}

#[tokio::test]
async fn members_cannot_invite_and_the_platform_administrator_names_the_tenant() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let body = json!({ "email": "bob@acme.example", "role": "admin", "delivery": "response" });
    member.client.post("/users/invite", &body).await.expect_problem(403, "forbidden");
    member.client.get("/users/invites").await.expect_problem(403, "forbidden");
    system.client().post("/users/invite", &body).await.expect_problem(401, "unauthenticated");
    system.platform_admin().post("/users/invite", &body).await.expect_problem(400, "header_missing");
    let unknown = system.platform_admin().header("X-Tenant-ID", "nowhere");
    unknown.post("/users/invite", &body).await.expect_problem(404, "not_found");
    unknown.get("/users/invites").await.expect_problem(404, "not_found");
    unknown.get("/users").await.expect_problem(404, "not_found");
    let operator = system.platform_admin().header("X-Tenant-ID", "acme");
    assert_eq!(operator.post("/users/invite", &body).await.expect::<Invite>(201).role, Role::Admin);
}

#[tokio::test]
async fn invites_are_listed_by_status_for_the_callers_tenant_only() {
    let system = TestSystem::start().await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let body = json!({ "email": "ada@acme.example", "delivery": "response" });
    admin.client.post("/users/invite", &body).await.expect::<Invite>(201);
    let emails = async |client: &testkit::Client, path: &str| {
        let page: Page<Invite> = client.get(path).await.expect(200);
        assert!(page.items.iter().all(|invite| invite.token.is_none()));
        page.items.into_iter().map(|invite| invite.email).collect::<Vec<_>>()
    };
    assert_eq!(emails(&admin.client, "/users/invites").await, ["admin@acme.example", "ada@acme.example"]);
    assert_eq!(emails(&admin.client, "/users/invites?status=pending").await, ["ada@acme.example"]);
    assert_eq!(emails(&other.client, "/users/invites?status=pending").await, [] as [&str; 0]);
    admin.client.get("/users/invites?status=lost").await.expect_problem(422, "validation_failed");
}

#[tokio::test]
async fn resending_an_invite_replaces_its_token() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let body = json!({ "email": "ada@acme.example", "delivery": "response" });
    let first: Invite = admin.client.post("/users/invite", &body).await.expect(201);
    let path = format!("/users/invites/{}/resend", first.invite_id);
    let second: Invite = admin.client.post(&path, &json!({ "delivery": "response" })).await.expect(200);
    assert_eq!(second.invite_id, first.invite_id);
    let accept = async |invite: Invite| {
        let body = json!({ "token": invite.token.unwrap(), "password": PASSWORD });
        system.client().post("/users/accept-invite", &body).await
    };
    accept(first).await.expect_problem(400, "token_invalid");
    accept(second).await.expect::<AcceptedInvite>(201);
    admin.client.post(&path, &json!({})).await.expect_problem(409, "user_exists");
}

#[tokio::test]
async fn a_token_in_the_response_requires_a_recent_login() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let mailed = json!({ "email": "ada@acme.example" });
    let invite: Invite = admin.client.post("/users/invite", &mailed).await.expect(201);
    let resend = format!("/users/invites/{}/resend", invite.invite_id);
    system.run_sql("update session.sessions set created_at = created_at - interval '1 hour'").await;
    let ben = json!({ "email": "ben@acme.example", "delivery": "response" });
    let required = "reauthentication_required";
    admin.client.post("/users/invite", &ben).await.expect_problem(403, required);
    admin.client.post(&resend, &json!({ "delivery": "response" })).await.expect_problem(403, required);
    // The owner of the address gets a mailed token.
    admin.client.post(&resend, &json!({})).await.expect::<Invite>(200);
    admin.client.post("/users/invite", &json!({ "email": "ben@acme.example" })).await.expect::<Invite>(201);
}

#[tokio::test]
async fn a_revoked_invite_cannot_be_accepted_and_its_address_can_be_invited_again() {
    let system = TestSystem::start().await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let body = json!({ "email": "ada@acme.example", "delivery": "response" });
    let invite: Invite = admin.client.post("/users/invite", &body).await.expect(201);
    let path = format!("/users/invites/{}", invite.invite_id);
    other.client.delete(&path).await.expect_problem(404, "not_found");
    admin.client.delete(&path).await.expect_empty(204);
    admin.client.delete(&path).await.expect_empty(204);
    admin.client.delete("/users/invites/no-id").await.expect_problem(404, "not_found");
    let accept = json!({ "token": invite.token.unwrap(), "password": PASSWORD });
    system.client().post("/users/accept-invite", &accept).await.expect_problem(400, "token_invalid");
    admin.client.post("/users/invite", &body).await.expect::<Invite>(201);
}

#[tokio::test]
async fn an_expired_invite_cannot_be_accepted_and_can_be_replaced() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let body = json!({ "email": "ada@acme.example", "delivery": "response" });
    let invite: Invite = admin.client.post("/users/invite", &body).await.expect(201);
    system
        .run_sql(
            "update identity.invites set expires_at = now() - interval '1 second' where status = 'pending'",
        )
        .await;
    let accept = json!({ "token": invite.token.unwrap(), "password": PASSWORD });
    system.client().post("/users/accept-invite", &accept).await.expect_problem(400, "token_invalid");
    let listed: Page<Invite> = admin.client.get("/users/invites?status=expired").await.expect(200);
    assert_eq!(listed.items[0].email, "ada@acme.example");
    admin.client.post("/users/invite", &body).await.expect::<Invite>(201);
}

#[tokio::test]
async fn a_late_mail_of_a_replaced_invite_does_not_change_the_token() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let invite: Invite =
        admin.client.post("/users/invite", &json!({ "email": "ada@acme.example" })).await.expect(201);
    system.wait_for_mail("ada@acme.example").await;
    let path = format!("/users/invites/{}/resend", invite.invite_id);
    let resent: Invite = admin.client.post(&path, &json!({ "delivery": "response" })).await.expect(200);
    // The first mail's outbox message is delivered again, as after a failed attempt.
    let payload = json!({
        "invite_id": invite.invite_id, "user_id": tenancy::UserId::generate(), "expires_at": invite.expires_at
    });
    system
        .run_sql(&format!(
            "insert into identity.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at)
            values (gen_random_uuid(), 'acme', 'mail_invite', '{payload}', now(), now())"
        ))
        .await;
    system.wait_for_empty_outbox().await;
    let accept = json!({ "token": resent.token.unwrap(), "password": PASSWORD });
    system.client().post("/users/accept-invite", &accept).await.expect::<AcceptedInvite>(201);
}

#[tokio::test]
async fn at_most_three_invites_per_hour_are_mailed_to_an_address_over_all_tenants() {
    let system = TestSystem::start().await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let invite = async |admin: &TestUser, email: &str| {
        admin.client.post("/users/invite", &json!({ "email": email })).await
    };
    let first: Invite = invite(&acme, "ada@home.example").await.expect(201);
    let second: Invite = invite(&other, "ADA@Home.example").await.expect(201);
    // An invite that is sent again before its first mail is written has one mail only.
    system.wait_for_mails(2).await;
    let resend = format!("/users/invites/{}/resend", first.invite_id);
    acme.client.post(&resend, &json!({})).await.expect::<Invite>(200);
    let answer = acme.client.post(&resend, &json!({})).await;
    answer.expect_problem(429, "rate_limited");
    let after: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1100..=1200).contains(&after), "{answer}");
    let third = system.create_tenant("third").await;
    invite(&third, "ada@home.example").await.expect_problem(429, "rate_limited");
    // A rejected request changes nothing, other addresses are not affected, and a token in the response is no mail.
    let listed: Page<Invite> = third.client.get("/users/invites?status=pending").await.expect(200);
    assert_eq!(listed.items.len(), 0);
    invite(&third, "ben@home.example").await.expect::<Invite>(201);
    let response = json!({ "delivery": "response" });
    let resend_second = format!("/users/invites/{}/resend", second.invite_id);
    other.client.post(&resend_second, &response).await.expect::<Invite>(200);
    system.wait_for_empty_outbox().await;
    assert_eq!(system.wait_for_mails(4).await.len(), 4, "three and the one to another address");

    // A third of an hour later, one more is allowed.
    system
        .run_sql("update identity.limits set theoretical_arrival_at = theoretical_arrival_at - interval '20 minutes' where limit_name = 'invite_recipient'")
        .await;
    acme.client.post(&resend, &json!({})).await.expect::<Invite>(200);
    acme.client.post(&resend, &json!({})).await.expect_problem(429, "rate_limited");
}

#[tokio::test]
async fn the_invites_of_a_tenant_per_hour_are_limited_except_for_the_platform_administrator() {
    let system = TestSystem::start_with(&[("SVC_LIMIT_INVITE", "2/h")]).await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let body = |name: &str| json!({ "email": format!("{name}@acme.example"), "delivery": "response" });
    let invite: Invite = acme.client.post("/users/invite", &body("ada")).await.expect(201);
    let resend = format!("/users/invites/{}/resend", invite.invite_id);
    acme.client.post(&resend, &json!({ "delivery": "response" })).await.expect::<Invite>(200);
    let answer = acme.client.post("/users/invite", &body("ben")).await;
    answer.expect_problem(429, "rate_limited");
    assert!(answer.headers.contains_key("retry-after"), "{answer}");
    acme.client.post(&resend, &json!({ "delivery": "response" })).await.expect_problem(429, "rate_limited");
    other.client.post("/users/invite", &body("ben")).await.expect::<Invite>(201);
    let platform = system.platform_admin().header("X-Tenant-ID", "acme");
    platform.post("/users/invite", &body("ben")).await.expect::<Invite>(201);
}

#[tokio::test]
async fn the_pending_invites_of_a_tenant_are_limited() {
    let system = TestSystem::start_with(&[("SVC_MAX_PENDING_INVITES", "2")]).await.unwrap();
    let admin = system.create_tenant("acme").await;
    let invite = async |client: &testkit::Client, name: &str| {
        let body = json!({ "email": format!("{name}@acme.example"), "delivery": "response" });
        client.post("/users/invite", &body).await
    };
    let first: Invite = invite(&admin.client, "ada").await.expect(201);
    invite(&admin.client, "ben").await.expect::<Invite>(201);
    invite(&admin.client, "cora").await.expect_problem(409, "too_many_invites");
    admin.client.delete(&format!("/users/invites/{}", first.invite_id)).await.expect_empty(204);
    invite(&admin.client, "cora").await.expect::<Invite>(201);
    invite(&admin.client, "dan").await.expect_problem(409, "too_many_invites");
    let platform = system.platform_admin().header("X-Tenant-ID", "acme");
    invite(&platform, "dan").await.expect::<Invite>(201);
    // Expired invites do not count.
    system.run_sql("update identity.invites set expires_at = now() where status = 'pending'").await;
    invite(&admin.client, "eve").await.expect::<Invite>(201);
}

#[tokio::test]
async fn the_users_of_a_tenant_are_limited_except_for_the_platform_administrator() {
    let system = TestSystem::start_with(&[("SVC_MAX_USERS", "2")]).await.unwrap();
    let (admin, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    let invite = async |client: &testkit::Client, name: &str| {
        let body = json!({ "email": format!("{name}@acme.example"), "delivery": "response" });
        client.post("/users/invite", &body).await
    };
    let ada: Invite = invite(&admin.client, "ada").await.expect(201);
    let problem = invite(&admin.client, "ben").await.expect_problem(409, "too_many_users");
    assert_eq!(problem.detail, "The tenant has 2 users.");
    admin.client.delete(&format!("/users/invites/{}", ada.invite_id)).await.expect_empty(204);
    // A new invite of an invited user adds no user.
    invite(&admin.client, "ben").await.expect::<Invite>(201);
    system.run_sql("update identity.invites set expires_at = now() where status = 'pending'").await;
    invite(&admin.client, "ben").await.expect::<Invite>(201);
    let platform = system.platform_admin().header("X-Tenant-ID", "acme");
    invite(&platform, "cora").await.expect::<Invite>(201);
    invite(&admin.client, "dan").await.expect_problem(409, "too_many_users");
    invite(&other.client, "dan").await.expect::<Invite>(201);
}

#[tokio::test]
async fn revoking_an_invite_deletes_its_user() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let body = json!({ "email": "ada@acme.example", "delivery": "response" });
    let invited = async || {
        let users: Page<User> = admin.client.get("/users?status=invited").await.expect(200);
        users.items.into_iter().map(|user| user.user_id).collect::<Vec<_>>()
    };
    let invite: Invite = admin.client.post("/users/invite", &body).await.expect(201);
    let user_id = invited().await[0];
    let revoke = format!("/users/invites/{}", invite.invite_id);
    admin.client.delete(&revoke).await.expect_empty(204);
    assert_eq!(invited().await, []);
    admin.client.get(&format!("/users/{user_id}")).await.expect_problem(404, "not_found");
    let revoked: Page<Invite> = admin.client.get("/users/invites?status=revoked").await.expect(200);
    assert_eq!(revoked.items[0].email, "ada@acme.example");

    // Revoking the old invite again does not affect the user of a newer one.
    let newer: Invite = admin.client.post("/users/invite", &body).await.expect(201);
    admin.client.delete(&revoke).await.expect_empty(204);
    let accept = json!({ "token": newer.token.unwrap(), "password": PASSWORD });
    let accepted: AcceptedInvite = system.client().post("/users/accept-invite", &accept).await.expect(201);
    assert_ne!(accepted.user_id, user_id);
    admin
        .client
        .delete(&format!("/users/invites/{}", newer.invite_id))
        .await
        .expect_problem(409, "user_exists");
}
