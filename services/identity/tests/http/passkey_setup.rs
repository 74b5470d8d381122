//! The registration of a passkey in a login that must set up a second factor, on the whole system.

use contract::Role;
use contract::factors::Factors;
use contract::identity::UserExport;
use contract::session::{AuthMethod, IssuedSession, Whoami};
use serde_json::{Value, json};
use testkit::{Authenticator, PASSWORD, TestResponse};
use testsystem::TestSystem;

use super::passkeys::{self, CHANGES, EMAIL, ORIGIN, PASSKEYS, answer, challenge, register, started};

const LOGIN: &str = "/auth/password/login";
const OPTIONS: &str = "/auth/second-factor/passkey";
const COMPLETE: &str = "/auth/second-factor";

async fn post(system: &TestSystem, path: &str, body: &Value) -> TestResponse {
    system.client().header("X-Tenant-ID", "acme").post(path, body).await
}

/// Requires a factor of everyone and logs in with the password. Returns the problem with the challenge.
async fn setup_challenge(system: &TestSystem, path: &str) -> Value {
    let policy = json!({ "second_factor": "everyone" });
    system.platform_admin().patch("/tenants/acme", &policy).await.expect::<Value>(200);
    let response = post(system, path, &json!({ "email": EMAIL, "password": PASSWORD })).await;
    response.expect_problem(403, "second_factor_setup_required");
    response.json()
}

/// Returns the request that registers a passkey with a challenge.
async fn registration(system: &TestSystem, problem: &Value, authenticator: &mut Authenticator) -> Value {
    let start = json!({ "challenge": problem["challenge"] });
    let options: Value = post(system, OPTIONS, &start).await.expect(200);
    assert_eq!(options["challenge"], problem["challenge"]);
    assert_eq!(options["public_key"]["user"]["displayName"], EMAIL);
    let credential = authenticator.create(&options["public_key"]);
    json!({ "challenge": options["challenge"], "name": " laptop ", "credential": credential })
}

#[tokio::test]
async fn a_person_who_must_have_a_factor_registers_a_passkey_at_the_login_and_gets_a_session() {
    let (system, _admin) = started().await;
    let problem = setup_challenge(&system, LOGIN).await;
    assert_eq!(problem["methods"], json!(["totp", "passkey"]));
    assert!(problem["public_key"].is_null(), "{problem}");
    let authenticator = &mut Authenticator::new(ORIGIN);
    let body = registration(&system, &problem, authenticator).await;
    let session: IssuedSession = post(&system, COMPLETE, &body).await.expect(200);
    assert_eq!(session.recovery_codes.as_ref().map(Vec::len), Some(10));
    let client = system.client().bearer(session.session_id.expose());
    let whoami: Whoami = client.get("/auth/session").await.expect(200);
    assert_eq!(whoami.amr, [AuthMethod::Pwd, AuthMethod::Hwk, AuthMethod::Mfa]);
    // It is a recent login with the factor.
    client.post("/api-keys", &json!({ "name": "k" })).await.expect::<Value>(201);
    let factors: Factors = client.get("/auth/factors").await.expect(200);
    assert_eq!((factors.factors[0].name.as_deref(), factors.recovery_codes), (Some("laptop"), 10));
    system.wait_for_mails_to(EMAIL, "A passkey was added to your account", 1).await;
    let start = json!({ "challenge": problem["challenge"] });
    post(&system, OPTIONS, &start).await.expect_problem(400, "token_invalid");
    post(&system, COMPLETE, &body).await.expect_problem(400, "token_invalid");
    // The next login needs the passkey.
    let next = challenge(&system, EMAIL).await;
    let assertion = authenticator.get(&next["public_key"]);
    let session: IssuedSession = answer(&system, &next, &assertion).await.expect(200);
    assert!(session.recovery_codes.is_none());
}

#[tokio::test]
async fn the_page_registers_a_passkey_with_the_same_challenge() {
    let (system, _admin) = started().await;
    let problem = setup_challenge(&system, "/pages/sessions/login").await;
    let body = registration(&system, &problem, &mut Authenticator::new(ORIGIN)).await;
    let response = post(&system, "/pages/sessions/second-factor", &body).await;
    assert!(response.status == 200 && response.headers.contains_key("set-cookie"), "{response}");
    assert_eq!(response.json()["recovery_codes"].as_array().unwrap().len(), 10, "{response}");
}

#[tokio::test]
async fn an_invalid_passkey_counts_at_the_challenge_and_an_invalid_name_does_not() {
    let (system, admin) = started().await;
    let problem = setup_challenge(&system, LOGIN).await;
    let right = registration(&system, &problem, &mut Authenticator::new(ORIGIN)).await;
    for name in [json!(""), json!("a\nb"), Value::Null] {
        let mut body = right.clone();
        body["name"] = name;
        let problem = post(&system, COMPLETE, &body).await.expect_problem(422, "validation_failed");
        assert_eq!(problem.errors[0].pointer, "/name");
    }
    for (change, message) in CHANGES {
        let mut authenticator = Authenticator::new(ORIGIN);
        change(&mut authenticator);
        let body = registration(&system, &problem, &mut authenticator).await;
        let problem = post(&system, COMPLETE, &body).await.expect_problem(422, "validation_failed");
        assert_eq!(problem.errors[0].pointer, "/credential");
        assert!(problem.errors[0].message.contains(message), "{problem:?}");
    }
    let recover = json!({ "challenge": problem["challenge"], "recovery_code": "ABCD-EFGH-IJKL-MNOP" });
    for _ in CHANGES.len()..5 {
        post(&system, COMPLETE, &recover).await.expect_problem(401, "second_factor_failed");
    }
    post(&system, COMPLETE, &right).await.expect_problem(400, "token_invalid");
    assert!(admin.client.get("/auth/factors").await.expect::<Factors>(200).factors.is_empty());
}

#[tokio::test]
async fn the_challenge_of_a_login_with_a_factor_registers_no_passkey_and_accepts_no_registration() {
    let (system, admin) = started().await;
    let (registered, other) = (&mut Authenticator::new(ORIGIN), &mut Authenticator::new(ORIGIN));
    register(&admin.client, registered, "laptop").await;
    let login = challenge(&system, EMAIL).await;
    let start = json!({ "challenge": login["challenge"] });
    post(&system, OPTIONS, &start).await.expect_problem(400, "token_invalid");
    // Nothing signs a registration, so also the one of the existing passkey proves nothing.
    for authenticator in [registered, other] {
        let credential = authenticator.create(&login["public_key"]);
        let body = json!({ "challenge": login["challenge"], "name": "x", "credential": credential });
        post(&system, COMPLETE, &body).await.expect_problem(401, "second_factor_failed");
    }
    let factors: Factors = admin.client.get("/auth/factors").await.expect(200);
    assert_eq!(factors.factors.len(), 1, "{factors:?}");
}

/// The challenge of the body of a request.
fn challenge_only(body: &Value) -> Value {
    json!({ "challenge": body["challenge"] })
}

#[tokio::test]
async fn the_challenge_of_a_set_up_registers_one_passkey_in_its_login_and_no_other_challenge_does() {
    let (system, admin) = started().await;
    let other = system.create_tenant("other").await;
    let in_session = passkeys::registration(&admin.client, &mut Authenticator::new(ORIGIN), "x").await;
    let problem = setup_challenge(&system, LOGIN).await;
    let first = registration(&system, &problem, &mut Authenticator::new(ORIGIN)).await;
    let second = registration(&system, &problem, &mut Authenticator::new(ORIGIN)).await;
    for user in [&admin, &other] {
        user.client.post(PASSKEYS, &first).await.expect_problem(400, "token_invalid");
    }
    let elsewhere = system.client().header("X-Tenant-ID", "other");
    for (path, of) in [(OPTIONS, challenge_only as fn(&Value) -> Value), (COMPLETE, Value::clone)] {
        elsewhere.post(path, &of(&first)).await.expect_problem(400, "token_invalid");
        post(&system, path, &of(&in_session)).await.expect_problem(400, "token_invalid");
    }
    let (one, two) = tokio::join!(post(&system, COMPLETE, &first), post(&system, COMPLETE, &second));
    let (accepted, rejected) = if one.status == 200 { (one, two) } else { (two, one) };
    accepted.expect::<IssuedSession>(200);
    rejected.expect_problem(400, "token_invalid");
    let factors: Factors = admin.client.get("/auth/factors").await.expect(200);
    assert_eq!(factors.factors.len(), 1, "{factors:?}");
}

#[tokio::test]
async fn a_set_up_ends_when_the_account_is_disabled() {
    let (system, admin) = started().await;
    let ada = system.add_user(&admin, "ada@acme.example", Role::Admin).await;
    let problem = setup_challenge(&system, LOGIN).await;
    let body = registration(&system, &problem, &mut Authenticator::new(ORIGIN)).await;
    let start = json!({ "challenge": problem["challenge"] });
    let user = format!("/users/{}", admin.user.user_id);
    for status in ["disabled", "active"] {
        ada.client.patch(&user, &json!({ "status": status })).await.expect::<Value>(200);
        post(&system, OPTIONS, &start).await.expect_problem(400, "token_invalid");
        post(&system, COMPLETE, &body).await.expect_problem(400, "token_invalid");
    }
    let export: UserExport = ada.client.get(&format!("{user}/export")).await.expect(200);
    assert!(export.factors.is_empty(), "{export:?}");
}
