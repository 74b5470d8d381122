//! `svc-standalone up`: starts the servers, then the services, and writes the run file. Stops them in reverse order.

use std::convert::Infallible;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use devservers::{
    DataDir, Durability, Lock, LockAttempt, NatsUser, PostgresRole, Servers, ServersConfig, StartError, Tools,
};
use identity::FirstTenant;
use service::Tasks;
use service::config::{Environment, Variables as _};
use service::telemetry::{LOG, Output, Telemetry, TraceSettings};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{StopSignals, ToolsFile};
use crate::run_file::{self, RunFile, RunFiles, Summary};
use crate::services;
use crate::wiring::{self, DATABASE, StartOptions, StartedServices};

/// The data directory of a checkout.
pub(super) const DEFAULT_DATA: &str = ".dev/data";
/// The run file of a checkout.
pub(super) const DEFAULT_RUN_FILE: &str = ".dev/standalone.json";

#[derive(Debug, Args)]
pub(super) struct Up {
    /// Port of the public API on 127.0.0.1; 0 selects a free port
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Directory for all data
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA)]
    data: PathBuf,
    /// File with the addresses and credentials of this run, for scripts
    #[arg(long, value_name = "FILE", default_value = DEFAULT_RUN_FILE)]
    run_file: PathBuf,
    #[command(flatten)]
    tools: ToolsFile,
}

impl Up {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let environment = Environment::from_process();
        if let Err(errors) = wiring::check(&environment) {
            return Ok(service::process::report_config_errors(&errors));
        }
        // Only warnings by default: the output of `up` is for people.
        let telemetry = Telemetry::start("standalone", &TraceSettings::load(&environment)?)?;
        telemetry.install(environment.get(LOG.name).unwrap_or("warn"), Output::Stderr);
        let data = DataDir::at(&self.data)?;
        if data.root().is_file() {
            anyhow::bail!("{} is a file; --data (make up DATA=…) must be a directory", data.root().display());
        }
        data.create()
            .with_context(|| format!("failed to create the data directory {}", data.root().display()))?;
        let _lock = match Lock::try_acquire(&data.lock()).await? {
            LockAttempt::Acquired(lock) => lock,
            LockAttempt::Held { pid } => {
                print_already_running(&data, pid, self.port);
                return Ok(ExitCode::SUCCESS);
            }
        };
        service::process::raise_file_limit();
        let listener = listen(self.port).await?;
        let tasks = Tasks::default();
        stop_on_signal(&tasks)?;
        let (run_files, _run_file_lock) = claim_run_files(&data, &self.run_file).await?;
        let config = ServersConfig {
            tools: Tools::load(&self.tools.path)?,
            data: data.clone(),
            durability: Durability::Persistent,
            account: None,
        };
        print("Starting Postgres and nats-server …");
        let servers = match Servers::start(&config, tasks.draining()).await {
            Err(StartError::Cancelled) => return Ok(ExitCode::SUCCESS),
            started => started?,
        };
        print("Starting the services …");
        let served = serve(&servers, &data, &environment, &telemetry, listener, &tasks, &run_files).await;
        // Before the servers stop, so that no script reads addresses that are no longer valid.
        drop(run_files);
        if served.is_err() {
            tasks.shut_down().await;
        }
        servers.stop().await;
        print(format_args!("Stopped. The data are kept in {}", data.root().display()));
        served
    }
}

/// Prints to standard output. A closed terminal is not an error: the shutdown must complete without it.
pub(super) fn print(text: impl Display) {
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

/// Runs the services until a signal or an error.
async fn serve(
    servers: &Servers,
    data: &DataDir,
    environment: &Environment,
    telemetry: &Telemetry,
    public: TcpListener,
    tasks: &Tasks,
    run_files: &RunFiles,
) -> anyhow::Result<ExitCode> {
    // A host name: browsers have no passkeys at an IP address.
    let base_url = format!("http://localhost:{}", public.local_addr()?.port());
    let options = StartOptions { servers, data, environment, telemetry, public, base_url: &base_url };
    let StartedServices { invite_token, admin_url } = wiring::start(options, tasks).await?;
    let program = std::env::current_exe()?;
    let base = RunFile {
        base_url,
        nats_url: servers.nats_url(NatsUser::Administrator),
        audit_nats_url: servers.nats_url(NatsUser::AuditAdministrator),
        database_url: servers.database_url(PostgresRole::Superuser, DATABASE),
        platform_token_file: wiring::platform_token_file(data),
        tenant: FirstTenant::ID.to_owned(),
        admin_email: FirstTenant::ADMINISTRATOR.to_owned(),
        admin_invite_token: None,
        mail_dir: data.mails(),
        svc: program.with_file_name("svc"),
        pid: std::process::id(),
        children: *servers.pids().borrow(),
    };
    let run_file = current(&base, servers, &invite_token);
    run_files.write(&run_file)?;
    print(Summary {
        run_file: &run_file,
        run_file_path: run_files.primary(),
        data: data.root(),
        admin_url: &admin_url,
        sends_mails: services::sends_mails(environment),
    });
    tokio::select! {
        code = tasks.run_until_shutdown() => Ok(code),
        never = update_run_files(base, servers, invite_token, run_files) => match never {},
    }
}

/// The run file with the current process ids and invite.
fn current(base: &RunFile, servers: &Servers, invite_token: &watch::Receiver<Option<String>>) -> RunFile {
    RunFile {
        admin_invite_token: invite_token.borrow().clone(),
        children: *servers.pids().borrow(),
        ..base.clone()
    }
}

/// Rewrites the run files after each change.
async fn update_run_files(
    base: RunFile,
    servers: &Servers,
    mut invite_token: watch::Receiver<Option<String>>,
    files: &RunFiles,
) -> Infallible {
    let mut pids = servers.pids();
    loop {
        // A branch is disabled when its sender is dropped.
        tokio::select! {
            Ok(()) = pids.changed() => {}
            Ok(()) = invite_token.changed() => {}
            else => std::future::pending().await,
        }
        if let Err(error) = files.write(&current(&base, servers, &invite_token)) {
            tracing::warn!(%error, "failed to write run file");
        }
    }
}

/// Binds the public port before anything is started, so that a taken port is reported immediately.
async fn listen(port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.with_context(|| {
        format!("failed to listen on 127.0.0.1:{port}; select another port with --port (make up PORT=…)")
    })
}

/// Starts the shutdown at the first signal. [`Tasks::run_until_shutdown`] handles the second one.
fn stop_on_signal(tasks: &Tasks) -> anyhow::Result<()> {
    let mut signals = StopSignals::install()?;
    let tasks = tasks.clone();
    tasks.clone().tracker().spawn(async move {
        let shutdown = async {
            signals.next().await;
            tasks.draining().cancel();
            print("\nStopping …");
            tasks.stopping().cancelled().await;
        };
        tokio::select! { () = shutdown => {}, () = tasks.stopping().cancelled() => {} }
    });
    Ok(())
}

/// The run files of this run: one in the data directory, and `path` unless another run uses it.
async fn claim_run_files(data: &DataDir, path: &Path) -> anyhow::Result<(RunFiles, Option<Lock>)> {
    let path = std::path::absolute(path)?;
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let own = data.run_file();
    match Lock::try_acquire(&run_file::lock_path(&path)).await? {
        LockAttempt::Acquired(lock) => Ok((RunFiles::claim(vec![path, own]), Some(lock))),
        LockAttempt::Held { pid } => {
            let pid = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
            let (path, own_path) = (path.display(), own.display());
            print(format_args!("{path} belongs to another run{pid}; the run file of this run is {own_path}"));
            Ok((RunFiles::claim(vec![own]), None))
        }
    }
}

fn print_already_running(data: &DataDir, pid: Option<i32>, port: u16) {
    let process = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    let Ok(run_file) = RunFile::load(&data.run_file()) else {
        print(format_args!("Another run{process} is starting or stopping in {}", data.root().display()));
        return;
    };
    print(format_args!("Already running at {}{process}", run_file.base_url));
    if !run_file.base_url.ends_with(&format!(":{port}")) {
        print(format_args!(
            "Port {port} is not used. To start a second system, also select another data directory: make up PORT={port} DATA=…"
        ));
    }
    print(format_args!("  data      {}", data.root().display()));
    print(format_args!("  run file  {}", data.run_file().display()));
    print(format_args!(
        "Stop it with Ctrl-C in its terminal or with: make down DATA={}",
        data.root().display()
    ));
}
