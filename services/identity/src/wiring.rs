//! The composition root: the only place that knows everything.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use audit::AuditLog;
use authn::{SERVICE_TOKEN_PREVIOUS, SessionClient};
use chrono::TimeDelta;
use database::Database;
use database::migrations::{MIGRATOR_DATABASE_URL, Migrations};
use database::outbox::{DELIVERY_TIMEOUT, Relay, RetryPolicy};
use hashing::{Entropy, HashPool, SystemEntropy};
use prometheus_client::metrics::counter::Counter;
use ratelimit::Limiter;
use service::clock::SystemClock;
use service::config::{Environment, Variable};
use service::health::Readiness;
use service::http::Edge;
use service::process::{Program, Routers};
use service::telemetry::Telemetry;
use service::{Clock, Tasks};

use crate::app::App;
use crate::command::Command;
use crate::config::Config;
use crate::domain::password::PasswordPolicy;
use crate::http;
use crate::mail::Delivery;
use crate::message::{MAIL, STATUS};
use crate::tasks::effects::Effects;
use crate::tasks::mailer::Mailer;
use crate::tasks::purge;

/// The migrations of the schema `identity`.
pub const MIGRATIONS: Migrations = Migrations { schema: "identity", migrator: &MIGRATOR };
static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// The identity service.
pub struct Identity;

impl Program for Identity {
    const NAME: &'static str = "identity";
    const ABOUT: &'static str = "The identity service: tenants, users, invites and passwords.";
    // The previous service token is accepted because all services can share one environment.
    const OTHER_VARIABLES: &'static [Variable] = &[MIGRATOR_DATABASE_URL, SERVICE_TOKEN_PREVIOUS];
    type Config = Config;
    type Command = Command;

    async fn execute(command: Command, environment: &Environment) -> ExitCode {
        command.execute(environment).await
    }

    async fn start(
        config: Config,
        tasks: &Tasks,
        readiness: &Readiness,
        telemetry: &Telemetry,
    ) -> Result<Routers, Box<dyn Error + Send + Sync>> {
        let database = Database::new(&config.database_url, Identity::NAME)?;
        MIGRATIONS.gate(&database, tasks, readiness);
        let parts = Parts {
            database,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            tasks: tasks.clone(),
            telemetry: telemetry.clone(),
        };
        build(config, parts)
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
    /// Metrics and traces.
    pub telemetry: Telemetry,
}

/// Puts the context together and starts its background work.
///
/// # Errors
/// A client or the hash pool cannot be made, or the directory of mails cannot be used.
pub fn build(mut config: Config, parts: Parts) -> Result<Routers, Box<dyn Error + Send + Sync>> {
    let Parts { database, clock, entropy, tasks, telemetry } = parts;
    let limiter_keys = config.limiter_keys();
    config.mail.set_ehlo_name(&config.public_url);
    if let Some(Delivery::Directory(directory)) = &config.mail.delivery {
        std::fs::create_dir_all(directory)
            .map_err(|error| format!("SVC_MAIL_DIR={}: {error}", directory.display()))?;
    }
    let edge = Edge::new(config.public_url.as_str(), Identity::NAME, &telemetry)
        .with_trusted_proxies(&config.proxies);
    let metrics = telemetry.metrics();
    let database = database.measured(metrics, &tasks);
    let hashes = HashPool::start(config.argon2.0, config.pool_size(), &entropy)?;
    metrics.register(|registry| hashes.register(registry));
    let resets_dropped = Counter::default();
    metrics.register(|registry| {
        let meaning = "Requests of a password reset that nobody was mailed for";
        registry.register("resets_dropped", meaning, resets_dropped.clone());
    });
    let limiter = Limiter::new("identity", database.clone(), Arc::clone(&clock), metrics);
    tasks.spawn("limits", limiter.clone().purge(tasks.clone()));
    let app = App {
        database: database.clone(),
        sessions: SessionClient::new(config.session_url, config.service_token.expose())?,
        hashes: Arc::new(hashes),
        clock: Arc::clone(&clock),
        entropy,
        tasks: tasks.clone(),
        policy: PasswordPolicy { min_length: config.min_length },
        breach_set: config.breach_set,
        // Bounded by the configuration to a week.
        invite_ttl: TimeDelta::from_std(config.invite_ttl).unwrap_or(TimeDelta::days(7)),
        // Bounded by the configuration to an hour.
        reset_ttl: TimeDelta::from_std(config.reset_ttl).unwrap_or(TimeDelta::hours(1)),
        can_mail: config.mail.delivery.is_some(),
        platform_secret: config.platform_secret,
        audit: AuditLog::new(config.audit_personal),
        limiter: limiter.clone(),
        limiter_keys,
        limits: config.limits,
        resets_dropped,
    };
    let mut broker = bus::Config::new(config.nats_url.expose(), "svc-identity");
    // The broker lets each user subscribe below an inbox of its own only (deploy/nats/accounts.conf).
    broker.inbox_prefix = Some("_INBOX.identity".to_owned());
    audit::publish(broker, database.clone(), Arc::clone(&clock), metrics, &tasks)?;
    // A mail is composed and settled too.
    let limit_of_mail = match &config.mail.delivery {
        Some(Delivery::Smtp(smtp)) => smtp.timeout + DELIVERY_TIMEOUT,
        Some(Delivery::Directory(_)) | None => DELIVERY_TIMEOUT,
    };
    tasks.spawn("purge", purge::run(app.clone(), tasks.clone()));
    let mailer = Mailer { settings: config.mail, clock: Arc::clone(&clock) };
    let effects = Effects { app: app.clone(), public_url: config.public_url, mailer };
    // A line each: nobody who was put out stays in because a mail server is slow.
    for (name, kinds, retry_policy, limit) in [
        ("outbox: mail", MAIL, RetryPolicy::DeadLetter, limit_of_mail),
        ("outbox: account status", STATUS, RetryPolicy::Unlimited, DELIVERY_TIMEOUT),
    ] {
        let relay = Relay {
            database: database.clone(),
            kinds,
            retry_policy,
            timeout: limit,
            deliver: effects.clone(),
            clock: Arc::clone(&clock),
        };
        tasks.spawn(name, relay.run(tasks.clone()));
    }
    let public = limiter.wrap(config.limits.other, http::public(app));
    Ok(Routers { public: edge.wrap(public), internal: None })
}
