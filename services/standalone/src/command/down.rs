//! `svc-standalone down`: asks a run to end, as Ctrl-C there would, and waits until it has.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::{Down, USUAL_DATA, USUAL_FACTS, up};
use crate::data_dir::{Claim, DataDir, Lock};
use crate::say::say;
use crate::servers;

/// Draining, stopping and Postgres' shutdown each have their own budget within it.
const PATIENCE: Duration = Duration::from_secs(90);

pub(super) async fn run(options: Down) -> anyhow::Result<ExitCode> {
    let data = DataDir::at(options.data.as_deref().unwrap_or(Path::new(USUAL_DATA)))?;
    let mut locks = vec![data.lock()];
    if options.data.is_none() {
        locks.push(up::lock_of(Path::new(USUAL_FACTS)));
    }
    let mut stopped = false;
    for lock in &locks {
        stopped |= stop_holder(lock).await?;
    }
    if !stopped {
        say("nothing runs here");
    }
    if options.remove {
        remove(&data).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Stops the run that holds the lock; false when there is none.
async fn stop_holder(lock: &Path) -> anyhow::Result<bool> {
    // A lock is held by a living process only, so its id is not yet anybody else's.
    let Some(pid) = Lock::holder(lock)?.and_then(Pid::from_raw) else {
        return Ok(false);
    };
    say(format_args!("stopping pid {} …", pid.as_raw_pid()));
    kill_process(pid, Signal::TERM).with_context(|| format!("cannot stop pid {}", pid.as_raw_pid()))?;
    match Lock::released(lock, PATIENCE).await {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            bail!("pid {} still runs after {} s", pid.as_raw_pid(), PATIENCE.as_secs())
        }
        waited => waited?,
    }
    say("stopped");
    Ok(true)
}

/// Removes the data, and before them what a killed run may have left running on them.
async fn remove(data: &DataDir) -> anyhow::Result<()> {
    if !data.lock().exists() {
        return Ok(());
    }
    let Claim::Ours(_lock) = Lock::claim(&data.lock()).await? else {
        bail!("somebody else uses the data now")
    };
    servers::clear_orphans(data).await?;
    data.remove().with_context(|| format!("cannot remove {}", data.root().display()))?;
    say(format_args!("removed {}", data.root().display()));
    Ok(())
}
