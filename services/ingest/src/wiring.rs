//! The composition root: the only place that knows everything.

use std::convert::Infallible;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use authn::{Cache, SERVICE_TOKEN_PREVIOUS, SessionClient};
use bus::{Limits, PublishMetrics, Publisher, StreamError, UDM_STREAM};
use service::clock::SystemClock;
use service::config::{Environment, Variable};
use service::health::{Gate, Readiness};
use service::http::Edge;
use service::process::{Program, Routers};
use service::telemetry::Telemetry;
use service::{Clock, Tasks, chain};

use crate::app::App;
use crate::config::{Config, StreamMode};
use crate::http;

/// How often a stream that cannot be used is looked at again: somebody may have mended it.
const STREAM_POLL: Duration = Duration::from_secs(2);

/// The ingest service.
pub struct Ingest;

impl Program for Ingest {
    const NAME: &'static str = "ingest";
    const ABOUT: &'static str =
        "The ingest service: accepts UDM events and publishes them to the event stream.";
    // Accepted because all services can share one environment.
    const OTHER_VARIABLES: &'static [Variable] = &[SERVICE_TOKEN_PREVIOUS];
    type Config = Config;
    type Command = Infallible;

    async fn execute(command: Infallible, _: &Environment) -> ExitCode {
        match command {}
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
        build(config, parts)
    }
}

/// What is injected.
pub struct Parts {
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Tracks background work.
    pub tasks: Tasks,
    /// Opened once the stream is as it must be.
    pub gate: Gate,
    /// Metrics and traces.
    pub telemetry: Telemetry,
}

/// Puts the context together and starts its background work.
///
/// # Errors
/// A client cannot be made, or the broker's address is malformed.
pub fn build(config: Config, parts: Parts) -> Result<Routers, Box<dyn Error + Send + Sync>> {
    let Parts { clock, tasks, gate, telemetry } = parts;
    let mut broker = bus::Config::new(config.nats_url.expose(), "svc-ingest");
    broker.wait_for_broker = true;
    broker.metrics = telemetry.metrics().shared(PublishMetrics::register);
    // The broker lets each user subscribe below an inbox of its own only (deploy/nats/accounts.conf).
    broker.inbox_prefix = Some("_INBOX.ingest".to_owned());
    let sessions = SessionClient::new(config.session_url.clone(), config.service_token.expose())?;
    let authority = Cache::start(sessions, broker.clone(), clock.clone(), &tasks, &telemetry);
    let stop = tasks.stopping().clone();
    let publisher =
        Publisher::start(broker.clone(), UDM_STREAM, Limits::default(), tasks.tracker(), stop.clone())?;
    let measured = publisher.clone();
    telemetry.metrics().at_scrape(move || measured.measure());
    let (mode, profile) = (config.stream_mode, config.profile());
    let to_be_ready = publisher.clone();
    let ready = async move {
        until_streams_fit(&broker, mode, &profile).await;
        // The stream may have been made a moment ago, and the publisher looks for it by itself.
        to_be_ready.ready().await;
        gate.open();
    };
    tasks.spawn_short(async move {
        tokio::select! {
            () = ready => {}
            () = stop.cancelled() => {}
        }
    });
    let edge =
        Edge::new(config.public_url.as_str(), Ingest::NAME, &telemetry).with_trusted_proxies(&config.proxies);
    let app = App { authority: Arc::new(authority), publisher, clock, room: http::Room::new() };
    Ok(Routers { public: edge.wrap(http::public(app)), internal: None })
}

/// Looks at the streams until they are as they must be, and tells once of each fault.
async fn until_streams_fit(broker: &bus::Config, mode: StreamMode, profile: &bus::Profile) {
    let mut told = String::new();
    loop {
        let Err(fault) = check_streams(broker, mode, profile).await else {
            return;
        };
        if fault != told {
            tracing::error!(fault, "events cannot be accepted yet");
            told = fault;
        }
        tokio::time::sleep(STREAM_POLL).await;
    }
}

/// Whoever prepares the streams answers for those beside `UDM`, too; where none are prepared, all are made here, since the
/// other services may not.
async fn check_streams(broker: &bus::Config, mode: StreamMode, profile: &bus::Profile) -> Result<(), String> {
    let client = bus::connect(broker).await.map_err(|error| chain(&error))?;
    let context = async_nats::jetstream::new(client);
    let checked: Result<(), StreamError> = async {
        match mode {
            StreamMode::Verify => bus::verify(&context, &bus::events(profile)).await,
            StreamMode::Ensure => {
                for definition in [bus::audit(profile), bus::dead_letters(profile), bus::events(profile)] {
                    bus::ensure(&context, &definition).await?;
                }
                Ok(())
            }
        }
    }
    .await;
    checked.map_err(|fault| chain(&fault))
}
