//! `svc-standalone up` in a temporary directory.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use serde::Deserialize;
use tempfile::TempDir;
use testkit::{CHEAP_HASHES, LIMITS_OFF, wait_until};

use crate::environment::{program, tools_file};
use crate::{Process, Svc, is_alive, kill};

/// The run file with exactly its documented fields.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "documented by `standalone::run_file`")]
pub struct RunFile {
    pub base_url: String,
    pub nats_url: String,
    pub audit_nats_url: String,
    pub database_url: String,
    pub platform_token_file: PathBuf,
    pub tenant: String,
    pub admin_email: String,
    #[serde(default)]
    pub admin_invite_token: Option<String>,
    pub mail_dir: PathBuf,
    pub svc: PathBuf,
    pub pid: i32,
    pub children: Pids,
}

/// The processes of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "documented by `standalone::run_file`")]
pub struct Pids {
    pub postgres: i32,
    pub nats: i32,
}

/// A data directory for several runs. Dropping it stops the run and removes the data.
pub struct Installation {
    dir: TempDir,
    environment: Vec<(String, String)>,
}

impl Installation {
    /// An empty data directory, and variables for the runs, which otherwise have neither rate limits nor expensive hashes.
    pub fn new(environment: &[(&str, &str)]) -> Self {
        let environment = LIMITS_OFF
            .iter()
            .chain(&CHEAP_HASHES)
            .chain(environment)
            .map(|(name, value)| (name.to_string(), value.to_string()));
        Self {
            dir: tempfile::Builder::new().prefix("svc-e2e-").tempdir().unwrap(),
            environment: environment.collect(),
        }
    }

    /// A path in the temporary directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command `up` on a free port.
    pub fn command(&self) -> Command {
        let mut command = self.standalone("up");
        command.args(["--port", "0", "--run-file"]).arg(self.path("standalone.json"));
        command.arg("--tools").arg(tools_file()).envs(self.environment.iter().cloned());
        command
    }

    fn standalone(&self, verb: &str) -> Command {
        let mut command = program("svc-standalone");
        command.current_dir(self.dir.path()).env("HOME", self.dir.path());
        command.arg(verb).arg("--data").arg(self.path("data"));
        command
    }

    /// The run file, if it exists.
    pub fn run_file(&self) -> Option<RunFile> {
        serde_json::from_slice(&std::fs::read(self.path("standalone.json")).ok()?).ok()
    }

    /// Starts `up` and waits until the run file is written.
    pub async fn up(&self) -> Run<'_> {
        let mut process = Process::start(&mut self.command(), &self.path("output"));
        let run_file = wait_until("the system is ready", async || {
            process.expect_running();
            self.run_file().filter(|run_file| run_file.pid == process.pid())
        })
        .await;
        Run { process, run_file, installation: self }
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        let _ = self.standalone("down").arg("--remove").output();
    }
}

/// A running `up`.
pub struct Run<'a> {
    /// The process.
    pub process: Process,
    /// The run file after the start.
    pub run_file: RunFile,
    installation: &'a Installation,
}

impl Run<'_> {
    /// The current run file.
    pub fn current_run_file(&self) -> RunFile {
        self.installation.run_file().unwrap()
    }

    /// A CLI with its own home directory.
    pub fn svc(&self) -> Svc {
        Svc::new(&self.run_file.svc, &self.run_file.base_url, &self.run_file.tenant)
    }

    /// Kills a server and prevents its restart until the result is dropped.
    pub fn block(&self, server: Server) -> BlockedServer {
        let (pid, file) = match server {
            Server::Postgres => {
                (self.current_run_file().children.postgres, "data/postgres/cluster/postgresql.conf")
            }
            Server::Nats => (self.current_run_file().children.nats, "data/nats/server.conf"),
        };
        let file = self.installation.path(file);
        std::fs::rename(&file, file.with_extension("blocked")).unwrap();
        kill(pid, Signal::KILL);
        BlockedServer(file)
    }
}

/// A server of `svc-standalone`.
#[derive(Clone, Copy, Debug)]
pub enum Server {
    /// The database.
    Postgres,
    /// The broker.
    Nats,
}

/// A server without its configuration file, so that it cannot start. Dropping it restores the file.
pub struct BlockedServer(PathBuf);

impl Drop for BlockedServer {
    fn drop(&mut self) {
        let _ = std::fs::rename(self.0.with_extension("blocked"), &self.0);
    }
}

impl RunFile {
    /// The processes that run.
    pub fn running_processes(&self) -> Vec<i32> {
        let all = [self.pid, self.children.postgres, self.children.nats];
        all.into_iter().filter(|pid| is_alive(*pid)).collect()
    }
}
