//! The whole system for one test: all three contexts in this process, over a database and a broker of the test's own.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use contract::api_key::ApiKey;
use contract::identity::{
    AcceptInvite, AcceptedInvite, CreateTenant, Delivery, Invite, InviteUser, Login, Tenant,
};
use contract::session::IssuedSession;
use contract::{Role, Secret};
use hashing::{Argon2Settings, HashPool, Password, PoolSize};
use service::Tasks;
use service::config::Environment;
use service::health::{self, Readiness};
use service::telemetry::{Telemetry, TraceSettings};
use standalone::contexts::{self, NatsUrls, Settings};
use tempfile::TempDir;
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::nats::NatsServer;
use crate::{Client, TestDatabase};

/// A password that every rule lets through.
pub const PASSWORD: &str = "correct-horse-battery-9";

/// How long the system may take until it is ready.
const START_LIMIT: Duration = Duration::from_mins(1);

/// What lets one address ask as often as it likes.
pub const LIMITS_OFF: [(&str, &str); 5] = [
    ("SVC_LIMIT_LOGIN", "off"),
    ("SVC_LIMIT_RESET", "off"),
    ("SVC_LIMIT_TOKEN", "off"),
    ("SVC_LIMIT_DEVICE", "off"),
    ("SVC_LIMIT_DEFAULT", "off"),
];

/// A running system. It ends with the test.
pub struct World {
    /// The origin.
    pub base_url: String,
    /// The origin of the admin port.
    pub admin_url: String,
    /// The database.
    pub database: TestDatabase,
    /// The broker.
    pub nats: NatsServer,
    /// Where mails are written.
    pub mails: TempDir,
    /// The operator's token.
    pub platform_token: String,
    /// The secret of the internal API.
    pub service_token: String,
    tasks: Tasks,
}

/// Somebody with a password and a session.
pub struct Person {
    /// Who.
    pub user: AcceptedInvite,
    /// Their session.
    pub session: IssuedSession,
    /// A client that sends the session's token as bearer, and the tenant.
    pub client: Client,
}

impl World {
    /// Starts everything and waits until it is ready.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(&[]).await
    }

    /// The same with further variables.
    pub async fn start_with(variables: &[(&str, &str)]) -> anyhow::Result<Self> {
        // The first of the process's tests wins; all install the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (database, nats) = tokio::try_join!(TestDatabase::create(), NatsServer::start())?;
        let mails = tempfile::tempdir()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let base_url = format!("http://{}", listener.local_addr()?);
        let platform_token = platform_token();
        let service_token = Uuid::now_v7().to_string();
        let settings = Settings {
            public_url: base_url.clone(),
            identity_database_url: database.url("svc_identity"),
            session_database_url: database.url("svc_session"),
            nats_urls: NatsUrls {
                identity: nats.url.clone(),
                session: nats.url.clone(),
                ingest: nats.url.clone(),
            },
            service_token: service_token.clone(),
            platform_token: platform_token.clone(),
            limiter_key: Uuid::now_v7().to_string(),
            mail_dir: mails.path().to_string_lossy().into_owned(),
        };
        // A hash as cheap as it can be: tests are about who gets in, not about how long that takes.
        let environment = Environment::from_pairs([
            ("SVC_ARGON2_TIME_COST", "1"),
            ("SVC_ARGON2_MEMORY_COST", "64"),
            ("SVC_HASH_WORKERS", "2"),
            ("SVC_STREAM_MODE", "ensure"),
            ("SVC_STREAM_REPLICAS", "1"),
            ("SVC_STREAM_MAX_BYTES", "64MiB"),
            ("SVC_NATS_DURABILITY", "dev"),
        ]);
        // Limits are about one address, and every client of a test has the same.
        let environment = environment.with(LIMITS_OFF);
        let environment = environment.with(variables.iter().copied());
        let (tasks, readiness) = (Tasks::default(), Readiness::default());
        let telemetry = Telemetry::start("standalone", &TraceSettings::load(&environment)?)?;
        telemetry.flush_at_end(&tasks);
        let admin = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let admin_url = format!("http://{}", admin.local_addr()?);
        let asked = health::router(readiness.clone(), telemetry.metrics().clone());
        tasks.spawn("admin", service::http::serve(admin, asked, tasks.clone(), tasks.stopping().clone()));
        let router = contexts::start(&settings, &environment, &tasks, &readiness, &telemetry).await?;
        tasks.spawn_listener(service::http::serve(listener, router, tasks.clone(), tasks.draining().clone()));
        let world = Self { base_url, admin_url, database, nats, mails, platform_token, service_token, tasks };
        world.until_ready(&readiness).await;
        Ok(world)
    }

    /// Waits until the schema is accepted, the stream is there and events can be published.
    async fn until_ready(&self, readiness: &Readiness) {
        let opened = tokio::time::timeout(START_LIMIT, readiness.opened()).await;
        assert!(opened.is_ok(), "not ready after {START_LIMIT:?}: {:?}", readiness.closed());
        let client = self.client();
        until(async || (client.get("/health").await.status == 200).then_some(())).await;
    }

    /// A client that shows nothing.
    pub fn client(&self) -> Client {
        Client::new(&self.base_url)
    }

    /// The operator.
    pub fn operator(&self) -> Client {
        self.client().bearer(&self.platform_token)
    }

    /// A new tenant with its administrator, logged in.
    pub async fn tenant(&self, tenant_id: &str) -> Person {
        let create = CreateTenant {
            tenant_id: tenant_id.parse().expect("a tenant id"),
            display_name: tenant_id.to_owned(),
            admin_email: Some(format!("admin@{tenant_id}.example")),
            delivery: Delivery::Response,
            quota: None,
        };
        let tenant: Tenant = self.operator().post("/tenants", &create).await.expect(201);
        self.accept(tenant.invite.expect("an invite was asked for")).await
    }

    /// Invites somebody into the administrator's tenant, has them accept and log in.
    pub async fn join(&self, admin: &Person, email: &str, role: Role) -> Person {
        let invite = InviteUser { email: email.to_owned(), role, delivery: Delivery::Response };
        self.accept(admin.client.post("/users/invite", &invite).await.expect(201)).await
    }

    async fn accept(&self, invite: Invite) -> Person {
        let token = invite.token.expect("an invite by response has its token");
        let accept = AcceptInvite { token, password: Secret::new(PASSWORD) };
        let user: AcceptedInvite = self.client().post("/users/accept-invite", &accept).await.expect(201);
        let session = self.log_in(user.tenant_id.as_str(), &user.email).await;
        let client =
            self.client().bearer(session.session_id.expose()).header("X-Tenant-ID", user.tenant_id.as_str());
        Person { user, session, client }
    }

    /// A key of the administrator's tenant, made from a `POST /api-keys` body, and a client that sends it as bearer.
    pub async fn api_key(&self, admin: &Person, create: &serde_json::Value) -> (ApiKey, Client) {
        let key: ApiKey = admin.client.post("/api-keys", create).await.expect(201);
        let client = self.client().bearer(key.key.as_ref().expect("a new key is shown").expose());
        (key, client)
    }

    /// Another session of somebody who uses [`PASSWORD`].
    pub async fn log_in(&self, tenant_id: &str, email: &str) -> IssuedSession {
        let login = Login { email: email.to_owned(), password: Secret::new(PASSWORD) };
        self.client().header("X-Tenant-ID", tenant_id).post("/auth/password/login", &login).await.expect(200)
    }
}

impl World {
    /// The mail to an address, once it is there.
    pub async fn mail_to(&self, email: &str) -> String {
        let to = format!("To: {email}\r\n");
        until(async || {
            let files = std::fs::read_dir(self.mails.path()).expect("the directory of mails is there");
            let mails = files.filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok());
            mails.into_iter().find(|mail| mail.contains(&to))
        })
        .await
    }

    /// At least so many mails, oldest first, once they are there.
    pub async fn until_mails(&self, count: usize) -> Vec<String> {
        until(async || {
            let files = std::fs::read_dir(self.mails.path()).expect("the directory of mails is there");
            let mut names: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
            names.retain(|name| name.extension().is_some_and(|extension| extension == "eml"));
            names.sort();
            let mails: Vec<_> = names.iter().filter_map(|name| std::fs::read_to_string(name).ok()).collect();
            (mails.len() >= count).then_some(mails)
        })
        .await
    }

    /// Waits until every effect has come about.
    pub async fn until_outbox_is_empty(&self) {
        let mut connection = self.database.superuser().await.expect("the database answers");
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            let left: i64 = sqlx::query_scalar(
                "select (select count(*) from identity.outbox where dead_lettered_at is null)
                        + (select count(*) from session.outbox where dead_lettered_at is null)",
            )
            .fetch_one(&mut connection)
            .await
            .expect("the outbox can be read");
            if left == 0 {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "{left} effects are still due");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Runs a statement as the superuser: a test's own hand in the database, for states that time would bring.
    pub async fn run_sql(&self, statement: &str) {
        let mut connection = self.database.superuser().await.expect("the database answers");
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement))
            .execute(&mut connection)
            .await
            .expect("the statement works");
    }

    /// Every row of every table, as text.
    pub async fn dump(&self) -> String {
        let mut connection = self.database.superuser().await.expect("the database answers");
        let tables: Vec<String> = sqlx::query_scalar(
            "select schemaname || '.' || tablename from pg_tables where schemaname in ('identity', 'session') order by 1",
        )
        .fetch_all(&mut connection)
        .await
        .expect("the catalogue can be read");
        let mut text = String::new();
        for table in tables {
            let rows =
                format!("select coalesce(string_agg(row_to_json(t)::text, chr(10)), '') from {table} as t");
            let rows: String = sqlx::query_scalar(sqlx::AssertSqlSafe(rows))
                .fetch_one(&mut connection)
                .await
                .expect("a table can be read");
            text.push_str(&rows);
        }
        text
    }

    /// Waits until the database holds a text somewhere.
    pub async fn until_dump_has(&self, text: &str) {
        until(async || self.dump().await.contains(text).then_some(())).await;
    }
}

/// Asks again until there is an answer; gives up after a time that only a defect can take.
pub async fn until<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asking).await.expect("the condition comes true in time")
}

/// The digest of [`PASSWORD`] under settings that no world uses.
pub async fn old_digest() -> String {
    let old = Argon2Settings { time_cost: 1, memory_cost: 32, parallelism: 1, ..Argon2Settings::default() };
    let entropy: Arc<dyn hashing::Entropy> = Arc::new(hashing::SystemEntropy);
    let pool = HashPool::start(old, PoolSize::new(1), &entropy).expect("the settings validate");
    pool.hash(Password::new(PASSWORD)).await.expect("nobody else hashes").as_str().to_owned()
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.draining().cancel();
        self.tasks.stopping().cancel();
    }
}

/// A well-formed operator token; that it is known is no harm to a system that lives for one test.
fn platform_token() -> String {
    let entropy = hashing::SystemEntropy;
    hashing::RawToken::generate(hashing::TokenKind::PlatformAdmin, &entropy).expose().to_owned()
}
