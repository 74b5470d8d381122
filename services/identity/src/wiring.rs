//! The composition root: builds state, router and tasks. The only module that depends on all others.

use std::error::Error;
use std::sync::Arc;

use audit::{AuditStream, Publication};
use authn::{IntrospectionBatcher, SessionClient};
use database::Parts;
use database::migrations::{MIGRATOR_DATABASE_LOGIN, MIGRATOR_DATABASE_URL, Migrations};
use database::outbox::{CONCURRENCY, DELIVERY_TIMEOUT, Relay, RetryPolicy};
use hashing::HashPool;
use ratelimit::Limiter;
use service::Tasks;
use service::config::{Environment, Variable};
use service::health::Readiness;
use service::http::Edge;
use service::process::{CommandResult, Program, Routers};
use service::telemetry::Telemetry;
use tokio::sync::watch;

use crate::app::factor_attempts::FactorAttempts;
use crate::app::factor_rotation::FactorRotation;
use crate::app::passkey_login::PasskeyLogins;
use crate::app::{App, Dependencies};
use crate::command::Command;
use crate::config::Config;
use crate::domain::passkey::RelyingParty;
use crate::domain::password::PasswordPolicy;
use crate::http::{self, Installation, Pages};
use crate::mail::{Letterhead, MailDelivery};
use crate::message::{INVITE_MAIL, SECURITY_MAIL, STATUS};
use crate::tasks::{self, OutboxDelivery};

/// The migrations of the schema `identity`.
pub const MIGRATIONS: Migrations = Migrations { schema: "identity", migrator: &MIGRATOR };
static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// As long as an invite can be valid. The mail of an expired link is not sent.
const MAIL_RETRIES: RetryPolicy = RetryPolicy::for_minutes(7 * 24 * 60);

/// Audience of the tokens that the operator sends.
const AUDIENCE: &str = "svc-identity";

/// The identity service.
pub struct Identity;

impl Program for Identity {
    const NAME: &'static str = "identity";
    const ABOUT: &'static str = "The identity service: tenants, users, invites and passwords.";
    const OTHER_VARIABLES: &'static [Variable] = &[MIGRATOR_DATABASE_URL, MIGRATOR_DATABASE_LOGIN];
    type Config = Config;
    type Api = Routers;
    type Command = Command;

    async fn execute(command: Command, environment: &Environment) -> CommandResult {
        command.execute(environment).await
    }

    async fn start(
        config: Config,
        tasks: &Tasks,
        readiness: &Readiness,
        telemetry: &Telemetry,
    ) -> Result<Routers, Box<dyn Error + Send + Sync>> {
        let parts = Parts::for_process(&config.database, &MIGRATIONS, tasks, readiness, telemetry)?;
        build(config, parts)
    }
}

/// Builds the service and starts its background tasks.
///
/// # Errors
/// The HTTP client, the hash pool or the publisher cannot be created, or the mail directory cannot be used.
pub fn build(mut config: Config, parts: Parts) -> Result<Routers, Box<dyn Error + Send + Sync>> {
    let (clock, tasks, telemetry) = (Arc::clone(&parts.clock), parts.tasks.clone(), parts.telemetry.clone());
    config.mail.set_ehlo_name(&config.public_url);
    config.mail.set_sender_name(&config.branding.product);
    let operator = config.operator.clone().access(AUDIENCE, Arc::clone(&clock))?;
    if let Some(MailDelivery::Directory(directory)) = &config.mail.delivery {
        std::fs::create_dir_all(directory)
            .map_err(|error| format!("SVC_MAIL_DIR={}: {error}", directory.display()))?;
    }
    let edge = Edge::new(config.public_url.as_str(), Identity::NAME, &telemetry)
        .with_trusted_proxies(&config.connections.proxies);
    let metrics = telemetry.metrics();
    let database = parts.database.with_pii_policy(config.audit_personal).measured(metrics, &tasks);
    let limiter = Limiter::new(Identity::NAME, database.clone(), Arc::clone(&clock), metrics);
    limiter.purge_expired(&tasks);
    let parts = Parts { database: database.clone(), ..parts };
    let app = app(&config, parts, limiter.clone())?;
    let purged = app.clone();
    tasks.every("purge", tasks::PURGE_INTERVAL, move || tasks::purge(purged.clone()));
    let costs = app.clone();
    tasks.repeat("password costs", move || tasks::load_password_costs(costs.clone()));
    let gauges = ["yes", "no"]
        .map(|has_factor| metrics.metric("users_active", "Active users", &[("second_factor", has_factor)]));
    let counted = app.clone();
    tasks.every("users", tasks::USERS_INTERVAL, move || tasks::count_users(counted.clone(), gauges.clone()));
    let (rotated, rotation) = (app.clone(), Arc::new(FactorRotation::new(&app, metrics)));
    tasks.every("factor key", tasks::PURGE_INTERVAL, move || {
        tasks::rotate_factor_key(rotated.clone(), Arc::clone(&rotation))
    });

    let broker = config.nats.for_service(Identity::NAME);
    config.audit_streams.start(broker.clone(), &tasks);
    let publication = Publication { broker, database: database.clone(), clock: Arc::clone(&clock) };
    for stream in [AuditStream::OF_TENANTS, AuditStream::FAILURES, AuditStream::ANONYMOUS] {
        publication.start(stream, metrics, &tasks)?;
    }

    // Includes the time to compose and to settle a mail.
    let mail_timeout = match &config.mail.delivery {
        Some(MailDelivery::Smtp(smtp)) => smtp.timeout + DELIVERY_TIMEOUT,
        Some(MailDelivery::Directory(_)) | None => DELIVERY_TIMEOUT,
    };
    let connections = u16::from(config.mail.connections);
    let delivery = OutboxDelivery {
        app: app.clone(),
        head: Arc::new(Letterhead::new(&config.branding, &config.public_url)?),
        mail: config.mail,
        clock: Arc::clone(&clock),
    };
    // Separate relays: a slow mail server must not delay account status, and invites must not delay the other mails.
    let mail = (MAIL_RETRIES, mail_timeout, connections);
    let status = (RetryPolicy::Unlimited, DELIVERY_TIMEOUT, CONCURRENCY);
    for (name, kinds, (retry_policy, timeout, concurrency)) in [
        ("security_mail", SECURITY_MAIL, mail),
        ("invite_mail", INVITE_MAIL, mail),
        ("account_status", STATUS, status),
    ] {
        let (database, deliver, clock) = (database.clone(), delivery.clone(), Arc::clone(&clock));
        let relay =
            Relay { queue: database, name, kinds, retry_policy, timeout, concurrency, deliver, clock };
        tasks.spawn(name, relay.run(tasks.clone()));
    }
    let pages = Arc::new(Pages::new(&Installation {
        branding: &config.branding,
        min_length: config.min_length,
        public_url: &config.public_url,
        can_mail: app.can_mail,
    })?);
    let for_errors = Arc::clone(&pages);
    let public_edge =
        edge.clone().with_error_pages(Arc::new(move |kind, headers| for_errors.error(kind, headers)));
    let internal = Some(edge.wrap_internal(http::internal(app.clone(), operator)));
    let public = limiter.wrap(config.rate_limits.other, http::public(app, pages));
    Ok(Routers { public: public_edge.wrap(public), internal, connections: config.connections })
}

/// Builds the use cases.
///
/// # Errors
/// The HTTP client or the hash pool cannot be created.
pub(crate) fn app(
    config: &Config,
    parts: Parts,
    limiter: Limiter,
) -> Result<App, Box<dyn Error + Send + Sync>> {
    let Parts { database, clock, entropy, tasks, telemetry } = parts;
    let metrics = telemetry.metrics();
    let threads = tokio::runtime::Handle::current().metrics().num_workers();
    let pool_size = config.pool_size(threads);
    let hashes = HashPool::start(config.argon2.0, pool_size, config.hash_kernel, &entropy)?;
    metrics.register(|registry| hashes.register(registry));
    let sessions = SessionClient::new(config.session_url.clone(), &config.service_secret)?;
    Ok(App::new(Dependencies {
        database,
        verifier: Arc::new(IntrospectionBatcher::new(sessions.clone(), &tasks)),
        sessions,
        hashes: Arc::new(hashes),
        password_costs: watch::Sender::default(),
        clock,
        entropy,
        tasks,
        policy: PasswordPolicy { min_length: config.min_length },
        config: config.clone(),
        can_mail: config.mail.delivery.is_some(),
        limiter,
        relying_party: RelyingParty::new(&config.public_url, &config.branding.product),
        resets_dropped: metrics.metric("resets_dropped", "Password reset requests that sent no mail", &[]),
        factor_attempts: FactorAttempts::new(metrics),
        passkey_logins: PasskeyLogins::new(metrics),
    }))
}
