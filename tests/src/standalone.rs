//! `svc-standalone` in a directory of its own.

use std::path::PathBuf;
use std::process::Command;
use testkit::{LIMITS_OFF, wait_until};

use rustix::process::Signal;
use serde::Deserialize;
use tempfile::TempDir;

use crate::environment::{program, tools_file};
use crate::{Process, Svc, is_alive};

/// The run_file file, with the fields that were promised and no others.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are the promise")]
pub struct RunFile {
    pub base_url: String,
    pub nats_url: String,
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

/// The servers that it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are the promise")]
pub struct Pids {
    pub postgres: i32,
    pub nats: i32,
}

/// Data that outlive the runs on them. Dropped, they are removed, with whatever still runs on them.
pub struct Installation {
    dir: TempDir,
    environment: Vec<(String, String)>,
}

impl Installation {
    /// An empty one.
    pub fn new(environment: &[(&str, &str)]) -> Self {
        let environment =
            LIMITS_OFF.iter().chain(environment).map(|(name, value)| (name.to_string(), value.to_string()));
        Self {
            dir: tempfile::Builder::new().prefix("svc-e2e-").tempdir().unwrap(),
            environment: environment.collect(),
        }
    }

    /// One whose passwords are hashed as cheaply as it can be, for tests that are about something else.
    pub fn with_cheap_hashes() -> Self {
        Self::new(&[("SVC_ARGON2_TIME_COST", "1"), ("SVC_ARGON2_MEMORY_COST", "64")])
    }

    /// A file or directory below its own.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What starts it, on any free port.
    pub fn command(&self) -> Command {
        let mut command = self.standalone("up");
        command.args(["--port", "0", "--run_file"]).arg(self.path("run_file.json"));
        command.arg("--tools").arg(tools_file()).envs(self.environment.iter().cloned());
        command
    }

    fn standalone(&self, verb: &str) -> Command {
        let mut command = program("svc-standalone");
        command.current_dir(self.dir.path()).env("HOME", self.dir.path());
        command.arg(verb).arg("--data").arg(self.path("data"));
        command
    }

    /// The run_file of the run there is.
    pub fn run_file(&self) -> Option<RunFile> {
        serde_json::from_slice(&std::fs::read(self.path("run_file.json")).ok()?).ok()
    }

    /// Starts it and waits until it can be used.
    pub async fn up(&self) -> Run<'_> {
        let mut process = Process::start(&mut self.command(), &self.path("output"));
        let run_file = wait_until("everything runs", async || {
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

/// A run of it.
pub struct Run<'a> {
    /// The process.
    pub process: Process,
    /// The run_file when it had started.
    pub run_file: RunFile,
    installation: &'a Installation,
}

impl Run<'_> {
    /// The run_file now.
    pub fn facts_now(&self) -> RunFile {
        self.installation.run_file().unwrap()
    }

    /// A person's client of it, in a home of its own.
    pub fn svc(&self) -> Svc {
        Svc::new(&self.run_file.svc, &self.run_file.base_url, &self.run_file.tenant)
    }

    /// Kills a server and keeps it from being started again, until what is returned is dropped.
    pub fn take_away(&self, server: Server) -> Away {
        let (pid, file) = match server {
            Server::Postgres => (self.facts_now().children.postgres, "data/postgres/cluster/postgresql.conf"),
            Server::Nats => (self.facts_now().children.nats, "data/nats/server.conf"),
        };
        let file = self.installation.path(file);
        std::fs::rename(&file, file.with_extension("away")).unwrap();
        crate::kill(pid, Signal::KILL);
        Away(file)
    }
}

/// What `svc-standalone` starts beside itself.
#[derive(Clone, Copy, Debug)]
pub enum Server {
    /// The database.
    Postgres,
    /// The broker.
    Nats,
}

/// A server that cannot start. Dropped, it can again.
pub struct Away(PathBuf);

impl Drop for Away {
    fn drop(&mut self) {
        let _ = std::fs::rename(self.0.with_extension("away"), &self.0);
    }
}

impl RunFile {
    /// Which of its processes run.
    pub fn alive(&self) -> Vec<i32> {
        let all = [self.pid, self.children.postgres, self.children.nats];
        all.into_iter().filter(|pid| is_alive(*pid)).collect()
    }
}
