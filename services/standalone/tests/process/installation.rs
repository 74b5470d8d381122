//! An installation in a temporary directory, controlled through the binary. Dropping it stops and removes everything.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use standalone::run_file::RunFile;
use tempfile::TempDir;

/// Longer than any step takes on a busy machine.
const DEADLINE: Duration = Duration::from_mins(2);

pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc-standalone"));
    command.stdin(Stdio::null());
    command
}

/// The file that `deploy/local/fetch.py` writes.
pub(crate) fn tools_file() -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.dev/tools.json");
    assert!(file.exists(), "{} is missing: run the tests with `make test`", file.display());
    file
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn is_alive(pid: i32) -> bool {
    test_kill_process(Pid::from_raw(pid).unwrap()).is_ok() && !is_zombie(pid)
}

/// Returns whether the process has exited but is not reaped.
fn is_zombie(pid: i32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.is_empty())
}

pub(crate) fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

pub(crate) struct Installation {
    pub(crate) dir: TempDir,
}

impl Installation {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn up_command(&self, data: &str, port: u16) -> Command {
        let mut command = binary();
        command.args(["up", "--port", &port.to_string(), "--data"]).arg(self.path(data));
        command.arg("--run-file").arg(self.path("standalone.json")).arg("--tools").arg(tools_file());
        command
    }

    /// Starts `up` and waits until the run file is written.
    pub(crate) fn up(&self, data: &str) -> Run {
        self.up_with(data, &[])
    }

    /// Like [`Self::up`], with environment variables.
    pub(crate) fn up_with(&self, data: &str, variables: &[(&str, &str)]) -> Run {
        let output = self.path("output");
        let file = File::create(&output).unwrap();
        let mut command = self.up_command(data, 0);
        command.envs(variables.iter().copied()).stdout(file.try_clone().unwrap()).stderr(file);
        let mut child = command.spawn().unwrap();
        let run_file = self.path(data).join("standalone.json");
        let is_ready =
            |child: &Child| RunFile::load(&run_file).is_ok_and(|run_file| run_file.pid == child.id());
        wait_until("the system is ready", || {
            let status = child.try_wait().unwrap();
            assert!(status.is_none(), "svc-standalone exited:\n{}", self.output());
            is_ready(&child)
        });
        Run { run_file: RunFile::load(&run_file).unwrap(), child }
    }

    /// What the last run has printed.
    pub(crate) fn output(&self) -> String {
        std::fs::read_to_string(self.path("output")).unwrap()
    }

    pub(crate) fn down(&self, data: &str) -> String {
        let output = binary().args(["down", "--data"]).arg(self.path(data)).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        // A failed test may have left them running.
        for data in ["data", "other"] {
            let _ = binary().args(["down", "--remove", "--data"]).arg(self.path(data)).output();
        }
    }
}

pub(crate) struct Run {
    pub(crate) run_file: RunFile,
    child: Child,
}

impl Run {
    pub(crate) fn processes(&self) -> [i32; 3] {
        [
            i32::try_from(self.run_file.pid).unwrap(),
            self.run_file.children.postgres,
            self.run_file.children.nats,
        ]
    }

    pub(crate) fn send(&self, signal: Signal) {
        send(i32::try_from(self.run_file.pid).unwrap(), signal);
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the process exits", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.send(Signal::TERM);
            let _ = self.child.wait();
        }
    }
}
