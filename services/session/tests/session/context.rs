//! The session context alone: its two routers with a database of the test.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use chrono::{DateTime, TimeDelta, Utc};
use contract::identity::{Quota, SecondFactorPolicy};
use contract::internal::{
    INTROSPECT, ISSUE_SESSION, Introspect, Introspected, IssueSession, Subject, SubjectRecord, TenantRecord,
    subject_path, tenant_path,
};
use contract::session::{AuthMethod, IssuedSession, SessionMethod};
use contract::{Role, TenantStatus, UserStatus};
use database::Parts;
use hashing::{Entropy, RawToken, SystemEntropy, TokenKind};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde::Serialize;
use service::clock::ManualClock;
use service::config::{Environment, Variables as _};
use service::process::Routers;
use service::telemetry::{Telemetry, TraceSettings};
use service::{Clock as _, Tasks};
use tenancy::{SessionId, TenantId, UserId};
use testkit::{LIMITS_OFF, TestDatabase, wait_until};
use tower::ServiceExt as _;

pub(crate) const SERVICE_TOKEN: &str = "a service token of thirty-two characters or more";

pub(crate) struct Context {
    public: Router,
    internal: Router,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) database: TestDatabase,
    pub(crate) tasks: Tasks,
    config: session::Config,
}

impl Context {
    pub(crate) async fn start() -> Self {
        Self::start_with(Arc::new(SystemEntropy)).await
    }

    pub(crate) async fn start_with(entropy: Arc<dyn Entropy>) -> Self {
        // Fails when another test of this process has installed the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let database = TestDatabase::create().await.unwrap();
        let environment = Environment::from_pairs([
            ("SVC_DATABASE_URL", database.url("svc_session").as_str()),
            ("SVC_SERVICE_TOKEN", SERVICE_TOKEN),
            // No broker listens there; these tests do not need one.
            ("SVC_NATS_URL", "nats://127.0.0.1:1"),
            // All requests of a test come from one address.
            ("SVC_LIMIT_DEFAULT", "off"),
        ]);
        let environment = environment.with(LIMITS_OFF);
        let config = session::Config::load(&environment).unwrap();
        let clock = Arc::new(ManualClock::at(DateTime::<Utc>::UNIX_EPOCH + TimeDelta::days(20_000)));
        let tasks = Tasks::default();
        let Routers { public, internal, .. } = build(&config, &database, &clock, entropy, &tasks);
        Self { public, internal: internal.unwrap(), clock, database, tasks, config }
    }

    /// Starts another process on the same database.
    pub(crate) fn start_replica(&self) -> Routers {
        build(&self.config, &self.database, &self.clock, Arc::new(SystemEntropy), &Tasks::default())
    }

    /// Returns the number of rows of a table.
    pub(crate) async fn count_rows(&self, table: &str) -> i64 {
        let mut connection = self.database.superuser().await.unwrap();
        let count = format!("select count(*) from session.{table}");
        sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(&mut connection).await.unwrap()
    }

    /// Posts to the internal API.
    pub(crate) async fn post_internal(
        &self,
        path: &str,
        token: &str,
        body: &impl Serialize,
    ) -> (StatusCode, Vec<u8>) {
        request(&self.internal, Method::POST, path, token, serde_json::to_vec(body).unwrap()).await
    }

    /// Sends a request with a bearer token to the public API.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        token: &RawToken,
        body: impl Into<Body>,
    ) -> (StatusCode, Vec<u8>) {
        request(&self.public, method, path, token.expose(), body).await
    }

    /// Sends a request to the public API unchanged.
    pub(crate) async fn send(&self, request: Request<Body>) -> Response<Vec<u8>> {
        let (parts, body) = self.public.clone().oneshot(request).await.unwrap().into_parts();
        Response::from_parts(parts, body.collect().await.unwrap().to_bytes().to_vec())
    }

    /// Sends the account status of a user, as identity does.
    pub(crate) async fn apply_subject(&self, record: &SubjectRecord) {
        self.put_record(&subject_path(record.user_id), record).await;
    }

    /// Sends the account status of a tenant, as identity does.
    pub(crate) async fn apply_tenant(&self, record: &TenantRecord) {
        self.put_record(&tenant_path(&record.tenant_id), record).await;
    }

    async fn put_record(&self, path: &str, record: &impl Serialize) {
        let body = serde_json::to_vec(record).unwrap();
        let (status, _) = request(&self.internal, Method::PUT, path, SERVICE_TOKEN, body).await;
        assert_eq!(status, StatusCode::NO_CONTENT);
    }

    /// Records the sessions that expired before a time, and purges those that became inactive before it, as the task does.
    pub(crate) async fn purge_sessions(&self, before: DateTime<Utc>) {
        let mut connection = self.database.superuser().await.unwrap();
        let expire = "update session.sessions set inactive_since = valid_until where valid_until < $1";
        sqlx::query(expire).bind(before).execute(&mut connection).await.unwrap();
        let database = self.database.pool("svc_session").unwrap();
        let purge = sqlx::query("select session.purge($1, 10000)").bind(before);
        purge.execute(database.pool()).await.unwrap();
    }

    /// Returns the ids of the stored sessions of a tenant, in order.
    pub(crate) async fn sessions_of(&self, tenant_id: &TenantId) -> Vec<SessionId> {
        let mut connection = self.database.superuser().await.unwrap();
        let select = "select session_id from session.sessions where tenant_id = $1 order by session_id";
        sqlx::query_scalar(select).bind(tenant_id.as_str()).fetch_all(&mut connection).await.unwrap()
    }

    /// Returns the stored time of the last use of a session.
    pub(crate) async fn last_seen_at(&self, token: &RawToken) -> DateTime<Utc> {
        let mut connection = self.database.superuser().await.unwrap();
        let select = "select last_seen_at from session.sessions where digest = $1";
        let digest = token.digest();
        sqlx::query_scalar(select).bind(digest.as_bytes()).fetch_one(&mut connection).await.unwrap()
    }

    /// Waits until the service has saved that the session was used now.
    pub(crate) async fn wait_until_use_saved(&self, token: &RawToken) {
        let now = self.clock.now();
        wait_until("the use of the session is saved", async || {
            (self.last_seen_at(token).await == now).then_some(())
        })
        .await;
    }

    /// Waits until a statement that contains `text` waits for a lock.
    pub(crate) async fn wait_until_blocked(&self, text: &str) {
        let mut connection = self.database.superuser().await.unwrap();
        wait_until("a statement waits for a lock", async || {
            let count = "select count(*) from pg_stat_activity where datname = current_database()
                and wait_event_type = 'Lock' and strpos(query, $1) > 0";
            let blocked: i64 = sqlx::query_scalar(count).bind(text).fetch_one(&mut connection).await.unwrap();
            (blocked > 0).then_some(())
        })
        .await;
    }

    /// Issues a session for a password login. Returns `None` if the account status forbids it.
    pub(crate) async fn issue(&self, subject: &SubjectRecord, tenant: &TenantRecord) -> Option<RawToken> {
        self.issue_with(subject, tenant, &[AuthMethod::Pwd]).await
    }

    /// Issues a session for a login with these methods.
    pub(crate) async fn issue_with(
        &self,
        subject: &SubjectRecord,
        tenant: &TenantRecord,
        amr: &[AuthMethod],
    ) -> Option<RawToken> {
        let request = IssueSession {
            subject: subject.clone(),
            tenant: tenant.clone(),
            method: SessionMethod::Password,
            amr: amr.to_vec(),
            ip: None,
            user_agent: None,
        };
        let (status, body) = self.post_internal(ISSUE_SESSION, SERVICE_TOKEN, &request).await;
        if status == StatusCode::CONFLICT {
            return None;
        }
        assert_eq!(status, StatusCode::CREATED);
        let session: IssuedSession = serde_json::from_slice(&body).unwrap();
        Some(RawToken::parse(TokenKind::Session, session.session_id.expose()).unwrap())
    }

    /// Returns the subjects of the tokens that are active.
    pub(crate) async fn introspect(&self, tokens: &[&RawToken]) -> Vec<Option<Subject>> {
        let digests = tokens.iter().map(|token| token.digest().to_hex()).collect();
        let (status, body) = self.post_internal(INTROSPECT, SERVICE_TOKEN, &Introspect { digests }).await;
        assert_eq!(status, StatusCode::OK);
        serde_json::from_slice::<Introspected>(&body).unwrap().subjects
    }

    /// Returns whether a token is active, and records its use.
    pub(crate) async fn is_active(&self, token: &RawToken) -> bool {
        self.introspect(&[token]).await[0].is_some()
    }
}

fn build(
    config: &session::Config,
    database: &TestDatabase,
    clock: &Arc<ManualClock>,
    entropy: Arc<dyn Entropy>,
    tasks: &Tasks,
) -> Routers {
    let parts = Parts {
        database: database.pool("svc_session").unwrap(),
        clock: clock.clone(),
        entropy,
        tasks: tasks.clone(),
        telemetry: Telemetry::start("test", &TraceSettings::default()).unwrap(),
    };
    session::build(config.clone(), parts).unwrap()
}

async fn request(
    router: &Router,
    method: Method,
    path: &str,
    token: &str,
    body: impl Into<Body>,
) -> (StatusCode, Vec<u8>) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {token}"))
        .body(body.into())
        .unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    (response.status(), response.into_body().collect().await.unwrap().to_bytes().to_vec())
}

/// The account status of an active tenant.
pub(crate) fn tenant() -> TenantRecord {
    TenantRecord {
        tenant_id: "acme".parse::<TenantId>().unwrap(),
        status: TenantStatus::Active,
        session_version: 1,
        quota: Quota::default(),
        second_factor: SecondFactorPolicy::Optional,
        is_deleted: false,
        version: 1,
    }
}

/// The account status of a new active member.
pub(crate) fn subject() -> SubjectRecord {
    SubjectRecord {
        user_id: UserId::generate(),
        tenant_id: "acme".parse().unwrap(),
        role: Role::Member,
        status: UserStatus::Active,
        credential_version: 1,
        kept_session_id: None,
        api_key_version: 1,
        has_factor: false,
        is_deleted: false,
        version: 1,
    }
}
