//! `/users/accept-invite`.

use contract::identity::{AcceptedInvite, Invite};
use serde_json::json;
use testkit::PASSWORD;
use testsystem::TestSystem;

async fn invited(system: &TestSystem) -> String {
    let admin = system.create_tenant("acme").await;
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
    ] {
        let problem = accept(password).await.expect_problem(422, code);
        assert_eq!(problem.errors[0].pointer, "/password");
    }
    accept(PASSWORD).await.expect::<AcceptedInvite>(201);
}

#[tokio::test]
async fn invalid_and_unknown_tokens_get_the_same_response() {
    let system = TestSystem::start().await.unwrap();
    let unknown = "svc_iv_0000000000000000000000000000000000000000000_000000";
    for token in ["", "nonsense", unknown, &system.platform_token] {
        let body = json!({ "token": token, "password": "short" });
        system.client().post("/users/accept-invite", &body).await.expect_problem(400, "token_invalid");
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
