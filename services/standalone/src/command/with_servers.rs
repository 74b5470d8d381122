//! `svc-standalone with-servers`: a command beside servers that are thrown away when it ends. It leaves nothing behind,
//! and clears up after a run that was killed before it could.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process_group};
use service::config::Environment;
use service::telemetry::{self, Output};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::WithServers;
use crate::data_dir::{Claim, DataDir, Lock};
use crate::secret;
use crate::servers::{self, Durability, NatsUser, Role, Servers, ServersConfig, StartError};
use crate::signals::EndSignals;
use crate::tools::Tools;

const PREFIX: &str = "svc-servers-";
/// What a command that was told to end gets before it is ended by force.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn run(options: WithServers) -> anyhow::Result<ExitCode> {
    telemetry::start(Environment::from_process().get(telemetry::LOG.name).unwrap_or("warn"), Output::Stderr);
    let tools = Tools::load(&options.tools.path)?;
    let mut signals = EndSignals::catch()?;
    clear_leftovers(&std::env::temp_dir()).await?;
    let (data, _lock) = throwaway_directory(&std::env::temp_dir()).await?;
    let config = ServersConfig { tools, data, durability: Durability::Throwaway, account: None };
    let code = run_beside(&config, &options.command, &mut signals).await;
    config.data.remove().with_context(|| format!("cannot remove {}", config.data.root().display()))?;
    code
}

async fn run_beside(
    config: &ServersConfig,
    command: &[OsString],
    signals: &mut EndSignals,
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
            return Ok(code_of_signal(signal.as_raw()));
        }
    };
    let servers = started?;
    let status = run_command(command, test_variables(config, &servers), signals).await;
    servers.stop().await;
    let status = status.with_context(|| format!("cannot run {}", command[0].display()))?;
    Ok(status.code().map_or_else(
        || code_of_signal(status.signal().unwrap_or_default()),
        |code| ExitCode::from(u8::try_from(code).unwrap_or(1)),
    ))
}

/// What tests find the servers and programs by.
fn test_variables(config: &ServersConfig, servers: &Servers) -> Vec<(&'static str, OsString)> {
    let tools = &config.tools;
    let mut variables = vec![
        ("SVC_TEST_DATABASE_URL", servers.database_url(Role::Superuser, "postgres").into()),
        ("SVC_TEST_NATS_URL", servers.nats_url(NatsUser::Administrator).into()),
        ("SVC_TEST_NATS_SERVER", tools.nats_server.clone().into()),
        ("SVC_TEST_POSTGRES_BIN", tools.postgres_bin_dir.clone().into()),
    ];
    let optional = [
        ("SVC_TEST_CADDY", &tools.caddy),
        ("SVC_TEST_NATS_PY", &tools.nats_py_path),
        ("SVC_TEST_AIOSMTPD", &tools.aiosmtpd_path),
        ("SVC_TEST_SCHEMATHESIS", &tools.schemathesis_path),
        ("SVC_TEST_PYTHON", &tools.python),
    ];
    variables.extend(optional.into_iter().filter_map(|(name, path)| Some((name, path.clone()?.into()))));
    variables
}

/// Runs the command in a process group of its own, so that signals reach all of it and nothing of it stays.
async fn run_command(
    command: &[OsString],
    variables: Vec<(&'static str, OsString)>,
    signals: &mut EndSignals,
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
    // What the command has left behind; mostly there is nobody.
    let _ = kill_process_group(group, Signal::KILL);
    status
}

/// Waits for the command and hands on signals, the first politely.
async fn wait(child: &mut Child, group: Pid, signals: &mut EndSignals) -> io::Result<ExitStatus> {
    let signal = tokio::select! {
        status = child.wait() => return status,
        signal = signals.next() => signal,
    };
    let _ = kill_process_group(group, signal);
    tokio::select! {
        status = child.wait() => return status,
        _ = signals.next() => {}
        () = tokio::time::sleep(PATIENCE) => {}
    }
    let _ = kill_process_group(group, Signal::KILL);
    child.wait().await
}

/// As shells report a signal.
fn code_of_signal(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(1))
}

/// Makes a directory for one run. It gets its recognisable name only once it is locked, so that another run's
/// clearing up cannot take it for a leftover.
async fn throwaway_directory(temp: &Path) -> anyhow::Result<(DataDir, Lock)> {
    let name = &secret::fresh()[..12];
    let (part, whole) = (temp.join(format!("svc-new-{name}")), temp.join(format!("{PREFIX}{name}")));
    let data = DataDir::at(&part)?;
    data.create().with_context(|| format!("cannot make a directory in {}", temp.display()))?;
    let Claim::Ours(lock) = Lock::claim(&data.lock()).await? else {
        anyhow::bail!("{} is locked by somebody else", part.display())
    };
    std::fs::rename(&part, &whole)?;
    Ok((DataDir::at(&whole)?, lock))
}

/// Stops and removes what killed runs of this user have left.
async fn clear_leftovers(temp: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(temp)?.flatten() {
        let data = DataDir::at(&entry.path())?;
        // The temporary directory is everybody's: what another user may have put there is not touched.
        let named = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let ours = named && data.is_own() && data.lock().exists();
        if !ours {
            continue;
        }
        if let Ok(Claim::Ours(_lock)) = Lock::claim(&data.lock()).await {
            servers::clear_orphans(&data).await?;
            data.remove()?;
        }
    }
    Ok(())
}
