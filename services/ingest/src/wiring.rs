//! Composition root: builds state, routers and tasks.

use std::error::Error;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use authn::{CredentialCache, CredentialVerifier, SessionClient, TokenReviewer, WorkloadVerifier};
use bus::{
    AuditReader, Connection, ConsumerRequests, DEAD_LETTER_STREAM, EventReader, MemoryBudget, Profile,
    PublishLimits, Publisher, Replicas, StreamDefinition, StreamMode, StreamSet,
};
use prometheus_client::metrics::gauge::Gauge;
use ratelimit::{Limit, LimiterMetrics, LocalLimiter, Rate, Source};
use service::clock::SystemClock;
use service::config::Environment;
use service::health::{Gate, Readiness};
use service::http::Edge;
use service::process::{CommandResult, Program, Routers, memory_limit};
use service::telemetry::{Metrics, Telemetry};
use service::{Clock, Tasks};

use crate::app::{
    App, Audit, Dependencies, PositionKeys, Quarantine, Quotas, Readers, StreamShare, TenantLimits,
    body_budget,
};
use crate::command::Command;
use crate::config::Config;
use crate::consumer_metrics;
use crate::http::{self, FailedCredentials};

/// Interval at which a stream of events without events sends its position. Proxies close connections that are idle for a minute.
const POSITION_INTERVAL: Duration = Duration::from_secs(15);

/// Requests of a consumer to list or create consumers, in each replica: a few for each start of a process.
const CONSUMER_REQUESTS: Limit = Limit {
    name: "consumer_requests",
    rate: Some(Rate::new(NonZeroU32::new(500).unwrap(), Duration::from_millis(100))),
};

/// Audience of the service account tokens of producers and of the operator.
const AUDIENCE: &str = "svc-ingest";

/// The ingest service.
pub struct Ingest;

impl Program for Ingest {
    const NAME: &'static str = "ingest";
    const ABOUT: &'static str =
        "The ingest service: accepts UDM events and publishes them to the event stream.";
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
        let gate = readiness.gate("stream");
        let parts =
            Parts { clock: Arc::new(SystemClock), tasks: tasks.clone(), gate, telemetry: telemetry.clone() };
        build(&config, parts).await
    }
}

/// The injected dependencies.
pub struct Parts {
    /// Source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Tracks background tasks.
    pub tasks: Tasks,
    /// Opened when events can be accepted.
    pub gate: Gate,
    /// Metrics and traces.
    pub telemetry: Telemetry,
}

/// Builds the context and starts its background tasks.
///
/// # Errors
/// The HTTP client cannot be created, or the NATS address is malformed.
pub async fn build(config: &Config, parts: Parts) -> Result<Routers, Box<dyn Error + Send + Sync>> {
    let Parts { clock, tasks, gate, telemetry } = parts;
    let nats = config.nats.for_service(Ingest::NAME);
    let sessions = SessionClient::new(config.session_url.clone(), &config.service_secret)?;
    // Separate from the connection of the readers: their responses would delay invalidations.
    let feeds = Connection::open(&nats).await?;
    let replicas = Replicas::start(feeds.clone(), &tasks);
    let verifier = CredentialCache::start(sessions.clone(), feeds, clock.clone(), &tasks, &telemetry);
    let (limits, metrics) = (PublishLimits::default(), telemetry.metrics());
    let (mode, profile) = (config.stream.mode(), config.stream.profile());
    let streams = StreamSet::from(&profile).with_replicas(replicas.clone());
    let publisher = Publisher::start(nats.clone(), streams, limits, metrics, &tasks)?;
    let limits = tenant_limits(config, replicas, &publisher, metrics);
    let dead_letters =
        Publisher::start(nats.clone(), DEAD_LETTER_STREAM, PublishLimits::default(), metrics, &tasks)?;
    let share = config.tenant_stream_share;
    let quarantine = Quarantine::start(dead_letters.clone(), config.quarantine, share, metrics, &tasks);
    let requests = Connection::open(&nats).await?;
    let limiter = |limit| LocalLimiter::new(limit, clock.clone(), LimiterMetrics::new(metrics));
    consumer_requests(config, dead_letters, limiter(CONSUMER_REQUESTS), metrics).start(
        nats.clone(),
        requests.clone(),
        &tasks,
    )?;
    consumer_metrics::start(
        requests.clone(),
        profile.streams,
        profile.max_age,
        clock.clone(),
        metrics,
        &tasks,
    );
    let reader = EventReader::new(requests.clone(), profile.streams, POSITION_INTERVAL, &tasks);
    let audit = Audit::new(AuditReader::new(requests.clone()), limiter(config.audit_requests));
    let opened = limiter(config.event_streams);
    let readers = Readers::new(reader, verifier.clone(), opened, tasks.draining().clone());
    measure(readers.clone(), metrics);
    let (stop, starting) = (tasks.stopping().clone(), publisher.clone());
    let nats_config = nats.clone();
    let open_gate = async move {
        check_event_streams(&nats, mode, &profile, &starting, gate).await;
    };
    tasks.spawn_short(async move {
        // Boxed because the future is large.
        stop.run_until_cancelled(Box::pin(open_gate)).await;
    });
    let verifier: Arc<dyn CredentialVerifier> = if config.workload_identity {
        let reviewer = TokenReviewer::new(&config.operator.kubernetes, AUDIENCE, clock.clone())?;
        Arc::new(WorkloadVerifier::new(verifier, reviewer))
    } else {
        Arc::new(verifier)
    };
    let operator = config.operator.clone().access(AUDIENCE, clock.clone())?;
    let edge = Edge::new(config.public_url.as_str(), Ingest::NAME, &telemetry)
        .with_trusted_proxies(&config.connections.proxies);
    let failed_credentials = FailedCredentials::new(limiter(config.failed_credentials));
    let app = App::new(Dependencies {
        verifier,
        sessions,
        publisher,
        quarantine,
        limits,
        clock,
        body_budget: MemoryBudget::new(body_budget(memory_limit())),
        platform_secret: config.platform_secret.clone(),
        nats: requests,
        nats_config,
        streams: config.stream.division.streams,
        readers,
        positions: PositionKeys::new(config.service_secret.clone()),
        audit,
    });
    Ok(Routers {
        internal: operator.map(|access| edge.wrap_internal(http::internal(app.clone(), access))),
        public: edge.wrap(http::public(app, failed_credentials)),
        connections: config.connections.clone(),
    })
}

/// Answers the requests of consumers.
fn consumer_requests(
    config: &Config,
    dead_letters: Publisher,
    limiter: LocalLimiter,
    metrics: &Metrics,
) -> ConsumerRequests {
    let help = "Dead letters of consumers for which no space is left";
    ConsumerRequests {
        streams: config.stream.division.streams,
        admits: Box::new(move |login| limiter.check_and_count(&Source::from(login)).is_ok()),
        dead_letters,
        stream_share: config.tenant_stream_share,
        rejected: metrics.metric("dead_letters_rejected", help, &[]),
    }
}

/// Measures the open responses of readers.
fn measure(readers: Readers, metrics: &Metrics) {
    let open: Gauge = metrics.metric("event_streams_open", "Open responses of `GET /events/stream`", &[]);
    metrics.at_scrape(move || {
        open.set(readers.count());
    });
}

/// Checks the streams of events, and opens the gate when events can be stored.
async fn check_event_streams(
    nats: &bus::Config,
    mode: StreamMode,
    profile: &Profile,
    publisher: &Publisher,
    gate: Gate,
) {
    let definitions: Vec<_> = profile.into();
    check_streams(nats, mode, bus::API_PREFIX, &definitions).await;
    // A stream that was just created is not known to the publisher yet.
    publisher.ready().await;
    gate.open();
    // Events are accepted without these.
    check_streams(nats, mode, bus::FACADE_API_PREFIX, &profile.facade()).await;
}

/// Checks the streams of an account until they are valid; with [`StreamMode::Ensure`], also creates and updates them.
async fn check_streams(nats: &bus::Config, mode: StreamMode, api_prefix: &str, streams: &[StreamDefinition]) {
    match mode {
        StreamMode::Verify => bus::until_valid(nats, api_prefix, streams, bus::verify).await,
        StreamMode::Ensure => bus::until_valid(nats, api_prefix, streams, bus::ensure).await,
    }
}

/// Builds the limits of tenants, which each replica enforces by their number.
fn tenant_limits(
    config: &Config,
    replicas: Replicas,
    publisher: &Publisher,
    metrics: &Metrics,
) -> TenantLimits {
    let quotas = Quotas::new(config.default_quota(), replicas.clone());
    let share = |(size, full)| StreamShare::new(config.tenant_stream_share, replicas.clone(), size, full);
    let shares = publisher.stream_sizes().into_iter().zip(publisher.full_counters()).map(share).collect();
    let counted: Gauge =
        metrics.metric("ingest_replicas", "Active replicas of ingest that this one counts", &[]);
    metrics.at_scrape(move || {
        counted.set(replicas.count().into());
    });
    TenantLimits::new(quotas, shares, metrics)
}
