//! A nats-server with `JetStream` for one test, on a free port of loopback. It stops with the test process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::bail;
use async_nats::{Client, ConnectOptions};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::guarded;

mod cluster;

pub use cluster::NatsCluster;

const ACCOUNTS: &str = include_str!("../../../deploy/nats/accounts.conf");
const CONSUMERS: &str = include_str!("../../../deploy/nats/consumers.conf");
/// The users of the accounts.
const USERS: [&str; 5] = ["administrator", "audit-administrator", "ingest", "session", "identity"];

/// How long the server may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// Returns the accounts and users of `deploy/nats` as a part of a configuration. `password` returns the password of a user.
pub fn accounts(password: impl Fn(&str) -> String) -> String {
    accounts_with(CONSUMERS, password)
}

/// Returns the accounts and users of `deploy/nats` with these accounts of consumers.
pub fn accounts_with(consumers: &str, password: impl Fn(&str) -> String) -> String {
    let text = ACCOUNTS.replace("include consumers.conf", consumers);
    USERS.iter().fold(text, |text, user| {
        let variable = format!("$SVC_NATS_{}_PASSWORD", user.to_uppercase().replace('-', "_"));
        text.replace(&variable, &format!("{:?}", password(user)))
    })
}

/// Returns the URLs, separated by commas, for a user of [`accounts`] with its name as the password.
pub fn url_of(urls: &str, user: &str) -> String {
    addresses(urls).map(|address| format!("nats://{user}:{user}@{address}")).collect::<Vec<_>>().join(",")
}

/// Connects a client as a user of [`accounts`] with its name as the password.
pub async fn connect(urls: &str, user: &str) -> anyhow::Result<Client> {
    let options = ConnectOptions::with_user_and_password(user.to_owned(), user.to_owned());
    let options = options.custom_inbox_prefix(format!("_INBOX.{user}"));
    Ok(options.connect(addresses(urls).collect::<Vec<_>>()).await?)
}

fn addresses(urls: &str) -> impl Iterator<Item = &str> {
    urls.split(',').map(|url| url.rsplit_once(['@', '/']).map_or(url, |(_, address)| address))
}

/// A running server. Dropping it stops the server and deletes its data.
pub struct NatsServer {
    /// The URL for clients; with accounts, for the administrator of the streams of events.
    pub url: String,
    port: u16,
    guard: Option<Child>,
    home: TempDir,
}

impl NatsServer {
    /// Starts the binary in `SVC_TEST_NATS_SERVER`, by default `nats-server` from `PATH`.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with("").await
    }

    /// Starts the binary with additional configuration, for example users and their permissions.
    pub async fn start_with(configuration: &str) -> anyhow::Result<Self> {
        Self::launch(&standalone(configuration)).await
    }

    /// Starts the binary with [`accounts`]. The password of each user is its name.
    pub async fn start_with_accounts() -> anyhow::Result<Self> {
        Self::start_with_consumers(CONSUMERS).await
    }

    /// Starts the binary with [`accounts_with`]. The password of each user is its name.
    pub async fn start_with_consumers(consumers: &str) -> anyhow::Result<Self> {
        let mut server = Self::start_with(&accounts_with(consumers, str::to_owned)).await?;
        server.url = server.url_of("administrator");
        Ok(server)
    }

    /// The URL for a user of [`accounts`].
    pub fn url_of(&self, user: &str) -> String {
        url_of(&self.url, user)
    }

    /// Connects a client as a user of [`accounts`].
    pub async fn connect(&self, user: &str) -> anyhow::Result<Client> {
        connect(&self.url, user).await
    }

    /// Starts the binary with a complete configuration.
    async fn launch(configuration: &str) -> anyhow::Result<Self> {
        let home = tempfile::Builder::new().prefix("nats-").tempdir()?;
        configure(home.path(), configuration)?;
        let guard = spawn(home.path(), "-1")?;
        let mut server = Self { url: String::new(), port: 0, guard: Some(guard), home };
        server.port = server.announced_port("nats").await?;
        server.url = format!("nats://127.0.0.1:{}", server.port);
        Ok(server)
    }

    /// Kills the server (SIGKILL) and keeps its data.
    pub fn stop(&mut self) {
        if let Some(guard) = self.guard.take() {
            guarded::stop(guard);
        }
    }

    /// Stops the process (SIGSTOP). Its connections stay open, but it does not respond.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal("STOP")?;
        let deadline = Instant::now() + START_TIMEOUT;
        // Threads on other cores still run for a moment after `kill` returns.
        while !self.is_stopped()? {
            if Instant::now() > deadline {
                bail!("nats-server still runs after SIGSTOP");
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Returns whether all threads are stopped. Without `/proc` this is assumed.
    fn is_stopped(&self) -> anyhow::Result<bool> {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.pid()?)) else {
            return Ok(true);
        };
        let states =
            threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("stat")).ok());
        Ok(states.into_iter().all(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))))
    }

    /// Continues a stopped process (SIGCONT).
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal("CONT")
    }

    /// Lets each write to a file fail, as on a full disk, or ends that. A stream with a failed write needs a restart of the server.
    pub fn fail_writes(&self, fail: bool) -> anyhow::Result<()> {
        let pid = Pid::from_raw(self.pid()?);
        let limit = Rlimit { current: fail.then_some(0), maximum: None };
        prlimit(pid, Resource::Fsize, limit)?;
        Ok(())
    }

    /// Replaces the additional configuration without a restart.
    pub fn reload(&self, configuration: &str) -> anyhow::Result<()> {
        configure(self.home.path(), &standalone(configuration))?;
        self.signal("HUP")
    }

    /// The directory of the streams. Copy or replace it while the server is stopped.
    pub fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// Returns the log of the server.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    fn signal(&self, signal: &str) -> anyhow::Result<()> {
        let pid = self.pid()?;
        let status = Command::new("kill").args(["-s", signal, &pid.to_string()]).status()?;
        if status.success() { Ok(()) } else { bail!("kill -s {signal} {pid}: {status}") }
    }

    /// Returns the process id.
    pub fn pid(&self) -> anyhow::Result<i32> {
        Ok(std::fs::read_to_string(self.home.path().join("pid"))?.trim().parse()?)
    }

    /// Restarts the server on the same port and data.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.stop();
        self.guard = Some(spawn(self.home.path(), &self.port.to_string())?);
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            self.check_deadline(deadline)?;
            sleep(POLL).await;
        }
        Ok(())
    }

    /// The port that the server chose for a protocol. The server writes all ports to a file when it listens.
    async fn announced_port(&self, protocol: &str) -> anyhow::Result<u16> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(port) = read_port(self.home.path(), protocol) {
                return Ok(port);
            }
            self.check_deadline(deadline)?;
            sleep(POLL).await;
        }
    }

    fn check_deadline(&self, deadline: Instant) -> anyhow::Result<()> {
        if Instant::now() > deadline {
            let log = self.log();
            bail!(
                "nats-server does not listen; run the tests with `make test` or set SVC_TEST_NATS_SERVER. Its log:\n{log}"
            );
        }
        Ok(())
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The configuration of a server without a cluster. It must not be empty.
fn standalone(configuration: &str) -> String {
    format!("server_name: test\n{configuration}\n")
}

fn configure(home: &Path, configuration: &str) -> std::io::Result<()> {
    std::fs::write(home.join("server.conf"), configuration)
}

fn spawn(home: &Path, port: &str) -> anyhow::Result<Child> {
    let mut server = Command::new(binary());
    server.args(["-js", "-a", "127.0.0.1", "-p", port]).arg("-sd").arg(home.join("data"));
    server.arg("-c").arg(home.join("server.conf"));
    server.arg("-P").arg(home.join("pid")).arg("--ports_file_dir").arg(home);
    guarded::spawn(&server, &home.join("log"))
}

#[expect(clippy::disallowed_methods, reason = "the paths of test servers")]
fn binary() -> OsString {
    std::env::var_os("SVC_TEST_NATS_SERVER").unwrap_or_else(|| "nats-server".into())
}

fn read_port(home: &Path, protocol: &str) -> Option<u16> {
    let entries = std::fs::read_dir(home).ok()?;
    let file = entries.flatten().find(|entry| entry.path().extension().is_some_and(|end| end == "ports"))?;
    let ports: serde_json::Value = serde_json::from_slice(&std::fs::read(file.path()).ok()?).ok()?;
    ports[protocol][0].as_str()?.rsplit_once(':')?.1.parse().ok()
}
