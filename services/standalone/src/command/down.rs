//! `svc-standalone down`: stops a running `up`, and removes its data on request.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use devservers::{DataDir, Lock, LockAttempt};
use rustix::process::{Pid, Signal, kill_process};

use super::up::{DEFAULT_DATA, DEFAULT_RUN_FILE, print};
use crate::run_file;

/// Covers the time limits of draining, of stopping the services and of the shutdown of Postgres.
const STOP_TIMEOUT: Duration = Duration::from_secs(90);

#[derive(Debug, Args)]
pub(super) struct Down {
    /// Data directory of the run to stop [default: the runs of .dev/data and .dev/standalone.json]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Also remove the data
    #[arg(long)]
    remove: bool,
}

impl Down {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let data = DataDir::at(self.data.as_deref().unwrap_or(Path::new(DEFAULT_DATA)))?;
        let mut locks = vec![data.lock()];
        if self.data.is_none() {
            locks.push(run_file::lock_path(Path::new(DEFAULT_RUN_FILE)));
        }
        let mut stopped = false;
        for lock in &locks {
            stopped |= stop_holder(lock).await?;
        }
        if !stopped {
            print("Nothing is running.");
        }
        if self.remove {
            remove(&data).await?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Stops the run that holds the lock. Returns false if no process holds it.
async fn stop_holder(lock: &Path) -> anyhow::Result<bool> {
    // Only a running process holds a lock, so the id cannot belong to another process.
    let Some(pid) = Lock::holder(lock)?.and_then(Pid::from_raw) else {
        return Ok(false);
    };
    print(format_args!("Stopping process {} …", pid.as_raw_pid()));
    kill_process(pid, Signal::TERM)
        .with_context(|| format!("failed to stop process {}", pid.as_raw_pid()))?;
    match Lock::wait_for_release(lock, STOP_TIMEOUT).await {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            bail!("process {} is still running after {} s", pid.as_raw_pid(), STOP_TIMEOUT.as_secs())
        }
        result => result?,
    }
    print("Stopped.");
    Ok(true)
}

/// Stops servers that a killed run left behind, and removes the data.
async fn remove(data: &DataDir) -> anyhow::Result<()> {
    if !data.lock().exists() {
        return Ok(());
    }
    let LockAttempt::Acquired(_lock) = Lock::try_acquire(&data.lock()).await? else {
        bail!("another process uses {}; stop it first", data.root().display())
    };
    devservers::stop_orphans(data).await?;
    data.remove().with_context(|| format!("failed to remove {}", data.root().display()))?;
    print(format_args!("Removed {}", data.root().display()));
    Ok(())
}
