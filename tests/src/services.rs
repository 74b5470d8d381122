//! The three services as separate processes with one database and one broker.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus, Output};

use contract::paths::Upstream;
use rustix::process::Signal;
use sqlx::Connection as _;
use tempfile::TempDir;
use testkit::{CHEAP_HASHES, LIMITS_OFF, NatsCluster, NatsServer, TestDatabase, wait_until};

use crate::environment::program;
use crate::proxy::free_address;
use crate::{Process, Proxy, ReplicatedPostgres, api_client, output_of};

/// The services, in the order in which they can start.
pub const ALL_SERVICES: [Upstream; 3] = [Upstream::Identity, Upstream::Session, Upstream::Ingest];

const SCHEMAS: &str = include_str!("../../deploy/postgres/schemas.sql");
const SERVICE_TOKEN: &str = "a-service-token-for-tests-of-32-or-more";
const LIMITER_KEY: &str = "a-limiter-key-for-tests-of-32-or-more";

/// A broker that the services use.
pub trait Broker {
    /// The URLs for clients, separated by commas.
    fn url(&self) -> &str;

    /// The URLs for a user with its name as the password.
    fn url_of(&self, user: &str) -> String {
        testkit::nats::url_of(self.url(), user)
    }
}

impl Broker for NatsServer {
    fn url(&self) -> &str {
        &self.url
    }
}

impl Broker for NatsCluster {
    fn url(&self) -> &str {
        &self.url
    }
}

/// A database, a broker, and the addresses of the services. No service runs yet.
pub struct Services<B = NatsServer> {
    /// The broker.
    pub nats: B,
    /// The platform token.
    pub platform_token: String,
    /// The address of the proxy.
    pub address: SocketAddr,
    database: TestDatabase,
    home: TempDir,
    identity: Listeners,
    session: Listeners,
    ingest: Listeners,
}

#[derive(Clone, Copy)]
struct Listeners {
    public: SocketAddr,
    internal: SocketAddr,
    admin: SocketAddr,
}

/// One of several processes of a service. Its addresses remain the same when it is restarted.
pub struct Instance {
    service: Upstream,
    listeners: Listeners,
    output: String,
}

/// A running service.
pub struct Service {
    /// The process.
    pub process: Process,
    /// The address of its public API.
    pub address: SocketAddr,
    /// The address of its admin port.
    pub admin: SocketAddr,
}

impl Services {
    /// Creates a broker and a database with empty schemas.
    pub async fn prepare() -> Self {
        Self::prepare_with(NatsServer::start_with_accounts().await.unwrap()).await
    }

    /// Creates a broker, and a database with empty schemas on the primary. Its commits are durable and wait for the standby, in contrast to
    /// those of other tests.
    pub async fn prepare_on(postgres: &ReplicatedPostgres) -> Self {
        Self::prepare_in(NatsServer::start().await.unwrap(), postgres.create_database().await).await
    }
}

impl<B: Broker> Services<B> {
    /// Creates a database with empty schemas, and this broker.
    pub async fn prepare_with(nats: B) -> Self {
        Self::prepare_in(nats, TestDatabase::create().await.unwrap()).await
    }

    /// Empties the schemas of this database.
    pub async fn prepare_in(nats: B, database: TestDatabase) -> Self {
        let mut superuser = database.superuser().await.unwrap();
        let reset = format!("drop schema identity cascade; drop schema session cascade; {SCHEMAS}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(reset)).execute(&mut superuser).await.unwrap();
        superuser.close().await.unwrap();
        let mut command = program("svc-identity");
        command.arg("platform-token");
        let token = output_of(command).await;
        Self {
            nats,
            platform_token: String::from_utf8(token.stdout).unwrap().trim().to_owned(),
            address: free_address(),
            database,
            home: tempfile::Builder::new().prefix("svc-e2e-services-").tempdir().unwrap(),
            identity: Listeners::choose(),
            session: Listeners::choose(),
            ingest: Listeners::choose(),
        }
    }

    /// The command of a service with its configuration.
    pub fn command(&self, service: Upstream) -> Command {
        self.command_at(service, self.listeners(service))
    }

    fn command_at(&self, service: Upstream, listeners: Listeners) -> Command {
        let mut command = program(&format!("svc-{}", service.name()));
        let Listeners { public, internal, admin } = listeners;
        command.env("SVC_LISTEN", public.to_string()).env("SVC_LISTEN_ADMIN", admin.to_string());
        command.env("SVC_PUBLIC_URL", format!("http://{}", self.address));
        command.env("SVC_SERVICE_TOKEN", SERVICE_TOKEN).env("SVC_NATS_URL", self.nats.url_of(service.name()));
        command.env("SVC_PLATFORM_TOKEN", &self.platform_token);
        command.envs(LIMITS_OFF);
        match service {
            Upstream::Identity => {
                self.set_database(&mut command, service);
                command.env("SVC_LISTEN_INTERNAL", internal.to_string());
                command.env("SVC_SESSION_URL", self.session_url());
                command.env("SVC_LIMITER_KEY", LIMITER_KEY).env("SVC_FACTOR_KEY", LIMITER_KEY);
                command.envs(CHEAP_HASHES);
                command.env("SVC_STREAM_REPLICAS", "1").env("SVC_STREAM_MAX_BYTES", "64MiB");
            }
            Upstream::Session => {
                self.set_database(&mut command, service);
                command.env("SVC_LISTEN_INTERNAL", internal.to_string());
                command.env("SVC_IDENTITY_URL", format!("http://{}", self.identity.internal));
            }
            Upstream::Ingest => {
                command.env("SVC_SESSION_URL", self.session_url());
                command.env("SVC_STREAM_REPLICAS", "1");
                command.env("SVC_STREAM_MAX_BYTES", "64MiB").env("SVC_NATS_DURABILITY", "dev");
            }
        }
        command
    }

    /// Runs `migrate <verb>` of a service.
    pub async fn migrate(&self, service: Upstream, verb: &str) -> Output {
        let mut command = self.command(service);
        command.args(["migrate", verb]);
        output_of(command).await
    }

    /// Migrates the schemas of all services.
    pub async fn migrate_all(&self) {
        for service in [Upstream::Identity, Upstream::Session] {
            let output = self.migrate(service, "up").await;
            assert!(output.status.success(), "{output:?}");
        }
    }

    /// Records the migrations of a newer binary. Each supports binaries of a version: 1 is the first one, 0 the version of the
    /// migration.
    pub async fn add_migrations(&self, service: Upstream, oldest_binaries: &[i64]) {
        let table = format!("{}.schema_migrations", service.name());
        let insert = |oldest| {
            format!(
                "insert into {table} (version, description, success, checksum, execution_time, oldest_binary) \
                 select max(version) + 1, 'newer', true, '', 0, coalesce(nullif({oldest}, 0), max(version) + 1) from {table};"
            )
        };
        let insert: String = oldest_binaries.iter().map(insert).collect();
        let mut superuser = self.database.superuser().await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(insert)).execute(&mut superuser).await.unwrap();
        superuser.close().await.unwrap();
    }

    /// Starts a service without waiting.
    pub fn start(&self, service: Upstream) -> Service {
        self.start_with(service, &[])
    }

    /// Starts a service with additional variables. `<NAME>_FILE` replaces `<NAME>`.
    pub fn start_with(&self, service: Upstream, variables: &[(&str, &str)]) -> Service {
        self.start_at(service, self.listeners(service), service.name(), variables)
    }

    /// Starts all services, in the order of [`ALL_SERVICES`], and waits until they are ready. The variables are for those that create
    /// streams.
    pub async fn start_all(&self, variables: &[(&str, &str)]) -> [Service; 3] {
        let mut running = ALL_SERVICES.map(|service| match service {
            Upstream::Identity | Upstream::Ingest => self.start_with(service, variables),
            Upstream::Session => self.start(service),
        });
        for service in &mut running {
            service.wait_until_ready().await;
        }
        running
    }

    /// Starts a second process of a service.
    pub fn start_second(&self, service: Upstream) -> Service {
        self.start_second_with(service, &[])
    }

    /// Starts a second process of a service with additional variables.
    pub fn start_second_with(&self, service: Upstream, variables: &[(&str, &str)]) -> Service {
        self.start_at(service, Listeners::choose(), &format!("second-{}", service.name()), variables)
    }

    /// The addresses of one of several processes. [`Proxy::balance`] makes them one service.
    pub fn instance(&self, service: Upstream, number: usize) -> Instance {
        Instance { service, listeners: Listeners::choose(), output: format!("{}-{number}", service.name()) }
    }

    /// Starts one of several processes with additional variables.
    pub fn start_instance(&self, instance: &Instance, variables: &[(&str, &str)]) -> Service {
        self.start_at(instance.service, instance.listeners, &instance.output, variables)
    }

    /// Starts a proxy at the addresses of the public API and of the internal APIs. It distributes the requests among the instances.
    pub async fn balance(&self, instances: &[&Instance]) -> Proxy {
        let of = |service: Upstream| instances.iter().filter(move |instance| instance.service == service);
        let internal = [Upstream::Identity, Upstream::Session].map(|service| {
            (self.listeners(service).internal, of(service).map(|it| it.listeners.internal).collect())
        });
        Proxy::balance(self.address, |service| of(service).map(|it| it.listeners.public).collect(), &internal)
            .await
    }

    fn start_at(
        &self,
        service: Upstream,
        listeners: Listeners,
        output: &str,
        variables: &[(&str, &str)],
    ) -> Service {
        let mut command = self.command_at(service, listeners);
        for (name, value) in variables {
            command.env_remove(name.trim_end_matches("_FILE")).env(name, value);
        }
        let process = Process::start(&mut command, &self.home.path().join(output));
        Service { process, address: listeners.public, admin: listeners.admin }
    }

    /// The directory with the output of the services.
    pub fn output(&self) -> &Path {
        self.home.path()
    }

    /// The URL of the database for the superuser.
    pub fn superuser_url(&self) -> String {
        self.database.superuser_url()
    }

    /// The address of a service's admin port.
    pub fn admin(&self, service: Upstream) -> SocketAddr {
        self.listeners(service).admin
    }

    /// Starts the proxy.
    pub async fn start_proxy(&self) -> Proxy {
        Proxy::start(self.address, |service| self.listeners(service).public).await
    }

    /// The URL of the database with the role of a service.
    pub fn database_url(&self, service: Upstream) -> String {
        self.database.url(&format!("svc_{}", service.name()))
    }

    fn set_database(&self, command: &mut Command, service: Upstream) {
        let role = format!("svc_{}", service.name());
        command.env("SVC_DATABASE_URL", self.database_url(service));
        command.env("SVC_MIGRATOR_DATABASE_URL", self.database.url(&format!("{role}_migrator")));
    }

    /// The URL of session's internal API.
    pub fn session_url(&self) -> String {
        format!("http://{}", self.session.internal)
    }

    fn listeners(&self, service: Upstream) -> Listeners {
        match service {
            Upstream::Identity => self.identity,
            Upstream::Session => self.session,
            Upstream::Ingest => self.ingest,
        }
    }
}

impl Instance {
    /// The address of its public API.
    pub fn address(&self) -> SocketAddr {
        self.listeners.public
    }
}

impl Listeners {
    fn choose() -> Self {
        Self { public: free_address(), internal: free_address(), admin: free_address() }
    }
}

impl Service {
    /// Returns whether `/readyz` returns 200.
    pub async fn is_ready(&self) -> bool {
        let url = format!("http://{}/readyz", self.admin);
        let client = testkit::client::plain_http();
        client.get(url).send().await.is_ok_and(|response| response.status() == 200)
    }

    /// Waits until the service is ready.
    pub async fn wait_until_ready(&mut self) {
        wait_until("the service is ready", async || {
            self.process.expect_running();
            self.is_ready().await.then_some(())
        })
        .await;
    }

    /// The value of a metric with its labels.
    pub async fn metric(&self, series: &str) -> f64 {
        let url = format!("http://{}/metrics", self.admin);
        let client = testkit::client::plain_http();
        let text = client.get(url).send().await.unwrap().text().await.unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("metric {series} is missing:\n{text}")).parse().unwrap()
    }

    /// Sends SIGTERM while a client keeps a connection open. Returns the exit status.
    pub async fn stop_with_open_connection(mut self) -> ExitStatus {
        let client = api_client(&format!("http://{}", self.address));
        // The client keeps the connection open.
        client.get("/nowhere").await;
        self.process.signal(Signal::TERM);
        let status = self.process.wait().await;
        drop(client);
        status
    }
}
