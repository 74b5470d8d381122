//! What is revoked is refused by every process of ingest within five seconds, whatever is broken meanwhile.

use std::time::{Duration, Instant};
use testkit::{Client, PASSWORD, TestResponse, wait_until};

use contract::paths::Upstream;
use e2e::{Person, Service, Services, raw_client};
use rustix::process::Signal;
use serde_json::{Value, json};

/// The promise. It holds for checks that begin later than this after the revocation was answered, however slow the machine.
const CEILING: Duration = Duration::from_secs(5);

/// identity, session, and two processes of ingest.
struct System {
    services: Services,
    identity: Service,
    session: Service,
    ingests: [Service; 2],
    admin: Person,
}

impl System {
    async fn start() -> Self {
        let services = Services::prepare().await;
        for service in [Upstream::Identity, Upstream::Session] {
            assert!(services.migrate(service, "up").await.status.success());
        }
        let mut identity = services.start(Upstream::Identity);
        let mut session = services.start(Upstream::Session);
        let mut ingests = [services.start(Upstream::Ingest), services.start_another(Upstream::Ingest)];
        for service in [&mut identity, &mut session].into_iter().chain(&mut ingests) {
            service.until_ready().await;
        }
        let tenant = json!({
            "tenant_id": "acme", "display_name": "Acme", "admin_email": "admin@acme.example", "delivery": "response",
        });
        let operator = at(&identity).bearer(&services.platform_token);
        let tenant: Value = operator.post("/tenants", &tenant).await.expect(201);
        let invite = tenant["invite"]["token"].as_str().unwrap();
        let admin = Person::invited(&base_url(&identity), invite).await;
        Self { services, identity, session, ingests, admin }
    }

    fn operator(&self) -> Client {
        at(&self.identity).bearer(&self.services.platform_token)
    }

    /// The tenant's administrator, as somebody whom a service shall know.
    fn admin(&self, service: &Service) -> Client {
        at(service).bearer(&self.admin.token).header("X-Tenant-ID", "acme")
    }

    async fn logged_in(&self, email: &str) -> Person {
        Person::logged_in(&base_url(&self.identity), "acme", email).await
    }

    async fn member(&self, email: &str) -> Person {
        let invite = json!({ "email": email, "role": "member", "delivery": "response" });
        let invite: Value = self.admin(&self.identity).post("/users/invite", &invite).await.expect(201);
        Person::invited(&base_url(&self.identity), invite["token"].as_str().unwrap()).await
    }

    /// Has each process of ingest remember the credential.
    async fn remember(&self, token: &str) {
        for ingest in &self.ingests {
            wait_until("the credential is remembered", async || {
                let hits = async || ingest.metric(r#"svc_credential_checks_total{way="hit"}"#).await;
                let before = hits().await;
                assert!(is_let_in(&check(ingest, token).await));
                (hits().await > before).then_some(())
            })
            .await;
        }
    }

    /// Refused by each process of ingest, in time; `revoked_at` is when the revocation was answered.
    async fn expect_refused(&self, token: &str, revoked_at: Instant) {
        for ingest in &self.ingests {
            wait_until("the credential is refused", async || {
                let asked_at = Instant::now();
                let answer = check(ingest, token).await;
                let late = asked_at - revoked_at;
                assert!(!is_let_in(&answer) || late < CEILING, "still let in {late:?} after the revocation");
                (answer.status == 401).then_some(())
            })
            .await;
        }
    }

    async fn revoke(&self, of: &Person) -> Instant {
        let logout = at(&self.session).header("X-Session-ID", &of.token);
        logout.post_bytes("/auth/sessions/logout", "", "").await.expect_empty(204);
        let revoked_at = Instant::now();
        at(&self.session)
            .bearer(&of.token)
            .get("/auth/session")
            .await
            .expect_problem(401, "credential_invalid");
        revoked_at
    }
}

fn base_url(service: &Service) -> String {
    format!("http://{}", service.address)
}

fn at(service: &Service) -> Client {
    raw_client(&base_url(service))
}

/// A body that is never published: whether the credential is let in shows without the broker.
async fn check(ingest: &Service, token: &str) -> TestResponse {
    at(ingest).bearer(token).post_bytes("/events", "application/json", "no event").await
}

fn is_let_in(answer: &TestResponse) -> bool {
    assert!([400, 401, 503].contains(&answer.status), "{answer}");
    answer.status == 400
}

#[tokio::test]
async fn each_way_to_revoke_is_heard_by_every_process_and_ends_nothing_else() {
    let system = System::start().await;
    let heard = async |ingest: &Service| ingest.metric("svc_invalidation_lag_seconds_count").await;
    let (ada, bob) = (system.member("ada@acme.example").await, system.member("bob@acme.example").await);
    let other = system.logged_in("ada@acme.example").await;
    for person in [&ada, &other, &bob, &system.admin] {
        system.remember(&person.token).await;
    }
    let before = [heard(&system.ingests[0]).await, heard(&system.ingests[1]).await];

    // One session.
    let revoked_at = system.revoke(&other).await;
    system.expect_refused(&other.token, revoked_at).await;

    // All sessions under an older password but the one that changed it.
    let other = system.logged_in("ada@acme.example").await;
    system.remember(&other.token).await;
    let own = at(&system.identity).bearer(&ada.token).header("X-Tenant-ID", "acme");
    let change = json!({ "current_password": PASSWORD, "new_password": "another-horse-battery-10" });
    own.header("X-User-ID", &ada.user_id).post("/auth/password/change", &change).await.expect_empty(204);
    system.expect_refused(&other.token, Instant::now()).await;

    // A user.
    let disabled = json!({ "status": "disabled" });
    let path = format!("/users/{}", bob.user_id);
    system.admin(&system.identity).patch(&path, &disabled).await.expect::<Value>(200);
    system.expect_refused(&bob.token, Instant::now()).await;

    for (ingest, before) in system.ingests.iter().zip(before) {
        for token in [&ada.token, &system.admin.token] {
            assert!(is_let_in(&check(ingest, token).await));
        }
        assert!(heard(ingest).await > before, "invalidations came");
    }

    // A tenant.
    system.operator().patch("/tenants/acme", &json!({ "status": "suspended" })).await.expect::<Value>(200);
    let suspended_at = Instant::now();
    system.expect_refused(&ada.token, suspended_at).await;
    system.expect_refused(&system.admin.token, suspended_at).await;
}

#[tokio::test]
async fn a_broker_that_stands_still_delays_a_revocation_by_five_seconds_at_most() {
    let system = System::start().await;
    system.remember(&system.admin.token).await;
    system.services.nats.pause().unwrap();
    let revoked_at = system.revoke(&system.admin).await;
    system.expect_refused(&system.admin.token, revoked_at).await;
    system.services.nats.resume().unwrap();
}

#[tokio::test]
async fn a_broker_that_is_gone_holds_up_neither_a_start_nor_a_revocation() {
    let mut system = System::start().await;
    system.remember(&system.admin.token).await;
    system.services.nats.stop();
    system.session.process.signal(Signal::KILL);
    system.session.process.ended().await;
    system.session = system.services.start(Upstream::Session);
    system.session.until_ready().await;
    let revoked_at = system.revoke(&system.admin).await;
    system.expect_refused(&system.admin.token, revoked_at).await;
}

#[tokio::test]
async fn a_session_service_that_dies_after_a_revocation_lets_nobody_back_in() {
    let mut system = System::start().await;
    system.remember(&system.admin.token).await;
    let revoked_at = system.revoke(&system.admin).await;
    // Whether the hint had left is not known.
    system.session.process.signal(Signal::KILL);
    system.session.process.ended().await;
    for ingest in &system.ingests {
        wait_until("the revoked is no longer let in", async || {
            let asked_at = Instant::now();
            let let_in = is_let_in(&check(ingest, &system.admin.token).await);
            assert!(!let_in || asked_at - revoked_at < CEILING);
            (!let_in).then_some(())
        })
        .await;
        check(ingest, &system.admin.token).await.expect_problem(503, "dependency_unavailable");
    }
    system.session = system.services.start(Upstream::Session);
    system.session.until_ready().await;
    system.expect_refused(&system.admin.token, revoked_at).await;
}
