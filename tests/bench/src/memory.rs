//! Resident memory of a process, as Linux tells it.

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

/// Watches a process until it is asked for the peak.
pub(crate) struct Peak {
    over: Arc<AtomicBool>,
    watching: JoinHandle<u64>,
}

impl Peak {
    pub(crate) fn of(pid: u32) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let watching = std::thread::spawn(move || {
            let mut peak = resident(pid);
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
    fn the_peak_counts_what_was_there_in_between() {
        let pid = std::process::id();
        let before = resident(pid);
        let peak = Peak::of(pid);
        let block = vec![1_u8; 64 << 20];
        while resident(pid) < before + (60 << 20) {
            std::hint::black_box(&block);
        }
        std::thread::sleep(2 * EVERY);
        drop(block);
        assert!(peak.bytes() >= before + (60 << 20));
    }
}
