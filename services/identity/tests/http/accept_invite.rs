//! `/users/accept-invite`.

use contract::identity::{AcceptedInvite, Invite};
use serde_json::json;
use testkit::World;
use testkit::world::PASSWORD;

async fn invited(world: &World) -> String {
    let admin = world.tenant("acme").await;
    let body = json!({ "email": "ada.lovelace@acme.example", "delivery": "response" });
    let answer = admin.client.post("/users/invite", &body).await;
    answer.expect::<Invite>(201).token.map(|token| token.expose().to_owned()).unwrap_or_default()
}

#[tokio::test]
async fn an_invite_token_can_be_used_once() {
    let world = World::start().await.unwrap();
    let token = invited(&world).await;
    let accept = json!({ "token": token, "password": PASSWORD });
    let user: AcceptedInvite = world.client().post("/users/accept-invite", &accept).await.expect(201);
    assert_eq!((user.tenant_id.as_str(), user.email.as_str()), ("acme", "ada.lovelace@acme.example"));
    world.client().post("/users/accept-invite", &accept).await.expect_problem(400, "token_invalid");
}

#[tokio::test]
async fn concurrent_uses_of_one_token_create_one_account() {
    let world = World::start().await.unwrap();
    let accept = json!({ "token": invited(&world).await, "password": PASSWORD });
    let client = world.client();
    let attempts = (0..8).map(|_| async { client.post("/users/accept-invite", &accept).await.status });
    let mut statuses = testkit::together(attempts.collect()).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 400, 400, 400, 400, 400, 400, 400]);
}

#[tokio::test]
async fn a_rejected_password_names_the_reason_and_does_not_consume_the_token() {
    let world = World::start().await.unwrap();
    let token = invited(&world).await;
    let accept = async |password: &str| {
        world.client().post("/users/accept-invite", &json!({ "token": token, "password": password })).await
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
    let world = World::start().await.unwrap();
    let unknown = "svc_iv_0000000000000000000000000000000000000000000_000000";
    for token in ["", "nonsense", unknown, &world.platform_token] {
        let body = json!({ "token": token, "password": "short" });
        world.client().post("/users/accept-invite", &body).await.expect_problem(400, "token_invalid");
    }
}

#[tokio::test]
async fn tokens_and_passwords_are_never_stored() {
    let world = World::start().await.unwrap();
    let token = invited(&world).await;
    let accept = json!({ "token": token, "password": PASSWORD });
    world.client().post("/users/accept-invite", &accept).await.expect::<AcceptedInvite>(201);
    let session = world.log_in("acme", "ada.lovelace@acme.example").await;
    let everything = world.dump().await;
    assert!(everything.contains("$argon2id$v=19$m=64,t=1,p=4$"), "the digest is stored as a PHC string");
    for secret in [&*token, PASSWORD, session.session_id.expose()] {
        assert!(!everything.contains(secret));
    }
}
