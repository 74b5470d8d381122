//! Starts the services in this process: migrations, public port, admin listener, and a first tenant with an invite for its
//! administrator.

use std::error::Error;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use database::DatabaseAccess;
use database::migrations::Migrations;
use devservers::{DataDir, NatsUser, PostgresRole, Servers, secret};
use hashing::{RawToken, SystemEntropy, TokenKind};
use identity::{FirstTenant, Identity};
use ingest::Ingest;
use rustix::process::{Pid, Signal, kill_process};
use service::Tasks;
use service::config::{ConfigErrors, Environment, Variable, unknown_names};
use service::health::{self, Readiness};
use service::process::{LISTEN_ADMIN, PUBLIC_URL, Program as _, Routers};
use service::telemetry::{Metrics, Telemetry};
use session::Session;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::services::{self, ServiceUrls, Settings};

/// The database of the services.
pub(crate) const DATABASE: &str = "svc";
/// How long the services may take until they are ready.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// How often the status of the first invite is read.
const INVITE_POLL: Duration = Duration::from_secs(1);

/// Defaults for one machine.
const DEFAULTS: [(&str, &str); 3] =
    [("SVC_STREAM_REPLICAS", "1"), ("SVC_STREAM_MAX_BYTES", "1GiB"), ("SVC_NATS_DURABILITY", "dev")];

/// What the services run on.
pub(crate) struct StartOptions<'a> {
    /// Postgres, with roles and schemas, and the broker.
    pub(crate) servers: &'a Servers,
    /// The directory of secrets and mails.
    pub(crate) data: &'a DataDir,
    /// The `SVC_` variables.
    pub(crate) environment: &'a Environment,
    /// Metrics and traces.
    pub(crate) telemetry: &'a Telemetry,
    /// The listener of the public API.
    pub(crate) public: TcpListener,
    /// The origin of the public API.
    pub(crate) base_url: &'a str,
}

/// The services, ready.
pub(crate) struct StartedServices {
    /// The invite token of the administrator of the first tenant, until it is used.
    pub(crate) invite_token: watch::Receiver<Option<String>>,
    /// The origin of the admin listener.
    pub(crate) admin_url: String,
}

/// The file of the platform token.
pub(crate) fn platform_token_file(data: &DataDir) -> PathBuf {
    data.secrets().join("platform-token")
}

/// Starts the services and waits until they are ready.
pub(crate) async fn start(options: StartOptions<'_>, tasks: &Tasks) -> anyhow::Result<StartedServices> {
    let StartOptions { servers, data, environment, telemetry, public, base_url } = options;
    let settings = settings(servers, data, environment, base_url)?;
    migrate(identity::MIGRATIONS, &servers.database_url(PostgresRole::IdentityMigrator, DATABASE)).await?;
    migrate(session::MIGRATIONS, &servers.database_url(PostgresRole::SessionMigrator, DATABASE)).await?;

    let known: Vec<_> = variables().into_iter().flat_map(|(_, table)| table).collect();
    for warning in unknown_names(environment, &known) {
        tracing::warn!("{warning}");
    }
    let environment = with_defaults(environment);
    let readiness = Readiness::default();
    telemetry.flush_on_shutdown(tasks);
    let admin_url = serve_admin(&environment, &readiness, telemetry.metrics(), tasks).await?;
    let (Routers { public: router, connections, .. }, _) =
        services::start(&settings, &environment, tasks, &readiness, telemetry).await?;
    keep_consumers(servers, &environment, tasks).await?;
    let (tracked, metrics) = (tasks.clone(), telemetry.metrics().clone());
    tasks.spawn_listener(service::http::serve_public(public, router, connections, tracked, metrics));
    wait_until_ready(&readiness, tasks).await?;

    let invite_token = first_invite(base_url, &settings.platform_token, tasks).await;
    let invite_token =
        invite_token.map_err(|error| anyhow!(error)).context("failed to create the first tenant")?;
    Ok(StartedServices { invite_token, admin_url })
}

/// Checks the configuration before anything is created. Placeholders replace the addresses of the servers and the secrets.
///
/// # Errors
/// All errors of the configuration.
pub(crate) fn check(environment: &Environment) -> Result<(), ConfigErrors> {
    let (database, nats) = ("postgres://svc@localhost/svc".to_owned(), "nats://localhost".to_owned());
    let secret = "x".repeat(32);
    let placeholders = Settings {
        public_url: environment.get(PUBLIC_URL.name).unwrap_or("http://localhost").to_owned(),
        identity_database_url: database.clone(),
        session_database_url: database,
        nats_urls: ServiceUrls { identity: nats.clone(), session: nats.clone(), ingest: nats },
        service_token: secret.clone(),
        platform_token: RawToken::generate(TokenKind::PlatformAdmin, &SystemEntropy).expose().to_owned(),
        limiter_key: secret.clone(),
        factor_key: secret,
        mail_dir: "mail".to_owned(),
    };
    services::check(&placeholders, &with_defaults(environment))
}

fn with_defaults(environment: &Environment) -> Environment {
    let unset = DEFAULTS.into_iter().filter(|(name, _)| environment.get(name).is_none());
    environment.clone().with(unset)
}

/// All variables of the services in this process.
pub(crate) fn variables() -> [(&'static str, Vec<Variable>); 3] {
    [
        (Identity::NAME, Identity::variables()),
        (Session::NAME, Session::variables()),
        (Ingest::NAME, Ingest::variables()),
    ]
}

fn settings(
    servers: &Servers,
    data: &DataDir,
    environment: &Environment,
    base_url: &str,
) -> anyhow::Result<Settings> {
    let generate = || RawToken::generate(TokenKind::PlatformAdmin, &SystemEntropy).expose().to_owned();
    let load = |name: &str| {
        let file = data.secrets().join(name);
        secret::load_or_generate(&file).with_context(|| format!("failed to read or write {}", file.display()))
    };
    let token_file = platform_token_file(data);
    let platform_token = secret::load_or_create(&token_file, generate)
        .with_context(|| format!("failed to read or write {}", token_file.display()))?;
    Ok(Settings {
        public_url: environment.get(PUBLIC_URL.name).unwrap_or(base_url).to_owned(),
        identity_database_url: servers.database_url(PostgresRole::Identity, DATABASE),
        session_database_url: servers.database_url(PostgresRole::Session, DATABASE),
        nats_urls: ServiceUrls {
            identity: servers.nats_url(NatsUser::Identity),
            session: servers.nats_url(NatsUser::Session),
            ingest: servers.nats_url(NatsUser::Ingest),
        },
        service_token: load("service-token")?,
        platform_token,
        limiter_key: load("limiter-key")?,
        factor_key: load("factor-key")?,
        mail_dir: data.mails().to_string_lossy().into_owned(),
    })
}

/// Keeps the accounts of consumers at the broker, so that a login works at once.
async fn keep_consumers(servers: &Servers, environment: &Environment, tasks: &Tasks) -> anyhow::Result<()> {
    let pids = servers.pids();
    let reload = move || {
        let pid = Pid::from_raw(pids.borrow().nats).ok_or_else(|| io::Error::other("no process id"))?;
        Ok(kill_process(pid, Signal::HUP)?)
    };
    let config = bus::Config {
        inbox_prefix: Some("_INBOX.ingest".to_owned()),
        ..bus::Config::new(servers.nats_url(NatsUser::Ingest), "svc-accounts")
    };
    let connection = bus::Connection::open(&config).await?;
    let streams = ingest::event_streams(environment)?;
    let limit = bus::MessageLimit::new(servers.nats_monitor_url());
    let accounts = bus::AccountsFile::new(servers.consumers_file(), reload).applied();
    accounts.with_limit(Some(limit)).start(connection, streams, tasks);
    Ok(())
}

async fn migrate(migrations: Migrations, url: &str) -> anyhow::Result<()> {
    let schema = migrations.schema;
    let version = migrations
        .up(&DatabaseAccess::fixed(url))
        .await
        .with_context(|| format!("failed to migrate schema {schema}"))?;
    match version {
        database::migrations::Version::Accepted(_) => Ok(()),
        version => bail!("{schema}: {version}"),
    }
}

async fn serve_admin(
    environment: &Environment,
    readiness: &Readiness,
    metrics: &Metrics,
    tasks: &Tasks,
) -> anyhow::Result<String> {
    let listener = match environment.get(LISTEN_ADMIN.name) {
        Some(address) => {
            let address = address.parse().with_context(|| format!("{}={address}", LISTEN_ADMIN.name))?;
            service::process::bind(&LISTEN_ADMIN, address).await?
        }
        None => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?,
    };
    let url = format!("http://{}", listener.local_addr()?);
    let router = health::router(readiness.clone(), metrics.clone());
    tasks.spawn("admin", service::http::serve(listener, router, tasks.clone(), tasks.stopping().clone()));
    Ok(url)
}

async fn wait_until_ready(readiness: &Readiness, tasks: &Tasks) -> anyhow::Result<()> {
    tokio::select! {
        () = readiness.opened() => Ok(()),
        () = tasks.draining().cancelled() => bail!("stopped before the services were ready"),
        () = tokio::time::sleep(READY_TIMEOUT) => {
            bail!("the services are not ready after {READY_TIMEOUT:?}; waiting for: {}", readiness.closed().join(", "))
        }
    }
}

/// Creates the first tenant. Returns the invite token of its administrator, which is removed when the invite is used.
async fn first_invite(
    base_url: &str,
    platform_token: &str,
    tasks: &Tasks,
) -> Result<watch::Receiver<Option<String>>, Box<dyn Error + Send + Sync>> {
    let tenant = FirstTenant::new(base_url, platform_token)?;
    let invite = tenant.invite().await?;
    let (sender, receiver) = watch::channel(invite.map(|token| token.expose().to_owned()));
    let stopping = tasks.stopping().clone();
    let until_used = async move {
        while sender.borrow().is_some() {
            tokio::time::sleep(INVITE_POLL).await;
            match tenant.is_invited().await {
                Ok(true) => {}
                Ok(false) => drop(sender.send_replace(None)),
                Err(error) => tracing::debug!(%error, "failed to read first invite"),
            }
        }
    };
    tasks.spawn_short(async move { stopping.run_until_cancelled(until_used).await.unwrap_or_default() });
    Ok(receiver)
}
