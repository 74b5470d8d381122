//! The three contexts inside one process: their public routers behind one, split by the path table, and session's internal
//! API on loopback, over real HTTP. The same code, the same SQL and the same broker as in a cluster.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use axum::Router;
use axum::extract::Request;
use contract::paths::{Upstream, upstream_of};
use identity::Identity;
use ingest::Ingest;
use service::Tasks;
use service::config::{Environment, Variables as _};
use service::health::Readiness;
use service::process::{Program, Routers};
use service::telemetry::Telemetry;
use session::Session;
use tokio::net::TcpListener;
use tower::ServiceExt as _;

/// Where the contexts find what they need, beside what the environment tells them.
#[derive(Clone)]
pub struct Settings {
    /// The origin that people see.
    pub public_url: String,
    /// The database as identity's runtime role.
    pub identity_database_url: String,
    /// The database as session's runtime role.
    pub session_database_url: String,
    /// The broker as the user of each context.
    pub nats_urls: NatsUrls,
    /// The secret of the internal API.
    pub service_token: String,
    /// The operator's token.
    pub platform_token: String,
    /// The key of the names under which failed logins are counted.
    pub limiter_key: String,
    /// Where mails are written, unless the environment names a mail server.
    pub mail_dir: String,
}

/// The broker's address, with the user of each context.
#[derive(Clone)]
pub struct NatsUrls {
    /// As `identity`.
    pub identity: String,
    /// As `session`.
    pub session: String,
    /// As `ingest`.
    pub ingest: String,
}

/// Starts all three; returns the public API of the whole system. They take requests at once, and answer them well as soon
/// as `readiness` is.
///
/// # Errors
/// A configuration that cannot be used, with all its faults.
pub async fn start(
    settings: &Settings,
    environment: &Environment,
    tasks: &Tasks,
    readiness: &Readiness,
    telemetry: &Telemetry,
) -> anyhow::Result<Router> {
    let internal = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let common = environment.clone().with([
        ("SVC_PUBLIC_URL", settings.public_url.clone()),
        ("SVC_SERVICE_TOKEN", settings.service_token.clone()),
        ("SVC_SESSION_URL", format!("http://{}", internal.local_addr()?)),
    ]);
    let for_session = common.clone().with([
        ("SVC_DATABASE_URL", &settings.session_database_url),
        ("SVC_NATS_URL", &settings.nats_urls.session),
    ]);
    let mut for_identity = common.clone().with([
        ("SVC_DATABASE_URL", &settings.identity_database_url),
        ("SVC_NATS_URL", &settings.nats_urls.identity),
        ("SVC_PLATFORM_TOKEN", &settings.platform_token),
        ("SVC_LIMITER_KEY", &settings.limiter_key),
    ]);
    if !sends_mails(environment) {
        for_identity = for_identity.with([("SVC_MAIL_DIR", &settings.mail_dir)]);
    }
    let for_ingest = common.with([("SVC_NATS_URL", &settings.nats_urls.ingest)]);

    let session = start_one::<Session>(&for_session, tasks, readiness, telemetry).await?;
    if let Some(router) = session.internal {
        let served = service::http::serve(internal, router, tasks.clone(), tasks.stopping().clone());
        // Not drained with the public port: answers in flight there still ask here.
        tasks.spawn("internal API", served);
    }
    let identity = start_one::<Identity>(&for_identity, tasks, readiness, telemetry).await?;
    let ingest = start_one::<Ingest>(&for_ingest, tasks, readiness, telemetry).await?;
    Ok(split(identity.public, session.public, ingest.public))
}

/// Whether mails leave through a mail server, so that none are written to files.
pub fn sends_mails(environment: &Environment) -> bool {
    ["SVC_SMTP_URL", "SVC_SMTP_URL_FILE"].iter().any(|name| environment.get(name).is_some())
}

async fn start_one<P: Program>(
    environment: &Environment,
    tasks: &Tasks,
    readiness: &Readiness,
    telemetry: &Telemetry,
) -> anyhow::Result<Routers> {
    let config = P::Config::load(environment)?;
    let started = P::start(config, tasks, readiness, telemetry).await;
    started.map_err(|error| anyhow::anyhow!(error)).with_context(|| format!("{} cannot start", P::NAME))
}

/// Sends each request to whoever serves its path.
fn split(identity: Router, session: Router, ingest: Router) -> Router {
    let route = move |request: Request| {
        let router = match upstream_of(request.uri().path()) {
            Upstream::Identity => &identity,
            Upstream::Session => &session,
            Upstream::Ingest => &ingest,
        };
        router.clone().oneshot(request)
    };
    Router::new().fallback_service(tower::service_fn(route))
}
