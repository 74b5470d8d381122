//! The system as a user starts it: `svc-standalone` as a process of its own, over data that are thrown away.
//!
//! A process rather than the services in this one: memory and processor time are then the services' own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use standalone::run_file::RunFile;
use tempfile::TempDir;

use crate::http::{Connection, request};

/// How long it may take until it answers, and until it has stopped.
const PATIENCE: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(20);
/// More than all rounds together put into the stream; the usual limit is meant for trying things out.
pub(crate) const STREAM_BYTES: &str = "8GiB";

/// All load comes from one address.
const LIMITS_OFF: [(&str, &str); 4] = [
    ("SVC_LIMIT_LOGIN", "off"),
    ("SVC_LIMIT_RESET", "off"),
    ("SVC_LIMIT_TOKEN", "off"),
    ("SVC_LIMIT_DEFAULT", "off"),
];

/// The running system. Dropping it stops it and removes its data.
pub(crate) struct System {
    child: Child,
    pub(crate) run_file: RunFile,
    pub(crate) address: SocketAddr,
    /// Removed last.
    _home: TempDir,
}

impl System {
    /// Starts it with its data in a new directory at that place.
    pub(crate) async fn start(program: &Path, tools: &Path, place: &Path) -> anyhow::Result<Self> {
        let home = tempfile::Builder::new().prefix("bench-").tempdir_in(place)?;
        let shown = home.path().join("run_file.json");
        let mut child = Command::new(program)
            .args(["up", "--port", "0", "--data"])
            .arg(home.path().join("data"))
            .arg("--run_file")
            .arg(&shown)
            .arg("--tools")
            .arg(tools)
            .env("SVC_STREAM_MAX_BYTES", STREAM_BYTES)
            .envs(LIMITS_OFF)
            // The load says where it comes from, where that matters.
            .env("SVC_TRUSTED_PROXIES", "127.0.0.0/8")
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        let run_file = match run_file(&mut child, &shown).await {
            Ok(run_file) => run_file,
            Err(error) => {
                stop(&mut child);
                return Err(error);
            }
        };
        let address = run_file.base_url.trim_start_matches("http://").parse()?;
        let system = Self { child, run_file, address, _home: home };
        system.takes_events().await?;
        Ok(system)
    }

    /// Waits until events can be accepted, which may come a moment later than logins.
    async fn takes_events(&self) -> anyhow::Result<()> {
        let ask = request("GET", "/api/v1/health", &[], b"");
        let mut connection = Connection::open(self.address).await?;
        let begun = Instant::now();
        while connection.exchange(&ask).await?.status != 200 {
            ensure!(begun.elapsed() < PATIENCE, "no events are accepted after {PATIENCE:?}");
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// The process of the services.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// Waits until the system can be used.
async fn run_file(child: &mut Child, shown: &Path) -> anyhow::Result<RunFile> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            bail!("svc-standalone ended by itself: {status}");
        }
        if let Ok(run_file) = RunFile::load(shown) {
            return Ok(run_file);
        }
        tokio::time::sleep(POLL).await;
    }
    bail!("svc-standalone is not ready after {PATIENCE:?}")
}

/// Asks the process to end, and insists after a while.
pub(crate) fn stop(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let begun = Instant::now();
    // A process that is gone needs no signal; whatever else goes wrong, it is killed below.
    let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
    while begun.elapsed() < PATIENCE {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(POLL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

impl Drop for System {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}
