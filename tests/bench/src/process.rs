//! Memory and CPU time of a process, from `/proc`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_millis(50);

/// The resident memory in bytes; 0 without `/proc`.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or_default() * 1024
}

/// The CPU time of all threads of the process; zero without `/proc`.
pub(crate) fn cpu_time(pid: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let times = threads.into_iter().flatten().filter_map(|thread| {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(times.sum())
}

/// The CPU time of the process and its running children.
pub(crate) fn cpu_time_with_children(pid: u32) -> Duration {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    cpu_time(pid) + pids.map(cpu_time).sum::<Duration>()
}

/// Samples the resident memory of a process in the background.
pub(crate) struct PeakMemory {
    stop: Arc<AtomicBool>,
    sampling: JoinHandle<u64>,
}

impl PeakMemory {
    pub(crate) fn of(pid: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mut peak = resident_bytes(pid);
        let sampling = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(INTERVAL);
                peak = peak.max(resident_bytes(pid));
            }
            peak
        });
        Self { stop, sampling }
    }

    /// Stops and returns the peak.
    pub(crate) fn bytes(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.sampling.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_increases_with_work() {
        let pid = std::process::id();
        let before = cpu_time(pid);
        while cpu_time(pid) < before + 2 * INTERVAL {
            std::hint::black_box(0);
        }
        assert_eq!(cpu_time(u32::MAX), Duration::ZERO);
    }

    #[test]
    fn the_peak_includes_memory_that_was_freed() {
        let pid = std::process::id();
        let block = vec![1_u8; 64 << 20];
        let with_block = resident_bytes(pid);
        let peak = PeakMemory::of(pid);
        drop(std::hint::black_box(block));
        assert!(resident_bytes(pid) < with_block - (32 << 20));
        assert!(peak.bytes() >= with_block);
    }
}
