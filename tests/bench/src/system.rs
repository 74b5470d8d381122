//! The measured system: `svc-standalone` with temporary data, as a separate process, so that memory and CPU time are those of
//! the services only.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use standalone::run_file::RunFile;
use tempfile::TempDir;
use testkit::LIMITS_OFF;

use crate::http::{Connection, request};

/// The time limit of start and stop.
const TIMEOUT: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(20);
/// A stream that is large enough for the events of three minutes, 120,000 per second, of one tenant.
pub(crate) const LARGE_STREAM: [(&str, &str); 2] =
    [("SVC_STREAM_MAX_BYTES", "18GiB"), ("SVC_TENANT_STREAM_SHARE", "100")];

/// The running system. Dropping it stops the process and removes the data.
pub(crate) struct System {
    child: Child,
    pub(crate) run_file: RunFile,
    pub(crate) address: SocketAddr,
    _home: TempDir,
}

/// Paths of the programs and of the data directories.
pub(crate) struct Launcher<'a> {
    /// `svc-standalone`.
    pub(crate) program: &'a Path,
    pub(crate) tools: &'a Path,
    /// The parent of the data directories.
    pub(crate) parent: &'a Path,
}

impl Launcher<'_> {
    /// Starts a system. Rate limits are off unless `variables`, which replace the defaults of the benchmark, set them.
    pub(crate) async fn start(&self, variables: &[(&str, &str)]) -> anyhow::Result<System> {
        let home = tempfile::Builder::new().prefix("bench-").tempdir_in(self.parent)?;
        let run_file_path = home.path().join("standalone.json");
        let mut child = Command::new(self.program)
            .args(["up", "--port", "0", "--data"])
            .arg(home.path().join("data"))
            .arg("--run-file")
            .arg(&run_file_path)
            .arg("--tools")
            .arg(self.tools)
            .envs(LIMITS_OFF)
            // Requests select their client address with X-Forwarded-For.
            .env("SVC_TRUSTED_PROXIES", "127.0.0.0/8")
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("failed to start {}", self.program.display()))?;
        let run_file = match wait_for_run_file(&mut child, &run_file_path).await {
            Ok(run_file) => run_file,
            Err(error) => {
                stop(&mut child);
                return Err(error);
            }
        };
        let name = run_file.base_url.trim_start_matches("http://").to_owned();
        let mut addresses = tokio::net::lookup_host(name).await?;
        let address = addresses.find(SocketAddr::is_ipv4).context("the system has no address")?;
        let system = System { child, run_file, address, _home: home };
        system.wait_until_events_are_accepted().await?;
        Ok(system)
    }
}

impl System {
    /// Waits until `/health` succeeds, which can be shortly after the run file is written.
    pub(crate) async fn wait_until_events_are_accepted(&self) -> anyhow::Result<()> {
        let health = request("GET", "/api/v1/health", &[], b"");
        let mut connection = Connection::open(self.address).await?;
        let started = Instant::now();
        while connection.exchange(&health).await?.status != 200 {
            ensure!(started.elapsed() < TIMEOUT, "/health fails after {TIMEOUT:?}");
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// A request with the token of the platform administrator.
    pub(crate) fn platform_request(&self, method: &str, path: &str, body: &[u8]) -> anyhow::Result<Vec<u8>> {
        let token = std::fs::read_to_string(&self.run_file.platform_token_file)?;
        let bearer = format!("Bearer {}", token.trim());
        Ok(request(method, path, &[("Authorization", &bearer)], body))
    }

    /// The process id of the services.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// Waits until the system is ready.
async fn wait_for_run_file(child: &mut Child, path: &Path) -> anyhow::Result<RunFile> {
    let started = Instant::now();
    while started.elapsed() < TIMEOUT {
        if let Some(status) = child.try_wait()? {
            bail!("svc-standalone exited: {status}");
        }
        if let Ok(run_file) = RunFile::load(path) {
            return Ok(run_file);
        }
        tokio::time::sleep(POLL).await;
    }
    bail!("svc-standalone is not ready after {TIMEOUT:?}")
}

/// Sends SIGTERM, and SIGKILL after the timeout.
pub(crate) fn stop(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let started = Instant::now();
    // An error is ignored: the process has exited, or it is killed below.
    let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
    while started.elapsed() < TIMEOUT {
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
