//! Logins with a second factor, on a manual clock.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use hashing::SystemEntropy;
use serde_json::{Value, json};
use testkit::{Authenticator, PASSWORD, totp};

use crate::context::{Context, ELSEWHERE, EMAIL, HERE, SECRET, json_of};

const ORIGIN: &str = "https://svc.example";

/// The administrator of `acme` with an authenticator app.
struct Person {
    context: Context,
    secret: String,
    recovery_codes: Vec<String>,
}

/// Status, code of the problem, and body of a response.
type Answer = (u16, String, Value);

impl Person {
    /// Sets up the app and waits for the next code.
    async fn start() -> Self {
        let context = Context::start().await;
        let (secret, recovery_codes) = set_up(&context).await;
        Self { context, secret, recovery_codes }
    }

    /// The code that the app shows if its clock differs by some seconds.
    fn code(&self, difference: i64) -> String {
        totp(&self.secret, self.context.time() + difference)
    }

    /// A code that is not accepted now.
    fn wrong(&self) -> String {
        self.code(3600)
    }

    /// Logs in with the password. Returns the challenge.
    async fn challenge(&self) -> String {
        let (status, code, body) = post(&self.context, HERE, "/auth/password/login", &login()).await;
        assert_eq!((status, code.as_str()), (403, "second_factor_required"), "{body}");
        body["challenge"].as_str().unwrap().to_owned()
    }

    async fn answer(&self, challenge: &str, code: &str) -> Answer {
        use_code(&self.context, HERE, challenge, code).await
    }

    async fn log_in(&self, code: &str) -> u16 {
        self.answer(&self.challenge().await, code).await.0
    }

    /// Enters fifty wrong codes.
    async fn lock_factors(&self) {
        for _ in 0..10 {
            let challenge = self.challenge().await;
            for _ in 0..5 {
                assert_eq!(self.answer(&challenge, &self.wrong()).await.1, "second_factor_failed");
            }
            assert_eq!(self.answer(&challenge, &self.code(0)).await.1, "token_invalid");
        }
    }

    /// The end of the lock of the second factor that administrators see, as a Unix time.
    async fn locked_until(&self) -> Option<i64> {
        let user = self.context.user().await;
        user["factors_locked_until"].as_str().map(|time| time.parse::<DateTime<Utc>>().unwrap().timestamp())
    }

    async fn count(&self, query: &'static str) -> i64 {
        self.context.count(query).await
    }
}

/// Logs in with the password, sets up an app and waits for its next code. Returns its secret and the recovery codes.
async fn set_up(context: &Context) -> (String, Vec<String>) {
    let login = post(context, HERE, "/auth/password/login", &login()).await;
    let bearer = format!("Bearer {}", login.2["session_id"].as_str().unwrap());
    let headers = [("Authorization", bearer.as_str())];
    let app: Value = json_of(context.send("/auth/factors/totp", &headers, &Value::Null).await).await;
    let secret = app["secret"].as_str().unwrap().to_owned();
    assert!(app["uri"].as_str().unwrap().contains(&secret), "{app}");
    let body = json!({ "code": totp(&secret, context.time()) });
    let confirmed: Value = json_of(context.send("/auth/factors/totp/confirm", &headers, &body).await).await;
    let codes = confirmed["recovery_codes"].as_array().unwrap().iter();
    let recovery_codes = codes.map(|code| code.as_str().unwrap().to_owned()).collect();
    context.advance(60);
    (secret, recovery_codes)
}

fn login() -> Value {
    json!({ "email": EMAIL, "password": PASSWORD })
}

async fn post(context: &Context, address: &str, path: &str, body: &Value) -> Answer {
    let response = context.send(path, &[("X-Tenant-ID", "acme"), ("X-Forwarded-For", address)], body).await;
    let status = response.status().as_u16();
    let body: Value = json_of(response).await;
    (status, body["code"].as_str().unwrap_or_default().to_owned(), body)
}

async fn use_code(context: &Context, address: &str, challenge: &str, code: &str) -> Answer {
    let body = json!({ "challenge": challenge, "code": code });
    post(context, address, "/auth/second-factor", &body).await
}

async fn use_recovery_code(context: &Context, challenge: &str, code: &str) -> Answer {
    let body = json!({ "challenge": challenge, "recovery_code": code });
    post(context, HERE, "/auth/second-factor", &body).await
}

const SUCCESSES: &str =
    "select count(*) from identity.outbox where payload ->> 'name' = 'authn_login_success'";
const SESSIONS: &str = "select count(*) from session.sessions where 'otp' = any(amr)";

#[tokio::test]
async fn a_login_succeeds_only_after_the_code_and_only_then_ends_the_back_off() {
    let person = Person::start().await;
    person.context.fail(4).await;
    let before = person.count(SUCCESSES).await;
    let challenge = person.challenge().await;
    assert_eq!(person.answer(&challenge, &person.wrong()).await.1, "second_factor_failed");
    assert_eq!((person.context.failures().await, person.count(SUCCESSES).await), (vec![4], before));
    assert_eq!(person.count(SESSIONS).await, 0);
    let (status, _, session) = person.answer(&challenge, &person.code(0)).await;
    assert!(status == 200 && session["session_id"].as_str().unwrap().starts_with("svc_st_"), "{session}");
    assert_eq!((person.context.failures().await, person.count(SUCCESSES).await), (vec![], before + 1));
    assert_eq!(person.count(SESSIONS).await, 1);
    assert_eq!(person.answer(&challenge, &person.code(30)).await.1, "token_invalid", "one login");
}

#[tokio::test]
async fn a_code_is_accepted_once_also_by_another_replica() {
    let person = Person::start().await;
    let other = person.context.restarted_with(&[], Arc::new(SystemEntropy));
    let (first, second, code) = (person.challenge().await, person.challenge().await, person.code(0));
    assert_eq!(person.answer(&first, &code).await.0, 200);
    assert_eq!(use_code(&other, ELSEWHERE, &second, &code).await.1, "second_factor_failed");
    assert_eq!(use_code(&other, ELSEWHERE, &second, &person.code(-30)).await.1, "second_factor_failed");
    person.context.advance(30);
    assert_eq!(use_code(&other, ELSEWHERE, &second, &person.code(0)).await.0, 200);
}

#[tokio::test]
async fn the_clock_of_a_phone_may_differ_by_25_seconds_but_not_by_90() {
    let person = Person::start().await;
    for (difference, status) in [(25, 200), (-25, 200), (90, 401), (-90, 401)] {
        person.context.advance(120);
        assert_eq!(person.log_in(&person.code(difference)).await, status, "{difference}");
    }
}

#[tokio::test]
async fn of_a_hundred_parallel_requests_with_one_challenge_one_gets_a_session() {
    let person = Person::start().await;
    let addresses: Vec<_> = (0..100).map(|n| format!("198.51.100.{n}")).collect();
    for (code, accepted, rejected) in [(person.wrong(), 0, 5), (person.code(0), 1, 0)] {
        let challenge = person.challenge().await;
        let requests = addresses.iter().map(|address| use_code(&person.context, address, &challenge, &code));
        let answers = testkit::join_all(requests).await;
        let count = |status| answers.iter().filter(|answer| answer.0 == status).count();
        assert_eq!((count(200), count(401), count(400)), (accepted, rejected, 100 - accepted - rejected));
    }
    assert_eq!(person.count(SESSIONS).await, 1);
    assert_eq!(person.count("select factor_failures::bigint from identity.users").await, 5);
}

#[tokio::test]
async fn a_challenge_belongs_to_its_tenant_and_to_the_password_that_was_verified() {
    let person = Person::start().await;
    person.context.create_tenant("other").await;
    let challenge = person.challenge().await;
    let headers = [("X-Tenant-ID", "other"), ("X-Forwarded-For", HERE)];
    let body = json!({ "challenge": challenge, "code": person.code(0) });
    let foreign = person.context.send("/auth/second-factor", &headers, &body).await;
    assert_eq!(foreign.status().as_u16(), 400);
    for change in [
        "update identity.users set credential_version = credential_version + 1 where tenant_id = 'acme'",
        "update identity.users set status = 'disabled' where tenant_id = 'acme'",
        "update identity.users set status = 'active' where tenant_id = 'acme';
        update identity.tenants set status = 'suspended' where tenant_id = 'acme'",
    ] {
        person.context.run_sql(change).await;
        let status = person.answer(&challenge, &person.code(0)).await.0;
        assert!([400, 401].contains(&status), "{change}: {status}");
    }
    assert_eq!(person.count(SESSIONS).await, 0);
}

#[tokio::test]
async fn a_challenge_is_active_for_five_minutes_and_a_user_has_at_most_twenty() {
    let person = Person::start().await;
    let challenge = person.challenge().await;
    person.context.advance(299);
    assert_eq!(person.answer(&challenge, &person.wrong()).await.0, 401);
    person.context.advance(1);
    assert_eq!(person.answer(&challenge, &person.code(0)).await.0, 400);
    for _ in 0..25 {
        person.challenge().await;
        person.context.advance(1);
    }
    assert_eq!(person.count("select count(*) from identity.login_challenges").await, 20);
}

#[tokio::test]
async fn logins_from_one_network_do_not_delete_the_challenge_of_another_one() {
    let person = Person::start().await;
    let challenge = person.challenge().await;
    // They share a /48 network.
    for number in 1..=25 {
        person.context.advance(1);
        let address = format!("2001:db8:1:{number}::1");
        let (status, ..) = post(&person.context, &address, "/auth/password/login", &login()).await;
        assert_eq!(status, 403);
    }
    assert_eq!(person.count("select count(*) from identity.login_challenges").await, 20);
    assert_eq!(person.answer(&challenge, &person.code(0)).await.0, 200);
}

#[tokio::test]
async fn a_disabled_user_loses_the_challenges_and_keeps_the_factor() {
    let person = Person::start().await;
    let (platform, user_id) = (person.context.platform_token(), person.context.user_id().await);
    let challenge = person.challenge().await;
    // Otherwise, the last administrator cannot be disabled.
    person.context.run_sql("update identity.users set role = 'member'").await;
    for status in ["disabled", "active"] {
        let headers = [("Authorization", platform.as_str()), ("X-Tenant-ID", "acme")];
        let body = json!({ "status": status });
        assert_eq!(person.context.patch(&format!("/users/{user_id}"), &headers, &body).await, 200);
    }
    assert_eq!(person.count("select count(*) from identity.login_challenges").await, 0);
    assert_eq!(person.answer(&challenge, &person.code(0)).await.1, "token_invalid");
    assert_eq!(person.log_in(&person.code(0)).await, 200);
}

#[tokio::test]
async fn fifty_wrong_codes_lock_the_factors_for_a_day_but_not_the_recovery_codes() {
    let person = Person::start().await;
    assert_eq!(person.locked_until().await, None);
    person.lock_factors().await;
    let day = 24 * 3600;
    assert_eq!(person.locked_until().await, Some(person.context.time() + day));
    let challenge = person.challenge().await;
    let (status, code, locked) = person.answer(&challenge, &person.code(0)).await;
    assert_eq!((status, code.as_str()), (429, "rate_limited"), "{locked}");
    assert!(locked["retry_after_ms"].as_u64().unwrap() > 23 * 3_600_000, "{locked}");
    let locks = "select count(*) from identity.outbox where payload ->> 'name' = 'authn_factor_lock'";
    assert_eq!(person.count(locks).await, 1);
    assert_eq!(person.context.failures().await, [] as [i32; 0], "wrong codes are no failed logins");
    let recovery = &person.recovery_codes[0];
    assert_eq!(use_recovery_code(&person.context, &challenge, recovery).await.0, 200);
    person.context.advance(day);
    assert_eq!(person.locked_until().await, None);
    assert_eq!(person.log_in(&person.code(0)).await, 200);
}

#[tokio::test]
async fn setting_the_user_active_ends_the_lock_of_the_factors_and_keeps_them() {
    let person = Person::start().await;
    person.lock_factors().await;
    let (platform, user_id) = (person.context.platform_token(), person.context.user_id().await);
    let headers = [("Authorization", platform.as_str()), ("X-Tenant-ID", "acme")];
    for _ in 0..2 {
        let body = json!({ "status": "active" });
        assert_eq!(person.context.patch(&format!("/users/{user_id}"), &headers, &body).await, 200);
        assert_eq!(person.locked_until().await, None);
    }
    let unlocked = "select count(*) from identity.outbox where payload -> 'event' ->> 'about' = 'unlocked'";
    assert_eq!(person.count(unlocked).await, 1);
    assert_eq!(person.log_in(&person.wrong()).await, 401, "counting restarts");
    assert_eq!(person.locked_until().await, None);
    assert_eq!(person.log_in(&person.code(0)).await, 200);
}

#[tokio::test]
async fn fifty_wrong_passkeys_lock_the_factors_of_a_person_without_an_app_and_the_person_gets_a_mail() {
    let mails = tempfile::tempdir().unwrap();
    let variables = [("SVC_PUBLIC_URL", ORIGIN), ("SVC_MAIL_DIR", mails.path().to_str().unwrap())];
    // It stops its session service when it is dropped.
    let started = Context::start().await;
    let context = started.restarted_with(&variables, Arc::new(SystemEntropy));
    let session = post(&context, HERE, "/auth/password/login", &login()).await.2;
    let bearer = format!("Bearer {}", session["session_id"].as_str().unwrap());
    let headers = [("Authorization", bearer.as_str())];
    let mut authenticator = Authenticator::new(ORIGIN);
    let options = context.send("/auth/factors/passkeys/options", &headers, &Value::Null).await;
    let options: Value = json_of(options).await;
    let credential = authenticator.create(&options["public_key"]);
    let body = json!({ "challenge": options["challenge"], "name": "laptop", "credential": credential });
    let added: Value = json_of(context.send("/auth/factors/passkeys", &headers, &body).await).await;
    let other = Authenticator::new(ORIGIN);
    let challenge = async || post(&context, HERE, "/auth/password/login", &login()).await.2;
    let answer = async |challenge: &Value, authenticator: &Authenticator| {
        let assertion = authenticator.get(&challenge["public_key"]);
        let body = json!({ "challenge": challenge["challenge"], "assertion": assertion });
        post(&context, HERE, "/auth/second-factor", &body).await
    };
    for _ in 0..10 {
        let challenge = challenge().await;
        for _ in 0..5 {
            assert_eq!(answer(&challenge, &other).await.1, "second_factor_failed");
        }
    }
    let current = challenge().await;
    assert_eq!(answer(&current, &authenticator).await.1, "rate_limited");
    testkit::wait_until("the person gets a mail", async || {
        let mut files = std::fs::read_dir(mails.path()).unwrap();
        let is_notice = |text: String| text.contains("Too many wrong codes or passkeys");
        files.any(|file| std::fs::read_to_string(file.unwrap().path()).is_ok_and(is_notice)).then_some(())
    })
    .await;
    let recovery = added["recovery_codes"][0].as_str().unwrap();
    assert_eq!(use_recovery_code(&context, current["challenge"].as_str().unwrap(), recovery).await.0, 200);
    context.advance(24 * 3600);
    assert_eq!(answer(&challenge().await, &authenticator).await.0, 200);
}

#[tokio::test]
async fn a_recovery_code_is_used_once_and_is_no_one_time_code_of_an_app() {
    let person = Person::start().await;
    assert_eq!(person.recovery_codes.len(), 10);
    let code = person.recovery_codes[3].to_lowercase().replace('-', " ");
    let challenge = person.challenge().await;
    assert_eq!(use_recovery_code(&person.context, &challenge, "not one").await.0, 422, "does not count");
    assert_eq!(use_recovery_code(&person.context, &challenge, &code).await.0, 200);
    let challenge = person.challenge().await;
    assert_eq!(use_recovery_code(&person.context, &challenge, &code).await.1, "second_factor_failed");
    let sessions = "select count(*) from session.sessions where amr = '{pwd,mfa}'";
    let used =
        "select count(*) from identity.outbox where payload -> 'event' ->> 'about' = 'recovery_code_used'";
    assert_eq!((person.count(sessions).await, person.count(used).await), (1, 1));
    assert_eq!(person.count("select count(*) from identity.recovery_codes").await, 9);
}

#[tokio::test]
async fn with_another_key_a_code_is_not_verified_and_a_rotated_key_stays_readable() {
    let person = Person::start().await;
    let new = "another secret of thirty-two characters or more";
    let with_key =
        |key: &str| person.context.restarted_with(&[("SVC_FACTOR_KEY", key)], Arc::new(SystemEntropy));
    let (lost, rotating, rotated) = (with_key(new), with_key(&format!("{new}\n{SECRET}")), with_key(new));
    let challenge = person.challenge().await;
    let answer = use_code(&lost, HERE, &challenge, &person.code(0)).await;
    assert_eq!((answer.0, answer.1.as_str()), (503, "dependency_unavailable"));
    assert_eq!(use_recovery_code(&lost, &challenge, &person.recovery_codes[0]).await.0, 200);
    // The code that was not verified is not used up. The login encrypts the secret under the new key.
    let challenge = person.challenge().await;
    assert_eq!(use_code(&rotating, HERE, &challenge, &person.code(0)).await.0, 200);
    person.context.advance(60);
    let challenge = person.challenge().await;
    assert_eq!(use_code(&rotated, HERE, &challenge, &person.code(0)).await.0, 200);
    assert_eq!(use_code(&person.context, HERE, &person.challenge().await, &person.code(30)).await.0, 503);
}

#[tokio::test]
async fn a_reset_of_the_factors_ends_a_login_in_flight() {
    let person = Person::start().await;
    let challenge = person.challenge().await;
    let user_id = person.context.user_id().await;
    assert_eq!(person.context.reset_factors(&user_id).await, 204);
    assert_eq!(person.answer(&challenge, &person.code(0)).await.1, "token_invalid");
    assert_eq!(
        use_recovery_code(&person.context, &challenge, &person.recovery_codes[0]).await.1,
        "token_invalid"
    );
    assert!(person.context.succeeds(HERE).await, "the password alone is enough again");
    assert_eq!(person.context.reset_factors(&user_id).await, 204, "a repetition has no effect");
}

#[tokio::test]
async fn a_code_sent_during_a_reset_is_accepted_before_the_reset_or_not_at_all() {
    let mut person = Person::start().await;
    let user_id = person.context.user_id().await;
    for round in 0..20 {
        person.context.run_sql("delete from session.sessions").await;
        let (challenge, code) = (person.challenge().await, person.code(0));
        let reset = async {
            // Each query takes a new connection, so the reset begins before, during or after the check of the code.
            for _ in 0..round % 5 {
                assert_eq!(person.context.user_id().await, user_id);
            }
            person.context.reset_factors(&user_id).await
        };
        let (reset, (status, code, body)) = tokio::join!(reset, person.answer(&challenge, &code));
        assert_eq!(reset, 204, "round {round}");
        let sessions = match (status, code.as_str()) {
            (200, _) => 1,
            (400, "token_invalid") => 0,
            _ => panic!("round {round}: {status} {body}"),
        };
        assert_eq!(person.count(SESSIONS).await, sessions, "round {round}");
        // After the reset, no login that waits for the factor is completed.
        assert_eq!(person.answer(&challenge, &person.code(30)).await.1, "token_invalid", "round {round}");
        assert!(person.context.succeeds(HERE).await, "round {round}: the password alone is enough again");
        assert_eq!(person.count("select count(*) from identity.recovery_codes").await, 0, "round {round}");
        (person.secret, person.recovery_codes) = set_up(&person.context).await;
    }
}

#[tokio::test]
async fn a_locked_account_and_a_back_off_reject_the_right_code_too() {
    let person = Person::start().await;
    let challenge = person.challenge().await;
    person.context.run_sql(
        "insert into identity.login_failures select account_key, 100, now(), true from identity.login_attempts limit 1;
        update identity.login_attempts set last_success_at = null",
    )
    .await;
    assert_eq!(person.answer(&challenge, &person.code(0)).await.1, "login_failed");
    assert_eq!(person.count(SESSIONS).await, 0);
}

#[tokio::test]
async fn the_password_of_a_user_with_a_factor_cannot_be_changed_with_the_password_alone() {
    let person = Person::start().await;
    let user_id = person.context.user_id().await;
    let body = json!({ "current_password": PASSWORD, "new_password": "another-horse-battery-10" });
    let change = async |bearer: Option<&str>| {
        let mut headers = vec![("X-Tenant-ID", "acme"), ("X-User-ID", &*user_id), ("X-Forwarded-For", HERE)];
        headers.extend(bearer.map(|bearer| ("Authorization", bearer)));
        person.context.send("/auth/password/change", &headers, &body).await.status().as_u16()
    };
    assert_eq!(change(None).await, 403);
    let (_, _, session) = person.answer(&person.challenge().await, &person.code(0)).await;
    let bearer = format!("Bearer {}", session["session_id"].as_str().unwrap());
    assert_eq!(change(Some(&bearer)).await, 204);
}

#[tokio::test]
async fn without_the_key_no_app_is_set_up_no_login_with_one_succeeds_and_no_tenant_requires_one() {
    let person = Person::start().await;
    let without = person.context.restarted_with(&[("SVC_FACTOR_KEY", "")], Arc::new(SystemEntropy));
    let challenge = person.challenge().await;
    let answer = use_code(&without, HERE, &challenge, &person.code(0)).await;
    assert_eq!((answer.0, answer.1.as_str()), (503, "dependency_unavailable"));
    assert_eq!(person.count(SESSIONS).await, 0);
    let answer = use_recovery_code(&without, &challenge, &person.recovery_codes[0]).await;
    let bearer = format!("Bearer {}", answer.2["session_id"].as_str().unwrap());
    let headers = [("Authorization", bearer.as_str())];
    for (path, body) in
        [("/auth/factors/totp", Value::Null), ("/auth/factors/totp/confirm", json!({ "code": "123456" }))]
    {
        let response = without.send(path, &headers, &body).await;
        let status = response.status().as_u16();
        let body: Value = json_of(response).await;
        assert_eq!((status, body["code"].as_str()), (409, Some("totp_unavailable")), "{path}");
    }
    let platform_token = without.platform_token();
    let headers = [("Authorization", platform_token.as_str())];
    let patch = async |policy: &str| {
        without.patch("/tenants/acme", &headers, &json!({ "second_factor": policy })).await
    };
    assert_eq!((patch("everyone").await, patch("optional").await), (409, 200));
    let create =
        json!({ "tenant_id": "strict", "display_name": "Strict", "second_factor": "administrators" });
    assert_eq!(without.send("/tenants", &headers, &create).await.status(), 409);
    // A rule from before the key was removed still requires the factor.
    person.context.create_tenant("other").await;
    let rule = json!({ "second_factor": "everyone" });
    assert_eq!(person.context.patch("/tenants/other", &headers, &rule).await, 200);
    let tenant = [("X-Tenant-ID", "other"), ("X-Forwarded-For", HERE)];
    let login = json!({ "email": "admin@other.example", "password": PASSWORD });
    let login: Value = json_of(without.send("/auth/password/login", &tenant, &login).await).await;
    assert_eq!(login["code"], "second_factor_setup_required");
    let start = json!({ "challenge": login["challenge"] });
    let refused: Value = json_of(without.send("/auth/second-factor/totp", &tenant, &start).await).await;
    assert_eq!(refused["code"], "totp_unavailable");
}

#[tokio::test]
async fn an_attempt_to_set_up_a_factor_is_no_success_and_ends_no_back_off_until_the_code_is_right() {
    let context = Context::start().await;
    let platform_token = context.platform_token();
    let headers = [("Authorization", platform_token.as_str())];
    assert_eq!(context.patch("/tenants/acme", &headers, &json!({ "second_factor": "everyone" })).await, 200);
    context.fail(4).await;
    let before = context.count(SUCCESSES).await;
    let (_, code, body) = post(&context, HERE, "/auth/password/login", &login()).await;
    assert_eq!(code, "second_factor_setup_required");
    let challenge = body["challenge"].as_str().unwrap();
    let start = json!({ "challenge": challenge });
    let (_, _, app) = post(&context, HERE, "/auth/second-factor/totp", &start).await;
    let secret = app["secret"].as_str().unwrap();
    let wrong = totp(secret, context.time() + 3600);
    assert_eq!(use_code(&context, HERE, challenge, &wrong).await.1, "second_factor_failed");
    assert_eq!((context.failures().await, context.count(SUCCESSES).await), (vec![4], before));
    assert_eq!(context.count("select factor_failures::bigint from identity.users").await, 0);
    // One of many parallel requests sets up the factor and gets a session.
    let right = totp(secret, context.time());
    let addresses: Vec<_> = (0..20).map(|n| format!("198.51.100.{n}")).collect();
    let requests = addresses.iter().map(|address| use_code(&context, address, challenge, &right));
    let answers = testkit::join_all(requests).await;
    assert_eq!(answers.iter().filter(|answer| answer.0 == 200).count(), 1);
    assert_eq!(context.count(SESSIONS).await, 1);
    assert_eq!(context.count("select count(*) from identity.recovery_codes").await, 10);
    let events = "select count(*) from identity.outbox where payload -> 'event' ->> 'about' = 'totp_added'";
    assert_eq!(context.count(events).await, 1);
}

/// Requires a factor of everyone. Returns the challenge for the set-up, and the secret of the app.
async fn start_setup(context: &Context) -> (String, String) {
    let platform_token = context.platform_token();
    let headers = [("Authorization", platform_token.as_str())];
    assert_eq!(context.patch("/tenants/acme", &headers, &json!({ "second_factor": "everyone" })).await, 200);
    let login = post(context, HERE, "/auth/password/login", &login()).await.2;
    let start = json!({ "challenge": login["challenge"] });
    let app = post(context, HERE, "/auth/second-factor/totp", &start).await.2;
    (login["challenge"].as_str().unwrap().to_owned(), app["secret"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_set_up_without_a_session_is_repeated_with_the_same_code_and_returns_recovery_codes() {
    let context = Context::start().await;
    let without_session =
        context.restarted_with(&[("SVC_SESSION_URL", "http://127.0.0.1:1")], Arc::new(SystemEntropy));
    let (challenge, secret) = start_setup(&context).await;
    let code = totp(&secret, context.time());
    for _ in 0..2 {
        assert_eq!(use_code(&without_session, HERE, &challenge, &code).await.0, 503);
    }
    assert_eq!(context.count(SESSIONS).await, 0);
    let (status, _, session) = use_code(&context, HERE, &challenge, &code).await;
    assert_eq!(status, 200, "{session}");
    let recovery_codes = session["recovery_codes"].as_array().unwrap();
    assert_eq!(recovery_codes.len(), 10);
    assert_eq!(use_code(&context, HERE, &challenge, &code).await.1, "token_invalid", "one login");
    let (_, code, login) = post(&context, HERE, "/auth/password/login", &login()).await;
    assert_eq!(code, "second_factor_required");
    let challenge = login["challenge"].as_str().unwrap();
    assert_eq!(use_code(&context, HERE, challenge, &totp(&secret, context.time())).await.0, 401, "used");
    let recovery = recovery_codes[9].as_str().unwrap();
    let (status, _, session) = use_recovery_code(&context, challenge, recovery).await;
    assert_eq!((status, &session["recovery_codes"]), (200, &Value::Null));
}

#[tokio::test]
async fn a_passkey_without_a_session_is_registered_once_and_the_same_request_returns_recovery_codes() {
    // It stops its session service when it is dropped.
    let started = Context::start().await;
    let context = started.restarted_with(&[("SVC_PUBLIC_URL", ORIGIN)], Arc::new(SystemEntropy));
    let without_session =
        context.restarted_with(&[("SVC_SESSION_URL", "http://127.0.0.1:1")], Arc::new(SystemEntropy));
    let (challenge, _) = start_setup(&context).await;
    let start = json!({ "challenge": challenge });
    let options = post(&context, HERE, "/auth/second-factor/passkey", &start).await.2;
    let register = || {
        let credential = Authenticator::new(ORIGIN).create(&options["public_key"]);
        json!({ "challenge": challenge, "name": "laptop", "credential": credential })
    };
    let (body, of_another) = (register(), register());
    for _ in 0..2 {
        assert_eq!(post(&without_session, HERE, "/auth/second-factor", &body).await.0, 503);
    }
    let answer = async |body: &Value| post(&context, HERE, "/auth/second-factor", body).await;
    assert_eq!(answer(&of_another).await.1, "second_factor_failed");
    let (status, _, session) = answer(&body).await;
    assert_eq!(status, 200, "{session}");
    assert_eq!(session["recovery_codes"].as_array().unwrap().len(), 10);
    assert_eq!(answer(&body).await.1, "token_invalid", "one login");
    assert_eq!(context.count("select count(*) from identity.passkeys").await, 1);
    let sessions = "select count(*) from session.sessions where amr = '{pwd,hwk,mfa}'";
    assert_eq!(context.count(sessions).await, 1);
}

#[tokio::test]
async fn a_metric_counts_the_codes_of_set_ups_too() {
    let context = Context::start().await;
    let (challenge, secret) = start_setup(&context).await;
    for (difference, result) in [(3600, "rejected"), (0, "accepted")] {
        use_code(&context, HERE, &challenge, &totp(&secret, context.time() + difference)).await;
        let line = format!("svc_second_factor_attempts_total{{factor=\"totp\",result=\"{result}\"}} 1");
        let metrics = context.metrics.text();
        assert!(metrics.lines().any(|shown| shown == line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn a_suspended_tenant_and_a_locked_account_start_no_set_up() {
    let context = Context::start().await;
    let (challenge, _) = start_setup(&context).await;
    let start = json!({ "challenge": challenge });
    let set_up = async || post(&context, HERE, "/auth/second-factor/totp", &start).await.1;
    let secrets = "select count(*) from identity.totp_factors where created_at > '2000-01-01'";
    context.run_sql("delete from identity.totp_factors").await;
    for (change, restore) in [
        (
            "update identity.tenants set status = 'suspended' where tenant_id = 'acme'",
            "update identity.tenants set status = 'active' where tenant_id = 'acme'",
        ),
        (
            "insert into identity.login_failures select account_key, 100, now(), true from identity.login_attempts limit 1;
            update identity.login_attempts set last_success_at = null",
            "delete from identity.login_failures",
        ),
    ] {
        context.run_sql(change).await;
        assert_eq!(set_up().await, "login_failed", "{change}");
        assert_eq!(context.count(secrets).await, 0);
        context.run_sql(restore).await;
    }
    assert_eq!(set_up().await, "");
    context.run_sql("update identity.users set credential_version = credential_version + 1").await;
    assert_eq!(set_up().await, "token_invalid");
    assert_eq!(context.count("select cardinality(in_flight)::bigint from identity.login_attempts").await, 0);
}

#[tokio::test]
async fn a_metric_counts_the_active_users_with_and_without_a_second_factor() {
    let person = Person::start().await;
    person.context.create_tenant("other").await;
    person.context.create_tenant("third").await;
    person.context.invite_token("invited@acme.example").await;
    let restarted = person.context.restarted_with(&[], Arc::new(SystemEntropy));
    testkit::wait_until("the users are counted", async || {
        let metrics = restarted.metrics.text();
        let shows = |line| metrics.lines().any(|shown: &str| shown == line);
        let [with, without] =
            ["svc_users_active{second_factor=\"yes\"} 1", "svc_users_active{second_factor=\"no\"} 2"];
        (shows(with) && shows(without)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_active_users_are_counted_without_reading_the_users() {
    let context = Context::start().await;
    let mut superuser = context.database.superuser().await.unwrap();
    sqlx::query("set enable_seqscan = off").execute(&mut superuser).await.unwrap();
    let body = "select prosrc from pg_proc where proname = 'count_active_users'";
    let body: String = sqlx::query_scalar(body).fetch_one(&mut superuser).await.unwrap();
    let explain = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("explain {body}")));
    let plan: Vec<String> = explain.fetch_all(&mut superuser).await.unwrap();
    assert!(plan.iter().any(|step| step.contains("Index Only Scan using users_active_idx")), "{plan:#?}");
}
