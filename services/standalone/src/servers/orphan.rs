//! Servers that an earlier run had to leave behind because it was killed. They are found by the id in their pid file and
//! recognised by their command line; a process that is not surely theirs is never touched.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::child::Step;
use crate::say::note;

const POLL: Duration = Duration::from_millis(20);

/// Stops the process that the pid file names, if `mark` stands in its command line, and removes the file.
pub(super) async fn clear(pid_file: &Path, mark: &str, steps: &[Step]) -> io::Result<()> {
    let text = match std::fs::read_to_string(pid_file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    // Unsigned, since a negative number would mean a whole group, or everything.
    let pid = text.lines().next().and_then(|line| line.trim().parse::<u32>().ok());
    let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    if let Some(pid) = pid.filter(|pid| is_marked(*pid, mark)) {
        note(format_args!("stopping process {} that an earlier run left behind …", pid.as_raw_pid()));
        stop(pid, mark, steps).await?;
    }
    match std::fs::remove_file(pid_file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

async fn stop(pid: Pid, mark: &str, steps: &[Step]) -> io::Result<()> {
    for (signal, retry_policy) in steps {
        let _ = kill_process(pid, *signal);
        if gone_within(pid, mark, *retry_policy).await {
            return Ok(());
        }
    }
    // Each server was started as the leader of a group of its own.
    let _ = kill_process_group(pid, Signal::KILL);
    if gone_within(pid, mark, Duration::from_secs(5)).await {
        return Ok(());
    }
    Err(io::Error::other(format!("process {} of an earlier run cannot be stopped", pid.as_raw_pid())))
}

async fn gone_within(pid: Pid, mark: &str, retry_policy: Duration) -> bool {
    let start = Instant::now();
    while is_marked(pid, mark) {
        if start.elapsed() > retry_policy {
            return false;
        }
        tokio::time::sleep(POLL).await;
    }
    true
}

/// Whether the process lives and its command line has the mark, as whole words. A zombie's command line is empty.
fn is_marked(pid: Pid, mark: &str) -> bool {
    let marked = |line: String| format!(" {} ", line.trim()).contains(&format!(" {mark} "));
    command_line(pid.as_raw_pid()).is_some_and(marked)
}

fn command_line(pid: i32) -> Option<String> {
    if Path::new("/proc/self/cmdline").exists() {
        let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
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
    use std::process::{Command, Stdio};

    use super::*;

    const STEPS: &[Step] = &[(Signal::TERM, Duration::from_secs(10))];

    #[tokio::test]
    async fn only_a_process_with_the_mark_is_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let pid_file = dir.path().join("pid");
        let mut process = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(process.id()).unwrap();
        while !is_marked(Pid::from_raw(pid).unwrap(), "sleep 1000") {
            // The kernel shows the new command line a moment after the spawn has returned.
            tokio::task::yield_now().await;
        }
        std::fs::write(&pid_file, process.id().to_string()).unwrap();

        clear(&pid_file, "sleep 2000", STEPS).await.unwrap();
        assert!(
            process.try_wait().unwrap().is_none(),
            "the id now belongs to something else, which lives on"
        );
        assert!(!pid_file.exists(), "a stale pid file would keep Postgres from starting");

        std::fs::write(&pid_file, format!("{}\n/more/lines\n", process.id())).unwrap();
        clear(&pid_file, "sleep 1000", STEPS).await.unwrap();
        assert!(!process.wait().unwrap().success());
    }

    #[tokio::test]
    async fn no_pid_file_and_one_without_sense_are_nothing_to_clear() {
        let dir = tempfile::tempdir().unwrap();
        clear(&dir.path().join("pid"), "sleep", STEPS).await.unwrap();
        std::fs::write(dir.path().join("pid"), "-1\n").unwrap();
        clear(&dir.path().join("pid"), "sleep", STEPS).await.unwrap();
    }
}
