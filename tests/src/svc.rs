//! The CLI `svc` with its own home directory.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use testkit::{DEADLINE, within};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

/// A user of the CLI.
pub struct Svc {
    program: PathBuf,
    home: TempDir,
    base_url: String,
    tenant: String,
    variables: Vec<(String, String)>,
}

/// The result of a command.
#[derive(Debug)]
pub struct SvcOutput {
    /// The exit code.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Svc {
    /// Sets the variables that `up` prints in its `export` line.
    pub fn new(program: &Path, base_url: &str, tenant: &str) -> Self {
        Self {
            program: program.to_owned(),
            home: tempfile::Builder::new().prefix("svc-e2e-home-").tempdir().unwrap(),
            base_url: base_url.to_owned(),
            tenant: tenant.to_owned(),
            variables: Vec::new(),
        }
    }

    /// Adds `SVC_API_KEY`.
    #[must_use]
    pub fn with_api_key(self, key: &str) -> Self {
        self.with_variable("SVC_API_KEY", key)
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes a file into the directory in which commands run.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Starts a command that waits for another user. It stops with the test.
    pub fn start(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(&self.program);
        command.args(arguments).env_clear().env("HOME", self.home.path()).current_dir(self.home.path());
        command.env("SVC_BASE_URL", &self.base_url).env("SVC_TENANT", &self.tenant);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command.spawn().unwrap()
    }

    /// Runs a command with `input` on standard input.
    pub async fn run(&self, arguments: &[&str], input: &str) -> SvcOutput {
        let mut child = self.start(arguments);
        // A command that fails early does not read its input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes()).await;
        let output = within(DEADLINE, &format!("svc {arguments:?}"), child.wait_with_output()).await.unwrap();
        SvcOutput {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs a command that must succeed. Returns standard output.
    pub async fn run_ok(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input).await;
        assert_eq!(output.code, Some(0), "svc {arguments:?}: {output:?}");
        output.stdout
    }

    /// Runs a command with `--output json`, which must succeed.
    pub async fn json(&self, arguments: &[&str], input: &str) -> Value {
        let stdout = self.run_ok(&[arguments, &["--output", "json"]].concat(), input).await;
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("svc {arguments:?}: {error}: {stdout}"))
    }
}
