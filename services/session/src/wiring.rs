//! The composition root: builds routers and tasks. The only module that depends on all others.

use std::error::Error;
use std::sync::Arc;

use audit::{AuditStream, Publication};
use authn::{InternalClient, IntrospectionBatcher};
use bus::InvalidationPublisher;
use contract::API_PREFIX;
use database::Parts;
use database::migrations::{MIGRATOR_DATABASE_LOGIN, MIGRATOR_DATABASE_URL};
use database::outbox::{CONCURRENCY, DELIVERY_TIMEOUT, Relay, RetryPolicy};
use ratelimit::Limiter;
use service::Tasks;
use service::config::{Environment, Variable};
use service::health::Readiness;
use service::http::Edge;
use service::process::{CommandResult, Program, Routers};
use service::telemetry::Telemetry;

use crate::app::credential_uses::CredentialUses;
use crate::app::introspection::CredentialLookup;
use crate::app::{App, Dependencies};
use crate::command::Command;
use crate::config::Config;
use crate::message::REPORTS;
use crate::store::MIGRATIONS;
use crate::tasks::Reports;
use crate::{http, tasks as periodic};

/// Audience of the tokens that the operator sends.
const AUDIENCE: &str = "svc-session";

/// The session service.
pub struct Session;

impl Program for Session {
    const NAME: &'static str = "session";
    const ABOUT: &'static str = "The session service: sessions, device login, API keys and introspection.";
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

/// Builds the routers and starts the background tasks.
///
/// # Errors
/// The URL of the broker is malformed, or the HTTP client cannot be created.
pub fn build(config: Config, parts: Parts) -> Result<Routers, Box<dyn Error + Send + Sync>> {
    let Parts { database, clock, entropy, tasks, telemetry } = parts;
    let operator = config.operator.clone().access(AUDIENCE, Arc::clone(&clock))?;
    let metrics = telemetry.metrics();
    let database = database.with_pii_policy(config.audit_personal).measured(metrics, &tasks);
    let edge = Edge::new(&config.public_url, Session::NAME, &telemetry)
        .with_trusted_proxies(&config.connections.proxies);
    let limiter = Limiter::new(Session::NAME, database.clone(), Arc::clone(&clock), metrics);
    limiter.purge_expired(&tasks);
    let broker = config.nats.for_service(Session::NAME);
    let invalidations = InvalidationPublisher::start(broker.clone(), Arc::clone(&clock), &tasks)?;
    let publication = Publication { broker, database: database.clone(), clock: Arc::clone(&clock) };
    publication.start(AuditStream::OF_TENANTS, metrics, &tasks)?;
    let relay = Relay {
        queue: database.clone(),
        name: "api_key_report",
        kinds: REPORTS,
        retry_policy: RetryPolicy::Unlimited,
        timeout: DELIVERY_TIMEOUT,
        concurrency: CONCURRENCY,
        deliver: Reports(InternalClient::new(config.identity_url.clone(), &config.service_secret)?),
        clock: Arc::clone(&clock),
    };
    tasks.spawn("api_key_report", relay.run(tasks.clone()));
    let uses = CredentialUses::default();
    tasks.spawn("credential uses", uses.clone().save(database.clone(), Arc::clone(&clock), tasks.clone()));
    let lookup = CredentialLookup { database: database.clone(), clock: Arc::clone(&clock), uses };
    let public_url = config.public_url.trim_end_matches('/');
    let device_url =
        config.device_url.clone().unwrap_or_else(|| format!("{public_url}{API_PREFIX}/pages/device"));
    let app = App::new(Dependencies {
        database,
        clock,
        entropy,
        config: config.clone(),
        limiter: limiter.clone(),
        introspection: IntrospectionBatcher::new(lookup, &tasks),
        invalidations,
        public_url: public_url.into(),
        device_url: device_url.into(),
    });
    let help = "Sessions that are neither revoked nor expired";
    let active_sessions = metrics.metric("sessions_active", help, &[]);
    periodic::start(&app, active_sessions, &tasks);
    Ok(Routers {
        public: edge.wrap(limiter.wrap(config.rate_limits.default, http::public(app.clone()))),
        internal: Some(edge.wrap_internal(http::internal(app, operator))),
        connections: config.connections,
    })
}
