//! The composition root: the only place that knows everything.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use audit::AuditLog;
use authn::IntrospectionBatcher;
use bus::{InvalidationPublisher, PublishMetrics};
use database::Database;
use database::migrations::{self, MIGRATOR_DATABASE_URL, Migrations};
use hashing::{Entropy, SystemEntropy};
use prometheus_client::metrics::gauge::Gauge;
use ratelimit::Limiter;
use service::clock::SystemClock;
use service::config::{Environment, Variable};
use service::health::Readiness;
use service::http::Edge;
use service::process::{Program, Routers};
use service::telemetry::Telemetry;
use service::{Clock, Tasks};

use crate::app::App;
use crate::app::introspect::LiveCredentials;
use crate::config::Config;
use crate::http;
use crate::tasks::{expiry, purge, session_gauge};

/// The migrations of the schema `session`.
pub const MIGRATIONS: Migrations = Migrations { schema: "session", migrator: &MIGRATOR };
static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// Subcommands of `svc-session`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Migrate the schema `session`
    #[command(subcommand)]
    Migrate(migrations::Command),
}

/// The session service.
pub struct Session;

impl Program for Session {
    const NAME: &'static str = "session";
    const ABOUT: &'static str = "The session service: sessions, device login, API keys and introspection.";
    const OTHER_VARIABLES: &'static [Variable] = &[MIGRATOR_DATABASE_URL];
    type Config = Config;
    type Command = Command;

    async fn execute(Command::Migrate(command): Command, environment: &Environment) -> ExitCode {
        MIGRATIONS.execute(command, environment).await
    }

    async fn start(
        config: Config,
        tasks: &Tasks,
        readiness: &Readiness,
        telemetry: &Telemetry,
    ) -> Result<Routers, Box<dyn Error + Send + Sync>> {
        let database = Database::new(&config.database_url, Session::NAME)?;
        MIGRATIONS.gate(&database, tasks, readiness);
        let parts = Parts {
            database,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            tasks: tasks.clone(),
        };
        build(config, parts, telemetry)
    }
}

/// What is injected.
pub struct Parts {
    /// The context's database.
    pub database: Database,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Gives random bytes.
    pub entropy: Arc<dyn Entropy>,
    /// Tracks background work.
    pub tasks: Tasks,
}

/// Puts the context together and starts its background work.
///
/// # Errors
/// The broker's address is malformed.
pub fn build(
    config: Config,
    parts: Parts,
    telemetry: &Telemetry,
) -> Result<Routers, Box<dyn Error + Send + Sync>> {
    let Parts { database, clock, entropy, tasks } = parts;
    let database = database.measured(telemetry.metrics(), &tasks);
    let edge = Edge::new(&config.public_url, Session::NAME, telemetry).with_trusted_proxies(&config.proxies);
    let limiter = Limiter::new("session", database.clone(), Arc::clone(&clock), telemetry.metrics());
    tasks.spawn("limits", limiter.clone().purge(tasks.clone()));
    let mut broker = bus::Config::new(config.nats_url.expose(), "svc-session");
    broker.metrics = telemetry.metrics().shared(PublishMetrics::register);
    // The broker lets each user subscribe below an inbox of its own only (deploy/nats/accounts.conf).
    broker.inbox_prefix = Some("_INBOX.session".to_owned());
    let invalidations = InvalidationPublisher::start(broker.clone(), Arc::clone(&clock), &tasks)?;
    let publisher =
        audit::publish(broker, database.clone(), Arc::clone(&clock), &tasks)?;
    telemetry.metrics().at_scrape(move || publisher.measure());
    let credentials = LiveCredentials { database: database.clone(), clock: Arc::clone(&clock) };
    let app = App {
        database,
        clock,
        entropy,
        lifetimes: config.lifetimes(),
        service_secret: config.service_secret,
        audit: AuditLog::new(config.audit_personal),
        limiter: limiter.clone(),
        limits: config.limits,
        introspection: IntrospectionBatcher::new(credentials, &tasks),
        invalidations,
        public_url: config.public_url.trim_end_matches('/').into(),
    };
    tasks.spawn("purge", purge::run(app.clone(), tasks.clone()));
    tasks.spawn("expiry", expiry::run(app.clone(), tasks.clone()));
    let live = Gauge::default();
    telemetry.metrics().register(|registry| session_gauge::register(&live, registry));
    tasks.spawn("session_gauge", session_gauge::run(app.clone(), live, tasks.clone()));
    Ok(Routers {
        public: edge.wrap(limiter.wrap(config.limits.other, http::public(app.clone()))),
        internal: Some(edge.wrap(http::internal(app))),
    })
}
