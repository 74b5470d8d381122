//! The client `svc` as a person or a script uses it, in a home of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use testkit::{DEADLINE, within};

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

/// Somebody at a machine of their own.
pub struct Svc {
    program: PathBuf,
    home: TempDir,
    base_url: String,
    tenant: String,
    api_key: Option<String>,
}

/// What a command came to.
#[derive(Debug)]
pub struct Ran {
    /// The exit status.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it said.
    pub stderr: String,
}

impl Svc {
    /// As after the `export` line of the greeting.
    pub fn new(program: &Path, base_url: &str, tenant: &str) -> Self {
        Self {
            program: program.to_owned(),
            home: tempfile::Builder::new().prefix("svc-e2e-home-").tempdir().unwrap(),
            base_url: base_url.to_owned(),
            tenant: tenant.to_owned(),
            api_key: None,
        }
    }

    /// The same as a program that holds this key.
    #[must_use]
    pub fn with_api_key(self, key: &str) -> Self {
        Self { api_key: Some(key.to_owned()), ..self }
    }

    /// Starts a command line that waits for somebody else. It ends with the test.
    pub fn start(&self, arguments: &[&str]) -> Child {
        let mut command = Command::new(&self.program);
        command.args(arguments).env_clear().env("HOME", self.home.path()).current_dir(self.home.path());
        command.env("SVC_BASE_URL", &self.base_url).env("SVC_TENANT", &self.tenant);
        command.envs(self.api_key.iter().map(|key| ("SVC_API_KEY", key)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command.spawn().unwrap()
    }

    /// Runs a command line with this on standard input.
    pub async fn run(&self, arguments: &[&str], input: &str) -> Ran {
        let mut child = self.start(arguments);
        // A client that refuses early does not read what it is sent.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes()).await;
        let output = within(DEADLINE, &format!("svc {arguments:?}"), child.wait_with_output()).await.unwrap();
        Ran {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The same, which must succeed.
    pub async fn done(&self, arguments: &[&str], input: &str) -> String {
        let ran = self.run(arguments, input).await;
        assert_eq!(ran.code, Some(0), "svc {arguments:?}: {ran:?}");
        ran.stdout
    }

    /// The same; what it prints with `--output json`.
    pub async fn json(&self, arguments: &[&str], input: &str) -> Value {
        let printed = self.done(&[arguments, &["--output", "json"]].concat(), input).await;
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("svc {arguments:?}: {error}: {printed}"))
    }
}
