//! The whole system in the test's own process: all three services over a database and a broker of the test's own.

#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "a failed setup fails the test")]

mod operator;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use contract::factors::{NewTotp, RecoveryCodes};
use contract::identity::{
    AcceptInvite, AcceptedInvite, CreateTenant, Delivery, Invite, InviteUser, Login, SecondFactorPolicy,
    Tenant,
};
use contract::session::ApiKey;
use contract::session::IssuedSession;
use contract::{Role, Secret};
use hashing::{Argon2Settings, HashKernel, HashPool, Lane, Password, PoolSize, Requester};
use service::Tasks;
use service::config::{Environment, Variables as _};
use service::health::{self, Readiness};
use service::telemetry::{Output, Telemetry, TraceSettings};
use standalone::services::{self, ServiceUrls, Settings};
use tempfile::TempDir;
use testkit::{CHEAP_HASHES, Client, LIMITS_OFF, NatsServer, PASSWORD, TestDatabase, totp_after, wait_until};
use tokio::net::TcpListener;
use tracing::subscriber::DefaultGuard;
use uuid::Uuid;

pub use operator::{BLUE, GREEN, SystemWithOperator};

/// How long the system may take until it is ready.
const START_TIMEOUT: Duration = Duration::from_mins(1);

const VARIABLES: [(&str, &str); 4] = [
    ("SVC_HASH_WORKERS", "2"),
    ("SVC_STREAM_REPLICAS", "1"),
    ("SVC_STREAM_MAX_BYTES", "64MiB"),
    ("SVC_NATS_DURABILITY", "dev"),
];

/// A running system. It stops when dropped.
pub struct TestSystem {
    /// The origin of the public API.
    pub base_url: String,
    /// The origin of the admin port.
    pub admin_url: String,
    /// The origins of the internal APIs.
    pub internal_urls: ServiceUrls,
    /// The database.
    pub database: TestDatabase,
    /// The broker.
    pub nats: NatsServer,
    /// The directory of outgoing mails.
    pub mails: TempDir,
    /// The platform token.
    pub platform_token: String,
    /// The secret of the internal API.
    pub service_token: String,
    tasks: Tasks,
    _subscriber: Option<DefaultGuard>,
}

/// A user who is logged in.
pub struct TestUser {
    /// The account.
    pub user: AcceptedInvite,
    /// The session.
    pub session: IssuedSession,
    /// A client that sends the session token and the tenant.
    pub client: Client,
}

impl TestSystem {
    /// Starts the system and waits until it is ready.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts the system with additional variables and waits until it is ready. `SVC_PUBLIC_URL` can be another origin.
    pub async fn start_with(variables: &[(&str, &str)]) -> anyhow::Result<Self> {
        // Fails when another test of this process has installed the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (database, nats) = tokio::try_join!(TestDatabase::create(), NatsServer::start_with_accounts())?;
        let mails = tempfile::tempdir()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let base_url = format!("http://{}", listener.local_addr()?);
        let platform_token = generate_platform_token();
        let service_token = Uuid::now_v7().to_string();
        let environment = Environment::from_pairs(VARIABLES.into_iter().chain(CHEAP_HASHES));
        let environment = environment.with(LIMITS_OFF).with(variables.iter().copied());
        // The port 0 is that of the system.
        let public_url = environment.get("SVC_PUBLIC_URL").unwrap_or(&base_url);
        let public_url = match public_url.strip_suffix(":0") {
            Some(origin) => format!("{origin}:{}", listener.local_addr()?.port()),
            None => public_url.to_owned(),
        };
        let settings = Settings {
            public_url,
            identity_database_url: database.url("svc_identity"),
            session_database_url: database.url("svc_session"),
            nats_urls: ServiceUrls {
                identity: nats.url_of("identity"),
                session: nats.url_of("session"),
                ingest: nats.url_of("ingest"),
            },
            service_token: service_token.clone(),
            platform_token: platform_token.clone(),
            limiter_key: Uuid::now_v7().to_string(),
            factor_key: Uuid::now_v7().to_string(),
            mail_dir: mails.path().to_string_lossy().into_owned(),
        };
        let (tasks, readiness) = (Tasks::default(), Readiness::default());
        let telemetry = Telemetry::start("standalone", &TraceSettings::load(&environment)?)?;
        telemetry.flush_on_shutdown(&tasks);
        // The system runs on the thread of its test, so several systems can export to different collectors.
        let subscriber = environment
            .get("SVC_OTLP_ENDPOINT")
            .map(|_| telemetry.install_for_thread("warn", Output::Stderr));
        let admin = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let admin_url = format!("http://{}", admin.local_addr()?);
        let admin_router = health::router(readiness.clone(), telemetry.metrics().clone());
        let serve_admin = service::http::serve(admin, admin_router, tasks.clone(), tasks.stopping().clone());
        tasks.spawn("admin", serve_admin);
        let (routers, internal_urls) =
            services::start(&settings, &environment, &tasks, &readiness, &telemetry).await?;
        tasks.spawn_listener(service::http::serve_public(
            listener,
            routers.public,
            routers.connections,
            tasks.clone(),
            telemetry.metrics().clone(),
        ));
        let system = Self {
            base_url,
            admin_url,
            internal_urls,
            database,
            nats,
            mails,
            platform_token,
            service_token,
            tasks,
            _subscriber: subscriber,
        };
        system.wait_until_ready(&readiness).await;
        Ok(system)
    }

    /// Waits until the schema is accepted, the streams exist, and events and audit events can be published.
    async fn wait_until_ready(&self, readiness: &Readiness) {
        let opened = tokio::time::timeout(START_TIMEOUT, readiness.opened()).await;
        assert!(opened.is_ok(), "not ready after {START_TIMEOUT:?}: {:?}", readiness.closed());
        let client = self.client();
        wait_until("the system is healthy", async || {
            (client.get("/health").await.status == 200).then_some(())
        })
        .await;
        let metrics = format!("{}/metrics", self.admin_url);
        wait_until("the other streams are available", async || {
            let text = testkit::client::plain_http().get(&metrics).send().await.ok()?.text().await.ok()?;
            let is_available =
                |stream| text.contains(&format!("svc_publish_available{{stream=\"{stream}\"}} 1\n"));
            ["AUDIT", "AUDIT_ANONYMOUS", "UDM_DLQ"].into_iter().all(is_available).then_some(())
        })
        .await;
    }

    /// A client without credentials.
    pub fn client(&self) -> Client {
        Client::new(&self.base_url)
    }

    /// A client with the platform token.
    pub fn platform_admin(&self) -> Client {
        self.client().bearer(&self.platform_token)
    }

    /// Creates a tenant. Returns its administrator, logged in.
    pub async fn create_tenant(&self, tenant_id: &str) -> TestUser {
        let create = CreateTenant {
            tenant_id: tenant_id.parse().expect("a tenant id"),
            display_name: tenant_id.to_owned(),
            admin_email: Some(format!("admin@{tenant_id}.example")),
            delivery: Delivery::Response,
            quota: None,
            second_factor: SecondFactorPolicy::Optional,
            password_min_length: None,
            passkey_login: None,
        };
        let tenant: Tenant = self.platform_admin().post("/tenants", &create).await.expect(201);
        self.accept_invite(tenant.invite.expect("the invite of the administrator")).await
    }

    /// Invites a user into the administrator's tenant. Returns the user, logged in.
    pub async fn add_user(&self, admin: &TestUser, email: &str, role: Role) -> TestUser {
        let invite = InviteUser { email: email.to_owned(), role, delivery: Delivery::Response };
        self.accept_invite(admin.client.post("/users/invite", &invite).await.expect(201)).await
    }

    async fn accept_invite(&self, invite: Invite) -> TestUser {
        let token = invite.token.expect("an invite with delivery `response` contains its token");
        let accept = AcceptInvite { token, password: Secret::new(PASSWORD) };
        let user: AcceptedInvite = self.client().post("/users/accept-invite", &accept).await.expect(201);
        let session = self.log_in(user.tenant_id.as_str(), &user.email).await;
        let client =
            self.client().bearer(session.session_id.expose()).header("X-Tenant-ID", user.tenant_id.as_str());
        TestUser { user, session, client }
    }

    /// Creates an API key from the body of `POST /api-keys`. Returns it with a client that sends it.
    pub async fn create_api_key(&self, admin: &TestUser, create: &serde_json::Value) -> (ApiKey, Client) {
        let key: ApiKey = admin.client.post("/api-keys", create).await.expect(201);
        let client =
            self.client().bearer(key.key.as_ref().expect("a created key contains its secret").expose());
        (key, client)
    }

    /// Logs in with [`PASSWORD`]. Returns the new session.
    pub async fn log_in(&self, tenant_id: &str, email: &str) -> IssuedSession {
        let login = Login { email: email.to_owned(), password: Secret::new(PASSWORD) };
        self.client().header("X-Tenant-ID", tenant_id).post("/auth/password/login", &login).await.expect(200)
    }
}

impl TestSystem {
    /// Waits for a mail to the address.
    pub async fn wait_for_mail(&self, email: &str) -> String {
        let to = format!("To: {email}\r\n");
        wait_until("the mail is written", async || {
            let files = std::fs::read_dir(self.mails.path()).expect("the mail directory");
            let mails = files.filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok());
            mails.into_iter().find(|mail| mail.contains(&to))
        })
        .await
    }

    /// Waits for at least `count` mails. Returns all, oldest first.
    pub async fn wait_for_mails(&self, count: usize) -> Vec<String> {
        wait_until("the mails are written", async || {
            let files = std::fs::read_dir(self.mails.path()).expect("the mail directory");
            let mut names: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
            names.retain(|name| name.extension().is_some_and(|extension| extension == "eml"));
            names.sort();
            let mails: Vec<_> = names.iter().filter_map(|name| std::fs::read_to_string(name).ok()).collect();
            (mails.len() >= count).then_some(mails)
        })
        .await
    }

    /// Waits for at least `count` mails to the address with this header line or text. Returns them, oldest first.
    pub async fn wait_for_mails_to(&self, email: &str, text: &str, count: usize) -> Vec<String> {
        let to = format!("To: {email}\r\n");
        wait_until("the mails are written", async || {
            let mut mails = self.wait_for_mails(0).await;
            mails.retain(|mail| mail.contains(&to) && mail.contains(text));
            (mails.len() >= count).then_some(mails)
        })
        .await
    }

    /// Waits until all outbox messages are delivered or dead-lettered. Does not wait for the delay of folded messages.
    pub async fn wait_for_empty_outbox(&self) {
        const PENDING: &str = "select (select count(*) from identity.outbox where dead_lettered_at is null)
            + (select count(*) from session.outbox where dead_lettered_at is null)";
        self.run_sql("update identity.outbox set due_at = created_at where fold_key is not null").await;
        let mut connection = self.database.superuser().await.expect("a database connection");
        wait_until("the outbox is empty", async || {
            let pending = sqlx::query_scalar::<_, i64>(PENDING).fetch_one(&mut connection).await;
            (pending.expect("the outbox is readable") == 0).then_some(())
        })
        .await;
    }

    /// Runs SQL as the superuser, for states that only the passage of time produces.
    pub async fn run_sql(&self, statement: &str) {
        let mut connection = self.database.superuser().await.expect("a database connection");
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement))
            .execute(&mut connection)
            .await
            .expect("a valid statement");
    }

    /// All rows of all tables, as text.
    pub async fn dump_database(&self) -> String {
        let mut connection = self.database.superuser().await.expect("a database connection");
        let tables: Vec<String> = sqlx::query_scalar(
            "select schemaname || '.' || tablename from pg_tables where schemaname in ('identity', 'session') order by 1",
        )
        .fetch_all(&mut connection)
        .await
        .expect("the list of tables is readable");
        let mut text = String::new();
        for table in tables {
            let rows =
                format!("select coalesce(string_agg(row_to_json(t)::text, chr(10)), '') from {table} as t");
            let rows: String = sqlx::query_scalar(sqlx::AssertSqlSafe(rows))
                .fetch_one(&mut connection)
                .await
                .expect("the table is readable");
            text.push_str(&rows);
        }
        text
    }

    /// Waits until a row of the database contains the text.
    pub async fn wait_for_text_in_database(&self, text: &str) {
        wait_until("the database contains the text", async || {
            self.dump_database().await.contains(text).then_some(())
        })
        .await;
    }
}

impl Drop for TestSystem {
    fn drop(&mut self) {
        self.tasks.draining().cancel();
        self.tasks.stopping().cancel();
    }
}

/// Sets up an authenticator app. Returns its secret and the recovery codes.
pub async fn set_up_app(client: &Client) -> (String, Vec<String>) {
    let app: NewTotp = client.post("/auth/factors/totp", &serde_json::Value::Null).await.expect(201);
    let secret = app.secret.expose().to_owned();
    let body = serde_json::json!({ "code": totp_after(&secret, 0) });
    let codes: RecoveryCodes = client.post("/auth/factors/totp/confirm", &body).await.expect(200);
    (secret, codes.recovery_codes.iter().map(|code| code.expose().to_owned()).collect())
}

/// The digest of [`PASSWORD`] under settings that differ from those of [`TestSystem`].
pub async fn outdated_digest() -> String {
    let old = Argon2Settings { time_cost: 1, memory_cost: 32, parallelism: 1, ..Argon2Settings::default() };
    let entropy: Arc<dyn hashing::Entropy> = Arc::new(hashing::SystemEntropy);
    let pool = HashPool::start(old, PoolSize::new(1), HashKernel::Crate, &entropy).expect("valid settings");
    pool.hash(Requester::new(Lane::Open, []), Password::new(PASSWORD))
        .await
        .expect("a free worker")
        .as_str()
        .to_owned()
}

fn generate_platform_token() -> String {
    let entropy = hashing::SystemEntropy;
    hashing::RawToken::generate(hashing::TokenKind::PlatformAdmin, &entropy).expose().to_owned()
}
