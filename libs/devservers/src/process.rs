//! The process of a server, and the process that a killed run left behind.
//!
//! Each server has a separate process group: Ctrl-C in the terminal does not reach it, and its children can be killed
//! with it. A process of an earlier run is found by its pid file and identified by its command line before it is signalled.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, Command};

use crate::print_progress;

/// A signal, and the time until the next one is sent.
pub(crate) type StopStep = (Signal, Duration);

/// A larger log, in bytes, is rotated at the next start.
const MAX_LOG_BYTES: u64 = 16 << 20;
const POLL: Duration = Duration::from_millis(20);

/// A running server process. Dropping it kills the process; [`ServerProcess::stop`] stops it gracefully.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    pid: Pid,
    log: PathBuf,
    log_start: u64,
}

impl ServerProcess {
    /// Starts the command. Its output is appended to the log.
    pub(crate) fn spawn(mut command: Command, log: &Path) -> io::Result<Self> {
        if fs::metadata(log).is_ok_and(|metadata| metadata.len() > MAX_LOG_BYTES) {
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

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits until the process exits. Cancel safe.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Sends the signals in order until the process exits, then kills its process group.
    pub(crate) async fn stop(mut self, steps: &[StopStep]) {
        for (signal, timeout) in steps {
            if matches!(self.child.try_wait(), Ok(None)) {
                // The child is not reaped yet, so its id cannot belong to another process.
                let _ = kill_process(self.pid, *signal);
                let _ = tokio::time::timeout(*timeout, self.child.wait()).await;
            }
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(self.pid, Signal::KILL);
            let _ = self.child.wait().await;
        }
    }

    /// The end of the log since this start, for an error message.
    pub(crate) fn log_tail(&self) -> String {
        let text = File::open(&self.log).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.log_start))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        });
        let text = text.unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(15)..].join("\n  | ");
        format!("end of its log {}:\n  | {last}", self.log.display())
    }
}

/// Runs a program with `--version`, and returns the version that it prints.
pub(crate) async fn version_of(program: &Path) -> anyhow::Result<String> {
    let output = Command::new(program).arg("--version").output().await;
    let output = output.with_context(|| format!("failed to run {} --version", program.display()))?;
    let version = find_version(&String::from_utf8_lossy(&output.stdout)).map(str::to_owned);
    version.with_context(|| format!("{} --version prints no version", program.display()))
}

/// The version in a text, for example `15.18` in `postgres (PostgreSQL) 15.18 (Debian …)`, and `2.12.6` in `nats-server: v2.12.6`.
pub(crate) fn find_version(text: &str) -> Option<&str> {
    let starts_with_digit = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    text.split_whitespace().map(|word| word.trim_start_matches('v')).find(starts_with_digit)
}

/// The first number of a version.
pub(crate) fn major(version: &str) -> Option<&str> {
    version.split(|c: char| !c.is_ascii_digit()).next()
}

/// Stops the process in the pid file if its command line contains `arguments`, and removes the file.
pub(crate) async fn stop_orphan(pid_file: &Path, arguments: &str, steps: &[StopStep]) -> io::Result<()> {
    let text = match fs::read_to_string(pid_file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    // Unsigned: `kill` applies a negative number to a process group.
    let pid = text.lines().next().and_then(|line| line.trim().parse::<u32>().ok());
    let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    if let Some(pid) = pid.filter(|pid| has_arguments(*pid, arguments)) {
        print_progress(format_args!("Stopping process {} of an earlier run …", pid.as_raw_pid()));
        stop_by_pid(pid, arguments, steps).await?;
    }
    match fs::remove_file(pid_file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

async fn stop_by_pid(pid: Pid, arguments: &str, steps: &[StopStep]) -> io::Result<()> {
    for (signal, timeout) in steps {
        let _ = kill_process(pid, *signal);
        if exits_within(pid, arguments, *timeout).await {
            return Ok(());
        }
    }
    let _ = kill_process_group(pid, Signal::KILL);
    if exits_within(pid, arguments, Duration::from_secs(5)).await {
        return Ok(());
    }
    Err(io::Error::other(format!("process {} of an earlier run does not exit", pid.as_raw_pid())))
}

async fn exits_within(pid: Pid, arguments: &str, timeout: Duration) -> bool {
    let start = Instant::now();
    while has_arguments(pid, arguments) {
        if start.elapsed() > timeout {
            return false;
        }
        tokio::time::sleep(POLL).await;
    }
    true
}

/// Returns whether the command line of the process contains these words. The command line of a zombie is empty.
fn has_arguments(pid: Pid, arguments: &str) -> bool {
    let contains = |line: String| format!(" {} ", line.trim()).contains(&format!(" {arguments} "));
    command_line(pid.as_raw_pid()).is_some_and(contains)
}

fn command_line(pid: i32) -> Option<String> {
    if Path::new("/proc/self/cmdline").exists() {
        let bytes = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        return Some(String::from_utf8_lossy(&bytes).replace('\0', " "));
    }
    let ps = std::process::Command::new("ps")
        .args(["-ww", "-o", "command=", "-p", &pid.to_string()])
        .output()
        .ok()?;
    ps.status.success().then(|| String::from_utf8_lossy(&ps.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const STEPS: &[StopStep] = &[(Signal::TERM, Duration::from_secs(10))];

    #[tokio::test]
    async fn only_a_process_with_the_expected_arguments_is_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let pid_file = dir.path().join("pid");
        let mut process = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(process.id()).unwrap();
        while !has_arguments(Pid::from_raw(pid).unwrap(), "sleep 1000") {
            // The kernel shows the new command line shortly after `spawn` returns.
            tokio::task::yield_now().await;
        }
        fs::write(&pid_file, process.id().to_string()).unwrap();

        stop_orphan(&pid_file, "sleep 2000", STEPS).await.unwrap();
        assert!(process.try_wait().unwrap().is_none(), "a process with a reused id was signalled");
        assert!(!pid_file.exists(), "a stale pid file would prevent the start of Postgres");

        fs::write(&pid_file, format!("{}\n/more/lines\n", process.id())).unwrap();
        stop_orphan(&pid_file, "sleep 1000", STEPS).await.unwrap();
        assert!(!process.wait().unwrap().success());
    }

    #[test]
    fn finds_the_version_in_the_output_of_each_server() {
        for (output, version, first) in [
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", Some("15.18"), Some("15")),
            ("postgres (PostgreSQL) 19beta1", Some("19beta1"), Some("19")),
            ("nats-server: v2.12.6", Some("2.12.6"), Some("2")),
            ("sh: not found", None, None),
        ] {
            let found = find_version(output);
            assert_eq!((found, found.and_then(major)), (version, first), "{output}");
        }
    }

    #[tokio::test]
    async fn a_missing_or_invalid_pid_file_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        stop_orphan(&dir.path().join("pid"), "sleep", STEPS).await.unwrap();
        fs::write(dir.path().join("pid"), "-1\n").unwrap();
        stop_orphan(&dir.path().join("pid"), "sleep", STEPS).await.unwrap();
    }
}
