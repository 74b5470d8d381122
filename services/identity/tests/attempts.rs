//! Waits after failed attempts: the context alone, on a clock that the test moves.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails there and then")]

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use chrono::{DateTime, TimeDelta, Utc};
use hashing::{Entropy, RawToken, SystemEntropy, TokenKind};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use service::Tasks;
use service::clock::ManualClock;
use service::config::Environment;
use service::telemetry::{Telemetry, TraceSettings};
use testkit::TestDatabase;
use testkit::world::{LIMITS_OFF, PASSWORD};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Notify};
use tower::ServiceExt as _;

const EMAIL: &str = "admin@acme.example";
const HERE: &str = "192.0.2.1";
const ELSEWHERE: &str = "192.0.2.2";
const SECRET: &str = "a secret of thirty-two characters or more";

struct Context {
    public: Router,
    clock: Arc<ManualClock>,
    database: TestDatabase,
    environment: Environment,
    tasks: Tasks,
}

impl Context {
    /// A tenant `acme` whose administrator has [`PASSWORD`].
    async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (database, tasks) = (TestDatabase::create().await.unwrap(), Tasks::default());
        let clock = Arc::new(ManualClock::at(DateTime::<Utc>::UNIX_EPOCH + TimeDelta::days(20_000)));
        let operator = RawToken::generate(TokenKind::Operator, &SystemEntropy).expose().to_owned();
        let session_url = serve_session(&database, &clock, &tasks).await;
        let environment = Environment::from_pairs(LIMITS_OFF).with([
            ("SVC_DATABASE_URL", database.url("svc_identity").as_str()),
            ("SVC_SESSION_URL", &session_url),
            ("SVC_SERVICE_TOKEN", SECRET),
            ("SVC_NATS_URL", "nats://127.0.0.1:1"),
            ("SVC_OPERATOR_TOKEN", &operator),
            ("SVC_LIMITER_KEY", SECRET),
            ("SVC_TRUSTED_PROXIES", "0.0.0.0/32"),
            ("SVC_ARGON2_TIME_COST", "1"),
            ("SVC_ARGON2_MEMORY_COST", "64"),
            ("SVC_HASH_WORKERS", "2"),
        ]);
        let public = build(&environment, &database, &clock, Arc::new(SystemEntropy), &tasks);
        let context = Self { public, clock, database, environment, tasks };
        let tenant = json!({
            "tenant_id": "acme", "display_name": "Acme", "admin_email": EMAIL, "delivery": "response"
        });
        let tenant =
            context.send("/tenants", &[("Authorization", &format!("Bearer {operator}"))], &tenant).await;
        let invite: Value = json_of(tenant).await;
        let accept = json!({ "token": invite["invite"]["token"], "password": PASSWORD });
        assert_eq!(context.send("/users/accept-invite", &[], &accept).await.status(), 201);
        context
    }

    /// The same with other variables, as after a restart.
    fn restarted_with(&self, variables: &[(&str, &str)], entropy: Arc<dyn Entropy>) -> Self {
        let environment = self.environment.clone().with(variables.iter().copied());
        Self {
            public: build(&environment, &self.database, &self.clock, entropy, &self.tasks),
            clock: Arc::clone(&self.clock),
            database: TestDatabase::clone(&self.database),
            environment,
            tasks: self.tasks.clone(),
        }
    }

    async fn send(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Response<Body> {
        let mut request = Request::post(format!("/api/v1{path}")).header("Content-Type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        self.public.clone().oneshot(request).await.unwrap()
    }

    /// The status of an attempt.
    async fn log_in(&self, address: &str, email: &str, password: &str) -> u16 {
        let headers = [("X-Tenant-ID", "acme"), ("X-Forwarded-For", address)];
        let body = json!({ "email": email, "password": password });
        self.send("/auth/password/login", &headers, &body).await.status().as_u16()
    }

    async fn fail(&self, times: usize) {
        for _ in 0..times {
            assert_eq!(self.log_in(HERE, EMAIL, "wrong-password-altogether").await, 401);
        }
    }

    /// A hundred strangers fail, each from an address of their own.
    async fn lock(&self, email: &str) {
        for n in 0..100 {
            let address = format!("198.51.100.{n}");
            assert_eq!(self.log_in(&address, email, "wrong-password-altogether").await, 401);
        }
    }

    async fn succeeds(&self, address: &str) -> bool {
        match self.log_in(address, EMAIL, PASSWORD).await {
            200 => true,
            401 => false,
            status => panic!("{status}"),
        }
    }

    fn advance(&self, seconds: i64) {
        self.clock.advance(TimeDelta::seconds(seconds));
    }

    /// Failures by account and address, where there are any.
    async fn counted(&self) -> Vec<i32> {
        let mut superuser = self.database.superuser().await.unwrap();
        sqlx::query_scalar("select failures from identity.attempts where failures > 0 order by failures")
            .fetch_all(&mut superuser)
            .await
            .unwrap()
    }

    /// What a query counts.
    async fn count(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(&mut self.database.superuser().await.unwrap()).await.unwrap()
    }

    async fn run_sql(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&mut self.database.superuser().await.unwrap()).await.unwrap();
    }

    /// The statuses of attempts at once.
    async fn at_once(&self, times: usize, password: &str) -> Vec<u16> {
        testkit::together((0..times).map(|_| self.log_in(HERE, EMAIL, password)).collect()).await
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.tasks.stopping().cancel();
        self.tasks.draining().cancel();
    }
}

async fn serve_session(database: &TestDatabase, clock: &Arc<ManualClock>, tasks: &Tasks) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let environment = Environment::from_pairs([
        ("SVC_DATABASE_URL", database.url("svc_session").as_str()),
        ("SVC_SERVICE_TOKEN", SECRET),
        ("SVC_NATS_URL", "nats://127.0.0.1:1"),
    ]);
    let parts = session::Parts {
        database: database.pool("svc_session").unwrap(),
        clock: clock.clone(),
        entropy: Arc::new(SystemEntropy),
        tasks: tasks.clone(),
    };
    let telemetry = Telemetry::start("test", &TraceSettings::default()).unwrap();
    let config = session::Config::load(&environment).unwrap();
    let router = session::build(config, parts, &telemetry).unwrap().internal.unwrap();
    tasks.spawn_listener(service::http::serve(listener, router, tasks.clone(), tasks.draining().clone()));
    url
}

fn build(
    environment: &Environment,
    database: &TestDatabase,
    clock: &Arc<ManualClock>,
    entropy: Arc<dyn Entropy>,
    tasks: &Tasks,
) -> Router {
    let parts = identity::Parts {
        database: database.pool("svc_identity").unwrap(),
        clock: clock.clone(),
        entropy,
        tasks: tasks.clone(),
        telemetry: Telemetry::start("test", &TraceSettings::default()).unwrap(),
    };
    identity::build(identity::Config::load(environment).unwrap(), parts).unwrap().public
}

async fn json_of(response: Response<Body>) -> Value {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn four_failures_are_free_and_then_the_right_password_waits_too() {
    let context = Context::start().await;
    context.fail(4).await;
    assert!(context.succeeds(HERE).await);
    context.fail(1).await;
    assert!(!context.succeeds(HERE).await, "the fifth failure costs a second");
    context.advance(1);
    assert!(context.succeeds(HERE).await);
    // The day's failures are not forgotten by a success.
    context.fail(1).await;
    context.advance(1);
    assert!(!context.succeeds(HERE).await, "the sixth costs two");
    context.advance(1);
    assert!(context.succeeds(HERE).await);
}

#[tokio::test]
async fn an_attempt_inside_a_wait_is_not_counted_again() {
    let context = Context::start().await;
    context.fail(5).await;
    context.fail(20).await;
    assert!(!context.succeeds(HERE).await);
    assert_eq!(context.counted().await, [5]);
    context.advance(1);
    assert!(context.succeeds(HERE).await);
}

#[tokio::test]
async fn a_stranger_elsewhere_keeps_nobody_out() {
    let context = Context::start().await;
    context.fail(10).await;
    assert!(!context.succeeds(HERE).await);
    assert!(context.succeeds(ELSEWHERE).await);
    assert!(!context.succeeds(HERE).await);
}

#[tokio::test]
async fn from_the_fiftieth_failure_of_a_day_on_the_wait_is_a_quarter_of_an_hour() {
    let context = Context::start().await;
    for _ in 0..49 {
        context.fail(1).await;
        context.advance(60);
    }
    context.fail(1).await;
    context.advance(15 * 60 - 1);
    assert!(!context.succeeds(HERE).await);
    context.advance(1);
    assert!(context.succeeds(HERE).await);
    context.fail(1).await;
    assert!(!context.succeeds(HERE).await);
    // A day after the first one, they begin anew.
    context.advance(24 * 60 * 60);
    context.fail(4).await;
    assert!(context.succeeds(HERE).await);
}

#[tokio::test]
async fn of_guesses_at_once_a_few_are_looked_at_and_each_of_them_counts() {
    let context = Context::start().await;
    let statuses = context.at_once(40, "wrong-password-altogether").await;
    assert!(statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
    let counted = context.counted().await[0];
    // Seven were under way when the fifth failed.
    assert!((5..=12).contains(&counted), "{counted}");
    let wait = if counted > 10 { 60 } else { 1 << (counted - 5) };
    context.advance(wait - 1);
    assert!(!context.succeeds(HERE).await, "the wait is that of {counted} failures");
    context.advance(1);
    assert!(context.succeeds(HERE).await);
}

#[tokio::test]
async fn whoever_logs_in_many_times_at_once_is_never_told_that_the_password_is_wrong() {
    let context = Context::start().await;
    let mut statuses = context.at_once(12, PASSWORD).await;
    statuses.sort_unstable();
    assert_eq!(statuses[..8], [200; 8]);
    assert!(statuses[8..].iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    context.fail(4).await;
    assert_eq!(context.at_once(2, PASSWORD).await, [200; 2]);
    assert_eq!(context.counted().await, [4]);
}

#[tokio::test]
async fn attempts_whose_process_died_are_under_way_for_half_a_minute_and_then_forgotten() {
    let context = Context::start().await;
    for email in [EMAIL, "nobody@acme.example"] {
        assert_eq!(context.log_in(HERE, email, "wrong-password-altogether").await, 401);
    }
    context
        .run_sql(
            "update identity.attempts set begun = array_fill(expires_at - interval '24 hours', array[8])",
        )
        .await;
    for email in [EMAIL, "nobody@acme.example"] {
        let headers = [("X-Tenant-ID", "acme"), ("X-Forwarded-For", HERE)];
        let body = json!({ "email": email, "password": PASSWORD });
        let refused = context.send("/auth/password/login", &headers, &body).await;
        assert_eq!(refused.headers()["retry-after"], "1");
        let problem = json_of(refused).await;
        assert_eq!((&problem["status"], &problem["code"]), (&json!(429), &json!("rate_limited")));
    }
    assert!(context.succeeds(ELSEWHERE).await);
    context.advance(30);
    assert!(context.succeeds(HERE).await);
    assert_eq!(context.counted().await, [1, 1]);
}

/// Holds up the hash worker while somebody else has the turn.
#[derive(Default)]
struct Held {
    turn: Mutex<()>,
    reached: Notify,
}

impl Entropy for Held {
    fn fill(&self, buffer: &mut [u8]) {
        // Everybody else who needs random bytes goes on.
        if std::thread::current().name().is_some_and(|name| name.starts_with("hash")) {
            self.reached.notify_one();
            drop(self.turn.blocking_lock());
        }
        SystemEntropy.fill(buffer);
    }
}

#[tokio::test]
async fn an_attempt_that_was_sent_away_by_the_full_queue_leaves_nothing_behind() {
    let context = Context::start().await;
    let held = Arc::new(Held::default());
    let busy = context.restarted_with(&[("SVC_HASH_WORKERS", "1")], held.clone());
    context.fail(4).await;
    let turn = held.turn.lock().await;
    let body = json!({ "current_password": PASSWORD, "new_password": "another-horse-battery-10" });
    let mut superuser = context.database.superuser().await.unwrap();
    let user_id: uuid::Uuid =
        sqlx::query_scalar("select user_id from identity.users").fetch_one(&mut superuser).await.unwrap();
    let user_id = user_id.to_string();
    let headers = [("X-Tenant-ID", "acme"), ("X-User-ID", user_id.as_str()), ("X-Forwarded-For", ELSEWHERE)];
    let changes = busy.send("/auth/password/change", &headers, &body);
    let refused = async {
        held.reached.notified().await;
        let statuses = [busy.log_in(HERE, EMAIL, "wrong-password-altogether").await];
        drop(turn);
        statuses
    };
    let (answer, statuses) = tokio::join!(changes, refused);
    assert_eq!((answer.status().as_u16(), statuses), (204, [503]));
    assert_eq!(context.count("select sum(cardinality(begun)) from identity.attempts").await, 0);
    let again = context.log_in(HERE, EMAIL, "another-horse-battery-10").await;
    assert_eq!(again, 200, "it was told to try again");
    assert_eq!(context.counted().await, [4]);
}

#[tokio::test]
async fn an_attempt_that_nobody_could_be_told_of_leaves_nothing_behind() {
    let context = Context::start().await;
    context.fail(4).await;
    context.run_sql("revoke insert on identity.outbox from svc_identity").await;
    for _ in 0..10 {
        for password in [PASSWORD, "wrong-password-altogether"] {
            assert!(context.log_in(HERE, EMAIL, password).await >= 500);
        }
    }
    context.run_sql("grant insert on identity.outbox to svc_identity").await;
    assert!(context.succeeds(HERE).await);
    assert_eq!(context.counted().await, [4]);
}

#[tokio::test]
async fn who_does_not_exist_is_counted_like_who_does() {
    let context = Context::start().await;
    for email in ["nobody@acme.example", "NOBODY@acme.example ", EMAIL, "ADMIN@acme.example"] {
        for _ in 0..2 {
            assert_eq!(context.log_in(HERE, email, "wrong-password-altogether").await, 401);
        }
    }
    assert_eq!(context.counted().await, [4, 4]);
}

#[tokio::test]
async fn a_password_change_counts_like_a_login() {
    let context = Context::start().await;
    let mut superuser = context.database.superuser().await.unwrap();
    let user_id: uuid::Uuid =
        sqlx::query_scalar("select user_id from identity.users").fetch_one(&mut superuser).await.unwrap();
    for user_id in [user_id, uuid::Uuid::now_v7()] {
        let user_id = user_id.to_string();
        let headers = [("X-Tenant-ID", "acme"), ("X-User-ID", user_id.as_str()), ("X-Forwarded-For", HERE)];
        let body = json!({ "current_password": "wrong-password-altogether", "new_password": "x" });
        for _ in 0..5 {
            assert_eq!(context.send("/auth/password/change", &headers, &body).await.status(), 401);
        }
    }
    assert_eq!(context.counted().await, [5, 5], "under the address, or under the id where there is none");
    assert!(!context.succeeds(HERE).await);
    context.advance(1);
    // The right current password is no failure, even when the new one is refused.
    let user_id = user_id.to_string();
    let headers = [("X-Tenant-ID", "acme"), ("X-User-ID", user_id.as_str()), ("X-Forwarded-For", HERE)];
    let body = json!({ "current_password": PASSWORD, "new_password": "short" });
    assert_eq!(context.send("/auth/password/change", &headers, &body).await.status(), 422);
    assert!(context.succeeds(HERE).await);
}

#[tokio::test]
async fn a_rotated_key_forgets_nothing_while_the_one_before_it_is_named() {
    let context = Context::start().await;
    context.fail(10).await;
    let variables = [
        ("SVC_LIMITER_KEY", "another secret of thirty-two characters or more"),
        ("SVC_LIMITER_KEY_PREVIOUS", SECRET),
    ];
    let rotated = context.restarted_with(&variables, Arc::new(SystemEntropy));
    assert!(!rotated.succeeds(HERE).await);
    assert_eq!(rotated.counted().await.len(), 1);
    rotated.advance(60);
    assert!(rotated.succeeds(HERE).await);
}

#[tokio::test]
async fn no_stranger_locks_an_account_where_it_was_logged_in_to_within_a_month() {
    let context = Context::start().await;
    assert!(context.succeeds(HERE).await);
    context.lock(EMAIL).await;
    assert!(!context.succeeds(ELSEWHERE).await, "a new address of the owner is locked out");
    assert!(context.succeeds(HERE).await);
    assert!(!context.succeeds(ELSEWHERE).await, "that unlocks it nowhere else");
    context.fail(5).await;
    assert!(!context.succeeds(HERE).await, "one's own failures count");
    // Strangers go on all the time, and nothing is purged but what is over.
    context.advance(30 * 24 * 60 * 60 - 1);
    let context = context.restarted_with(&[], Arc::new(SystemEntropy));
    let strangers = "select count(*) from identity.attempts where last_success_at is null";
    testkit::world::until(async || (context.count(strangers).await == 0).then_some(())).await;
    assert!(context.succeeds(HERE).await);
    context.advance(30 * 24 * 60 * 60);
    assert!(!context.succeeds(HERE).await, "a month later it is a source like any other");
}

#[tokio::test]
async fn a_month_later_only_accounts_that_exist_are_still_locked() {
    let context = Context::start().await;
    let rows = "select count(*) from identity.failures";
    for email in [EMAIL, "nobody@acme.example"] {
        context.lock(email).await;
    }
    context.fail(1).await;
    assert_eq!(context.count(rows).await, 2);
    context.advance(30 * 24 * 60 * 60);
    let context = context.restarted_with(&[], Arc::new(SystemEntropy));
    testkit::world::until(async || (context.count(rows).await == 1).then_some(())).await;
    assert!(!context.succeeds(ELSEWHERE).await);
}

#[tokio::test]
async fn an_attempt_that_does_not_count_leaves_no_row_of_failures() {
    let context = Context::start().await;
    context.fail(5).await;
    context.run_sql("delete from identity.failures").await;
    context.fail(1).await;
    assert_eq!(context.count("select count(*) from identity.failures").await, 0);
}
