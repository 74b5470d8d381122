//! Where the binaries are, and what `make test` says of the servers and programs beside them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A variable that `svc-standalone with-servers` sets.
pub fn variable(name: &str) -> Option<OsString> {
    #[expect(clippy::disallowed_methods, reason = "the test run's own environment")]
    std::env::var_os(name)
}

/// A variable that must be there.
pub fn given(name: &str) -> OsString {
    variable(name).unwrap_or_else(|| panic!("{name} is not set: run `make test`"))
}

/// A command for one of this workspace's programs, with nothing of the machine's environment but the path of programs.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(binary(name));
    command.env_clear().envs(variable("PATH").map(|path| ("PATH", path))).stdin(Stdio::null());
    command
}

/// Beside the directory that cargo puts tests into.
pub(crate) fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let binary = test.parent().unwrap().with_file_name(name);
    assert!(binary.exists(), "{} is not built: run `make test`", binary.display());
    binary
}

/// The programs that `deploy/local/fetch.py` has found, by name.
pub fn tools() -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(tools_file()).unwrap()).unwrap()
}

/// Where it keeps them.
pub(crate) fn tools_file() -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.dev/tools.json");
    assert!(file.exists(), "{} is missing: run `make test`", file.display());
    file
}
