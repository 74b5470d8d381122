//! The binary in a home of its own, with nothing of this machine's environment.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A person at a machine.
pub(crate) struct Client {
    home: TempDir,
    environment: Vec<(String, String)>,
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), environment: Vec::new() }
    }

    /// A client that talks to this address.
    pub(crate) fn of(url: &str) -> Self {
        Self::new().with("SVC_BASE_URL", url)
    }

    /// The same with a variable set.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.home.path().to_owned()
    }

    /// Where sessions are stored.
    pub(crate) fn credentials(&self) -> PathBuf {
        self.home().join(".config/svc/credentials.json")
    }

    /// A run, ready to start.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.args(arguments).current_dir(&self.home).env_clear().env("HOME", self.home.path());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    /// A run with this on standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Ran {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        // A client that refuses early does not read what it is sent.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        Ran::of(child.wait_with_output().unwrap())
    }
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The data, which must be JSON and the only thing on standard output.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error, which must be one JSON object on the last line of standard error.
    pub(crate) fn error(&self) -> Value {
        let last = self.stderr.lines().last().unwrap_or_default();
        let object: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        assert_eq!(object["error"]["exit_code"].as_i64(), self.code.map(i64::from), "{self:?}");
        object["error"].clone()
    }
}

/// The output of this command must be what the catalog says it is.
pub(crate) fn assert_valid_output(command: &str, printed: &Value) {
    let catalog = concat!(env!("CARGO_MANIFEST_DIR"), "/../catalog/svc.catalog.json");
    let catalog: Value = serde_json::from_str(&std::fs::read_to_string(catalog).unwrap()).unwrap();
    let commands = catalog["commands"].as_array().unwrap();
    let entry = commands.iter().find(|entry| entry["name"] == command).unwrap();
    let faults: Vec<_> = jsonschema::validator_for(&entry["output_schema"])
        .unwrap()
        .iter_errors(printed)
        .map(|fault| fault.to_string())
        .collect();
    assert!(faults.is_empty(), "{command}: {faults:?}: {printed}");
}
