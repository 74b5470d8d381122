//! `/auth/passkey`: logins with a passkey alone, on the whole system.

use contract::Role;
use contract::factors::{Factors, PasskeyLoginOptions};
use contract::session::{AuthMethod, IssuedSession, PageSession, Whoami};
use serde_json::{Value, json};
use testkit::{Authenticator, Client, TestResponse};
use testsystem::{TestSystem, TestUser};

use super::passkeys::{
    CHANGES, EMAIL, OPTIONS, ORIGIN, PASSKEYS, answer, challenge, register, registration, started,
};

const START: &str = "/auth/passkey/options";
const LOG_IN: &str = "/auth/passkey/login";
/// What failed logins can write.
const WRITTEN: &str =
    "select (select count(*) from identity.outbox) + (select count(*) from identity.used_challenges)
    + (select coalesce(sum(failures), 0) from identity.login_attempts)
    + (select coalesce(sum(consecutive_failures), 0) from identity.login_failures)";

/// A system with an administrator of `acme` who has a passkey.
async fn with_passkey() -> (TestSystem, TestUser, Authenticator) {
    let (system, admin) = started().await;
    let mut authenticator = Authenticator::new(ORIGIN);
    register(&admin.client, &mut authenticator, "laptop").await;
    (system, admin, authenticator)
}

/// The same, with a member who has a passkey too.
async fn with_member() -> (TestSystem, Authenticator, TestUser, Authenticator) {
    let (system, admin) = started().await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let [mut of_admin, mut of_member] = [(); 2].map(|()| Authenticator::new(ORIGIN));
    register(&admin.client, &mut of_admin, "laptop").await;
    register(&member.client, &mut of_member, "phone").await;
    (system, of_admin, member, of_member)
}

/// Returns new request options.
async fn options(system: &TestSystem) -> Value {
    let options: PasskeyLoginOptions = system.client().post(START, &Value::Null).await.expect(200);
    options.public_key
}

async fn send(system: &TestSystem, assertion: &Value) -> TestResponse {
    system.client().post(LOG_IN, &json!({ "assertion": assertion })).await
}

async fn log_in(system: &TestSystem, authenticator: &Authenticator) -> TestResponse {
    send(system, &authenticator.get(&options(system).await)).await
}

fn session_of(system: &TestSystem, response: &TestResponse) -> Client {
    let session: IssuedSession = response.expect(200);
    system.client().bearer(session.session_id.expose())
}

async fn count(system: &TestSystem, select: &'static str) -> i64 {
    let mut connection = system.database.superuser().await.unwrap();
    sqlx::query_scalar(select).fetch_one(&mut connection).await.unwrap()
}

/// The response without the path and the id of the request.
fn masked(response: &TestResponse) -> (u16, Value, Vec<String>) {
    let mut body = response.json();
    body.as_object_mut().unwrap().retain(|name, _| !["request_id", "instance"].contains(&&**name));
    let mut headers: Vec<_> = response.headers.keys().map(ToString::to_string).collect();
    headers.sort();
    (response.status, body, headers)
}

#[tokio::test]
async fn a_passkey_alone_is_a_login_with_two_factors() {
    let (system, admin, authenticator) = with_passkey().await;
    let rule = json!({ "second_factor": "everyone" });
    system.platform_admin().patch("/tenants/acme", &rule).await.expect::<Value>(200);
    let public_key = options(&system).await;
    assert_eq!(
        (&public_key["rpId"], &public_key["userVerification"]),
        (&json!("svc.example"), &json!("required"))
    );
    assert_eq!(public_key["allowCredentials"], json!([]), "no account is named");
    let response = send(&system, &authenticator.get(&public_key)).await;
    assert_eq!(response.headers["cache-control"], "no-store");
    let client = session_of(&system, &response);
    let whoami: Whoami = client.get("/auth/session").await.expect(200);
    assert_eq!((whoami.user_id, whoami.tenant_id.as_str()), (Some(admin.user.user_id), "acme"));
    assert_eq!(whoami.amr, [AuthMethod::Hwk, AuthMethod::Mfa]);
    let factors: Factors = client.get("/auth/factors").await.expect(200);
    assert!(factors.factors[0].last_used_at.is_some(), "{factors:?}");
    // It is a recent login with the second factor: it may add a passkey.
    let mut synced = Authenticator::with_ed25519(ORIGIN);
    synced.flags |= 0b1_1000;
    register(&client, &mut synced, "manager").await;
    // A client may name the tenant.
    let named = system.client().header("X-Tenant-ID", "acme");
    let body = json!({ "assertion": synced.get(&options(&system).await) });
    let client = session_of(&system, &named.post(LOG_IN, &body).await);
    let whoami: Whoami = client.get("/auth/session").await.expect(200);
    assert_eq!(whoami.amr, [AuthMethod::Swk, AuthMethod::Mfa]);
    log_in(&system, &Authenticator::new(ORIGIN)).await.expect_problem(401, "login_failed");
    let metrics =
        testkit::client::plain_http().get(format!("{}/metrics", system.admin_url)).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    for line in
        ["svc_passkey_logins_total{result=\"accepted\"} 2", "svc_passkey_logins_total{result=\"rejected\"} 1"]
    {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[tokio::test]
async fn a_passkey_opens_the_page_of_own_sessions() {
    let (system, admin, authenticator) = with_passkey().await;
    let body = json!({ "assertion": authenticator.get(&options(&system).await) });
    let response = system.client().post("/pages/sessions/passkey", &body).await;
    assert!(response.headers.contains_key("set-cookie") && !response.body.contains("svc_st_"), "{response}");
    let login: PageSession = response.expect(200);
    assert_eq!((login.user_id, login.email.as_str()), (admin.user.user_id, EMAIL));
    let again = system.client().post("/pages/sessions/passkey", &body).await;
    again.expect_problem(400, "token_invalid");
}

#[tokio::test]
async fn every_rejected_passkey_gets_the_response_of_a_wrong_password() {
    let (system, mut authenticator, _member, of_member) = with_member().await;
    let wrong_password = async || {
        let body = json!({ "email": EMAIL, "password": "wrong-password-altogether" });
        let client = system.client().header("X-Tenant-ID", "acme");
        let response = client.post("/auth/password/login", &body).await;
        response.expect_problem(401, "login_failed");
        masked(&response)
    };
    let expected = wrong_password().await;
    let rejected = |name: &str, response: &TestResponse| assert_eq!(masked(response), expected, "{name}");

    rejected("an unknown passkey", &log_in(&system, &Authenticator::new(ORIGIN)).await);
    for (change, name) in CHANGES {
        let (origin, rp_id) = (authenticator.origin.clone(), authenticator.rp_id.clone());
        change(&mut authenticator);
        rejected(name, &log_in(&system, &authenticator).await);
        (authenticator.origin, authenticator.rp_id, authenticator.flags) = (origin, rp_id, 0b101);
    }
    let handle = authenticator.user_handle.clone();
    for (name, of) in
        [("the user handle of another person", of_member.user_handle.clone()), ("no user handle", None)]
    {
        authenticator.user_handle = of;
        rejected(name, &log_in(&system, &authenticator).await);
    }
    authenticator.user_handle = handle;
    let public_key = options(&system).await;
    let mut assertion = authenticator.get(&public_key);
    assertion["id"] = of_member.get(&public_key)["id"].clone();
    rejected("the id of another passkey", &send(&system, &assertion).await);
    for (member, value) in [("signature", "AAAA"), ("authenticatorData", "%"), ("userHandle", "☃")] {
        let mut assertion = authenticator.get(&public_key);
        assertion["response"][member] = value.into();
        rejected(member, &send(&system, &assertion).await);
    }
    let _other = system.create_tenant("other").await;
    for tenant in ["other", "unknown"] {
        let client = system.client().header("X-Tenant-ID", tenant);
        let body = json!({ "assertion": authenticator.get(&options(&system).await) });
        rejected(tenant, &client.post(LOG_IN, &body).await);
    }
    authenticator.counter = 3;
    log_in(&system, &authenticator).await.expect::<IssuedSession>(200);
    for counter in [3, 2, 0] {
        authenticator.counter = counter;
        rejected("a counter that does not grow", &log_in(&system, &authenticator).await);
    }
    authenticator.counter = 4;
    for (state, other) in [
        ("update identity.users set status = 'disabled'", "update identity.users set status = 'active'"),
        ("update identity.tenants set status = 'suspended'", "update identity.tenants set status = 'active'"),
        (
            "update identity.login_failures set consecutive_failures = 100;
            update identity.login_attempts set last_success_at = null",
            "delete from identity.login_failures",
        ),
        (
            "update identity.login_attempts set failures = 5, back_off_until = now() + interval '1 hour'",
            "delete from identity.login_attempts",
        ),
    ] {
        wrong_password().await;
        system.run_sql(state).await;
        rejected(state, &log_in(&system, &authenticator).await);
        system.run_sql(other).await;
    }
    log_in(&system, &authenticator).await.expect::<IssuedSession>(200);
}

#[tokio::test]
async fn removed_passkeys_and_passkeys_of_deleted_users_are_unknown() {
    let (system, authenticator, member, of_member) = with_member().await;
    let client = session_of(&system, &log_in(&system, &authenticator).await);
    client.delete(&format!("/users/{}", member.user.user_id)).await.expect_empty(204);
    log_in(&system, &of_member).await.expect_problem(401, "login_failed");
    assert_eq!(count(&system, "select count(*) from identity.used_challenges").await, 1);
    let factors: Factors = client.get("/auth/factors").await.expect(200);
    client.delete(&format!("/auth/factors/{}", factors.factors[0].factor_id)).await.expect_empty(204);
    log_in(&system, &authenticator).await.expect_problem(401, "login_failed");
}

#[tokio::test]
async fn a_tenant_can_permit_passkeys_as_a_second_factor_only() {
    let (system, _admin, authenticator) = with_passkey().await;
    let set = async |permitted: bool| {
        let tenant: Value = system
            .platform_admin()
            .patch("/tenants/acme", &json!({ "passkey_login": permitted }))
            .await
            .expect(200);
        assert_eq!(tenant["passkey_login"], permitted);
    };
    set(false).await;
    log_in(&system, &authenticator).await.expect_problem(401, "login_failed");
    let second_step = challenge(&system, EMAIL).await;
    let response = answer(&system, &second_step, &authenticator.get(&second_step["public_key"])).await;
    response.expect::<IssuedSession>(200);
    set(true).await;
    log_in(&system, &authenticator).await.expect::<IssuedSession>(200);
}

#[tokio::test]
async fn a_challenge_is_for_one_login_also_of_parallel_requests() {
    let (system, _admin, authenticator) = with_passkey().await;
    let assertion = authenticator.get(&options(&system).await);
    send(&system, &assertion).await.expect::<IssuedSession>(200);
    send(&system, &assertion).await.expect_problem(400, "token_invalid");
    let assertion = authenticator.get(&options(&system).await);
    let sent = testkit::join_all((0..8).map(|_| send(&system, &assertion))).await;
    let (accepted, others): (Vec<_>, Vec<_>) = sent.iter().partition(|response| response.status == 200);
    assert_eq!(accepted.len(), 1);
    for other in others {
        other.expect_problem(400, "token_invalid");
    }
    // A login deletes the challenges that are expired for every replica.
    system.run_sql("update identity.used_challenges set expires_at = now() - interval '301 s'").await;
    log_in(&system, &authenticator).await.expect::<IssuedSession>(200);
    assert_eq!(count(&system, "select count(*) from identity.used_challenges").await, 1);
}

#[tokio::test]
async fn a_challenge_of_another_purpose_is_no_login_and_one_of_a_login_has_no_other_purpose() {
    let (system, _admin, authenticator) = with_passkey().await;
    let second_step = challenge(&system, EMAIL).await;
    let assertion = authenticator.get(&second_step["public_key"]);
    send(&system, &assertion).await.expect_problem(400, "token_invalid");
    let client = session_of(&system, &log_in(&system, &authenticator).await);
    let of_registration: Value = client.post(OPTIONS, &Value::Null).await.expect(201);
    let assertion = authenticator.get(&of_registration["public_key"]);
    send(&system, &assertion).await.expect_problem(400, "token_invalid");
    for invalid in ["", "AAAA", &"A".repeat(75)] {
        let assertion = authenticator.get(&json!({ "challenge": invalid }));
        send(&system, &assertion).await.expect_problem(400, "token_invalid");
    }
    let of_login = options(&system).await;
    let rejected = answer(&system, &second_step, &authenticator.get(&of_login)).await;
    rejected.expect_problem(401, "second_factor_failed");
    let token = json!({ "challenge": of_login["challenge"], "assertion": authenticator.get(&of_login) });
    let named = system.client().header("X-Tenant-ID", "acme");
    named.post("/auth/second-factor", &token).await.expect_problem(400, "token_invalid");
    let mut other = Authenticator::new(ORIGIN);
    let mut request = registration(&client, &mut other, "second").await;
    let mut signed = of_registration["public_key"].clone();
    signed["challenge"] = of_login["challenge"].clone();
    request["credential"] = other.create(&signed);
    let problem = client.post(PASSKEYS, &request).await.expect_problem(422, "validation_failed");
    assert!(problem.errors[0].message.contains("answers another request"), "{problem:?}");
}

#[tokio::test]
async fn clients_without_the_passkey_write_nothing_and_rejected_logins_with_it_do_not_lock_the_account() {
    let (system, _admin, mut authenticator) = with_passkey().await;
    authenticator.counter = 2;
    log_in(&system, &authenticator).await.expect::<IssuedSession>(200);
    system.wait_for_empty_outbox().await;
    // Stops the relay, so that the messages can be counted.
    system.run_sql("alter function identity.outbox_claim rename to outbox_claim_disabled").await;
    let before = count(&system, WRITTEN).await;
    let mut stranger = Authenticator::new(ORIGIN);
    stranger.credential_id.clone_from(&authenticator.credential_id);
    stranger.user_handle.clone_from(&authenticator.user_handle);
    for _ in 0..101 {
        log_in(&system, &stranger).await.expect_problem(401, "login_failed");
    }
    assert_eq!(count(&system, WRITTEN).await, before);
    // A copy of the passkey with an older counter: one audit event with a count, and no failure.
    for _ in 0..101 {
        log_in(&system, &authenticator).await.expect_problem(401, "login_failed");
    }
    assert_eq!(count(&system, WRITTEN).await, before + 1);
    let failed = "select (payload ->> 'count')::bigint from identity.outbox where payload ->> 'name' = 'authn_login_fail'";
    assert_eq!(count(&system, failed).await, 101);
    authenticator.counter = 3;
    log_in(&system, &authenticator).await.expect::<IssuedSession>(200);
    let success = "select count(*) from identity.outbox where payload ->> 'name' = 'authn_login_success'";
    assert_eq!(count(&system, success).await, 1);
    challenge(&system, EMAIL).await;
}
