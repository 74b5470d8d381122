//! Processes as the kernel shows them.

use std::collections::HashMap;

use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal; a process that is gone needs none.
pub fn kill(pid: i32, signal: Signal) {
    let _ = kill_process(Pid::from_raw(pid).unwrap(), signal);
}

/// Whether the process runs; one that has ended and only waits for its parent to look does not.
pub fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// The process and all below it.
pub fn descendants(pid: i32) -> Vec<i32> {
    let ids = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for id in ids {
        if let Some((_, parent)) = stat(id) {
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

/// State and parent, from after the name, which may hold anything.
fn stat(pid: i32) -> Option<(String, i32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// A process tree that stands still; dropped, it goes on.
pub struct Frozen(Vec<i32>);

impl Frozen {
    /// Stops the process and all below it.
    pub fn tree(pid: i32) -> Self {
        let mut frozen = Self(Vec::new());
        // Until nothing new appears: those that still ran may have made others.
        loop {
            let running: Vec<_> = descendants(pid).into_iter().filter(|id| !frozen.0.contains(id)).collect();
            if running.is_empty() {
                return frozen;
            }
            for id in &running {
                kill(*id, Signal::STOP);
            }
            frozen.0.extend(running);
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for id in &self.0 {
            kill(*id, Signal::CONT);
        }
    }
}
