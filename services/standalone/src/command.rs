//! The command line of `svc-standalone`, and the signals that stop it.

mod documents;
mod down;
mod up;
mod with_servers;

use std::ffi::OsString;
use std::io::{self, Write as _};
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
    /// Start the servers and all services; Ctrl-C stops them
    Up(up::Up),
    /// Stop a running `up`
    Down(down::Down),
    /// Print the reference of all configuration variables in Markdown
    Configuration,
    /// Print the OpenAPI document of the public API
    Openapi,
    /// Print the path prefixes of the public API and their services, as JSON
    Routes,
    /// Print the configuration variables of each service, as JSON
    Variables,
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
        let document = match self.command {
            Command::Up(up) => return up.run().await,
            Command::Down(down) => return down.run().await,
            Command::WithServers(options) => return Box::pin(with_servers::run(options)).await,
            Command::Configuration => documents::configuration(),
            Command::Openapi => openapi::pretty_document(),
            Command::Routes => documents::routes(),
            Command::Variables => documents::variables(),
        };
        io::stdout().write_all(document.as_bytes())?;
        Ok(ExitCode::SUCCESS)
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
