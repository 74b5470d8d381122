//! A process of a test: its output is kept, and it ends with the test.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use testkit::{DEADLINE, wait_until, within};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::kill;

/// Asks the process to end as soon as its own standard input ends, which it does however the test dies.
const WATCHER: &str = r#"cat >/dev/null; kill -s TERM "$1" 2>/dev/null"#;
/// What a process gets to end in order when the test is over.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running process.
pub struct Process {
    child: Child,
    watcher: Child,
    output: PathBuf,
}

impl Process {
    /// Starts it; what it writes goes to the file.
    pub fn start(command: &mut Command, output: &Path) -> Self {
        let file = File::create(output).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        // In groups of their own, so that what ends the test run does not end them first.
        let child = command.process_group(0).spawn().unwrap();
        let mut watcher = Command::new("sh");
        watcher.args(["-c", WATCHER, "sh", &child.id().to_string()]).stdin(Stdio::piped()).process_group(0);
        Self { child, watcher: watcher.spawn().unwrap(), output: output.to_owned() }
    }

    /// Its id.
    pub fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    /// What it has written so far.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// Ctrl-C at its terminal: what it started in its own group gets the signal too.
    pub fn interrupt(&self) {
        kill_process_group(Pid::from_raw(self.pid()).unwrap(), Signal::INT).unwrap();
    }

    /// Panics with its output when it has ended.
    pub fn expect_running(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "it ended ({ended:?}):\n{}", self.output());
    }

    /// Waits until it has ended.
    pub async fn ended(&mut self) -> ExitStatus {
        wait_until("the process has ended", async || self.child.try_wait().unwrap()).await
    }
}

/// Runs a command that ends by itself.
pub async fn output_of(command: Command) -> Output {
    let what = command.get_program().display().to_string();
    let running = tokio::process::Command::from(command).kill_on_drop(true).output();
    within(DEADLINE, &what, running).await.unwrap()
}

impl Drop for Process {
    fn drop(&mut self) {
        // First the watcher: later the id may be somebody else's.
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
        let start = Instant::now();
        let mut signal = Signal::TERM;
        while matches!(self.child.try_wait(), Ok(None)) {
            kill(self.pid(), signal);
            // Asked once only: a second request would abort the first.
            while start.elapsed() < PATIENCE && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(10));
            }
            signal = Signal::KILL;
        }
    }
}
