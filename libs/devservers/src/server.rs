//! Starts a server, waits until it responds, and restarts it when it exits.
//!
//! Its port on loopback stays the same from run to run while it is free. Ports are below the ephemeral port range, so that no
//! outgoing connection takes the port of a server that restarts.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use hashing::{Entropy as _, SystemEntropy};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::process::{ServerProcess, StopStep, stop_orphan};

/// Long because Postgres may replay a lot of WAL after a crash.
const START_TIMEOUT: Duration = Duration::from_mins(2);
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
const MIN_BACK_OFF: Duration = Duration::from_millis(100);
const MAX_BACK_OFF: Duration = Duration::from_secs(10);
/// A server that ran this long resets the back-off.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The start was cancelled.
    #[error("the start was cancelled")]
    Cancelled,
    /// The process exited.
    #[error("{0}")]
    Exited(String),
    /// Another error.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

/// A kind of server.
pub(crate) trait Server: Send + Sync + 'static {
    /// The name in messages.
    const NAME: &'static str;
    /// The signals that stop it.
    const STOP: &'static [StopStep];

    /// The command that runs it in the foreground.
    fn command(&self) -> Command;
    /// The files and the port of this instance.
    fn instance(&self) -> &Instance;
    /// Returns whether it responds to a request.
    fn is_responding(&self) -> impl Future<Output = bool> + Send;
}

/// The files and the port of one instance of a server.
pub(crate) struct Instance {
    /// The file for its output.
    pub(crate) log: PathBuf,
    /// The file that contains its process id.
    pub(crate) pid_file: PathBuf,
    /// Arguments that no other process has.
    pub(crate) identifying_arguments: String,
    /// The port that it listens on.
    pub(crate) port: StoredPort,
    /// The port with its statistics, if it has one.
    pub(crate) monitor: Option<StoredPort>,
}

impl Instance {
    /// Changes the ports that another process has taken. Returns whether there is one.
    fn change_taken_ports(&self) -> io::Result<bool> {
        let ports = [Some(&self.port), self.monitor.as_ref()].into_iter().flatten();
        let taken: Vec<_> = ports.filter(|port| port.is_taken()).collect();
        taken.iter().try_for_each(|port| port.change())?;
        Ok(!taken.is_empty())
    }
}

/// A server that responds, and its process.
pub(crate) struct RunningServer<S> {
    pub(crate) server: Arc<S>,
    process: ServerProcess,
}

impl<S: Server> RunningServer<S> {
    pub(crate) fn pid(&self) -> i32 {
        self.process.pid().as_raw_pid()
    }

    pub(crate) async fn stop(self) {
        self.process.stop(S::STOP).await;
    }
}

/// Starts a server for the first time. Changes its port if another process has taken it.
pub(crate) async fn start<S: Server>(
    server: S,
    cancel: &CancellationToken,
) -> Result<RunningServer<S>, StartError> {
    let mut attempts = 5;
    loop {
        attempts -= 1;
        match launch(&server, cancel).await {
            Ok(process) => {
                return Ok(RunningServer { server: Arc::new(server), process });
            }
            Err(error @ StartError::Exited(_)) if attempts > 0 => {
                if !server.instance().change_taken_ports().context("failed to find a free port")? {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Restarts a server whenever it exits, on the same port and data, and passes the new process id to `on_restart`. Stops it
/// after `stop` is cancelled.
pub(crate) async fn supervise<S: Server>(
    running: RunningServer<S>,
    stop: CancellationToken,
    on_restart: impl Fn(i32),
) {
    let RunningServer { server, mut process } = running;
    let mut back_off = MIN_BACK_OFF;
    loop {
        let started_at = Instant::now();
        tokio::select! {
            () = stop.cancelled() => return process.stop(S::STOP).await,
            status = process.wait() => {
                tracing::warn!(server = S::NAME, status = ?status.ok(), "server exited; restarting");
            }
        }
        if started_at.elapsed() > STABLE_AFTER {
            back_off = MIN_BACK_OFF;
        }
        process = match relaunch(&*server, &stop, &mut back_off).await {
            Some(process) => process,
            None => return,
        };
        on_restart(process.pid().as_raw_pid());
        tracing::info!(server = S::NAME, pid = process.pid().as_raw_pid(), "server restarted");
    }
}

/// Retries until the server responds. `None` after `stop` is cancelled.
async fn relaunch<S: Server>(
    server: &S,
    stop: &CancellationToken,
    back_off: &mut Duration,
) -> Option<ServerProcess> {
    loop {
        stop.run_until_cancelled(tokio::time::sleep(*back_off)).await?;
        *back_off = (*back_off * 2).min(MAX_BACK_OFF);
        match launch(server, stop).await {
            Ok(process) => return Some(process),
            Err(StartError::Cancelled) => return None,
            Err(error) => tracing::warn!(server = S::NAME, %error, "failed to restart server; retrying"),
        }
    }
}

/// Starts the process and waits until it responds. On an error no process is left running.
async fn launch<S: Server>(server: &S, cancel: &CancellationToken) -> Result<ServerProcess, StartError> {
    let Instance { log, pid_file, identifying_arguments, .. } = server.instance();
    stop_orphan(pid_file, identifying_arguments, S::STOP)
        .await
        .with_context(|| format!("failed to stop the {} of an earlier run", S::NAME))?;
    let mut process = ServerProcess::spawn(server.command(), log)
        .with_context(|| format!("failed to start {}", S::NAME))?;
    let error = tokio::select! {
        () = cancel.cancelled() => StartError::Cancelled,
        status = process.wait() => {
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            StartError::Exited(format!("{} exited while starting ({status}); {}", S::NAME, process.log_tail()))
        }
        responded = tokio::time::timeout(START_TIMEOUT, wait_until_responding(server)) => {
            if responded.is_ok() {
                return Ok(process);
            }
            let seconds = START_TIMEOUT.as_secs();
            anyhow!("{} did not respond within {seconds} s; {}", S::NAME, process.log_tail()).into()
        }
    };
    process.stop(S::STOP).await;
    Err(error)
}

async fn wait_until_responding<S: Server>(server: &S) {
    while !server.is_responding().await {
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
}

const FIRST_PORT: u16 = 18_000;
const PORT_COUNT: u16 = 12_000;

/// A port number that is stored in a file.
#[derive(Debug)]
pub(crate) struct StoredPort {
    file: PathBuf,
    number: AtomicU16,
}

impl StoredPort {
    /// The port of the last run if it is free, else another one.
    pub(crate) fn load(file: PathBuf) -> io::Result<Self> {
        let last = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
        let port = Self { file, number: 0.into() };
        match last {
            Some(last) if is_free(last) => port.number.store(last, Relaxed),
            _ => port.change()?,
        }
        Ok(port)
    }

    pub(crate) fn number(&self) -> u16 {
        self.number.load(Relaxed)
    }

    /// Returns whether another process listens on the port.
    pub(crate) fn is_taken(&self) -> bool {
        !is_free(self.number())
    }

    /// Selects and stores another free port.
    pub(crate) fn change(&self) -> io::Result<()> {
        let number = (0..1000).map(|_| random_port()).find(|port| is_free(*port));
        let number = number.ok_or_else(|| io::Error::other("no free port on 127.0.0.1 in 18000 to 29999"))?;
        std::fs::write(&self.file, number.to_string())?;
        self.number.store(number, Relaxed);
        Ok(())
    }
}

fn random_port() -> u16 {
    let mut bytes = [0_u8; 2];
    SystemEntropy.fill(&mut bytes);
    FIRST_PORT + u16::from_le_bytes(bytes) % PORT_COUNT
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_port_is_reused_until_another_process_takes_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("port");
        let first = StoredPort::load(file.clone()).unwrap().number();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), first.to_string());
        let Ok(taken) = TcpListener::bind((Ipv4Addr::LOCALHOST, first)) else {
            return;
        };
        let second = StoredPort::load(file.clone()).unwrap();
        assert_ne!(second.number(), first);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), second.number().to_string());
        drop(taken);
    }
}
