//! The commands that need the services: `up`, `down`, and the documents that `make gen` writes.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use contract::API_PREFIX;
use contract::paths::PREFIXES;
use devservers::{DataDir, Lock, LockAttempt};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};
use service::config::Variable;
use service::operator;

use super::up::Up;
use crate::{run_file, wiring};

/// The data directory of a checkout.
pub(super) const DEFAULT_DATA: &str = ".dev/data";
/// The run file of a checkout.
pub(super) const DEFAULT_RUN_FILE: &str = ".dev/standalone.json";
/// Covers the time limits of draining, of stopping the services and of the shutdown of Postgres.
const STOP_TIMEOUT: Duration = Duration::from_secs(90);

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Start the servers and all services; Ctrl-C stops them
    Up(Up),
    /// Stop a running `up`
    Down(Down),
    /// Print the reference of all configuration variables in Markdown
    Configuration,
    /// Print the OpenAPI document of the public API
    Openapi,
    /// Print the path prefixes of the public API and their services, as JSON
    Routes,
    /// Print the configuration variables of each service, as JSON
    Variables,
}

impl Command {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let document = match self {
            Self::Up(up) => return up.run().await,
            Self::Down(down) => return down.run().await,
            Self::Configuration => configuration(),
            Self::Openapi => openapi::pretty_document(),
            Self::Routes => routes(),
            Self::Variables => variables(),
        };
        io::stdout().write_all(document.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints to standard output. A closed terminal is not an error: the shutdown must complete without it.
pub(super) fn print(text: impl Display) {
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

#[derive(Debug, Args)]
pub(super) struct Down {
    /// Data directory of the run to stop [default: the runs of .dev/data and .dev/standalone.json]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Also remove the data
    #[arg(long)]
    remove: bool,
}

impl Down {
    async fn run(self) -> anyhow::Result<ExitCode> {
        let data = DataDir::at(self.data.as_deref().unwrap_or(Path::new(DEFAULT_DATA)))?;
        let mut locks = vec![data.lock()];
        if self.data.is_none() {
            locks.push(run_file::lock_path(Path::new(DEFAULT_RUN_FILE)));
        }
        let mut stopped = false;
        for lock in &locks {
            stopped |= stop_holder(lock).await?;
        }
        if !stopped {
            print("Nothing is running.");
        }
        if self.remove {
            remove(&data).await?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Stops the run that holds the lock. Returns false if no process holds it.
async fn stop_holder(lock: &Path) -> anyhow::Result<bool> {
    // Only a running process holds a lock, so the id cannot belong to another process.
    let Some(pid) = Lock::holder(lock)?.and_then(Pid::from_raw) else {
        return Ok(false);
    };
    print(format_args!("Stopping process {} …", pid.as_raw_pid()));
    kill_process(pid, Signal::TERM)
        .with_context(|| format!("failed to stop process {}", pid.as_raw_pid()))?;
    match Lock::wait_for_release(lock, STOP_TIMEOUT).await {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            bail!("process {} is still running after {} s", pid.as_raw_pid(), STOP_TIMEOUT.as_secs())
        }
        result => result?,
    }
    print("Stopped.");
    Ok(true)
}

/// Stops servers that a killed run left behind, and removes the data.
async fn remove(data: &DataDir) -> anyhow::Result<()> {
    if !data.lock().exists() {
        return Ok(());
    }
    let LockAttempt::Acquired(_lock) = Lock::try_acquire(&data.lock()).await? else {
        bail!("another process uses {}; stop it first", data.root().display())
    };
    devservers::stop_orphans(data).await?;
    data.remove().with_context(|| format!("failed to remove {}", data.root().display()))?;
    print(format_args!("Removed {}", data.root().display()));
    Ok(())
}

const CONFIGURATION_HEAD: &str = "\
# Configuration

All variables of the services. A service reads each variable from the environment, and a secret alternatively from the file
named by the variable with the suffix `_FILE`. Durations and sizes have a unit (`30s`, `5m`, `1h`, `7d`; `512MiB`). A service
reports all configuration errors at once and exits with code 64; an unknown `SVC_` variable is a warning.
`svc-<service> --check-config` prints the effective values with secrets redacted. `make gen` generates this file.

";

/// The variables of the services in this process and of the operator.
fn documented_variables() -> Vec<(&'static str, Vec<Variable>)> {
    let mut services = wiring::variables().to_vec();
    services.push((operator::NAME, operator::variables()));
    services
}

/// Returns the reference of all variables (`docs/configuration.md`).
fn configuration() -> String {
    let variables = documented_variables();
    let tables: Vec<_> = variables.iter().map(|(service, table)| (*service, table.as_slice())).collect();
    format!("{CONFIGURATION_HEAD}{}", service::config::markdown(&tables))
}

/// Returns the path prefixes of the public API with their services (`helm/svc/files/routes.json`). A prefix ends at a
/// path segment; the longest one applies.
fn routes() -> String {
    let routes = PREFIXES.iter().map(|(path, service)| json!({ "path": path, "component": service.name() }));
    let table = json!({ "prefix": API_PREFIX, "routes": routes.collect::<Vec<_>>() });
    format!("{table:#}\n")
}

/// Returns the variables of each service, plain ones and secrets (`helm/svc/files/variables.json`).
fn variables() -> String {
    let services = documented_variables().into_iter().map(|(service, mut variables)| {
        variables.sort_by_key(|variable| variable.name);
        let names = |secret: bool| -> Vec<_> {
            variables
                .iter()
                .filter(|variable| variable.secret == secret)
                .map(|variable| variable.name)
                .collect()
        };
        (service.to_owned(), json!({ "plain": names(false), "secret": names(true) }))
    });
    format!("{:#}\n", Value::Object(services.collect::<Map<_, _>>()))
}

#[cfg(test)]
mod tests {
    use service::process::LISTEN_INTERNAL;

    #[test]
    fn only_services_with_an_internal_api_read_its_address() {
        let reads =
            |variables: &[super::Variable]| variables.iter().any(|it| it.name == LISTEN_INTERNAL.name);
        let documented = super::documented_variables();
        let readers: Vec<_> = documented
            .iter()
            .filter(|(_, variables)| reads(variables))
            .map(|(service, _)| *service)
            .collect();
        assert_eq!(readers, ["identity", "session"]);
    }

    #[test]
    fn the_files_of_the_chart_are_up_to_date() {
        for (file, text) in [
            (include_str!("../../../../helm/svc/files/routes.json"), super::routes()),
            (include_str!("../../../../helm/svc/files/variables.json"), super::variables()),
        ] {
            assert!(file == text, "helm/svc/files is out of date; run `make gen`:\n{text}");
        }
    }
}
