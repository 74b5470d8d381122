//! A child process that is killed when the test process ends, including when the test process is killed.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

/// Runs the program and kills it at the end of standard input.
const GUARD: &str = r#""$@" >"$0" 2>&1 & cat >/dev/null; kill -9 $!; wait $! 2>/dev/null"#;

/// Starts a program under the guard. Its output goes to `log`.
pub(crate) fn spawn(program: &Command, log: &Path) -> anyhow::Result<Child> {
    let mut guard = Command::new("sh");
    guard.arg("-c").arg(GUARD).arg(log).arg(program.get_program()).args(program.get_args());
    guard.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    guard.stdin(Stdio::piped()).spawn().context("failed to start sh, which guards a test server")
}

/// Kills the program (SIGKILL) and waits for its end.
pub(crate) fn stop(mut guard: Child) {
    drop(guard.stdin.take());
    // Cannot fail: this process started the guard and waits for it only here.
    let _ = guard.wait();
}
