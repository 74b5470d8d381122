//! Memory and processor time of a process, as Linux tells them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const EVERY: Duration = Duration::from_millis(50);

/// Bytes that are resident now; 0 where nobody tells.
pub(crate) fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or_default() * 1024
}

/// How long the process's threads have run so far; nothing where nobody tells.
pub(crate) fn processor_time(pid: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let times = threads.into_iter().flatten().filter_map(|thread| {
        let said = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        said.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(times.sum())
}

/// The same of a process and its children that live.
pub(crate) fn family_time(pid: u32) -> Duration {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    processor_time(pid) + pids.map(processor_time).sum::<Duration>()
}

/// Watches a process until it is asked for the peak.
pub(crate) struct Peak {
    over: Arc<AtomicBool>,
    watching: JoinHandle<u64>,
}

impl Peak {
    pub(crate) fn of(pid: u32) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let mut peak = resident(pid);
        let watching = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                std::thread::sleep(EVERY);
                peak = peak.max(resident(pid));
            }
            peak
        });
        Self { over, watching }
    }

    /// The most that was resident at once.
    pub(crate) fn bytes(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.watching.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_grows_with_work() {
        let pid = std::process::id();
        let before = processor_time(pid);
        while processor_time(pid) < before + 2 * EVERY {
            std::hint::black_box(0);
        }
        assert_eq!(processor_time(u32::MAX), Duration::ZERO);
    }

    #[test]
    fn the_peak_counts_what_is_there_no_more() {
        let pid = std::process::id();
        let block = vec![1_u8; 64 << 20];
        let with_block = resident(pid);
        let peak = Peak::of(pid);
        drop(std::hint::black_box(block));
        assert!(resident(pid) < with_block - (32 << 20));
        assert!(peak.bytes() >= with_block);
    }
}
