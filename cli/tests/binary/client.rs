//! Runs the binary with its own home directory and an empty environment.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Home directory and environment of the binary.
pub(crate) struct Client {
    home: TempDir,
    environment: Vec<(String, String)>,
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), environment: Vec::new() }
    }

    /// Client with this base URL.
    pub(crate) fn for_url(url: &str) -> Self {
        Self::new().with_variable("SVC_BASE_URL", url)
    }

    /// Sets an environment variable.
    pub(crate) fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.home.path().to_owned()
    }

    /// Path of the credentials file.
    pub(crate) fn credentials(&self) -> PathBuf {
        self.home().join(".config/svc/credentials.json")
    }

    /// Command that is not started yet.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.args(arguments).current_dir(&self.home).env_clear().env("HOME", self.home.path());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> CommandResult {
        CommandResult::of(self.command(arguments).output().unwrap())
    }

    /// Runs a command with standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> CommandResult {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        // Writing fails if the client exits before it reads its input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        CommandResult::of(child.wait_with_output().unwrap())
    }
}

impl CommandResult {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Standard output of a successful run, which must be one JSON document.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Error on the last line of standard error, which must be one JSON object.
    pub(crate) fn error(&self) -> Value {
        let last = self.stderr.lines().last().unwrap_or_default();
        let object: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        assert_eq!(object["error"]["exit_code"].as_i64(), self.code.map(i64::from), "{self:?}");
        object["error"].clone()
    }
}

/// Asserts that the output matches the `output_schema` of the command in the catalog.
pub(crate) fn assert_valid_output(command: &str, printed: &Value) {
    let catalog = concat!(env!("CARGO_MANIFEST_DIR"), "/../catalog/svc.catalog.json");
    let catalog: Value = serde_json::from_str(&std::fs::read_to_string(catalog).unwrap()).unwrap();
    let commands = catalog["commands"].as_array().unwrap();
    let entry = commands.iter().find(|entry| entry["name"] == command).unwrap();
    let errors: Vec<_> = jsonschema::validator_for(&entry["output_schema"])
        .unwrap()
        .iter_errors(printed)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{command}: {errors:?}: {printed}");
}
