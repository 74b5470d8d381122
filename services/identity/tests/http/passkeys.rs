//! `/auth/factors/passkeys` and logins with a passkey on the whole system.

use contract::Role;
use contract::factors::{AddedPasskey, Factor, FactorMethod, FactorType, Factors};
use contract::session::{AuthMethod, IssuedSession, Whoami};
use serde_json::{Value, json};
use testkit::{Authenticator, Client, PASSWORD, TestResponse};
use testsystem::{TestSystem, TestUser, set_up_app};

pub(super) const ORIGIN: &str = "https://svc.example";
pub(super) const EMAIL: &str = "admin@acme.example";
pub(super) const OPTIONS: &str = "/auth/factors/passkeys/options";
pub(super) const PASSKEYS: &str = "/auth/factors/passkeys";

pub(super) async fn started() -> (TestSystem, TestUser) {
    let system = TestSystem::start_with(&[("SVC_PUBLIC_URL", ORIGIN)]).await.unwrap();
    let admin = system.create_tenant("acme").await;
    (system, admin)
}

/// Returns the request that registers a passkey.
pub(super) async fn registration(client: &Client, authenticator: &mut Authenticator, name: &str) -> Value {
    let options: Value = client.post(OPTIONS, &Value::Null).await.expect(201);
    let credential = authenticator.create(&options["public_key"]);
    json!({ "challenge": options["challenge"], "name": name, "credential": credential })
}

pub(super) async fn register(client: &Client, authenticator: &mut Authenticator, name: &str) -> AddedPasskey {
    let request = registration(client, authenticator, name).await;
    client.post(PASSKEYS, &request).await.expect(201)
}

/// Logs in with the password. Returns the problem with the challenge.
pub(super) async fn challenge(system: &TestSystem, email: &str) -> Value {
    let (_, tenant) = email.split_once('@').unwrap();
    let client = system.client().header("X-Tenant-ID", tenant.split('.').next().unwrap());
    let response =
        client.post("/auth/password/login", &json!({ "email": email, "password": PASSWORD })).await;
    response.expect_problem(403, "second_factor_required");
    response.json()
}

pub(super) async fn answer(system: &TestSystem, challenge: &Value, assertion: &Value) -> TestResponse {
    let client = system.client().header("X-Tenant-ID", "acme");
    let body = json!({ "challenge": challenge["challenge"], "assertion": assertion });
    client.post("/auth/second-factor", &body).await
}

async fn log_in(system: &TestSystem, authenticator: &Authenticator) -> Client {
    let challenge = challenge(system, EMAIL).await;
    let response = answer(system, &challenge, &authenticator.get(&challenge["public_key"])).await;
    let session: IssuedSession = response.expect(200);
    system.client().bearer(session.session_id.expose())
}

#[tokio::test]
async fn a_passkey_completes_a_login() {
    let (system, admin) = started().await;
    let mut authenticator = Authenticator::new(ORIGIN);
    let added = register(&admin.client, &mut authenticator, " laptop ").await;
    assert_eq!((added.factor.name.as_deref(), added.recovery_codes.len()), (Some("laptop"), 10));
    system.wait_for_mails_to(EMAIL, "A passkey was added to your account", 1).await;
    let challenge = challenge(&system, EMAIL).await;
    assert_eq!(
        challenge["methods"],
        json!([FactorMethod::Passkey, FactorMethod::RecoveryCode]),
        "{challenge}"
    );
    let public_key = &challenge["public_key"];
    assert_eq!(public_key["rpId"], "svc.example");
    assert_eq!(public_key["userVerification"], "required");
    assert_eq!(public_key["allowCredentials"].as_array().unwrap().len(), 1);
    let client = log_in(&system, &authenticator).await;
    let whoami: Whoami = client.get("/auth/session").await.expect(200);
    assert_eq!(whoami.amr, [AuthMethod::Pwd, AuthMethod::Hwk, AuthMethod::Mfa]);
    let factors: Factors = client.get("/auth/factors").await.expect(200);
    let [factor] = &factors.factors[..] else { panic!("{factors:?}") };
    assert!(factor.kind == FactorType::Passkey && factor.last_used_at.is_some(), "{factor:?}");
    // The login is recent: it may change the factors. A key that a password manager copies is `swk`.
    let mut synced = Authenticator::with_ed25519(ORIGIN);
    synced.flags |= 0b1_1000;
    let second = register(&client, &mut synced, "manager").await;
    assert!(second.recovery_codes.is_empty(), "the existing codes stay valid");
    let client = log_in(&system, &synced).await;
    let whoami: Whoami = client.get("/auth/session").await.expect(200);
    assert_eq!(whoami.amr, [AuthMethod::Pwd, AuthMethod::Swk, AuthMethod::Mfa]);
    assert_eq!(authenticator.user_handle, synced.user_handle, "one account in the list of an authenticator");
    let metrics =
        testkit::client::plain_http().get(format!("{}/metrics", system.admin_url)).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let line = "svc_second_factor_attempts_total{factor=\"passkey\",result=\"accepted\"} 2";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn a_recent_login_needs_the_passkey_as_soon_as_there_is_one() {
    let (system, admin) = started().await;
    let mut authenticator = Authenticator::new(ORIGIN);
    // The options of a second passkey, requested before the first one exists.
    let early = registration(&admin.client, &mut Authenticator::new(ORIGIN), "second").await;
    let added = register(&admin.client, &mut authenticator, "first").await;
    system.wait_for_empty_outbox().await;
    for (path, body) in [(OPTIONS, &Value::Null), (PASSKEYS, &early), ("/auth/factors/totp", &Value::Null)] {
        admin.client.post(path, body).await.expect_problem(403, "reauthentication_required");
    }
    // Also while session does not know the factor.
    system.run_sql("update session.subjects set has_factor = false").await;
    testkit::wait_until("session does not know the factor", async || {
        let key = admin.client.post("/api-keys", &json!({ "name": "k" })).await;
        (key.status == 201).then_some(())
    })
    .await;
    admin.client.post(PASSKEYS, &early).await.expect_problem(403, "reauthentication_required");
    let codes = admin.client.post("/auth/factors/recovery-codes", &Value::Null).await;
    codes.expect_problem(403, "reauthentication_required");
    let path = format!("/auth/factors/{}", added.factor.factor_id);
    admin.client.delete(&path).await.expect_problem(403, "reauthentication_required");
}

#[tokio::test]
async fn an_authenticator_app_needs_the_passkey_too() {
    let (system, admin) = started().await;
    let app: Value = admin.client.post("/auth/factors/totp", &Value::Null).await.expect(201);
    let mut authenticator = Authenticator::new(ORIGIN);
    let first = register(&admin.client, &mut authenticator, "first").await;
    let confirm = json!({ "code": testkit::totp_after(app["secret"].as_str().unwrap(), 0) });
    let path = "/auth/factors/totp/confirm";
    system.run_sql("update session.subjects set has_factor = false").await;
    admin.client.post(path, &confirm).await.expect_problem(403, "reauthentication_required");
    let client = log_in(&system, &authenticator).await;
    let confirmed: Value = client.post(path, &confirm).await.expect(200);
    assert_eq!(confirmed["recovery_codes"], json!([]), "those that were shown with the passkey stay valid");
    let factors: Factors = client.get("/auth/factors").await.expect(200);
    assert_eq!(factors.recovery_codes, 10);
    let body = json!({ "challenge": challenge(&system, EMAIL).await["challenge"], "recovery_code": first.recovery_codes[0] });
    let client = system.client().header("X-Tenant-ID", "acme");
    client.post("/auth/second-factor", &body).await.expect::<IssuedSession>(200);
    let methods = &challenge(&system, EMAIL).await["methods"];
    assert_eq!(methods, &json!(["totp", "passkey", "recovery_code"]));
}

#[tokio::test]
async fn of_several_factors_the_last_one_removes_the_recovery_codes() {
    let (system, admin) = started().await;
    let authenticator = &mut Authenticator::new(ORIGIN);
    let first = register(&admin.client, authenticator, "first").await;
    let client = log_in(&system, authenticator).await;
    let second = register(&client, &mut Authenticator::new(ORIGIN), "second").await;
    let path = |added: &AddedPasskey| format!("/auth/factors/{}", added.factor.factor_id);
    client.delete(&path(&second)).await.expect_empty(204);
    let factors: Factors = client.get("/auth/factors").await.expect(200);
    assert_eq!((factors.factors.len(), factors.recovery_codes), (1, 10));
    system.wait_for_mails_to(EMAIL, "A passkey was removed from your account", 1).await;
    client.delete(&path(&second)).await.expect_problem(404, "not_found");
    client.delete(&path(&first)).await.expect_empty(204);
    let factors: Factors = client.get("/auth/factors").await.expect(200);
    assert_eq!((factors.factors.len(), factors.recovery_codes), (0, 0));
    system.log_in("acme", EMAIL).await;
}

#[tokio::test]
async fn an_assertion_is_valid_for_one_login_of_its_user() {
    let (system, admin) = started().await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let other_tenant = system.create_tenant("other").await;
    let [mut own, mut of_member, mut foreign] = [(); 3].map(|()| Authenticator::new(ORIGIN));
    register(&admin.client, &mut own, "own").await;
    register(&member.client, &mut of_member, "member").await;
    register(&other_tenant.client, &mut foreign, "foreign").await;
    let first = challenge(&system, EMAIL).await;
    let assertion = own.get(&first["public_key"]);
    answer(&system, &first, &assertion).await.expect::<IssuedSession>(200);
    answer(&system, &first, &assertion).await.expect_problem(400, "token_invalid");
    let second = challenge(&system, EMAIL).await;
    answer(&system, &second, &assertion).await.expect_problem(401, "second_factor_failed");
    // Passkeys of another user and of another tenant, for the challenge of this user.
    for other in [&of_member, &foreign] {
        let assertion = other.get(&second["public_key"]);
        answer(&system, &second, &assertion).await.expect_problem(401, "second_factor_failed");
        // A wrong id does not help.
        let own_id = json!({ "id": own.get(&second["public_key"])["id"], "response": assertion["response"] });
        answer(&system, &second, &own_id).await.expect_problem(401, "second_factor_failed");
    }
    // Five attempts are used up.
    let right = own.get(&second["public_key"]);
    answer(&system, &second, &right).await.expect_problem(400, "token_invalid");
    // The challenge of another person.
    let of_other = challenge(&system, "ada@acme.example").await;
    answer(&system, &of_other, &own.get(&of_other["public_key"]))
        .await
        .expect_problem(401, "second_factor_failed");
}

#[tokio::test]
async fn what_an_authenticator_would_not_send_is_rejected() {
    let (system, admin) = started().await;
    for (change, message) in CHANGES {
        let mut authenticator = Authenticator::new(ORIGIN);
        change(&mut authenticator);
        let request = registration(&admin.client, &mut authenticator, "x").await;
        let problem = admin.client.post(PASSKEYS, &request).await.expect_problem(422, "validation_failed");
        assert_eq!(problem.errors[0].pointer, "/credential");
        assert!(problem.errors[0].message.contains(message), "{problem:?}");
    }
    let mut authenticator = Authenticator::new(ORIGIN);
    authenticator.counter = 4;
    register(&admin.client, &mut authenticator, "x").await;
    for counter in [4, 3] {
        authenticator.counter = counter;
        let challenge = challenge(&system, EMAIL).await;
        let assertion = authenticator.get(&challenge["public_key"]);
        answer(&system, &challenge, &assertion).await.expect_problem(401, "second_factor_failed");
    }
    authenticator.counter = 5;
    log_in(&system, &authenticator).await;
    authenticator.counter = 6;
    for (change, _) in CHANGES {
        let (origin, rp_id) = (authenticator.origin.clone(), authenticator.rp_id.clone());
        change(&mut authenticator);
        let challenge = challenge(&system, EMAIL).await;
        let assertion = authenticator.get(&challenge["public_key"]);
        answer(&system, &challenge, &assertion).await.expect_problem(401, "second_factor_failed");
        (authenticator.origin, authenticator.rp_id, authenticator.flags) = (origin, rp_id, 0b101);
    }
    log_in(&system, &authenticator).await;
    let garbage = json!({ "id": "☃", "response": { "clientDataJSON": "", "authenticatorData": "AA", "signature": "%" } });
    let challenge = challenge(&system, EMAIL).await;
    answer(&system, &challenge, &garbage).await.expect_problem(401, "second_factor_failed");
}

/// Changes what an authenticator sends.
pub(super) type Change = fn(&mut Authenticator);

pub(super) const CHANGES: &[(Change, &str)] = &[
    (|sent| sent.origin = "https://svc.example.net".into(), "another address"),
    (|sent| sent.rp_id = "example".into(), "another relying party"),
    (|sent| sent.flags = 1, "without verification of the user"),
];

#[tokio::test]
async fn a_challenge_is_for_one_purpose_and_one_person() {
    let (system, admin) = started().await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let mut authenticator = Authenticator::new(ORIGIN);
    let request = registration(&admin.client, &mut authenticator, "x").await;
    member.client.post(PASSKEYS, &request).await.expect_problem(400, "token_invalid");
    let (secret, _) = set_up_app(&member.client).await;
    // A challenge of a registration, which needs no password, is no login.
    let login = json!({ "challenge": request["challenge"], "code": testkit::totp_after(&secret, 1) });
    let client = system.client().header("X-Tenant-ID", "acme");
    client.post("/auth/second-factor", &login).await.expect_problem(400, "token_invalid");
    admin.client.post(PASSKEYS, &request).await.expect::<AddedPasskey>(201);
    // A challenge of a login registers nothing.
    let client = log_in(&system, &authenticator).await;
    let challenge = challenge(&system, EMAIL).await;
    let mut second = Authenticator::new(ORIGIN);
    let mut request = registration(&client, &mut second, "second").await;
    request["challenge"] = challenge["challenge"].clone();
    client.post(PASSKEYS, &request).await.expect_problem(400, "token_invalid");
    // A user has a passkey once. The answer does not depend on the passkeys of others.
    let again = registration(&client, &mut authenticator, "again").await;
    let problem = client.post(PASSKEYS, &again).await.expect_problem(422, "validation_failed");
    assert!(problem.errors[0].message.contains("registered already"), "{problem:?}");
    let other = system.create_tenant("other").await;
    let user_handle = authenticator.user_handle.clone();
    let again = registration(&other.client, &mut authenticator, "again").await;
    authenticator.user_handle = user_handle;
    other.client.post(PASSKEYS, &again).await.expect::<AddedPasskey>(201);
    log_in(&system, &authenticator).await;
}

#[tokio::test]
async fn a_user_has_one_user_handle_also_in_open_registrations_and_after_all_passkeys_are_removed() {
    let (system, admin) = started().await;
    let handle = async |client: &Client| {
        let options: Value = client.post(OPTIONS, &Value::Null).await.expect(201);
        assert_eq!(options["public_key"]["authenticatorSelection"]["residentKey"], "required");
        options["public_key"]["user"]["id"].clone()
    };
    let (first, second) = tokio::join!(handle(&admin.client), handle(&admin.client));
    assert_eq!(first, second);
    let mut authenticator = Authenticator::new(ORIGIN);
    let added = register(&admin.client, &mut authenticator, "first").await;
    let client = log_in(&system, &authenticator).await;
    client.delete(&format!("/auth/factors/{}", added.factor.factor_id)).await.expect_empty(204);
    let session = system.log_in("acme", EMAIL).await;
    assert_eq!(handle(&system.client().bearer(session.session_id.expose())).await, first);
    let other = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    assert_ne!(handle(&other.client).await, first);
}

#[tokio::test]
async fn a_user_has_at_most_ten_passkeys_with_names() {
    let (system, admin) = started().await;
    let mut authenticator = Authenticator::new(ORIGIN);
    for name in ["", "  ", &"x".repeat(65), "a\nb"] {
        let request = registration(&admin.client, &mut authenticator, name).await;
        let problem = admin.client.post(PASSKEYS, &request).await.expect_problem(422, "validation_failed");
        assert_eq!(problem.errors[0].pointer, "/name", "{name}");
    }
    register(&admin.client, &mut authenticator, &"ä".repeat(64)).await;
    let client = log_in(&system, &authenticator).await;
    let eleventh = registration(&client, &mut Authenticator::new(ORIGIN), "eleventh").await;
    for n in 2..=10 {
        register(&client, &mut Authenticator::new(ORIGIN), &format!("number {n}")).await;
    }
    client.post(OPTIONS, &Value::Null).await.expect_problem(409, "too_many_passkeys");
    client.post(PASSKEYS, &eleventh).await.expect_problem(409, "too_many_passkeys");
}

#[tokio::test]
async fn a_user_renames_an_own_passkey_after_a_login_with_a_factor() {
    let (system, admin) = started().await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let other = system.create_tenant("other").await;
    let authenticator = &mut Authenticator::new(ORIGIN);
    let added = register(&admin.client, authenticator, "laptop").await.factor;
    let path = format!("/auth/factors/{}", added.factor_id);
    let to = |name: &str| json!({ "name": name });
    admin.client.patch(&path, &to("x")).await.expect_problem(403, "reauthentication_required");
    for user in [&member, &other] {
        user.client.patch(&path, &to("x")).await.expect_problem(404, "not_found");
    }
    let client = log_in(&system, authenticator).await;
    for name in ["", "a\nb", &"x".repeat(65)] {
        let problem = client.patch(&path, &to(name)).await.expect_problem(422, "validation_failed");
        assert_eq!(problem.errors[0].pointer, "/name", "{name}");
    }
    let renamed: Factor = client.patch(&path, &to(" telephone ")).await.expect(200);
    assert_eq!(renamed.name.as_deref(), Some("telephone"));
    let factors: Factors = client.get("/auth/factors").await.expect(200);
    assert_eq!(factors.factors, [renamed]);
    let changes = crate::audit::of(&system, "audit.v1.acme.identity.authn_factor_change").await;
    let changes: Vec<_> = changes.iter().map(|event| event["about"].as_str().unwrap()).collect();
    assert_eq!(changes, ["passkey_added", "passkey_renamed"]);
    // An app has no name.
    set_up_app(&client).await;
    let factors: Factors = client.get("/auth/factors").await.expect(200);
    let app = factors.factors.iter().find(|factor| factor.kind == FactorType::Totp).unwrap();
    let path = format!("/auth/factors/{}", app.factor_id);
    client.patch(&path, &to("x")).await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn an_installation_at_an_ip_address_reports_that_it_has_no_passkeys() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let response = admin.client.post(OPTIONS, &Value::Null).await;
    let problem = response.expect_problem(409, "passkey_unavailable");
    assert!(problem.title.contains("host name"), "{problem:?}");
    set_up_app(&admin.client).await;
    let challenge = challenge(&system, EMAIL).await;
    assert!(challenge["methods"] == json!(["totp", "recovery_code"]) && challenge["public_key"].is_null());
}

#[tokio::test]
async fn exports_name_passkeys_and_resets_and_erasures_delete_them() {
    let (system, admin) = started().await;
    let member = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let mut authenticator = Authenticator::new(ORIGIN);
    register(&member.client, &mut authenticator, "phone").await;
    let user = format!("/users/{}", member.user.user_id);
    let export: Value = admin.client.get(&format!("{user}/export")).await.expect(200);
    assert_eq!(
        (&export["factors"][0]["type"], &export["factors"][0]["name"]),
        (&json!("passkey"), &json!("phone"))
    );
    // A disabled user keeps the passkey and loses the challenge.
    let waiting = challenge(&system, &member.user.email).await;
    for status in ["disabled", "active"] {
        admin.client.patch(&user, &json!({ "status": status })).await.expect::<Value>(200);
    }
    let assertion = authenticator.get(&waiting["public_key"]);
    answer(&system, &waiting, &assertion).await.expect_problem(400, "token_invalid");
    challenge(&system, &member.user.email).await;
    admin.client.delete(&format!("{user}/factors")).await.expect_empty(204);
    system.wait_for_mails_to(&member.user.email, "Your second factors were removed", 1).await;
    let session = system.log_in("acme", &member.user.email).await;
    let client = system.client().bearer(session.session_id.expose());
    register(&client, &mut authenticator, "phone").await;
    admin.client.delete(&user).await.expect_empty(204);
    let mut connection = system.database.superuser().await.unwrap();
    let rows: i64 = sqlx::query_scalar("select count(*) from identity.passkeys")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(rows, 0);
}
