//! Runs the binary with its own home directory and an empty environment.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use parking_lot::Mutex;
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
    /// Signal that ended the command, instead of an exit status.
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    arguments: Vec<String>,
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
        command.env("TERM", "xterm");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> CommandResult {
        CommandResult::of(self.command(arguments).output().unwrap()).with_arguments(arguments)
    }

    /// Runs a command with JSON output that it cannot write: to a full device, or to a pipe without a reader.
    #[cfg(target_os = "linux")]
    pub(crate) fn run_without_output(&self, arguments: &[&str], is_full: bool) -> CommandResult {
        let stdout: Stdio = if is_full {
            std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into()
        } else {
            Stdio::from(std::io::pipe().unwrap().1)
        };
        let mut command = self.command(&[arguments, &["--output", "json"]].concat());
        CommandResult::of(command.stdout(stdout).output().unwrap()).with_arguments(arguments)
    }

    /// Runs a command with standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &(impl AsRef<[u8]> + ?Sized)) -> CommandResult {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        // Writing fails if the client exits before it reads its input.
        let _ = child.stdin.take().unwrap().write_all(input.as_ref());
        CommandResult::of(child.wait_with_output().unwrap()).with_arguments(arguments)
    }
}

impl CommandResult {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            signal: output.status.signal(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            arguments: Vec::new(),
        }
    }

    fn with_arguments(self, arguments: &[&str]) -> Self {
        Self { arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(), ..self }
    }

    /// Standard output of a successful run, which must be one JSON document.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Error on the last line of standard error, which must be one JSON object that the catalog lists for the command.
    pub(crate) fn error(&self) -> Value {
        let last = self.stderr.lines().last().unwrap_or_default();
        let object: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        assert_eq!(object["error"]["exit_code"].as_i64(), self.code.map(i64::from), "{self:?}");
        assert_listed(&self.arguments, &object["error"]);
        object["error"].clone()
    }
}

/// The checked-in catalog.
fn commands() -> Vec<Value> {
    let catalog = concat!(env!("CARGO_MANIFEST_DIR"), "/../catalog/svc.catalog.json");
    let catalog: Value = serde_json::from_str(&std::fs::read_to_string(catalog).unwrap()).unwrap();
    catalog["commands"].as_array().unwrap().clone()
}

/// Asserts that `svc catalog show --extended <command>` lists an error with its exit status.
fn assert_listed(arguments: &[String], error: &Value) {
    static ERRORS: Mutex<BTreeMap<String, Value>> = Mutex::new(BTreeMap::new());
    let names = commands().into_iter().map(|command| command["name"].as_str().unwrap().to_owned());
    let is_called = |name: &String| {
        let words: Vec<_> = name.split(' ').collect();
        arguments.windows(words.len()).any(|window| window == words)
    };
    // Without the name of a command, the error is about the command line.
    let Some(name) = names.filter(is_called).max_by_key(String::len) else { return };
    let show = || Client::new().run(&["catalog", "show", "--extended", &name]).json()["errors"].clone();
    let errors = ERRORS.lock().entry(name.clone()).or_insert_with(show).clone();
    let is_listed =
        |listed: &Value| ["code", "exit_code"].iter().all(|field| listed[*field] == error[*field]);
    assert!(
        errors.as_array().unwrap().iter().any(is_listed),
        "the catalog does not list for {name}: {error}"
    );
}

/// Asserts that the output matches the `output_schema` of the command in the catalog.
pub(crate) fn assert_valid_output(command: &str, printed: &Value) {
    let commands = commands();
    let entry = commands.iter().find(|entry| entry["name"] == command).unwrap();
    let errors: Vec<_> = jsonschema::validator_for(&entry["output_schema"])
        .unwrap()
        .iter_errors(printed)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{command}: {errors:?}: {printed}");
}
