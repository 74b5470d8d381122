//! `svc-standalone with-servers`: runs a command with temporary servers and removes them afterwards. Also removes what an
//! earlier run that was killed left behind.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::Context as _;
use devservers::{
    Durability, NatsUser, PostgresRole, Servers, ServersConfig, StartError, Tools, create_temporary_directory,
};
use rustix::process::{Pid, Signal, kill_process_group};
use service::config::Environment;
use service::telemetry::{self, Output};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::{StopSignals, WithServers};

/// The time between the first signal to the command and SIGKILL.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn run(options: WithServers) -> anyhow::Result<ExitCode> {
    telemetry::install_logs(
        Environment::from_process().get(telemetry::LOG.name).unwrap_or("warn"),
        Output::Stderr,
    );
    let tools = Tools::load(&options.tools.path)?;
    let mut signals = StopSignals::install()?;
    let (data, _lock) = create_temporary_directory().await?;
    let config = ServersConfig { tools, data, durability: Durability::Temporary, account: None };
    let code = run_with_servers(&config, &options.command, &mut signals).await;
    config.data.remove().with_context(|| format!("failed to remove {}", config.data.root().display()))?;
    code
}

async fn run_with_servers(
    config: &ServersConfig,
    command: &[OsString],
    signals: &mut StopSignals,
) -> anyhow::Result<ExitCode> {
    let cancel = CancellationToken::new();
    let starting = Servers::start(config, &cancel);
    tokio::pin!(starting);
    let started = tokio::select! {
        started = &mut starting => started,
        signal = signals.next() => {
            cancel.cancel();
            match starting.await {
                Ok(servers) => servers.stop().await,
                Err(StartError::Cancelled) => {}
                Err(error) => return Err(error.into()),
            }
            return Ok(signal_exit_code(signal.as_raw()));
        }
    };
    let servers = started?;
    let status = run_command(command, test_variables(config, &servers), signals).await;
    servers.stop().await;
    let status = status.with_context(|| format!("failed to run {}", command[0].display()))?;
    Ok(status.code().map_or_else(
        || signal_exit_code(status.signal().unwrap_or_default()),
        |code| ExitCode::from(u8::try_from(code).unwrap_or(1)),
    ))
}

/// The variables by which tests find servers and programs.
fn test_variables(config: &ServersConfig, servers: &Servers) -> Vec<(&'static str, OsString)> {
    let tools = &config.tools;
    let mut variables = vec![
        ("SVC_TEST_DATABASE_URL", servers.database_url(PostgresRole::Superuser, "postgres").into()),
        ("SVC_TEST_NATS_URL", servers.nats_url(NatsUser::Administrator).into()),
        ("SVC_TEST_NATS_SERVER", tools.nats_server.clone().into()),
        ("SVC_TEST_POSTGRES_BIN", tools.postgres_bin_dir.clone().into()),
    ];
    let optional = [
        ("SVC_TEST_CADDY", &tools.caddy),
        ("SVC_TEST_NATS_PY", &tools.nats_py_path),
        ("SVC_TEST_AIOSMTPD", &tools.aiosmtpd_path),
        ("SVC_TEST_SCHEMATHESIS", &tools.schemathesis_path),
        ("SVC_TEST_CLIENT_GENERATOR", &tools.client_generator_path),
        ("SVC_TEST_PYTHON", &tools.python),
    ];
    variables.extend(optional.into_iter().filter_map(|(name, path)| Some((name, path.clone()?.into()))));
    variables
}

/// Runs the command in its own process group, so that signals reach all its processes and none is left.
async fn run_command(
    command: &[OsString],
    variables: Vec<(&'static str, OsString)>,
    signals: &mut StopSignals,
) -> io::Result<ExitStatus> {
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .envs(variables)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let group = group.ok_or_else(|| io::Error::other("the command has no process id"))?;
    let status = wait(&mut child, group, signals).await;
    // Fails if no process of the group is left, which is the usual case.
    let _ = kill_process_group(group, Signal::KILL);
    status
}

/// Waits for the command. Forwards the first signal; the second one, or the timeout, kills the command.
async fn wait(child: &mut Child, group: Pid, signals: &mut StopSignals) -> io::Result<ExitStatus> {
    let signal = tokio::select! {
        status = child.wait() => return status,
        signal = signals.next() => signal,
    };
    let _ = kill_process_group(group, signal);
    tokio::select! {
        status = child.wait() => return status,
        _ = signals.next() => {}
        () = tokio::time::sleep(STOP_TIMEOUT) => {}
    }
    let _ = kill_process_group(group, Signal::KILL);
    child.wait().await
}

/// The exit code by which a shell reports a signal.
fn signal_exit_code(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(1))
}
