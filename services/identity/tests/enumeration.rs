//! No user enumeration: logins and reset requests perform the same statements and the same number of hashes for every account.
//! `make bench` measures that they also take the same time.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails at once")]

use std::fmt::Debug;
use std::sync::Arc;

use contract::Role;
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::{Authenticator, PASSWORD};
use testsystem::TestSystem;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

const ORIGIN: &str = "https://svc.example";

/// The first words of the statements that this thread has run.
#[derive(Clone, Default)]
struct Statements(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Statements {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "sqlx::query" {
            event.record(&mut Summary(&self.0));
        }
    }
}

struct Summary<'a>(&'a Mutex<Vec<String>>);

impl Visit for Summary<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        // Excludes the relay, the purge tasks, the database probe and the set-up of a new connection.
        let background = [
            "outbox_claim",
            "outbox_settle",
            "outbox_stats",
            "delete_before",
            "current_setting('transaction_read_only')",
            "set plan_cache_mode",
        ];
        let in_the_background = background.iter().any(|name| value.contains(name));
        if field.name() == "summary" && !in_the_background {
            self.0.lock().push(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

/// The work of a request: its statements, and the number of hashed passwords.
type Work = (Vec<String>, u64);

struct Observed {
    system: TestSystem,
    statements: Statements,
}

impl Observed {
    async fn work_of(&self, path: &str, tenant: &str, body: &serde_json::Value, status: u16) -> Work {
        let client = self.system.client().header("X-Tenant-ID", tenant);
        let hashed = self.hashed().await;
        self.statements.0.lock().clear();
        assert_eq!(client.post(path, body).await.status, status);
        let statements = std::mem::take(&mut *self.statements.0.lock());
        (statements, self.hashed().await - hashed)
    }

    /// Adds a user with a passkey, or one of the administrator of a new tenant.
    async fn passkey(&self, tenant: &str, name: &str) -> Authenticator {
        let email = format!("{name}@{tenant}.example");
        let client = if name == "admin" {
            self.system.create_tenant(tenant).await.client
        } else {
            let admin = self.system.log_in(tenant, &format!("admin@{tenant}.example")).await;
            let invite = json!({ "email": email, "delivery": "response" });
            let admin = self.system.client().bearer(admin.session_id.expose());
            let invite: Value = admin.post("/users/invite", &invite).await.expect(201);
            let accept = json!({ "token": invite["token"], "password": PASSWORD });
            self.system.client().post("/users/accept-invite", &accept).await.expect::<Value>(201);
            let session = self.system.log_in(tenant, &email).await;
            self.system.client().bearer(session.session_id.expose())
        };
        let options: Value = client.post("/auth/factors/passkeys/options", &Value::Null).await.expect(201);
        let mut authenticator = Authenticator::new(ORIGIN);
        let credential = authenticator.create(&options["public_key"]);
        let add = json!({ "challenge": options["challenge"], "name": "x", "credential": credential });
        client.post("/auth/factors/passkeys", &add).await.expect::<Value>(201);
        authenticator
    }

    /// Returns the request of a login with a passkey alone.
    async fn assertion(&self, authenticator: &Authenticator) -> Value {
        let options: Value =
            self.system.client().post("/auth/passkey/options", &Value::Null).await.expect(200);
        json!({ "assertion": authenticator.get(&options["public_key"]) })
    }

    async fn hashed(&self) -> u64 {
        let client = testkit::client::plain_http();
        let url = format!("{}/metrics", self.system.admin_url);
        let metrics = client.get(url).send().await.unwrap().text().await.unwrap();
        let count = metrics.lines().find_map(|line| line.strip_prefix("svc_hash_duration_seconds_count "));
        count.unwrap().parse().unwrap()
    }
}

/// Creates tenants and users in every state and records the statements of this thread.
async fn populated() -> (Observed, tracing::subscriber::DefaultGuard) {
    let statements = Statements::default();
    let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(statements.clone()));
    let variables = [
        ("SVC_LIMIT_LOGIN", "1000/s"),
        ("SVC_LIMIT_RESET", "1000/s"),
        ("SVC_AUDIT_PERSONAL", "ip,email"),
        ("SVC_PUBLIC_URL", ORIGIN),
    ];
    let system = TestSystem::start_with(&variables).await.unwrap();
    let admin = system.create_tenant("acme").await;
    for name in ["backing-off", "locked", "disabled"] {
        system.add_user(&admin, &format!("{name}@acme.example"), Role::Member).await;
    }
    let invite = json!({ "email": "invited@acme.example", "delivery": "response" });
    assert_eq!(admin.client.post("/users/invite", &invite).await.status, 201);
    let _other = system.create_tenant("suspended").await;
    let _strict = system.create_tenant("strict").await;
    let wrong = async |email: &str| {
        let client = system.client().header("X-Tenant-ID", "acme");
        let body = json!({ "email": email, "password": "wrong-password-altogether" });
        client.post("/auth/password/login", &body).await.expect_problem(401, "login_failed");
    };
    wrong("backing-off@acme.example").await;
    system
        .run_sql(
            "update identity.login_attempts set failures = 5, back_off_until = now() + interval '1 hour'
            where failures > 0",
        )
        .await;
    wrong("locked@acme.example").await;
    system
        .run_sql(
            "update identity.login_failures set consecutive_failures = 100 where account_key in (
                select account_key from identity.login_attempts where failures > 0 and back_off_until <= now()
            );
            update identity.login_attempts set last_success_at = null;
            update identity.users set has_factor = true where email_key in ('locked@acme.example', 'backing-off@acme.example');
            update identity.users set status = 'disabled' where email_key = 'disabled@acme.example';
            update identity.tenants set status = 'suspended' where tenant_id = 'suspended';
            update identity.tenants set second_factor = 'everyone' where tenant_id = 'strict'",
        )
        .await;
    // The relay mails the notices of the steps above.
    system.wait_for_empty_outbox().await;
    (Observed { system, statements }, guard)
}

#[tokio::test]
async fn every_rejected_login_does_the_same_work() {
    let (observed, _guard) = populated().await;
    let long = "x".repeat(600);
    for (name, tenant, email, password) in [
        ("wrong password", "acme", "admin@acme.example", "wrong-password-altogether"),
        ("empty password", "acme", "admin@acme.example", ""),
        ("invalid password", "acme", "admin@acme.example", "control\u{0}character"),
        ("too long password", "acme", "admin@acme.example", &long),
        ("unknown e-mail", "acme", "unknown@acme.example", PASSWORD),
        ("invalid e-mail", "acme", "no address\u{0}at all", PASSWORD),
        ("invited", "acme", "invited@acme.example", PASSWORD),
        ("disabled", "acme", "disabled@acme.example", PASSWORD),
        ("suspended", "suspended", "admin@suspended.example", PASSWORD),
        ("unknown tenant", "unknown", "admin@acme.example", PASSWORD),
        ("locked", "acme", "locked@acme.example", PASSWORD),
        ("backing off", "acme", "backing-off@acme.example", PASSWORD),
        ("second factor", "acme", "backing-off@acme.example", "wrong-password-altogether"),
        ("second factor to set up", "strict", "admin@strict.example", "wrong-password-altogether"),
        ("unknown e-mail in a tenant that requires a factor", "strict", "unknown@strict.example", PASSWORD),
    ] {
        let body = json!({ "email": email, "password": password });
        let (statements, hashed) = observed.work_of("/auth/password/login", tenant, &body, 401).await;
        let expected = [
            "-- limit.count with network_0 …",
            "-- login_attempt.load select coalesce(failures, …",
            "-- login_attempt.start select saved.version, …",
            "-- login_attempt.settle select identity.settle_attempt( …",
        ];
        assert_eq!((statements.as_slice(), hashed), (&expected.map(str::to_owned)[..], 1), "{name}");
    }
    // A successful login issues a session. It has five round trips (docs/scaling.md).
    let body = json!({ "email": "admin@acme.example", "password": PASSWORD });
    let (statements, hashed) = observed.work_of("/auth/password/login", "acme", &body, 200).await;
    let names: Vec<_> =
        statements.iter().filter_map(|text| text.split(' ').find(|word| *word != "--")).collect();
    let expected = [
        "limit.count",
        "login_attempt.load",
        "login_attempt.start",
        "login_attempt.settle",
        "session.insert",
    ];
    assert_eq!((names.as_slice(), hashed), (&expected[..], 1));
}

/// Rejected logins with a passkey alone: the same work without a valid signature, and the same work with one.
#[tokio::test]
async fn every_rejected_passkey_login_does_the_same_work() {
    let (observed, _guard) = populated().await;
    let system = &observed.system;
    let mut keys = Vec::new();
    for (tenant, name) in [
        ("acme", "ok"),
        ("acme", "gone"),
        ("acme", "out"),
        ("acme", "wait"),
        ("acme", "lock"),
        ("acme", "stop"),
        ("halted", "admin"),
        ("closed", "admin"),
    ] {
        keys.push((tenant, name, observed.passkey(tenant, name).await));
    }
    system
        .run_sql(
            "update identity.users set status = 'disabled' where email_key = 'out@acme.example';
            delete from identity.passkeys where user_id = (select user_id from identity.users where email_key = 'gone@acme.example');
            update identity.tenants set status = 'suspended' where tenant_id = 'halted';
            update identity.tenants set passkey_login = false where tenant_id = 'closed';
            update identity.passkeys set sign_count = 9 where user_id = (select user_id from identity.users where email_key = 'stop@acme.example')",
        )
        .await;
    system.wait_for_empty_outbox().await;
    let unsigned = ["-- limit.count with network_0 …", "-- passkey.find select tenant_id …"];
    let signed = [
        unsigned[0],
        unsigned[1],
        "-- login_attempt.load select coalesce(failures, …",
        "-- login_attempt.start select saved.version, …",
        "-- login_attempt.settle select identity.settle_attempt( …",
    ];
    let unknown = ("acme", "unknown", Authenticator::new(ORIGIN));
    for (tenant, name, key) in keys.iter().chain([&unknown]) {
        let mut body = observed.assertion(key).await;
        body["assertion"]["response"]["signature"] = "AAAA".into();
        let (statements, hashed) = observed.work_of("/auth/passkey/login", tenant, &body, 401).await;
        assert_eq!((statements.as_slice(), hashed), (&unsigned.map(str::to_owned)[..], 0), "{name}");
    }
    for (tenant, name, key) in &keys {
        // The tenant of the request is not that of the passkey.
        let tenant = if *name == "ok" { "strict" } else { tenant };
        let block = match *name {
            "lock" => {
                "update identity.login_failures set consecutive_failures = 100;
                update identity.login_attempts set last_success_at = null"
            }
            "wait" => {
                "update identity.login_attempts set failures = 5, back_off_until = now() + interval '1 hour'
                where failures > 0"
            }
            _ => "",
        };
        if !block.is_empty() {
            let email = format!("{name}@acme.example");
            let body = json!({ "email": email, "password": "wrong-password-altogether" });
            observed.work_of("/auth/password/login", "acme", &body, 401).await;
            system.run_sql(block).await;
        }
        let expected: &[&str] = if *name == "gone" { &unsigned } else { &signed };
        let body = observed.assertion(key).await;
        let (statements, hashed) = observed.work_of("/auth/passkey/login", tenant, &body, 401).await;
        let expected: Vec<_> = expected.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!((statements, hashed), (expected, 0), "{name}");
    }
}

#[tokio::test]
async fn every_login_above_the_limit_in_flight_does_the_same_work() {
    let (observed, _guard) = populated().await;
    for (name, tenant, email) in [
        ("known", "acme", "admin@acme.example"),
        ("unknown e-mail", "acme", "unknown@acme.example"),
        ("locked", "acme", "locked@acme.example"),
        ("unknown tenant", "unknown", "admin@acme.example"),
    ] {
        let body = json!({ "email": email, "password": "wrong-password-altogether" });
        observed.work_of("/auth/password/login", tenant, &body, 401).await;
        observed
            .system
            .run_sql("update identity.login_attempts set in_flight = array_fill(now(), array[8])")
            .await;
        let (statements, hashed) = observed.work_of("/auth/password/login", tenant, &body, 429).await;
        let expected =
            ["-- limit.count with network_0 …", "-- login_attempt.load select coalesce(failures, …"];
        assert_eq!((statements.as_slice(), hashed), (&expected.map(str::to_owned)[..], 0), "{name}");
        observed.system.run_sql("update identity.login_attempts set in_flight = '{}'").await;
    }
}

#[tokio::test]
async fn every_reset_request_does_the_same_work() {
    let (observed, _guard) = populated().await;
    // Stops the relay: its work is not part of the request.
    observed.system.run_sql("alter function identity.outbox_claim rename to outbox_claim_disabled").await;
    for (name, tenant, email) in [
        ("known", "acme", "admin@acme.example"),
        ("unknown e-mail", "acme", "unknown@acme.example"),
        ("invited", "acme", "invited@acme.example"),
        ("disabled", "acme", "disabled@acme.example"),
        ("suspended", "suspended", "admin@suspended.example"),
        ("locked", "acme", "locked@acme.example"),
        ("unknown tenant", "unknown", "admin@acme.example"),
    ] {
        let body = json!({ "email": email });
        let (statements, hashed) = observed.work_of("/auth/password/reset", tenant, &body, 204).await;
        let expected = [
            "-- limit.count with network_0 …",
            "begin; set local svc.tenant_id …",
            "-- outbox.insert select identity.outbox_insert($1, …",
            "commit",
        ];
        assert_eq!((statements.as_slice(), hashed), (&expected.map(str::to_owned)[..], 0), "{name}");
    }
}
