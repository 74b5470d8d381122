//! A server that dies with the test, however the test dies.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

/// The shell kills the server as soon as its own standard input ends.
const GUARD: &str = r#""$@" >"$0" 2>&1 & cat >/dev/null; kill -9 $!; wait $! 2>/dev/null"#;

/// Starts a program under guard; what it writes goes to `log`.
pub(crate) fn spawn(program: &Command, log: &Path) -> anyhow::Result<Child> {
    let mut guard = Command::new("sh");
    guard.arg("-c").arg(GUARD).arg(log).arg(program.get_program()).args(program.get_args());
    guard.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    guard.stdin(Stdio::piped()).spawn().context("a POSIX shell to guard a server")
}

/// Kills the server (SIGKILL) and waits until it is gone.
pub(crate) fn stop(mut guard: Child) {
    drop(guard.stdin.take());
    // It was ours and is not waited for elsewhere, so this cannot fail; and in `drop` nobody could be told.
    let _ = guard.wait();
}
