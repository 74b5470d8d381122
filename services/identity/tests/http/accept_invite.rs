//! `/users/accept-invite`.

use contract::identity::{AcceptedInvite, Invite};
use serde_json::{Value, json};
use testkit::PASSWORD;
use testsystem::TestSystem;

async fn invited(system: &TestSystem) -> String {
    invited_to(system, "acme").await
}

async fn invited_to(system: &TestSystem, tenant_id: &str) -> String {
    let admin = system.create_tenant(tenant_id).await;
    let body = json!({ "email": "ada.lovelace@acme.example", "delivery": "response" });
    let answer = admin.client.post("/users/invite", &body).await;
    answer.expect::<Invite>(201).token.map(|token| token.expose().to_owned()).unwrap_or_default()
}

#[tokio::test]
async fn an_invite_token_can_be_used_once() {
    let system = TestSystem::start().await.unwrap();
    let token = invited(&system).await;
    let accept = json!({ "token": token, "password": PASSWORD });
    let user: AcceptedInvite = system.client().post("/users/accept-invite", &accept).await.expect(201);
    assert_eq!((user.tenant_id.as_str(), user.email.as_str()), ("acme", "ada.lovelace@acme.example"));
    system.client().post("/users/accept-invite", &accept).await.expect_problem(400, "token_invalid");
}

#[tokio::test]
async fn concurrent_uses_of_one_token_create_one_account() {
    let system = TestSystem::start().await.unwrap();
    let accept = json!({ "token": invited(&system).await, "password": PASSWORD });
    let client = system.client();
    let attempts = (0..8).map(|_| async { client.post("/users/accept-invite", &accept).await.status });
    let mut statuses = testkit::join_all(attempts).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 400, 400, 400, 400, 400, 400, 400]);
}

#[tokio::test]
async fn a_rejected_password_names_the_reason_and_does_not_consume_the_token() {
    let system = TestSystem::start().await.unwrap();
    let token = invited(&system).await;
    let accept = async |password: &str| {
        system.client().post("/users/accept-invite", &json!({ "token": token, "password": password })).await
    };
    for (password, code) in [
        ("short", "password_too_short"),
        (&*"x7 ".repeat(60), "password_too_long"),
        ("password123456", "password_common"),
        ("Ada.Lovelace@acme.example", "password_context"),
        ("correct horse\u{0}battery", "password_invalid"),
        ("Correct-horse-77\u{200b}", "password_invalid"),
    ] {
        let problem = accept(password).await.expect_problem(422, code);
        assert_eq!(problem.errors[0].pointer, "/password");
    }
    accept(PASSWORD).await.expect::<AcceptedInvite>(201);
}

#[tokio::test]
async fn an_inspected_invite_names_tenant_account_and_inviter_and_stays_valid() {
    let system = TestSystem::start().await.unwrap();
    let token = invited(&system).await;
    let body = json!({ "token": token });
    let mut invite: Value = system.client().post("/users/accept-invite/inspect", &body).await.expect(200);
    assert!(invite["expires_at"].take().is_string());
    assert_eq!(
        invite,
        json!({
            "tenant_id": "acme", "tenant_name": "acme", "email": "ada.lovelace@acme.example", "role": "member",
            "invited_by": "admin@acme.example", "expires_at": null, "password_min_length": 12,
        })
    );
    let accept = json!({ "token": token, "password": PASSWORD });
    system.client().post("/users/accept-invite", &accept).await.expect::<AcceptedInvite>(201);
}

#[tokio::test]
async fn a_token_that_cannot_be_accepted_cannot_be_inspected() {
    let system = TestSystem::start().await.unwrap();
    let token = invited(&system).await;
    let inspect = async || {
        let answer = system.client().post("/users/accept-invite/inspect", &json!({ "token": token })).await;
        answer.expect_problem(400, "token_invalid");
    };
    let patch = async |status: &str| {
        let body = json!({ "status": status });
        system.platform_admin().patch("/tenants/acme", &body).await.expect::<Value>(200)
    };
    patch("suspended").await;
    inspect().await;
    patch("active").await;
    system.run_sql("update identity.invites set expires_at = now() where status = 'pending'").await;
    inspect().await;
    let used = invited_to(&system, "umbr").await;
    let accept = json!({ "token": used, "password": PASSWORD });
    system.client().post("/users/accept-invite", &accept).await.expect::<AcceptedInvite>(201);
    let answer = system.client().post("/users/accept-invite/inspect", &json!({ "token": used })).await;
    answer.expect_problem(400, "token_invalid");
}

#[tokio::test]
async fn invalid_and_unknown_tokens_get_the_same_response() {
    let system = TestSystem::start().await.unwrap();
    let unknown = "svc_iv_0000000000000000000000000000000000000000000_000000";
    for token in ["", "nonsense", unknown, &system.platform_token] {
        for (path, body) in [
            ("/users/accept-invite", json!({ "token": token, "password": "short" })),
            ("/users/accept-invite/inspect", json!({ "token": token })),
        ] {
            system.client().post(path, &body).await.expect_problem(400, "token_invalid");
        }
    }
}

#[tokio::test]
async fn tokens_and_passwords_are_never_stored() {
    let system = TestSystem::start().await.unwrap();
    let token = invited(&system).await;
    let accept = json!({ "token": token, "password": PASSWORD });
    system.client().post("/users/accept-invite", &accept).await.expect::<AcceptedInvite>(201);
    let session = system.log_in("acme", "ada.lovelace@acme.example").await;
    let everything = system.dump_database().await;
    assert!(everything.contains("$argon2id$v=19$m=64,t=1,p=4$"), "the digest is stored as a PHC string");
    for secret in [&*token, PASSWORD, session.session_id.expose()] {
        assert!(!everything.contains(secret));
    }
}
