//! The command line of `svc-standalone`.

#[cfg(feature = "services")]
mod documents;
#[cfg(feature = "services")]
mod down;
#[cfg(feature = "services")]
mod up;
mod with_servers;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// The data directory of a checkout.
#[cfg(feature = "services")]
const DEFAULT_DATA: &str = ".dev/data";
/// The run file of a checkout.
#[cfg(feature = "services")]
const DEFAULT_RUN_FILE: &str = ".dev/standalone.json";

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
    #[cfg(feature = "services")]
    Up(Up),
    /// Stop a running `up`
    #[cfg(feature = "services")]
    Down(Down),
    /// Run a command with temporary servers and their addresses in `SVC_TEST_…` variables
    WithServers(WithServers),
    /// Print the reference of all configuration variables in Markdown
    #[cfg(feature = "services")]
    Configuration,
    /// Print the OpenAPI document of the public API
    #[cfg(feature = "services")]
    Openapi,
    /// Print the path prefixes of the public API and their services, as JSON
    #[cfg(feature = "services")]
    Routes,
    /// Print the configuration variables of each service, as JSON
    #[cfg(feature = "services")]
    Variables,
}

#[cfg(feature = "services")]
#[derive(Debug, Args)]
struct Up {
    /// Port of the public API on 127.0.0.1; 0 selects a free port
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Directory for all data
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA)]
    data: PathBuf,
    /// File with the addresses and credentials of this run, for scripts
    #[arg(long, value_name = "FILE", default_value = DEFAULT_RUN_FILE)]
    run_file: PathBuf,
    #[command(flatten)]
    tools: ToolsFile,
}

#[cfg(feature = "services")]
#[derive(Debug, Args)]
struct Down {
    /// Data directory of the run to stop [default: the runs of .dev/data and .dev/standalone.json]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Also remove the data
    #[arg(long)]
    remove: bool,
}

#[derive(Debug, Args)]
struct WithServers {
    #[command(flatten)]
    tools: ToolsFile,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<std::ffi::OsString>,
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
            #[cfg(feature = "services")]
            Command::Up(options) => up::run(options).await,
            #[cfg(feature = "services")]
            Command::Down(options) => down::run(options).await,
            Command::WithServers(options) => Box::pin(with_servers::run(options)).await,
            #[cfg(feature = "services")]
            Command::Configuration => documents::print(&documents::configuration()),
            #[cfg(feature = "services")]
            Command::Openapi => documents::print(&openapi::pretty_document()),
            #[cfg(feature = "services")]
            Command::Routes => documents::print(&documents::routes()),
            #[cfg(feature = "services")]
            Command::Variables => documents::print(&documents::variables()),
        }
    }
}
