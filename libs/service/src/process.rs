//! One service as one process: configuration, logs, listeners, and the end.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;

use axum::Router;
use tokio::net::TcpListener;

use crate::config::{ConfigErrors, EXIT_CONFIG, Environment, Reader, Variable, unknown_names};
use crate::health::{self, Readiness};
use crate::telemetry::{self, LOG, OTLP_ENDPOINT, OTLP_RATIO, Telemetry, TraceSettings};
use crate::{Tasks, http};

/// The allocator of every service. A request allocates some fifty times, often on one thread and given back on another, where
/// the C library's takes a fifth of an event's time.
pub use mimalloc::MiMalloc as Allocator;

/// Where the public API listens.
pub const LISTEN: Variable = listen("SVC_LISTEN", "0.0.0.0:8080", "Where the public API listens.");
/// Where the internal API listens.
pub const LISTEN_INTERNAL: Variable = listen(
    "SVC_LISTEN_INTERNAL",
    "0.0.0.0:8081",
    "Where the internal API listens; never route it from outside.",
);
/// Where health is asked.
pub const LISTEN_ADMIN: Variable = listen(
    "SVC_LISTEN_ADMIN",
    "0.0.0.0:9090",
    "Where the platform asks for health and metrics; never route it from outside.",
);
/// The origin that people see.
pub const PUBLIC_URL: Variable = Variable {
    name: "SVC_PUBLIC_URL",
    form: "URL without a path",
    default: Some("http://127.0.0.1:8080"),
    secret: false,
    meaning: "The origin under which people reach the service; links in mails and problem documents begin with it.",
};

const fn listen(name: &'static str, default: &'static str, meaning: &'static str) -> Variable {
    Variable { name, form: "address:port", default: Some(default), secret: false, meaning }
}

/// The variables of every process.
pub const VARIABLES: &[Variable] = &[LISTEN, LISTEN_INTERNAL, LISTEN_ADMIN, LOG, OTLP_ENDPOINT, OTLP_RATIO];

/// What a service puts on its listeners, without the edge of [`http::Edge`] forgotten.
pub struct Routers {
    /// The public API.
    pub public: Router,
    /// The internal API, where the service has one.
    pub internal: Option<Router>,
}

/// A service that runs as a process of its own.
pub trait Program {
    /// Its name, as in its binary `svc-<name>`.
    const NAME: &'static str;
    /// Its configuration.
    type Config;

    /// Every variable that it reads, beside [`VARIABLES`].
    fn variables() -> Vec<Variable>;

    /// Reads its configuration.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    fn load(environment: &Environment) -> Result<Self::Config, ConfigErrors>;

    /// Builds its routers and starts its tasks. What is not reachable yet closes a gate of readiness; it is no error.
    fn start(
        config: Self::Config,
        tasks: &Tasks,
        readiness: &Readiness,
        telemetry: &Telemetry,
    ) -> impl Future<Output = Result<Routers, Box<dyn std::error::Error + Send + Sync>>>;
}

/// Prints the effective configuration, or what is wrong with it.
pub fn check_config<P: Program>(environment: &Environment) -> ExitCode {
    if let Err(faults) = load::<P>(environment) {
        return refuse(&faults);
    }
    let variables = [VARIABLES, &P::variables()].concat();
    match io::stdout().write_all(environment.effective(&variables).as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Runs the service until it is told to end.
pub async fn run<P: Program>(environment: &Environment) -> ExitCode {
    let (config, traces) = match load::<P>(environment) {
        Ok(loaded) => loaded,
        Err(faults) => return refuse(&faults),
    };
    telemetry::start(environment.get(LOG.name).unwrap_or("info"), telemetry::Output::Stdout);
    for warning in unknown_names(environment, &[VARIABLES, &P::variables()].concat()) {
        tracing::warn!("{warning}");
    }
    let tasks = Tasks::default();
    match serve::<P>(environment, config, &traces, &tasks).await {
        Ok(()) => tasks.run_to_end().await,
        Err(error) => {
            tracing::error!(%error, service = P::NAME, "the service cannot start");
            tasks.end().await;
            ExitCode::FAILURE
        }
    }
}

/// Reads everything before anything starts, so that all faults are told at once.
fn load<P: Program>(environment: &Environment) -> Result<(P::Config, TraceSettings), ConfigErrors> {
    match (P::load(environment), TraceSettings::load(environment)) {
        (Ok(config), Ok(traces)) => Ok((config, traces)),
        (config, traces) => {
            let faults = config.err().into_iter().chain(traces.err());
            Err(ConfigErrors(faults.flat_map(|ConfigErrors(faults)| faults).collect()))
        }
    }
}

async fn serve<P: Program>(
    environment: &Environment,
    config: P::Config,
    traces: &TraceSettings,
    tasks: &Tasks,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let readiness = Readiness::default();
    let started = readiness.gate("start");
    let telemetry = Telemetry::start(P::NAME, traces)?;
    telemetry.flush_at_end(tasks);
    // Bound before anything else: a port that is taken is found out at once.
    let public = bind(environment, &LISTEN).await?;
    let admin = bind(environment, &LISTEN_ADMIN).await?;
    // Not drained with the others: the platform goes on asking during the drain.
    let asked = health::router(readiness.clone(), telemetry.metrics().clone());
    tasks.spawn("admin", http::serve(admin, asked, tasks.clone(), tasks.stopping().clone()));
    let routers = P::start(config, tasks, &readiness, &telemetry).await?;
    if let Some(internal) = routers.internal {
        let listener = bind(environment, &LISTEN_INTERNAL).await?;
        tasks.spawn_listener(http::serve(listener, internal, tasks.clone(), tasks.draining().clone()));
    }
    tracing::info!(service = P::NAME, address = %public.local_addr()?, "serving");
    tasks.spawn_listener(http::serve(public, routers.public, tasks.clone(), tasks.draining().clone()));
    started.open();
    close_when_draining(tasks, started);
    Ok(())
}

/// A draining process is not ready: no new requests shall be sent to it.
fn close_when_draining(tasks: &Tasks, gate: health::Gate) {
    let draining = tasks.draining().clone();
    tasks.spawn_short(async move {
        draining.cancelled().await;
        gate.close();
    });
}

/// Binds a listener where a variable says.
///
/// # Errors
/// The address is malformed or taken; the error names the variable.
pub async fn bind(environment: &Environment, variable: &Variable) -> io::Result<TcpListener> {
    let address = Reader::new(environment).required::<SocketAddr>(variable);
    let address = address.ok_or_else(|| io::Error::other(format!("{} is no address:port", variable.name)))?;
    TcpListener::bind(address)
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("{}={address}: {error}", variable.name)))
}

/// Reports faults of the configuration to whoever started the process.
pub fn refuse(faults: &ConfigErrors) -> ExitCode {
    // Standard error may be closed; then there is nobody to tell.
    let _ = write!(io::stderr(), "{faults}");
    ExitCode::from(EXIT_CONFIG)
}

/// The memory limit of the container that the process runs in, in bytes; `None` without one.
pub fn memory_limit() -> Option<u64> {
    // Version 2 of control groups, then version 1; "max" and the kernel's own huge default mean that there is none.
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok())
        .filter(|bytes| *bytes < 1 << 60)
}
