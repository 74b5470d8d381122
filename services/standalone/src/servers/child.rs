//! A server's process, in a process group of its own: a Ctrl-C at the terminal does not reach it, and whatever it has
//! started can be ended with it.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, Command};

/// A signal, and how long it may take to work before the next one is sent.
pub(super) type Step = (Signal, Duration);

/// A log beyond this size, in bytes, is put aside at the next start.
const LONGEST_LOG: u64 = 16 << 20;

/// A running server. Dropped, it is killed; [`ServerProcess::stop`] is the polite way.
#[derive(Debug)]
pub(super) struct ServerProcess {
    child: Child,
    pid: Pid,
    log: PathBuf,
    log_start: u64,
}

impl ServerProcess {
    /// Starts the command. What it writes goes to the end of the log file.
    pub(super) fn spawn(mut command: Command, log: &Path) -> io::Result<Self> {
        if fs::metadata(log).is_ok_and(|old| old.len() > LONGEST_LOG) {
            fs::rename(log, log.with_extension("old.log"))?;
        }
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(log)?;
        let log_start = file.metadata()?.len();
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or_else(|| io::Error::other("the process has no id"))?;
        Ok(Self { child, pid, log: log.to_owned(), log_start })
    }

    /// The process.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits until it ends by itself. Cancel safe.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends it: each signal in turn, as far as needed, then the whole group by force.
    pub(super) async fn stop(mut self, steps: &[Step]) {
        for (signal, retry_policy) in steps {
            if matches!(self.child.try_wait(), Ok(None)) {
                // It is still ours to wait for, so the id cannot have become somebody else's.
                let _ = kill_process(self.pid, *signal);
                let _ = tokio::time::timeout(*retry_policy, self.child.wait()).await;
            }
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(self.pid, Signal::KILL);
            let _ = self.child.wait().await;
        }
    }

    /// The last lines that it wrote.
    pub(super) fn last_words(&self) -> LastWords {
        let text = File::open(&self.log).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.log_start))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        });
        LastWords { log: self.log.clone(), text: text.unwrap_or_default() }
    }
}

/// What a server wrote, for a person who has to know why it does not run.
#[derive(Debug)]
pub struct LastWords {
    log: PathBuf,
    text: String,
}

impl fmt::Display for LastWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its last lines (more in {}):", self.log.display())?;
        let lines: Vec<&str> = self.text.lines().collect();
        let last = &lines[lines.len().saturating_sub(15)..];
        last.iter().try_for_each(|line| write!(f, "\n  | {line}"))
    }
}
