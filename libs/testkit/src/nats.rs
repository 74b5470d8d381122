//! A real nats-server of a test's own, with `JetStream`, on a free port of loopback; it dies with the test.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::bail;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::guarded;

/// How long a server may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// A running server; stopped, with its data deleted, when dropped.
pub struct NatsServer {
    /// Where clients connect.
    pub url: String,
    port: u16,
    guard: Option<Child>,
    home: TempDir,
}

impl NatsServer {
    /// Starts the binary that `SVC_TEST_NATS_SERVER` names, or else `nats-server` of the path.
    pub async fn start() -> anyhow::Result<Self> {
        let home = tempfile::Builder::new().prefix("nats-").tempdir()?;
        let guard = spawn(home.path(), "-1")?;
        let mut server = Self { url: String::new(), port: 0, guard: Some(guard), home };
        server.port = server.announced_port().await?;
        server.url = format!("nats://127.0.0.1:{}", server.port);
        Ok(server)
    }

    /// Kills the server (SIGKILL) and waits until it is gone. Its data stay.
    pub fn stop(&mut self) {
        if let Some(guard) = self.guard.take() {
            guarded::stop(guard);
        }
    }

    /// Freezes the server (SIGSTOP): it keeps its connections and answers nothing.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal("STOP")?;
        let deadline = Instant::now() + START_LIMIT;
        // The signal is on its way when `kill` returns, and a thread on another core still runs for a moment.
        while !self.is_stopped()? {
            if Instant::now() > deadline {
                bail!("nats-server does not stop");
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Whether no thread runs any more; where the kernel does not tell, it is taken for granted.
    fn is_stopped(&self) -> anyhow::Result<bool> {
        let pid = std::fs::read_to_string(self.home.path().join("pid"))?;
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", pid.trim())) else {
            return Ok(true);
        };
        let states =
            threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("stat")).ok());
        Ok(states.into_iter().all(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))))
    }

    /// Lets a frozen server go on.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, signal: &str) -> anyhow::Result<()> {
        let pid = std::fs::read_to_string(self.home.path().join("pid"))?;
        let status = Command::new("kill").args(["-s", signal, pid.trim()]).status()?;
        if status.success() { Ok(()) } else { bail!("kill -s {signal} {pid}: {status}") }
    }

    /// Starts the server again, on the same port and data, killing it first if it runs.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.stop();
        self.guard = Some(spawn(self.home.path(), &self.port.to_string())?);
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            self.give_up_after(deadline)?;
            sleep(POLL).await;
        }
        Ok(())
    }

    /// The port that the server chose, from the file that it writes once it listens.
    async fn announced_port(&self) -> anyhow::Result<u16> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(port) = read_port(self.home.path()) {
                return Ok(port);
            }
            self.give_up_after(deadline)?;
            sleep(POLL).await;
        }
    }

    fn give_up_after(&self, deadline: Instant) -> anyhow::Result<()> {
        if Instant::now() > deadline {
            let log = std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
            bail!("nats-server does not listen; set SVC_TEST_NATS_SERVER to its binary. It said:\n{log}");
        }
        Ok(())
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(home: &Path, port: &str) -> anyhow::Result<Child> {
    let mut server = Command::new(binary());
    server.args(["-js", "-a", "127.0.0.1", "-p", port]).arg("-sd").arg(home.join("data"));
    server.arg("-P").arg(home.join("pid")).arg("--ports_file_dir").arg(home);
    guarded::spawn(&server, &home.join("log"))
}

#[expect(clippy::disallowed_methods, reason = "tests have no configuration but where their servers are")]
fn binary() -> OsString {
    std::env::var_os("SVC_TEST_NATS_SERVER").unwrap_or_else(|| "nats-server".into())
}

fn read_port(home: &Path) -> Option<u16> {
    let entries = std::fs::read_dir(home).ok()?;
    let file = entries.flatten().find(|entry| entry.path().extension().is_some_and(|end| end == "ports"))?;
    let ports: serde_json::Value = serde_json::from_slice(&std::fs::read(file.path()).ok()?).ok()?;
    ports["nats"][0].as_str()?.rsplit_once(':')?.1.parse().ok()
}
