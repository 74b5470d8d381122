//! The programs and servers of the test run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A variable that `svc-standalone with-servers` sets.
pub fn variable(name: &str) -> Option<OsString> {
    #[expect(clippy::disallowed_methods, reason = "the variables of the test run")]
    std::env::var_os(name)
}

/// A variable that must be set.
pub fn required_variable(name: &str) -> OsString {
    variable(name).unwrap_or_else(|| panic!("{name} is not set: run the tests with `make test`"))
}

/// A command for a program of this workspace, with only `PATH` in its environment.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(program_path(name));
    command.env_clear().envs(variable("PATH").map(|path| ("PATH", path))).stdin(Stdio::null());
    command
}

/// Cargo places programs in the parent directory of the tests, and in the directory of other programs.
pub fn program_path(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let (sibling, parent) = (test.with_file_name(name), test.parent().unwrap().with_file_name(name));
    let path = if sibling.exists() { sibling } else { parent };
    assert!(path.exists(), "{} is not built: run the tests with `make test`", path.display());
    path
}

/// The content of the tools file, which `deploy/local/fetch.py` writes.
pub fn tools() -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(tools_file()).unwrap()).unwrap()
}

/// The path of a program, if `deploy/local/fetch.py` has found it.
pub fn installed(name: &str) -> Option<PathBuf> {
    let path = tools()[name].as_str().map(PathBuf::from);
    if path.is_none() {
        eprintln!("{name} is not installed: its test is skipped");
    }
    path
}

pub(crate) fn tools_file() -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.dev/tools.json");
    assert!(file.exists(), "{} is missing: run the tests with `make test`", file.display());
    file
}
