//! The command line of `svc-standalone`, and the signals that stop it.

mod system;
mod up;
mod with_servers;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Run all services in one process with a private Postgres and nats-server
#[derive(Debug, Parser)]
#[command(version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    System(system::Command),
    /// Run a command with temporary servers and their addresses in `SVC_TEST_…` variables
    WithServers(WithServers),
}

#[derive(Debug, Args)]
struct WithServers {
    #[command(flatten)]
    tools: ToolsFile,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
struct ToolsFile {
    /// File with the paths of the server programs, written by deploy/local/fetch.py
    #[arg(long = "tools", value_name = "FILE", default_value = ".dev/tools.json")]
    path: PathBuf,
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// If the command fails, with a message for people.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::System(command) => command.run().await,
            Command::WithServers(options) => Box::pin(with_servers::run(options)).await,
        }
    }
}

/// Receives SIGINT, SIGQUIT, SIGTERM and SIGHUP instead of their default action. The commands that it starts have the default action, also
/// if the calling program ignores a signal, as shells do for background jobs.
struct StopSignals {
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl StopSignals {
    /// Installs the handlers.
    fn install() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal. Cancel safe.
    async fn next(&mut self) -> rustix::process::Signal {
        use rustix::process::Signal;
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.quit.recv() => Signal::QUIT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hang_up.recv() => Signal::HUP,
        }
    }
}
