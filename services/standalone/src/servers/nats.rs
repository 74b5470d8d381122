//! A private nats-server with JetStream on files, with the users and permissions of `deploy/nats/accounts.conf`.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::Command;

use super::child::Step;
use super::port::KeptPort;
use super::server::{Server, StartError};
use super::{ServersConfig, orphan};
use crate::data_dir::DataDir;
use crate::secret;

const ACCOUNTS: &str = include_str!("../../../../deploy/nats/accounts.conf");
const CONFIGURATION: &str = "server.conf";
const PID: &str = "server.pid";

/// Who connects to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatsUser {
    /// May do anything.
    Administrator,
    /// Publishes events.
    Ingest,
    /// Publishes audit events and revocation invalidations.
    Session,
    /// Publishes audit events.
    Identity,
}

impl NatsUser {
    const ALL: [Self; 4] = [Self::Administrator, Self::Ingest, Self::Session, Self::Identity];

    /// The user's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Administrator => "administrator",
            Self::Ingest => "ingest",
            Self::Session => "session",
            Self::Identity => "identity",
        }
    }
}

/// Stops the broker that a killed run of this directory left behind.
pub(super) async fn clear_orphan(data: &DataDir) -> io::Result<()> {
    orphan::clear(&home(data).join(PID), &mark(data), Nats::STOP).await
}

fn home(data: &DataDir) -> PathBuf {
    data.root().join("nats")
}

fn mark(data: &DataDir) -> String {
    format!("-c {}", home(data).join(CONFIGURATION).display())
}

/// The server.
pub(super) struct Nats {
    program: PathBuf,
    home: PathBuf,
    log: PathBuf,
    mark: String,
    port: KeptPort,
    passwords: [String; 4],
}

impl Nats {
    /// Stops what an earlier run left behind, and writes the configuration.
    pub(super) async fn prepare(config: &ServersConfig) -> Result<Self, StartError> {
        Self::load(config).await.map_err(StartError::io("preparing the directory of nats-server"))
    }

    async fn load(config: &ServersConfig) -> io::Result<Self> {
        // Before its port is looked at: else that would seem to be taken by a stranger.
        clear_orphan(&config.data).await?;
        let home = home(&config.data);
        std::fs::create_dir_all(&home)?;
        let mut passwords = [const { String::new() }; 4];
        for (user, password) in NatsUser::ALL.into_iter().zip(&mut passwords) {
            *password = secret::kept(&config.data.secrets().join(format!("nats-{}", user.name())))?;
        }
        let nats = Self {
            program: config.tools.nats_server.clone(),
            log: config.data.logs().join("nats.log"),
            mark: mark(&config.data),
            port: KeptPort::load(config.data.root().join("nats.port"))?,
            home,
            passwords,
        };
        secret::write_private(&nats.configuration_file(), nats.configuration()?.as_bytes())?;
        Ok(nats)
    }

    /// The address of the broker as a user.
    pub(super) fn url(&self, user: NatsUser) -> String {
        let index = NatsUser::ALL.iter().position(|other| *other == user).unwrap_or_default();
        format!("nats://{}:{}@127.0.0.1:{}", user.name(), self.passwords[index], self.port.number())
    }

    fn configuration_file(&self) -> PathBuf {
        self.home.join(CONFIGURATION)
    }

    fn configuration(&self) -> io::Result<String> {
        // JSON strings are strings of this format too.
        let quoted = |path: PathBuf| serde_json::to_string(&path).map_err(io::Error::from);
        let mut text =
            String::from("# Written by svc-standalone at every start.\nserver_name: svc-standalone\n");
        for (user, password) in NatsUser::ALL.into_iter().zip(&self.passwords) {
            let _ = writeln!(text, "SVC_NATS_{}_PASSWORD: \"{password}\"", user.name().to_uppercase());
        }
        let _ = writeln!(text, "pid_file: {}", quoted(self.pid_file())?);
        let _ = writeln!(text, "jetstream {{\n  store_dir: {}\n}}\n", quoted(self.home.join("store"))?);
        Ok(text + ACCOUNTS)
    }
}

impl Server for Nats {
    const NAME: &'static str = "nats-server";
    const STOP: &'static [Step] = &[(Signal::TERM, Duration::from_secs(10))];

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(self.configuration_file());
        command.args(["--addr", "127.0.0.1", "--port"]).arg(self.port.number().to_string());
        command
    }

    fn log(&self) -> &Path {
        &self.log
    }

    fn pid_file(&self) -> PathBuf {
        self.home.join(PID)
    }

    fn mark(&self) -> &str {
        &self.mark
    }

    fn port(&self) -> &KeptPort {
        &self.port
    }

    async fn answers(&self) -> bool {
        let ask = async {
            let config = bus::Config::new(self.url(NatsUser::Administrator), "svc-standalone");
            let client = bus::connect(&config).await.ok()?;
            async_nats::jetstream::new(client).query_account().await.ok()
        };
        tokio::time::timeout(Duration::from_secs(5), ask).await.is_ok_and(|answer| answer.is_some())
    }
}
