//! Subcommands of `svc-ingest`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bus::{AccountsFile, Connection, MessageLimit, NatsSettings, StreamsCommand};
use rustix::process::{Pid, Signal, kill_process};
use service::Tasks;
use service::config::{Environment, Variables as _};
use service::process::{CommandResult, Program as _};
use service::telemetry::{LOG, Output, install_logs};
use url::Url;

use crate::Ingest;
use crate::config::{EventStreamSettings, event_streams};

/// Subcommands of `svc-ingest`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Print or create the streams of events, as configured by the variables of ingest
    #[command(subcommand)]
    Streams(StreamsCommand),
    /// Keep the accounts of consumers of a NATS server in the same pod or on the same machine
    #[command(subcommand)]
    Accounts(AccountsCommand),
}

/// Subcommands of `accounts`.
#[derive(clap::Subcommand)]
pub enum AccountsCommand {
    /// Write the file without consumers, unless it exists, so that the server can start
    Init {
        /// The file, which the configuration of the server includes
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Write the file after each change of a consumer, and reload the server. Uses the variables of ingest for NATS and streams
    Keep {
        /// The file, which the configuration of the server includes
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// File with the process id of the server (`pid_file` of its configuration)
        #[arg(long, value_name = "FILE", required_unless_present = "command")]
        pid_file: Option<PathBuf>,
        #[command(flatten)]
        limit: LimitOptions,
        /// Command that reloads the server instead, with its arguments
        #[arg(last = true, value_name = "COMMAND", conflicts_with = "pid_file")]
        command: Vec<String>,
    },
}

/// The limit of the messages that the login of a consumer sends to the server.
#[derive(clap::Args)]
pub struct LimitOptions {
    /// Monitoring port of the server, such as `http://127.0.0.1:8222`. Without it, the messages of consumers have no limit
    #[arg(long, value_name = "URL", value_parser = parse_monitor)]
    monitor: Option<Url>,
    /// Messages per second of a login, in addition to four for each event that it reads
    #[arg(long, value_name = "NUMBER", requires = "monitor", default_value_t = MessageLimit::MESSAGES_PER_SECOND)]
    max_messages_per_second: u64,
    /// Seconds for which a login above the limit is suspended
    #[arg(long, value_name = "SECONDS", requires = "monitor", default_value_t = MessageLimit::SUSPENSION_SECONDS)]
    suspension: u64,
}

impl LimitOptions {
    fn limit(self) -> Option<MessageLimit> {
        Some(MessageLimit {
            monitor: self.monitor?.into(),
            messages_per_second: self.max_messages_per_second,
            suspension: Duration::from_secs(self.suspension),
        })
    }
}

fn parse_monitor(text: &str) -> Result<Url, String> {
    let url = text.parse::<Url>().ok().filter(|url| url.scheme() == "http" && url.has_host());
    url.ok_or_else(|| "expected a URL such as http://127.0.0.1:8222".to_owned())
}

impl Command {
    pub(crate) async fn execute(self, environment: &Environment) -> CommandResult {
        match self {
            Self::Streams(command) => {
                let profile = EventStreamSettings::load(environment)?.profile();
                let streams = [(&profile).into(), profile.facade()];
                command.execute(Ingest::NAME, streams, environment).await
            }
            Self::Accounts(command) => command.execute(environment).await,
        }
    }
}

impl AccountsCommand {
    async fn execute(self, environment: &Environment) -> CommandResult {
        match self {
            Self::Init { file } => {
                let written = AccountsFile::new(file.clone(), || Ok(())).initialize();
                written.map_err(|error| format!("cannot write {}: {error}", file.display()))?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Keep { file, pid_file, limit, command } => {
                let reload = move || match &pid_file {
                    Some(pid_file) => hang_up(pid_file),
                    None => run(&command),
                };
                keep(AccountsFile::new(file, reload).with_limit(limit.limit()), environment).await
            }
        }
    }
}

/// Keeps the file until the process is stopped.
async fn keep(file: AccountsFile, environment: &Environment) -> CommandResult {
    let nats = NatsSettings::load(environment)?.for_service(Ingest::NAME);
    let streams = event_streams(environment)?;
    install_logs(environment.get(LOG.name).unwrap_or("info"), Output::Stdout);
    let connection = Connection::open(&nats).await?;
    let tasks = Tasks::default();
    file.start(connection, streams, &tasks);
    Ok(tasks.run_until_shutdown().await)
}

fn hang_up(pid_file: &Path) -> io::Result<()> {
    let pid = std::fs::read_to_string(pid_file)?.trim().parse().ok().and_then(Pid::from_raw);
    let pid =
        pid.ok_or_else(|| io::Error::other(format!("{} contains no process id", pid_file.display())))?;
    Ok(kill_process(pid, Signal::HUP)?)
}

fn run(command: &[String]) -> io::Result<()> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let status = std::process::Command::new(program).args(arguments).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{program}: {status}"))) }
}
