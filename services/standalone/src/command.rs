//! The command line of `svc-standalone`.

#[cfg(feature = "services")]
mod configuration;
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

/// Where a checkout keeps its data.
#[cfg(feature = "services")]
const USUAL_DATA: &str = ".dev/data";
/// Where a checkout's run shows its run_file.
#[cfg(feature = "services")]
const USUAL_FACTS: &str = ".dev/standalone.json";

/// All services in one process, over a private Postgres and nats-server.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start everything and run until Ctrl-C
    #[cfg(feature = "services")]
    Up(Up),
    /// Stop what `up` started elsewhere
    #[cfg(feature = "services")]
    Down(Down),
    /// Run a command beside throwaway servers, which it finds in `SVC_TEST_…` variables
    WithServers(WithServers),
    /// Print the reference of all configuration variables, in Markdown
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
    /// Port of the public API on 127.0.0.1; 0 for any free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Directory for all data
    #[arg(long, value_name = "DIR", default_value = USUAL_DATA)]
    data: PathBuf,
    /// File that shows the run_file of the run, for scripts
    #[arg(long, value_name = "FILE", default_value = USUAL_FACTS)]
    run_file: PathBuf,
    #[command(flatten)]
    tools: ToolsFile,
}

#[cfg(feature = "services")]
#[derive(Debug, Args)]
struct Down {
    /// Directory for all data; without it, the usual one, and whichever run shows its run_file in the usual file
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
    /// File that says where the servers' programs are, made by deploy/local/fetch.py
    #[arg(long = "tools", value_name = "FILE", default_value = ".dev/tools.json")]
    path: PathBuf,
}

impl Cli {
    /// Does what was asked for.
    ///
    /// # Errors
    /// Whatever kept it from being done, for a person to read.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            #[cfg(feature = "services")]
            Command::Up(options) => up::run(options).await,
            #[cfg(feature = "services")]
            Command::Down(options) => down::run(options).await,
            Command::WithServers(options) => Box::pin(with_servers::run(options)).await,
            #[cfg(feature = "services")]
            Command::Configuration => configuration::run(),
            #[cfg(feature = "services")]
            Command::Openapi => documents::print(&openapi::pretty_document()),
            #[cfg(feature = "services")]
            Command::Routes => documents::print(&documents::routes()),
            #[cfg(feature = "services")]
            Command::Variables => documents::print(&documents::variables()),
        }
    }
}
