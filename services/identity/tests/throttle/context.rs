//! The identity service with a tenant and its administrator, on a manual clock.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use chrono::{DateTime, TimeDelta, Utc};
use database::Parts;
use hashing::{Entropy, RawToken, SystemEntropy, TokenKind};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde::Serialize;
use serde_json::{Value, json};
use service::Tasks;
use service::clock::ManualClock;
use service::config::{Environment, Variables as _};
use service::process::Routers;
use service::telemetry::{Metrics, Telemetry, TraceSettings};
use testkit::{LIMITS_OFF, PASSWORD, TestDatabase};
use tokio::net::TcpListener;
use tower::ServiceExt as _;

pub(crate) const EMAIL: &str = "admin@acme.example";
pub(crate) const HERE: &str = "192.0.2.1";
pub(crate) const ELSEWHERE: &str = "192.0.2.2";
pub(crate) const SECRET: &str = "a secret of thirty-two characters or more";

pub(crate) struct Context {
    public: Router,
    internal: Router,
    clock: Arc<ManualClock>,
    pub(crate) database: TestDatabase,
    environment: Environment,
    tasks: Tasks,
    pub(crate) metrics: Metrics,
}

impl Context {
    /// Starts with the tenant `acme` and an administrator with [`PASSWORD`].
    pub(crate) async fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (database, tasks) = (TestDatabase::create().await.unwrap(), Tasks::default());
        let clock = Arc::new(ManualClock::at(DateTime::<Utc>::UNIX_EPOCH + TimeDelta::days(20_000)));
        let platform_token = RawToken::generate(TokenKind::PlatformAdmin, &SystemEntropy).expose().to_owned();
        let session_url = serve_session(&database, &clock, &tasks).await;
        let environment = Environment::from_pairs(LIMITS_OFF).with([
            ("SVC_DATABASE_URL", database.url("svc_identity").as_str()),
            ("SVC_SESSION_URL", &session_url),
            ("SVC_SERVICE_TOKEN", SECRET),
            ("SVC_NATS_URL", "nats://127.0.0.1:1"),
            ("SVC_STREAM_MAX_BYTES", "64MiB"),
            ("SVC_PLATFORM_TOKEN", &platform_token),
            ("SVC_LIMITER_KEY", SECRET),
            ("SVC_FACTOR_KEY", SECRET),
            ("SVC_TRUSTED_PROXIES", "0.0.0.0/32"),
            ("SVC_ARGON2_TIME_COST", "1"),
            ("SVC_ARGON2_MEMORY_COST", "64"),
            ("SVC_HASH_WORKERS", "2"),
        ]);
        let (Routers { public, internal, .. }, metrics) =
            build(&environment, &database, &clock, Arc::new(SystemEntropy), &tasks);
        let internal = internal.unwrap();
        let context = Self { public, internal, clock, database, environment, tasks, metrics };
        context.create_tenant("acme").await;
        context
    }

    /// Creates a tenant and its administrator `admin@<tenant>.example` with [`PASSWORD`].
    pub(crate) async fn create_tenant(&self, tenant_id: &str) {
        let email = format!("admin@{tenant_id}.example");
        let tenant = json!({
            "tenant_id": tenant_id, "display_name": tenant_id, "admin_email": email, "delivery": "response"
        });
        let headers = [("Authorization", &*self.platform_token())];
        let tenant: Value = json_of(self.send("/tenants", &headers, &tenant).await).await;
        let accept = json!({ "token": tenant["invite"]["token"], "password": PASSWORD });
        assert_eq!(self.send("/users/accept-invite", &[], &accept).await.status(), 201);
    }

    /// Invites a member of `acme`. Returns the token.
    pub(crate) async fn invite_token(&self, email: &str) -> String {
        let token = self.platform_token();
        let headers = [("Authorization", token.as_str()), ("X-Tenant-ID", "acme")];
        let body = json!({ "email": email, "delivery": "response" });
        let invite: Value = json_of(self.send("/users/invite", &headers, &body).await).await;
        invite["token"].as_str().unwrap().to_owned()
    }

    /// Restarts the service with additional variables.
    pub(crate) fn restarted_with(&self, variables: &[(&str, &str)], entropy: Arc<dyn Entropy>) -> Self {
        let environment = self.environment.clone().with(variables.iter().copied());
        let (Routers { public, internal, .. }, metrics) =
            build(&environment, &self.database, &self.clock, entropy, &self.tasks);
        Self {
            public,
            internal: internal.unwrap(),
            clock: Arc::clone(&self.clock),
            database: TestDatabase::clone(&self.database),
            environment,
            tasks: self.tasks.clone(),
            metrics,
        }
    }

    pub(crate) async fn send(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Response<Body> {
        let mut request = Request::post(format!("/api/v1{path}")).header("Content-Type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        self.public.clone().oneshot(request).await.unwrap()
    }

    /// Sends a DELETE request with a session token. Returns the status.
    pub(crate) async fn delete(&self, path: &str, token: &str) -> u16 {
        let request =
            Request::delete(format!("/api/v1{path}")).header("Authorization", format!("Bearer {token}"));
        self.public.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status().as_u16()
    }

    /// Sends a PATCH request. Returns the status.
    pub(crate) async fn patch(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> u16 {
        let mut request = Request::patch(format!("/api/v1{path}")).header("Content-Type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        self.public.clone().oneshot(request).await.unwrap().status().as_u16()
    }

    /// Removes the second factors of a user of `acme` as the platform administrator. Returns the status.
    pub(crate) async fn reset_factors(&self, user_id: &str) -> u16 {
        let request = Request::delete(format!("/api/v1/users/{user_id}/factors"))
            .header("Authorization", self.platform_token())
            .header("X-Tenant-ID", "acme");
        self.public.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status().as_u16()
    }

    /// Returns the only user of `acme`, as the platform administrator sees it.
    pub(crate) async fn user(&self) -> Value {
        let request = Request::get("/api/v1/users")
            .header("Authorization", self.platform_token())
            .header("X-Tenant-ID", "acme");
        let response = self.public.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        json_of(response).await["items"][0].take()
    }

    /// Puts an object to the internal API. Returns the status.
    pub(crate) async fn put_internal(&self, path: &str, token: Option<&str>, body: &impl Serialize) -> u16 {
        let mut request = Request::put(path).header("Content-Type", "application/json");
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let request = request.body(Body::from(serde_json::to_vec(body).unwrap())).unwrap();
        self.internal.clone().oneshot(request).await.unwrap().status().as_u16()
    }

    /// The value of `Authorization` of the platform administrator.
    pub(crate) fn platform_token(&self) -> String {
        format!("Bearer {}", self.environment.get("SVC_PLATFORM_TOKEN").unwrap())
    }

    /// Returns the status of a login.
    pub(crate) async fn log_in(&self, address: &str, email: &str, password: &str) -> u16 {
        let headers = [("X-Tenant-ID", "acme"), ("X-Forwarded-For", address)];
        let body = json!({ "email": email, "password": password });
        self.send("/auth/password/login", &headers, &body).await.status().as_u16()
    }

    pub(crate) async fn fail(&self, times: usize) {
        for _ in 0..times {
            assert_eq!(self.log_in(HERE, EMAIL, "wrong-password-altogether").await, 401);
        }
    }

    /// Fails 100 logins, each from another address.
    pub(crate) async fn lock_out(&self, email: &str) {
        for n in 0..100 {
            let address = format!("198.51.100.{n}");
            assert_eq!(self.log_in(&address, email, "wrong-password-altogether").await, 401);
        }
    }

    pub(crate) async fn succeeds(&self, address: &str) -> bool {
        match self.log_in(address, EMAIL, PASSWORD).await {
            200 => true,
            401 => false,
            status => panic!("{status}"),
        }
    }

    /// The Unix time of the clock.
    pub(crate) fn time(&self) -> i64 {
        service::Clock::now(&*self.clock).timestamp()
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.clock.advance(TimeDelta::seconds(seconds));
    }

    /// Returns the counted failures per account and source.
    pub(crate) async fn failures(&self) -> Vec<i32> {
        let mut superuser = self.database.superuser().await.unwrap();
        sqlx::query_scalar(
            "select failures from identity.login_attempts where failures > 0 order by failures",
        )
        .fetch_all(&mut superuser)
        .await
        .unwrap()
    }

    /// Returns the id of the administrator.
    pub(crate) async fn user_id(&self) -> String {
        let user_id = sqlx::query_scalar("select user_id::text from identity.users");
        user_id.fetch_one(&mut self.database.superuser().await.unwrap()).await.unwrap()
    }

    /// Returns the number that a query selects.
    pub(crate) async fn count(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(&mut self.database.superuser().await.unwrap()).await.unwrap()
    }

    pub(crate) async fn run_sql(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&mut self.database.superuser().await.unwrap()).await.unwrap();
    }

    /// Returns the statuses of concurrent logins.
    pub(crate) async fn concurrent_logins(&self, times: usize, password: &str) -> Vec<u16> {
        testkit::join_all((0..times).map(|_| self.log_in(HERE, EMAIL, password))).await
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
    let parts = Parts {
        database: database.pool("svc_session").unwrap(),
        clock: clock.clone(),
        entropy: Arc::new(SystemEntropy),
        tasks: tasks.clone(),
        telemetry: Telemetry::start("test", &TraceSettings::default()).unwrap(),
    };
    let config = session::Config::load(&environment).unwrap();
    let router = session::build(config, parts).unwrap().internal.unwrap();
    tasks.spawn_listener(service::http::serve(listener, router, tasks.clone(), tasks.draining().clone()));
    url
}

fn build(
    environment: &Environment,
    database: &TestDatabase,
    clock: &Arc<ManualClock>,
    entropy: Arc<dyn Entropy>,
    tasks: &Tasks,
) -> (Routers, Metrics) {
    let telemetry = Telemetry::start("test", &TraceSettings::default()).unwrap();
    let metrics = telemetry.metrics().clone();
    let parts = Parts {
        database: database.pool("svc_identity").unwrap(),
        clock: clock.clone(),
        entropy,
        tasks: tasks.clone(),
        telemetry,
    };
    (identity::build(identity::Config::load(environment).unwrap(), parts).unwrap(), metrics)
}

pub(crate) async fn json_of(response: Response<Body>) -> Value {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}
