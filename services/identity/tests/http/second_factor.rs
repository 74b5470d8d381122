//! `/auth/second-factor`, `/auth/factors` and `/users/{user_id}/factors` on the whole system.

use contract::factors::{Factors, NewTotp, RecoveryCodes};
use contract::session::{AuthMethod, IssuedSession, Session, Whoami};
use contract::{Page, Role};
use serde_json::{Value, json};
use testkit::{Client, PASSWORD, TestResponse, totp_after, wait_until};
use testsystem::{TestSystem, TestUser, set_up_app};

const EMAIL: &str = "admin@acme.example";
const LOGIN: &str = "/auth/password/login";
const COMPLETE: &str = "/auth/second-factor";

async fn challenge(system: &TestSystem, path: &str) -> String {
    challenge_of(system, path, EMAIL, "second_factor_required", &json!(["totp", "recovery_code"])).await
}

/// The challenge for the set-up of a factor.
async fn setup_challenge(system: &TestSystem, email: &str) -> String {
    challenge_of(system, LOGIN, email, "second_factor_setup_required", &json!(["totp"])).await
}

async fn challenge_of(system: &TestSystem, path: &str, email: &str, code: &str, methods: &Value) -> String {
    let response = answer(system, path, &json!({ "email": email, "password": PASSWORD })).await;
    response.expect_problem(403, code);
    let body = response.json();
    assert_eq!(body["methods"], *methods, "{body}");
    assert!(!body["expires_at"].is_null(), "{body}");
    body["challenge"].as_str().unwrap().to_owned()
}

async fn require(system: &TestSystem, policy: &str) {
    let tenant = system.platform_admin().patch("/tenants/acme", &json!({ "second_factor": policy })).await;
    assert_eq!(tenant.expect::<Value>(200)["second_factor"], policy);
}

async fn answer(system: &TestSystem, path: &str, body: &Value) -> TestResponse {
    system.client().header("X-Tenant-ID", "acme").post(path, body).await
}

/// Logs in with the code of the next step: that of this one can be used up by the set-up.
async fn log_in(system: &TestSystem, secret: &str) -> Client {
    let challenge = challenge(system, "/auth/password/login").await;
    let body = json!({ "challenge": challenge, "code": totp_after(secret, 1) });
    let session: IssuedSession = answer(system, "/auth/second-factor", &body).await.expect(200);
    system.client().bearer(session.session_id.expose())
}

async fn started() -> (TestSystem, TestUser) {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    (system, admin)
}

#[tokio::test]
async fn sessions_show_the_methods_of_their_login() {
    let (system, admin) = started().await;
    let (secret, _) = set_up_app(&admin.client).await;
    let client = log_in(&system, &secret).await;
    let whoami: Whoami = client.get("/auth/session").await.expect(200);
    assert_eq!(whoami.amr, [AuthMethod::Pwd, AuthMethod::Otp, AuthMethod::Mfa]);
    let listed =
        client.clone().header("X-User-ID", &admin.user.user_id.to_string()).get("/auth/sessions").await;
    let listed: Page<Session> = listed.expect(200);
    let methods: Vec<_> = listed.items.iter().map(|session| session.amr.as_slice()).collect();
    assert_eq!(methods, [&[AuthMethod::Pwd][..], &whoami.amr]);
    let factors: Factors = client.get("/auth/factors").await.expect(200);
    assert!(factors.factors.len() == 1 && factors.factors[0].last_used_at.is_some(), "{factors:?}");
    assert_eq!(factors.recovery_codes, 10);
    let created = crate::audit::of(&system, "audit.v1.acme.session.session_created").await;
    let methods: Vec<_> = created.iter().map(|event| event["amr"].clone()).collect();
    assert_eq!(methods, [json!(["pwd"]), json!(["pwd", "otp", "mfa"])]);
}

#[tokio::test]
async fn a_reset_of_the_password_neither_removes_nor_skips_the_factor() {
    let (system, admin) = started().await;
    let (secret, _) = set_up_app(&admin.client).await;
    answer(&system, "/auth/password/reset", &json!({ "email": EMAIL })).await.expect_empty(204);
    let mails = system.wait_for_mails_to(EMAIL, "Subject: svc: Reset your password", 1).await;
    let token = mails[0].split_whitespace().find(|word| word.starts_with("svc_pr_")).unwrap();
    let password = "another-horse-battery-10";
    let confirm = json!({ "token": token, "new_password": password });
    answer(&system, "/auth/password/reset/confirm", &confirm).await.expect_empty(204);
    let login = answer(&system, LOGIN, &json!({ "email": EMAIL, "password": password })).await;
    login.expect_problem(403, "second_factor_required");
    let complete = json!({ "challenge": login.json()["challenge"], "code": totp_after(&secret, 1) });
    let session: IssuedSession = answer(&system, COMPLETE, &complete).await.expect(200);
    let client = system.client().bearer(session.session_id.expose());
    let factors: Factors = client.get("/auth/factors").await.expect(200);
    assert_eq!((factors.factors.len(), factors.recovery_codes), (1, 10), "{factors:?}");
}

#[tokio::test]
async fn a_recent_login_needs_the_factor_as_soon_as_there_is_one() {
    let (system, admin) = started().await;
    let device = system.client().header("X-Tenant-ID", "acme");
    let device: Value = device.post("/auth/device/code", &json!({})).await.expect(200);
    let approve = json!({ "user_code": device["user_code"], "decision": "approve" });
    let (secret, _) = set_up_app(&admin.client).await;
    let key = json!({ "name": "k" });
    for (path, body) in [
        ("/auth/device/decide", &approve),
        ("/api-keys", &key),
        ("/auth/factors/totp", &Value::Null),
        ("/auth/factors/recovery-codes", &Value::Null),
    ] {
        admin.client.post(path, body).await.expect_problem(403, "reauthentication_required");
    }
    let client = log_in(&system, &secret).await;
    client.post("/auth/device/decide", &approve).await.expect_empty(204);
    client.post("/api-keys", &key).await.expect::<Value>(201);
    client.post("/auth/factors/totp", &Value::Null).await.expect_problem(409, "factor_exists");
    // The session of the device has the methods of the session that approved it.
    let body = json!({
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": device["device_code"],
    });
    let session: Value = system.client().post("/auth/device/token", &body).await.expect(200);
    let of_device = system.client().bearer(session["access_token"].as_str().unwrap());
    assert_eq!(
        of_device.get("/auth/session").await.expect::<Value>(200)["amr"],
        json!(["pwd", "otp", "mfa"])
    );
}

#[tokio::test]
async fn a_session_without_the_factor_changes_nothing_also_while_session_does_not_know_the_factor() {
    let (system, admin) = started().await;
    set_up_app(&admin.client).await;
    let factors: Factors = admin.client.get("/auth/factors").await.expect(200);
    system.wait_for_empty_outbox().await;
    system.run_sql("update session.subjects set has_factor = false").await;
    wait_until("session does not know the factor", async || {
        let key = admin.client.post("/api-keys", &json!({ "name": "k" })).await;
        (key.status == 201).then_some(())
    })
    .await;
    let factor = format!("/auth/factors/{}", factors.factors[0].factor_id);
    admin.client.delete(&factor).await.expect_problem(403, "reauthentication_required");
    let codes = admin.client.post("/auth/factors/recovery-codes", &Value::Null).await;
    codes.expect_problem(403, "reauthentication_required");
    let change = json!({ "current_password": PASSWORD, "new_password": "another long phrase of words" });
    let client = admin.client.clone().header("X-User-ID", &admin.user.user_id.to_string());
    let changed = client.post("/auth/password/change", &change).await;
    changed.expect_problem(403, "reauthentication_required");
}

#[tokio::test]
async fn new_recovery_codes_replace_the_old_ones_and_each_change_is_mailed() {
    let (system, admin) = started().await;
    let (secret, old) = set_up_app(&admin.client).await;
    system.wait_for_mails_to(EMAIL, "An authenticator app was set up", 1).await;
    let client = log_in(&system, &secret).await;
    let new: RecoveryCodes = client.post("/auth/factors/recovery-codes", &Value::Null).await.expect(201);
    system.wait_for_mails_to(EMAIL, "Your recovery codes were replaced", 1).await;
    let challenge = challenge(&system, "/auth/password/login").await;
    let recover = |code: &str| json!({ "challenge": challenge, "recovery_code": code });
    let path = "/auth/second-factor";
    answer(&system, path, &recover(&old[0])).await.expect_problem(401, "second_factor_failed");
    let session = answer(&system, path, &recover(new.recovery_codes[0].expose())).await;
    let session: IssuedSession = session.expect(200);
    system.wait_for_mails_to(EMAIL, "A recovery code was used", 1).await;
    let client = system.client().bearer(session.session_id.expose());
    let factors: Factors = client.get("/auth/factors").await.expect(200);
    assert_eq!(factors.recovery_codes, 9);
    let path = format!("/auth/factors/{}", factors.factors[0].factor_id);
    client.delete(&path).await.expect_empty(204);
    client.delete(&path).await.expect_problem(404, "not_found");
    system.wait_for_mails_to(EMAIL, "Your authenticator app was removed", 1).await;
    system.log_in("acme", EMAIL).await;
    // No secret is stored or mailed in plain text.
    let dump = system.dump_database().await;
    assert!(!dump.contains(&secret) && !dump.contains(&old[1]) && !dump.contains(&old[1].replace('-', "")));
}

#[tokio::test]
async fn an_administrator_resets_the_factors_of_a_person_who_lost_them() {
    let (system, admin) = started().await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let other = system.add_user(&admin, "grace@acme.example", Role::Admin).await;
    set_up_app(&member.client).await;
    let path = format!("/users/{}/factors", member.user.user_id);
    member.client.delete(&path).await.expect_problem(403, "forbidden");
    admin.client.delete(&path).await.expect_empty(204);
    system.wait_for_mails_to(&member.user.email, "Your second factors were removed", 1).await;
    system.wait_for_mails_to(&other.user.email, "were removed", 1).await;
    system.log_in("acme", &member.user.email).await;
    // The platform administrator helps the last administrator.
    set_up_app(&member.client).await;
    let platform = system.platform_admin().header("X-Tenant-ID", "acme");
    platform.delete(&path).await.expect_empty(204);
    system.log_in("acme", &member.user.email).await;
}

#[tokio::test]
async fn the_login_of_the_page_needs_the_factor_too() {
    let (system, admin) = started().await;
    let (secret, _) = set_up_app(&admin.client).await;
    let challenge = challenge(&system, "/pages/sessions/login").await;
    let body = json!({ "challenge": challenge, "code": totp_after(&secret, 1) });
    let response = answer(&system, "/pages/sessions/second-factor", &body).await;
    assert!(response.status == 200 && response.headers.contains_key("set-cookie"), "{response}");
    assert!(!response.body.contains("svc_st_"), "{response}");
}

#[tokio::test]
async fn an_app_has_no_effect_until_a_code_confirms_it() {
    let (system, admin) = started().await;
    let first: NewTotp = admin.client.post("/auth/factors/totp", &Value::Null).await.expect(201);
    system.log_in("acme", EMAIL).await;
    let second: NewTotp = admin.client.post("/auth/factors/totp", &Value::Null).await.expect(201);
    let confirm = |secret: &str| json!({ "code": totp_after(secret, 0) });
    let path = "/auth/factors/totp/confirm";
    let wrong = admin.client.post(path, &confirm(first.secret.expose())).await;
    assert_eq!(wrong.expect_problem(422, "validation_failed").errors[0].pointer, "/code");
    admin.client.post(path, &confirm(second.secret.expose())).await.expect::<RecoveryCodes>(200);
    admin
        .client
        .post(path, &confirm(second.secret.expose()))
        .await
        .expect_problem(403, "reauthentication_required");
}

#[tokio::test]
async fn exports_name_factors_without_secrets_and_an_erasure_deletes_them() {
    let (system, admin) = started().await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let (secret, _) = set_up_app(&member.client).await;
    let path = format!("/users/{}", member.user.user_id);
    let export = admin.client.get(&format!("{path}/export")).await;
    let body: Value = export.expect(200);
    assert_eq!(body["factors"][0]["type"], "totp", "{body}");
    assert!(!body.to_string().contains(&secret));
    admin.client.delete(&path).await.expect_empty(204);
    let mut connection = system.database.superuser().await.unwrap();
    let rows =
        "select (select count(*) from identity.totp_factors) + (select count(*) from identity.recovery_codes)
        + (select count(*) from identity.login_challenges)";
    let rows: i64 = sqlx::query_scalar(rows).fetch_one(&mut connection).await.unwrap();
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn a_request_has_exactly_one_code() {
    let (system, _admin) = started().await;
    let challenge = "svc_ch_0000000000000000000000000000000000000000000_000000";
    for body in [
        json!({ "challenge": challenge }),
        json!({ "challenge": challenge, "code": "123456", "recovery_code": "ABCD-EFGH-IJKL-MNOP" }),
        json!({ "challenge": challenge, "code": "12345" }),
        json!({ "challenge": challenge, "recovery_code": "ABCD" }),
    ] {
        answer(&system, "/auth/second-factor", &body).await.expect_problem(422, "validation_failed");
    }
    let body = json!({ "challenge": challenge, "code": "123456" });
    answer(&system, "/auth/second-factor", &body).await.expect_problem(400, "token_invalid");
}

#[tokio::test]
async fn a_person_who_must_have_a_factor_sets_it_up_at_the_login_and_gets_a_session() {
    let (system, admin) = started().await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    require(&system, "administrators").await;
    system.log_in("acme", &member.user.email).await;
    admin.client.get("/auth/session").await.expect::<Whoami>(200);

    let permit = setup_challenge(&system, EMAIL).await;
    let start = json!({ "challenge": permit });
    let replaced: NewTotp = answer(&system, "/auth/second-factor/totp", &start).await.expect(201);
    let app: NewTotp = answer(&system, "/auth/second-factor/totp", &start).await.expect(201);
    assert!(app.qr_code.expose().contains("<svg"), "{}", app.qr_code.expose());
    let confirm = |secret: &str| json!({ "challenge": permit, "code": totp_after(secret, 0) });
    let wrong = answer(&system, COMPLETE, &confirm(replaced.secret.expose())).await;
    wrong.expect_problem(401, "second_factor_failed");
    let recover = json!({ "challenge": permit, "recovery_code": "ABCD-EFGH-IJKL-MNOP" });
    answer(&system, COMPLETE, &recover).await.expect_problem(401, "second_factor_failed");
    let session: IssuedSession = answer(&system, COMPLETE, &confirm(app.secret.expose())).await.expect(200);
    let codes = session.recovery_codes.unwrap();
    assert_eq!(codes.len(), 10);
    let client = system.client().bearer(session.session_id.expose());
    let whoami: Whoami = client.get("/auth/session").await.expect(200);
    assert_eq!(whoami.amr, [AuthMethod::Pwd, AuthMethod::Otp, AuthMethod::Mfa]);
    // It is a recent login with the factor.
    client.post("/api-keys", &json!({ "name": "k" })).await.expect::<Value>(201);
    system.wait_for_mails_to(EMAIL, "An authenticator app was set up", 1).await;
    answer(&system, "/auth/second-factor/totp", &start).await.expect_problem(400, "token_invalid");
    answer(&system, COMPLETE, &confirm(app.secret.expose())).await.expect_problem(400, "token_invalid");

    // The next login needs a code, and no response contains the recovery codes again.
    let challenge = challenge(&system, LOGIN).await;
    let recover = json!({ "challenge": challenge, "recovery_code": codes[0].expose() });
    let session: IssuedSession = answer(&system, COMPLETE, &recover).await.expect(200);
    assert!(session.recovery_codes.is_none());
}

#[tokio::test]
async fn a_challenge_for_the_set_up_permits_nothing_else_and_ends_after_five_codes() {
    let (system, admin) = started().await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let (_, codes) = set_up_app(&admin.client).await;
    require(&system, "everyone").await;
    let first = challenge(&system, LOGIN).await;
    let start = |challenge: &str| json!({ "challenge": challenge });
    let path = "/auth/second-factor/totp";
    answer(&system, path, &start(&first)).await.expect_problem(400, "token_invalid");
    let other = setup_challenge(&system, &member.user.email).await;
    let of_other = json!({ "challenge": other, "recovery_code": codes[0] });
    answer(&system, COMPLETE, &of_other).await.expect_problem(401, "second_factor_failed");
    system.client().bearer(&other).get("/auth/factors").await.expect_problem(401, "credential_invalid");
    let of_other = json!({ "challenge": other, "code": "123456" });
    for _ in 0..4 {
        answer(&system, COMPLETE, &of_other).await.expect_problem(401, "second_factor_failed");
    }
    answer(&system, COMPLETE, &of_other).await.expect_problem(400, "token_invalid");
    answer(&system, path, &start(&other)).await.expect_problem(400, "token_invalid");
    // Wrong codes of a set-up lock nothing.
    let app: NewTotp = member.client.post("/auth/factors/totp", &Value::Null).await.expect(201);
    let body = json!({ "code": totp_after(app.secret.expose(), 0) });
    let pending = setup_challenge(&system, &member.user.email).await;
    member.client.post("/auth/factors/totp/confirm", &body).await.expect::<RecoveryCodes>(200);
    answer(&system, path, &start(&pending)).await.expect_problem(400, "token_invalid");
}

#[tokio::test]
async fn a_challenge_for_the_set_up_does_not_bypass_a_passkey_that_was_added_meanwhile() {
    let (system, admin) = started().await;
    require(&system, "everyone").await;
    let permit = setup_challenge(&system, EMAIL).await;
    let start = json!({ "challenge": permit });
    let app: NewTotp = answer(&system, "/auth/second-factor/totp", &start).await.expect(201);
    // As if the passkey was added before the challenge was stored: otherwise it deletes the challenge.
    let added = "insert into identity.passkeys select gen_random_uuid(), tenant_id, user_id, 'key', 'id', 'key', 0, false, now()
        from identity.users where email = 'admin@acme.example'";
    system.run_sql(added).await;
    let confirm = json!({ "challenge": permit, "code": totp_after(app.secret.expose(), 0) });
    answer(&system, COMPLETE, &confirm).await.expect_problem(400, "token_invalid");
    let factors: Factors = admin.client.get("/auth/factors").await.expect(200);
    assert_eq!((factors.factors.len(), factors.recovery_codes), (1, 0), "{factors:?}");
    // The next login needs the passkey.
    let login = answer(&system, LOGIN, &json!({ "email": EMAIL, "password": PASSWORD })).await;
    login.expect_problem(403, "second_factor_required");
}

#[tokio::test]
async fn the_last_factor_of_a_person_who_must_have_one_is_not_removed_but_an_administrator_resets_it() {
    let (system, admin) = started().await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let (secret, _) = set_up_app(&admin.client).await;
    let client = log_in(&system, &secret).await;
    let factors: Factors = client.get("/auth/factors").await.expect(200);
    let path = format!("/auth/factors/{}", factors.factors[0].factor_id);
    require(&system, "administrators").await;
    let problem = client.delete(&path).await.expect_problem(409, "last_factor");
    assert!(problem.detail.contains("ask an administrator"), "{problem:?}");
    let own = format!("/users/{}/factors", admin.user.user_id);
    client.delete(&own).await.expect_problem(409, "last_factor");
    assert_eq!(client.get("/auth/factors").await.expect::<Factors>(200), factors);
    require(&system, "optional").await;
    client.delete(&path).await.expect_empty(204);
    require(&system, "everyone").await;
    // There is no factor to remove.
    client.delete(&own).await.expect_empty(204);
    setup_challenge(&system, EMAIL).await;
    set_up_app(&member.client).await;
    let reset = format!("/users/{}/factors", member.user.user_id);
    let platform = system.platform_admin().header("X-Tenant-ID", "acme");
    platform.delete(&reset).await.expect_empty(204);
    setup_challenge(&system, &member.user.email).await;
}

#[tokio::test]
async fn a_new_administrator_who_must_have_a_second_factor_logs_in_again() {
    let (system, admin) = started().await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let path = format!("/users/{}", member.user.user_id);
    require(&system, "administrators").await;
    admin.client.patch(&path, &json!({ "role": "admin" })).await.expect::<Value>(200);
    member.client.get("/auth/session").await.expect_problem(401, "credential_invalid");
    setup_challenge(&system, &member.user.email).await;
    // The session of the administrator is older than the rule.
    admin.client.get("/auth/session").await.expect::<Whoami>(200);

    admin.client.patch(&path, &json!({ "role": "member" })).await.expect::<Value>(200);
    let session = system.log_in("acme", &member.user.email).await;
    let client = system.client().bearer(session.session_id.expose());
    require(&system, "optional").await;
    admin.client.patch(&path, &json!({ "role": "admin" })).await.expect::<Value>(200);
    assert_eq!(client.get("/auth/session").await.expect::<Whoami>(200).role, Some(Role::Admin));
}

#[tokio::test]
async fn the_page_sets_up_a_factor_with_the_same_challenge() {
    let (system, _admin) = started().await;
    require(&system, "everyone").await;
    let methods = json!(["totp"]);
    let path = "/pages/sessions/login";
    let challenge = challenge_of(&system, path, EMAIL, "second_factor_setup_required", &methods).await;
    let start = json!({ "challenge": challenge });
    let app: NewTotp = answer(&system, "/auth/second-factor/totp", &start).await.expect(201);
    let confirm = json!({ "challenge": challenge, "code": totp_after(app.secret.expose(), 0) });
    let response = answer(&system, "/pages/sessions/second-factor", &confirm).await;
    assert!(response.status == 200 && response.headers.contains_key("set-cookie"), "{response}");
    assert_eq!(response.json()["recovery_codes"].as_array().unwrap().len(), 10, "{response}");
}
