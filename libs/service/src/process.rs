//! Runs one service as a process: command line, configuration, logs, listeners and shutdown.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::str::FromStr;

use ::http::Uri;
use axum::Router;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tracing::field::display;

use crate::config::{ConfigErrors, EXIT_CONFIG, Environment, Reader, Variable, Variables, unknown_names};
use crate::health::{self, Readiness};
use crate::telemetry::{self, LOG, Output, Telemetry, TraceSettings};
use crate::{Tasks, chain, http};

/// Allocator of every service. A request allocates about fifty times, often on one thread and freed on another. The
/// allocator of the C library takes a fifth of the time of an event for this.
pub use mimalloc::MiMalloc as Allocator;

/// Address of the public API.
pub const LISTEN: Variable = listen("SVC_LISTEN", "0.0.0.0:8080", "Listen address of the public API.");
/// Address of the internal API.
pub const LISTEN_INTERNAL: Variable = listen(
    "SVC_LISTEN_INTERNAL",
    "0.0.0.0:8081",
    "Listen address of the internal API. Do not expose it outside the cluster.",
);
/// Address of health checks and metrics.
pub const LISTEN_ADMIN: Variable = listen(
    "SVC_LISTEN_ADMIN",
    "0.0.0.0:9090",
    "Listen address of health checks and metrics. Do not expose it outside the cluster.",
);
/// Origin of the public API.
pub const PUBLIC_URL: Variable = Variable::new("SVC_PUBLIC_URL", "URL without a path")
    .default("http://localhost:8080")
    .meaning(
        "Public origin of the installation. Links in mails and problem documents start with it. Its host is the relying party of passkeys, \
         which need a host name.",
    );
/// Address of the internal API of the identity service.
pub const IDENTITY_URL: Variable = Variable::new("SVC_IDENTITY_URL", "URL")
    .default("http://identity:8081")
    .meaning("URL of the internal API of identity.");
/// Address of the internal API of the session service.
pub const SESSION_URL: Variable = Variable::new("SVC_SESSION_URL", "URL")
    .default("http://session:8081")
    .meaning("URL of the internal API of session.");

/// Parses an origin: scheme `http` or `https`, host and port.
///
/// # Errors
/// A message that describes the expected form.
pub fn parse_origin<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    let uri: Uri = text.parse().map_err(|_| "malformed URL".to_owned())?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_user = uri.authority().is_none_or(|authority| authority.as_str().contains('@'));
    if !is_http || has_user || !matches!(uri.path(), "" | "/") || text.contains(['?', '#']) {
        return Err("must be http:// or https:// with a host, without user, path and query".to_owned());
    }
    text.parse().map_err(|error: T::Err| error.to_string())
}

const fn listen(name: &'static str, default: &'static str, meaning: &'static str) -> Variable {
    Variable::new(name, "address:port").default(default).meaning(meaning)
}

crate::variables! {
    /// Addresses of the APIs of a service.
    pub(crate) struct Listen {
        public: SocketAddr = LISTEN.required(),
        internal: SocketAddr = LISTEN_INTERNAL.required(),
    }
}

crate::variables! {
    /// Settings that every service process has.
    pub(crate) struct ProcessSettings {
        /// CPU cores of the process: the number of threads for requests (at least two, at most one per core of the machine) and for
        /// password hashes. Without it, all cores. The chart sets it to the CPU request of the pod.
        cpus: Option<usize> = Variable::new("SVC_CPUS", "number, 1 to 4096").optional_between(1, 4096),
        admin: SocketAddr = LISTEN_ADMIN.required(),
        log: String = LOG.required_with(telemetry::parse_directives),
        traces: TraceSettings,
    }
}

/// Routers of a service, already wrapped by [`http::Edge`].
pub struct Routers {
    /// Public API.
    pub public: Router,
    /// Internal API, if the service has one in its configuration. Without it, its port is not opened.
    pub internal: Option<Router>,
    /// Settings of the connections to the public API.
    pub connections: http::ConnectionSettings,
}

/// The exit code of a subcommand, or the error that it failed with.
pub type CommandResult = Result<ExitCode, Box<dyn Error + Send + Sync>>;

/// Prints a line of the result of a subcommand. It is no error that the reader has closed the pipe, as `head` does.
///
/// # Errors
/// Standard output cannot be written, for example because a disk is full.
pub fn print_line(line: &str) -> io::Result<()> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// A service that can run as a process.
pub trait Program {
    /// Name of the service. The binary is `svc-<name>`.
    const NAME: &'static str;
    /// First line of `--help`.
    const ABOUT: &'static str;
    /// Variables that the service accepts and documents in addition to those of `Config`, for example those of a subcommand.
    const OTHER_VARIABLES: &'static [Variable] = &[];
    /// Whether the service has an API. Without one, it has no listener except that of health checks and metrics.
    const HAS_API: bool = true;
    /// Configuration of the service.
    type Config: Variables;
    /// [`Routers`], or `Option<Routers>` if the service has no API.
    type Api: Into<Option<Routers>>;
    /// Subcommands of the binary; `Infallible` for a binary without subcommands.
    type Command: Subcommand;

    /// Lists every variable of the process.
    fn variables() -> Vec<Variable> {
        let listen = if Self::HAS_API { Listen::variables() } else { Vec::new() };
        let own = [Self::Config::variables(), Self::OTHER_VARIABLES.to_vec()].concat();
        [listen, variables(own)].concat()
    }

    /// Runs a subcommand.
    fn execute(command: Self::Command, environment: &Environment) -> impl Future<Output = CommandResult>;

    /// Builds the routers, if the service has an API, and starts the tasks. A dependency that is not available yet is not an error: the
    /// service closes a readiness gate until it is.
    fn start(
        config: Self::Config,
        tasks: &Tasks,
        readiness: &Readiness,
        telemetry: &Telemetry,
    ) -> impl Future<Output = Result<Self::Api, Box<dyn Error + Send + Sync>>>;
}

/// Lists the variables that every process has, and `own`. The variables of API listeners are not included.
pub fn variables(own: Vec<Variable>) -> Vec<Variable> {
    [ProcessSettings::variables(), own].concat()
}

#[derive(Parser)]
#[command(version, after_help = "Configuration comes from SVC_ variables; see docs/configuration.md.")]
struct CommandLine<C: Subcommand> {
    /// Print the effective configuration without secrets, and exit
    #[arg(long)]
    check_config: bool,
    #[command(subcommand)]
    command: Option<C>,
}

/// Runs the binary of a service: parses the command line, then runs a subcommand or the service.
pub fn main<P: Program>() -> ExitCode {
    // The command line library needs a static name.
    let name: &str = format!("svc-{}", P::NAME).leak();
    let arguments = CommandLine::<P::Command>::command().name(name).about(P::ABOUT).get_matches();
    let arguments =
        CommandLine::<P::Command>::from_arg_matches(&arguments).unwrap_or_else(|error| error.exit());
    let environment = Environment::from_process();
    // Fails only if a provider is installed already, and this is the only installation in the process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match arguments.command {
        Some(command) => block_on(cores(), async {
            P::execute(command, &environment).await.unwrap_or_else(|error| report_failure(name, error))
        }),
        None if arguments.check_config => check_config::<P>(&environment),
        None => match load::<P>(&environment) {
            Ok(loaded) => block_on(threads(loaded.1.cpus, cores()), run::<P>(&environment, loaded)),
            Err(errors) => report_config_errors(&errors),
        },
    }
}

/// Runs a future on this number of threads.
fn block_on(threads: usize, future: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build() {
        Ok(runtime) => runtime.block_on(future),
        Err(error) => {
            // Standard error can be closed; then there is no place to report to.
            let _ = writeln!(io::stderr(), "failed to start threads: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The number of cores of the machine, or of the CPU limit of the container if it is smaller.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// The number of threads of a process. One thread would let a long request delay all others.
fn threads(cpus: Option<usize>, cores: usize) -> usize {
    cpus.map_or(cores, |cpus| cpus.max(2).min(cores))
}

/// Checks the configuration of a service.
///
/// # Errors
/// All errors of the configuration.
pub fn check<P: Program>(environment: &Environment) -> Result<(), ConfigErrors> {
    load::<P>(environment).map(|_| ())
}

/// Prints the effective configuration, or its errors.
fn check_config<P: Program>(environment: &Environment) -> ExitCode {
    for warning in unknown_names(environment, &P::variables()) {
        // Standard error can be closed; then there is no place to report to.
        let _ = writeln!(io::stderr(), "warning: {warning}");
    }
    if let Err(errors) = check::<P>(environment) {
        return report_config_errors(&errors);
    }
    match io::stdout().write_all(environment.effective(&P::variables()).as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Runs the service until a signal or a failure.
async fn run<P: Program>(environment: &Environment, loaded: Loaded<P>) -> ExitCode {
    let (listen, settings, config) = loaded;
    let telemetry = match Telemetry::start(P::NAME, &settings.traces) {
        Ok(telemetry) => telemetry,
        Err(error) => {
            telemetry::install_logs(&settings.log, Output::Stdout);
            tracing::error!(error = chain(&error), service = P::NAME, "failed to start service");
            return ExitCode::FAILURE;
        }
    };
    telemetry.install(&settings.log, Output::Stdout);
    for warning in unknown_names(environment, &P::variables()) {
        tracing::warn!("{warning}");
    }
    raise_file_limit();
    let tasks = Tasks::default();
    match serve::<P>(listen, &settings, config, &telemetry, &tasks).await {
        Ok(()) => tasks.run_until_shutdown().await,
        Err(error) => {
            tracing::error!(error = chain(&*error), service = P::NAME, "failed to start service");
            tasks.shut_down().await;
            ExitCode::FAILURE
        }
    }
}

/// Reads all variables, so that all errors are reported at once.
fn load<P: Program>(environment: &Environment) -> Result<Loaded<P>, ConfigErrors> {
    let mut reader = Reader::new(environment);
    let listen = if P::HAS_API { Listen::read(&mut reader).map(Some) } else { Some(None) };
    let (settings, config) = (ProcessSettings::read(&mut reader), P::Config::read(&mut reader));
    let apis = listen
        .iter()
        .flatten()
        .flat_map(|it| [(LISTEN.name, it.public), (LISTEN_INTERNAL.name, it.internal)]);
    let addresses: Vec<_> = apis.chain(settings.iter().map(|it| (LISTEN_ADMIN.name, it.admin))).collect();
    for (index, (name, address)) in addresses.iter().enumerate() {
        let is_same = |other: &SocketAddr| {
            let is_any = address.ip().is_unspecified() || other.ip().is_unspecified();
            address.port() != 0 && address.port() == other.port() && (is_any || address.ip() == other.ip())
        };
        for (other, _) in addresses[index + 1..].iter().filter(|(_, other)| is_same(other)) {
            reader.error(format!("{name} and {other} have the same port: use different ones"));
        }
    }
    reader.finish(|| Some((listen?, settings?, config?)))
}

/// The addresses of the APIs, if the service has any, and the other settings.
type Loaded<P> = (Option<Listen>, ProcessSettings, <P as Program>::Config);

async fn serve<P: Program>(
    listen: Option<Listen>,
    settings: &ProcessSettings,
    config: P::Config,
    telemetry: &Telemetry,
    tasks: &Tasks,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let readiness = Readiness::default();
    let started = readiness.gate("start");
    telemetry.flush_on_shutdown(tasks);
    // Bound first, so that a port in use is reported at once.
    let listen = match listen {
        Some(listen) => Some((bind(&LISTEN, listen.public).await?, listen.internal)),
        None => None,
    };
    let admin = bind(&LISTEN_ADMIN, settings.admin).await?;
    // Not drained with the others: health checks and scrapes continue during the drain.
    let admin_router = health::router(readiness.clone(), telemetry.metrics().clone());
    tasks.spawn("admin", http::serve(admin, admin_router, tasks.clone(), tasks.stopping().clone()));
    let public_health = health::readyz_router(readiness.clone());
    let routers = P::start(config, tasks, &readiness, telemetry).await?;
    let address = listen.as_ref().map(|(public, _)| public.local_addr()).transpose()?.map(display);
    tracing::info!(service = P::NAME, address, "service started");
    if let (Some((public, internal_address)), Some(routers)) = (listen, routers.into()) {
        if let Some(internal) = routers.internal {
            let listener = bind(&LISTEN_INTERNAL, internal_address).await?;
            let stop = tasks.draining().clone();
            tasks.spawn_listener(http::serve(listener, internal, tasks.clone(), stop));
        }
        let (tracked, metrics) = (tasks.clone(), telemetry.metrics().clone());
        tasks.spawn_listener(http::serve_public(
            public,
            public_health.merge(routers.public),
            routers.connections,
            tracked,
            metrics,
        ));
    }
    started.open();
    let draining = tasks.draining().clone();
    // A draining process is not ready, so that it gets no new requests.
    tasks.spawn_short(async move {
        draining.cancelled().await;
        started.close();
    });
    Ok(())
}

/// Binds a listener to the address of a variable.
///
/// # Errors
/// The address cannot be bound; the error names the variable.
pub async fn bind(variable: &Variable, address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("{}={address}: {error}", variable.name)))
}

/// Raises the soft limit of open files to the hard limit, because each connection needs a file descriptor. Service managers
/// set a low soft limit for programs that use `select`.
pub fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "failed to raise the limit of open files");
    }
}

/// Prints the errors of a configuration to standard error and returns the exit code.
pub fn report_config_errors(errors: &ConfigErrors) -> ExitCode {
    // Standard error can be closed; then there is no place to report to.
    let _ = write!(io::stderr(), "{errors}");
    ExitCode::from(EXIT_CONFIG)
}

/// Prints the error of a subcommand to standard error and returns the exit code.
fn report_failure(name: &str, error: Box<dyn Error + Send + Sync>) -> ExitCode {
    match error.downcast::<ConfigErrors>() {
        Ok(errors) => report_config_errors(&errors),
        Err(error) => {
            // Standard error can be closed; then there is no place to report to.
            let _ = writeln!(io::stderr(), "{name}: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

/// Returns the memory limit of the container in bytes, or `None` without a limit.
pub fn memory_limit() -> Option<u64> {
    // Version 2 of control groups, then version 1. "max" and the huge default of the kernel mean that there is no limit.
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok())
        .filter(|bytes| *bytes < 1 << 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_follow_the_cpus_of_the_process_not_those_of_the_machine() {
        assert_eq!((threads(None, 64), threads(Some(1), 64), threads(Some(4), 64)), (64, 2, 4));
        assert_eq!((threads(Some(1), 1), threads(Some(100), 8)), (1, 8));
    }

    #[test]
    fn a_process_runs_on_its_threads() {
        let workers = || tokio::runtime::Handle::current().metrics().num_workers();
        let code = block_on(3, async { ExitCode::from(u8::try_from(workers()).unwrap()) });
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(3)));
    }

    #[test]
    fn a_public_url_is_an_origin() {
        for good in ["https://svc.example", "http://127.0.0.1:8080", "https://[::1]:8080/"] {
            assert_eq!(parse_origin::<String>(good).as_deref(), Ok(good));
        }
        for bad in [
            "svc.example",
            "ftp://svc.example",
            "https://svc.example/path",
            "https://user@svc.example",
            "https://svc.example?a=b",
            "https://svc.example#a",
            "https://",
        ] {
            assert!(parse_origin::<String>(bad).is_err(), "{bad}");
        }
    }
}
