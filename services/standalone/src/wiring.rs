//! The services inside this process: migrations, the three contexts behind the public port, an admin listener, and a first
//! tenant whose administrator is invited.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use database::migrations::Migrations;
use hashing::{RawToken, SystemEntropy, TokenKind};
use identity::Identity;
use ingest::Ingest;
use service::Tasks;
use service::config::{Environment, Variable, Variables as _, unknown_names};
use service::health::{self, Readiness};
use service::process::{LISTEN_ADMIN, PUBLIC_URL, Program as _};
use service::telemetry::{Metrics, Telemetry, TraceSettings};
use session::Session;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::contexts::{self, NatsUrls, Settings};
use crate::data_dir::DataDir;
use crate::first_tenant::{FirstTenant, PlatformAdmin};
use crate::secret;
use crate::servers::{NatsUser, Role, Servers};

/// The one database of an installation.
pub(crate) const DATABASE: &str = "svc";
/// How long the services may take until they are ready, once the servers answer.
const READY_LIMIT: Duration = Duration::from_mins(1);

/// What holds on one machine unless the environment says otherwise.
const DEFAULTS: [(&str, &str); 4] = [
    ("SVC_STREAM_MODE", "ensure"),
    ("SVC_STREAM_REPLICAS", "1"),
    ("SVC_STREAM_MAX_BYTES", "1GiB"),
    ("SVC_NATS_DURABILITY", "dev"),
];

/// What the services are put into.
pub(crate) struct StartContext<'a> {
    /// Postgres and the broker, answering, with roles and schemas made.
    pub(crate) servers: &'a Servers,
    /// Where secrets and mails lie.
    pub(crate) data: &'a DataDir,
    /// `SVC_` variables for the services.
    pub(crate) environment: &'a Environment,
    /// The public port.
    pub(crate) public: TcpListener,
    /// The origin that the public port is reached by.
    pub(crate) base_url: &'a str,
}

/// What runs now.
pub(crate) struct Running {
    /// The first tenant, kept up to date.
    pub(crate) first_tenant: watch::Receiver<FirstTenant>,
    /// The origin of the admin listener.
    pub(crate) admin_url: String,
}

/// The file of the operator's token.
pub(crate) fn platform_token_file(data: &DataDir) -> PathBuf {
    data.secrets().join("platform-token")
}

/// Starts everything and returns once it answers.
pub(crate) async fn start(surroundings: StartContext<'_>, tasks: &Tasks) -> anyhow::Result<Running> {
    let StartContext { servers, data, environment, public, base_url } = surroundings;
    let settings = settings(servers, data, environment, base_url)?;
    migrate(identity::MIGRATIONS, &servers.database_url(Role::IdentityMigrator, DATABASE)).await?;
    migrate(session::MIGRATIONS, &servers.database_url(Role::SessionMigrator, DATABASE)).await?;

    let known: Vec<_> = variables().into_iter().flat_map(|(_, table)| table).collect();
    for warning in unknown_names(environment, &known) {
        tracing::warn!("{warning}");
    }
    let unset = DEFAULTS.into_iter().filter(|(name, _)| environment.get(name).is_none());
    let environment = environment.clone().with(unset);
    let readiness = Readiness::default();
    let telemetry = Telemetry::start("standalone", &TraceSettings::load(&environment)?)?;
    telemetry.flush_on_shutdown(tasks);
    let admin_url = serve_admin(&environment, &readiness, telemetry.metrics(), tasks).await?;
    let router = contexts::start(&settings, &environment, tasks, &readiness, &telemetry).await?;
    tasks.spawn_listener(service::http::serve(public, router, tasks.clone(), tasks.draining().clone()));
    until_ready(&readiness, tasks).await?;

    let kept = data.secrets().join("first-invite");
    let operator = PlatformAdmin::new(base_url, &settings.platform_token, &kept)?;
    let first = operator.first_tenant().await.context("the first tenant cannot be made")?;
    Ok(Running { first_tenant: keep_current(operator, first, tasks), admin_url })
}

/// Every variable that the services in this process read.
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
    let fresh = || RawToken::generate(TokenKind::PlatformAdmin, &SystemEntropy).expose().to_owned();
    let platform_token =
        secret::kept_or(&platform_token_file(data), fresh).context("cannot keep the operator's token")?;
    let service_token =
        secret::kept(&data.secrets().join("service-token")).context("cannot keep the service token")?;
    let limiter_key =
        secret::kept(&data.secrets().join("limiter-key")).context("cannot keep the limiter key")?;
    Ok(Settings {
        public_url: environment.get(PUBLIC_URL.name).unwrap_or(base_url).to_owned(),
        identity_database_url: servers.database_url(Role::Identity, DATABASE),
        session_database_url: servers.database_url(Role::Session, DATABASE),
        nats_urls: NatsUrls {
            identity: servers.nats_url(NatsUser::Identity),
            session: servers.nats_url(NatsUser::Session),
            ingest: servers.nats_url(NatsUser::Ingest),
        },
        service_token,
        platform_token,
        limiter_key,
        mail_dir: data.mails().to_string_lossy().into_owned(),
    })
}

async fn migrate(migrations: Migrations, url: &str) -> anyhow::Result<()> {
    let schema = migrations.schema;
    let version =
        migrations.up(url).await.with_context(|| format!("the schema {schema} cannot be migrated"))?;
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

async fn until_ready(readiness: &Readiness, tasks: &Tasks) -> anyhow::Result<()> {
    tokio::select! {
        () = readiness.opened() => Ok(()),
        () = tasks.draining().cancelled() => bail!("stopped before the services were ready"),
        () = tokio::time::sleep(READY_LIMIT) => {
            bail!("the services are not ready after {READY_LIMIT:?}; they wait for: {}", readiness.closed().join(", "))
        }
    }
}

/// Watches a pending invite until it is used.
fn keep_current(operator: PlatformAdmin, first: FirstTenant, tasks: &Tasks) -> watch::Receiver<FirstTenant> {
    let (told, seen) = watch::channel(first);
    if told.borrow().invite_token.is_some() {
        let stopping = tasks.stopping().clone();
        tasks.spawn_short(async move {
            tokio::select! {
                () = operator.until_used() => told.send_modify(|first| first.invite_token = None),
                () = stopping.cancelled() => {}
            }
        });
    }
    seen
}
