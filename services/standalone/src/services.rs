//! The three services in one process: one public router that routes by path prefix, and the internal APIs of identity and session
//! on loopback.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use anyhow::Context as _;
use axum::Router;
use axum::extract::Request;
use contract::paths::{Upstream, upstream_of};
use identity::Identity;
use ingest::Ingest;
use service::Tasks;
use service::config::{ConfigErrors, Environment, Variables as _};
use service::health::Readiness;
use service::process::{self, Program, Routers};
use service::telemetry::Telemetry;
use session::Session;
use tokio::net::TcpListener;
use tower::ServiceExt as _;

/// Settings of the services that the environment does not contain.
#[derive(Clone)]
pub struct Settings {
    /// The public origin.
    pub public_url: String,
    /// The URL of the database for the runtime role of identity.
    pub identity_database_url: String,
    /// The URL of the database for the runtime role of session.
    pub session_database_url: String,
    /// The URLs of the broker, each with the user of the service.
    pub nats_urls: ServiceUrls,
    /// The secret of the internal API.
    pub service_token: String,
    /// The platform token.
    pub platform_token: String,
    /// The HMAC key of the rate limiter (`SVC_LIMITER_KEY`).
    pub limiter_key: String,
    /// The key that encrypts the secrets of authenticator apps (`SVC_FACTOR_KEY`).
    pub factor_key: String,
    /// The directory for mails if the environment has no mail server.
    pub mail_dir: String,
}

/// A URL for each service.
#[derive(Clone)]
pub struct ServiceUrls {
    /// Of identity.
    pub identity: String,
    /// Of session.
    pub session: String,
    /// Of ingest.
    pub ingest: String,
}

/// Starts all three services. Returns the router of the public API with its settings, and the URLs of the internal APIs. They are usable
/// once `readiness` is open.
///
/// # Errors
/// If the configuration is invalid, with all its errors, or a service does not start.
pub async fn start(
    settings: &Settings,
    environment: &Environment,
    tasks: &Tasks,
    readiness: &Readiness,
    telemetry: &Telemetry,
) -> anyhow::Result<(Routers, ServiceUrls)> {
    let (of_identity, of_session, of_ingest) =
        (bind_internal().await?, bind_internal().await?, bind_internal().await?);
    let urls =
        ServiceUrls { identity: url(&of_identity)?, session: url(&of_session)?, ingest: url(&of_ingest)? };
    let [for_identity, for_session, for_ingest] = environments(settings, environment, &urls);

    let session = start_service::<Session>(&for_session, tasks, readiness, telemetry).await?;
    let identity = start_service::<Identity>(&for_identity, tasks, readiness, telemetry).await?;
    let serve_internal = |listener, internal: Option<Router>| {
        let Some(router) = internal else { return };
        let serve = service::http::serve(listener, router, tasks.clone(), tasks.stopping().clone());
        // Stops after the public port is drained: requests in flight there still use it.
        tasks.spawn("internal API", serve);
    };
    serve_internal(of_identity, identity.internal);
    serve_internal(of_session, session.internal);
    let ingest = start_service::<Ingest>(&for_ingest, tasks, readiness, telemetry).await?;
    serve_internal(of_ingest, ingest.internal);
    let public = route_by_path(identity.public, session.public, ingest.public);
    // All services have the same environment, so their settings are equal.
    Ok((Routers { public, internal: None, connections: identity.connections }, urls))
}

/// Checks the configuration of all services.
///
/// # Errors
/// All errors of the configuration.
pub fn check(settings: &Settings, environment: &Environment) -> Result<(), ConfigErrors> {
    let [identity, session, ingest] = ["identity", "session", "ingest"].map(|name| format!("http://{name}"));
    let urls = ServiceUrls { identity, session, ingest };
    let [identity, session, ingest] = environments(settings, environment, &urls);
    let checked = [
        process::check::<Identity>(&identity),
        process::check::<Session>(&session),
        process::check::<Ingest>(&ingest),
    ];
    // Several services read most variables.
    let errors: BTreeSet<_> =
        checked.into_iter().filter_map(Result::err).flat_map(|errors| errors.0).collect();
    if errors.is_empty() { Ok(()) } else { Err(ConfigErrors(errors.into_iter().collect())) }
}

async fn bind_internal() -> std::io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await
}

fn url(listener: &TcpListener) -> std::io::Result<String> {
    Ok(format!("http://{}", listener.local_addr()?))
}

/// Returns the environments of identity, session and ingest.
fn environments(settings: &Settings, environment: &Environment, urls: &ServiceUrls) -> [Environment; 3] {
    let common = environment.clone().with([
        ("SVC_PUBLIC_URL", settings.public_url.clone()),
        ("SVC_SERVICE_TOKEN", settings.service_token.clone()),
        ("SVC_PLATFORM_TOKEN", settings.platform_token.clone()),
        ("SVC_IDENTITY_URL", urls.identity.clone()),
        ("SVC_SESSION_URL", urls.session.clone()),
    ]);
    let mut for_session = common.clone().with([
        ("SVC_DATABASE_URL", &settings.session_database_url),
        ("SVC_NATS_URL", &settings.nats_urls.session),
    ]);
    // This process serves all paths, so the short address leads to the page.
    if environment.get("SVC_DEVICE_URL").is_none() {
        for_session = for_session
            .with([("SVC_DEVICE_URL", &format!("{}/device", settings.public_url.trim_end_matches('/')))]);
    }
    let mut for_identity = common.clone().with([
        ("SVC_DATABASE_URL", &settings.identity_database_url),
        ("SVC_NATS_URL", &settings.nats_urls.identity),
        ("SVC_LIMITER_KEY", &settings.limiter_key),
        ("SVC_FACTOR_KEY", &settings.factor_key),
    ]);
    if !sends_mails(environment) {
        for_identity = for_identity.with([("SVC_MAIL_DIR", &settings.mail_dir)]);
    }
    let for_ingest = common.with([("SVC_NATS_URL", &settings.nats_urls.ingest)]);
    [for_identity, for_session, for_ingest]
}

/// Returns whether a mail server sends the mails. If not, they are written to files.
pub fn sends_mails(environment: &Environment) -> bool {
    ["SVC_SMTP_URL", "SVC_SMTP_URL_FILE"].iter().any(|name| environment.get(name).is_some())
}

async fn start_service<P: Program<Api = Routers>>(
    environment: &Environment,
    tasks: &Tasks,
    readiness: &Readiness,
    telemetry: &Telemetry,
) -> anyhow::Result<Routers> {
    let config = P::Config::load(environment)?;
    let started = P::start(config, tasks, readiness, telemetry).await;
    started.map_err(|error| anyhow::anyhow!(error)).with_context(|| format!("failed to start {}", P::NAME))
}

/// Routes each request to the service of its path.
fn route_by_path(identity: Router, session: Router, ingest: Router) -> Router {
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
