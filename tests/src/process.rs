//! Processes of a test: start, output, signals and process trees.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use testkit::{DEADLINE, wait_until, within};

/// Sends SIGTERM to the process when standard input is closed, which happens when the test process exits.
const WATCHER: &str = r#"cat >/dev/null; kill -s TERM "$1" 2>/dev/null"#;
/// The time between SIGTERM and SIGKILL.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// A running process. It stops with the test.
pub struct Process {
    child: Child,
    watcher: Child,
    output: PathBuf,
}

impl Process {
    /// Starts the process. Its output goes to the file. The output of an earlier process stays in `<file>.1`, `<file>.2` and so on.
    pub fn start(command: &mut Command, output: &Path) -> Self {
        if output.exists() {
            let kept = (1..).map(|number| output.with_added_extension(number.to_string()));
            let free = kept.into_iter().find(|path| !path.exists()).unwrap();
            std::fs::rename(output, free).unwrap();
        }
        let file = File::create(output).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        // Separate process groups: a signal to the group of the test run does not reach them.
        let child = command.process_group(0).spawn().unwrap();
        let mut watcher = Command::new("sh");
        watcher.args(["-c", WATCHER, "sh", &child.id().to_string()]).stdin(Stdio::piped()).process_group(0);
        Self { child, watcher: watcher.spawn().unwrap(), output: output.to_owned() }
    }

    /// The process id.
    pub fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    /// The output so far.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// Sends SIGINT to the process group, as Ctrl-C in a terminal does.
    pub fn interrupt(&self) {
        kill_process_group(Pid::from_raw(self.pid()).unwrap(), Signal::INT).unwrap();
    }

    /// Returns whether the process has exited.
    pub fn has_exited(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Panics with the output if the process has exited.
    pub fn expect_running(&mut self) {
        assert!(!self.has_exited(), "the process exited:\n{}", self.output());
    }

    /// Waits until the process exits.
    pub async fn wait(&mut self) -> ExitStatus {
        wait_until("the process exits", async || self.child.try_wait().unwrap()).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The watcher first: later the id could belong to another process.
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
        let start = Instant::now();
        let mut signal = Signal::TERM;
        while matches!(self.child.try_wait(), Ok(None)) {
            kill(self.pid(), signal);
            // Only one SIGTERM: a second one aborts the graceful shutdown.
            while start.elapsed() < STOP_TIMEOUT && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(10));
            }
            signal = Signal::KILL;
        }
    }
}

/// Runs a command to its end.
pub async fn output_of(command: Command) -> Output {
    let name = command.get_program().display().to_string();
    let output = tokio::process::Command::from(command).kill_on_drop(true).output();
    within(DEADLINE, &name, output).await.unwrap()
}

/// Sends a signal. A process that has exited is ignored.
pub fn kill(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}

/// Returns whether the process runs. A zombie does not.
pub fn is_alive(pid: i32) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// The process and all its descendants.
pub fn descendants(pid: i32) -> Vec<i32> {
    let ids = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for id in ids {
        if let Some((_, parent)) = state_and_parent(id) {
            children.entry(parent).or_default().push(id);
        }
    }
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        found.extend(children.remove(parent).unwrap_or_default());
        next += 1;
    }
    found
}

/// State and parent from `/proc/<pid>/stat`. They follow the name, which can contain any character.
fn state_and_parent(pid: i32) -> Option<(String, i32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// A process tree after SIGSTOP. Dropping it sends SIGCONT.
pub struct StoppedProcesses(Vec<i32>);

impl StoppedProcesses {
    /// Stops the process and all its descendants.
    pub fn stop_tree(pid: i32) -> Self {
        let mut stopped = Self(Vec::new());
        // Repeats because a process that still runs can start another one.
        loop {
            let running: Vec<_> = descendants(pid).into_iter().filter(|id| !stopped.0.contains(id)).collect();
            if running.is_empty() {
                return stopped;
            }
            for id in &running {
                kill(*id, Signal::STOP);
            }
            stopped.0.extend(running);
        }
    }
}

impl Drop for StoppedProcesses {
    fn drop(&mut self) {
        for id in &self.0 {
            kill(*id, Signal::CONT);
        }
    }
}
