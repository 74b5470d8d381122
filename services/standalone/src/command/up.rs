//! `svc-standalone up`: servers, then services, then the run_file; at the end all of it backwards.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use service::Tasks;
use service::config::Environment;
use service::telemetry::{self, Output};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::Up;
use crate::contexts;
use crate::data_dir::{Claim, DataDir, Lock};
use crate::first_tenant::FirstTenant;
use crate::greeting::Greeting;
use crate::run_file::{RunFile, RunFiles};
use crate::say::say;
use crate::servers::{Durability, NatsUser, Role, Servers, ServersConfig, StartError};
use crate::signals::EndSignals;
use crate::tools::Tools;
use crate::wiring::{self, DATABASE, Running, StartContext};

pub(super) async fn run(options: Up) -> anyhow::Result<ExitCode> {
    let environment = Environment::from_process();
    // People read this terminal: nothing but trouble is logged, unless it is asked for.
    telemetry::start(environment.get(telemetry::LOG.name).unwrap_or("warn"), Output::Stderr);
    let data = DataDir::at(&options.data)?;
    if data.root().is_file() {
        anyhow::bail!("{} is a file; DATA must name a directory", data.root().display());
    }
    data.create().with_context(|| format!("cannot use the data directory {}", data.root().display()))?;
    let _lock = match Lock::claim(&data.lock()).await? {
        Claim::Ours(lock) => lock,
        Claim::Held { pid } => {
            tell_running(&data, pid, options.port);
            return Ok(ExitCode::SUCCESS);
        }
    };
    let listener = listen(options.port).await?;
    let tasks = Tasks::default();
    stop_at_signal(&tasks)?;
    let (facts_files, _facts_lock) = facts_files(&data, &options.run_file).await?;
    let config = ServersConfig {
        tools: Tools::load(&options.tools.path)?,
        data: data.clone(),
        durability: Durability::Kept,
        account: None,
    };
    say("starting Postgres and nats-server …");
    let servers = match Servers::start(&config, tasks.draining()).await {
        Err(StartError::Cancelled) => return Ok(ExitCode::SUCCESS),
        started => started?,
    };
    say("starting the services …");
    let served = serve(&servers, &data, &environment, listener, &tasks, &facts_files).await;
    // Nobody shall find run_file that no longer hold.
    drop(facts_files);
    if served.is_err() {
        tasks.shut_down().await;
    }
    servers.stop().await;
    say(format_args!("stopped; the data stay in {}", data.root().display()));
    served
}

/// Runs the services until a signal or a failure.
async fn serve(
    servers: &Servers,
    data: &DataDir,
    environment: &Environment,
    public: TcpListener,
    tasks: &Tasks,
    facts_files: &RunFiles,
) -> anyhow::Result<ExitCode> {
    let base_url = format!("http://{}", public.local_addr()?);
    let platform_token_file = wiring::platform_token_file(data);
    let surroundings = StartContext { servers, data, environment, public, base_url: &base_url };
    let Running { first_tenant, admin_url } = wiring::start(surroundings, tasks).await?;
    let program = std::env::current_exe()?;
    let base = RunFile {
        base_url,
        nats_url: servers.nats_url(NatsUser::Administrator),
        database_url: servers.database_url(Role::Superuser, DATABASE),
        platform_token_file,
        tenant: String::new(),
        admin_email: String::new(),
        admin_invite_token: None,
        mail_dir: data.mails(),
        svc: program.with_file_name("svc"),
        pid: std::process::id(),
        children: *servers.pids().borrow(),
    };
    let run_file = current(&base, servers, &first_tenant);
    facts_files.show(&run_file)?;
    say(Greeting {
        run_file: &run_file,
        facts_file: facts_files.first(),
        data: data.root(),
        admin_url: &admin_url,
        sends_mails: contexts::sends_mails(environment),
    });
    tokio::select! {
        code = tasks.run_until_shutdown() => Ok(code),
        never = keep_current(base, servers, first_tenant, facts_files) => match never {},
    }
}

/// The run_file as they are now.
fn current(base: &RunFile, servers: &Servers, first_tenant: &watch::Receiver<FirstTenant>) -> RunFile {
    let first = first_tenant.borrow().clone();
    RunFile {
        tenant: first.tenant,
        admin_email: first.admin_email,
        admin_invite_token: first.invite_token,
        children: *servers.pids().borrow(),
        ..base.clone()
    }
}

/// Shows the run_file again whenever one changes.
async fn keep_current(
    base: RunFile,
    servers: &Servers,
    mut first_tenant: watch::Receiver<FirstTenant>,
    files: &RunFiles,
) -> Infallible {
    let mut pids = servers.pids();
    loop {
        // A sender that is gone changes nothing any more.
        tokio::select! {
            Ok(()) = pids.changed() => {}
            Ok(()) = first_tenant.changed() => {}
            else => std::future::pending().await,
        }
        if let Err(error) = files.show(&current(&base, servers, &first_tenant)) {
            tracing::warn!(%error, "the run_file cannot be shown");
        }
    }
}

/// Takes the public port before anything is started, so that a taken one is told at once.
async fn listen(port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.with_context(|| {
        format!("port {port} of 127.0.0.1 cannot be used; choose another: make up PORT=…, or --port")
    })
}

/// The first signal ends the run in order. [`Tasks::run_until_shutdown`] sees to a second one.
fn stop_at_signal(tasks: &Tasks) -> anyhow::Result<()> {
    let mut signals = EndSignals::catch()?;
    let tasks = tasks.clone();
    tasks.clone().tracker().spawn(async move {
        let told = async {
            signals.next().await;
            tasks.draining().cancel();
            say("\nstopping …");
            tasks.stopping().cancelled().await;
        };
        tokio::select! { () = told => {}, () = tasks.stopping().cancelled() => {} }
    });
    Ok(())
}

/// The files for this run's run_file: its own below the data directory, and the usual one unless another run has it.
async fn facts_files(data: &DataDir, usual: &Path) -> anyhow::Result<(RunFiles, Option<Lock>)> {
    let usual = std::path::absolute(usual)?;
    if let Some(parent) = usual.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let own = data.run_file();
    match Lock::claim(&lock_of(&usual)).await? {
        Claim::Ours(lock) => Ok((RunFiles::own(vec![usual, own]), Some(lock))),
        Claim::Held { pid } => {
            let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
            say(format_args!(
                "{} belongs to another run{pid}; this one's run_file: {}",
                usual.display(),
                own.display()
            ));
            Ok((RunFiles::own(vec![own]), None))
        }
    }
}

/// The lock of whoever shows run_file in that file.
pub(super) fn lock_of(run_file: &Path) -> PathBuf {
    run_file.with_extension("lock")
}

fn tell_running(data: &DataDir, pid: Option<i32>, port: u16) {
    let pid = pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
    match RunFile::load(&data.run_file()) {
        Ok(run_file) => {
            say(format_args!("already running at {}{pid}", run_file.base_url));
            if !run_file.base_url.ends_with(&format!(":{port}")) {
                say(format_args!(
                    "port {port} is not used: name other data too to run a second one (make up PORT=… DATA=…)"
                ));
            }
            say(format_args!("  data   {}", data.root().display()));
            say(format_args!("  run_file  {}", data.run_file().display()));
            say("Stop it with Ctrl-C there or `make down` here.");
        }
        Err(_) => say(format_args!("already starting or stopping in {}{pid}", data.root().display())),
    }
}
