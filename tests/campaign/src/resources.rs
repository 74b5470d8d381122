//! Resource usage of each process after a round, and latencies of the round. A long run without faults shows whether they grow.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use e2e::descendants;

/// Values by name. Each name ends with the unit.
pub(crate) type Values = BTreeMap<String, f64>;

const MIB: f64 = 1024.0 * 1024.0;

/// Adds memory, open files and threads of a process and its children.
pub(crate) fn add_process(values: &mut Values, name: &str, pid: i32) {
    let pids = descendants(pid);
    let count = |directory: &str| {
        let entries = pids.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/{directory}")).ok());
        entries.map(Iterator::count).sum::<usize>()
    };
    // Without shared memory, which each process of Postgres would count.
    let memory = pids.iter().map(|pid| private_bytes(*pid)).sum::<u64>();
    for (measure, value) in [
        ("memory, MiB", mebibytes(memory)),
        ("open files", number(count("fd"))),
        ("threads", number(count("task"))),
    ] {
        values.insert(format!("{name}: {measure}"), value);
    }
}

/// Adds the size of a directory.
pub(crate) fn add_disk(values: &mut Values, name: &str, directory: &Path) {
    values.insert(format!("{name}: disk, MiB"), mebibytes(size(directory)));
}

/// Adds median and 99th percentile of durations.
pub(crate) fn add_latency(values: &mut Values, name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    for percent in [50, 99] {
        // The nearest rank.
        let index = (times.len() * percent).div_ceil(100).saturating_sub(1);
        if let Some(time) = times.get(index) {
            values.insert(format!("{name}: p{percent}, ms"), time.as_secs_f64() * 1000.0);
        }
    }
}

/// The table of all values: their medians in the first and in the last third of the rounds, and the change. The first round is a
/// warm-up.
pub(crate) fn table(rounds: &[Values]) -> String {
    let rounds = rounds.get(1..).unwrap_or_default();
    let third = rounds.len().div_ceil(3);
    let (first, last) = (&rounds[..third], &rounds[rounds.len() - third..]);
    let head = "| Value | First third | Last third | Change |\n| --- | --: | --: | --: |\n".to_owned();
    let lines = last.first().into_iter().flat_map(Values::keys).map(|name| {
        let (before, after) = (median(first, name), median(last, name));
        let change = (after / before - 1.0) * 100.0;
        format!("| {name} | {before:.2} | {after:.2} | {change:+.0} % |\n")
    });
    std::iter::once(head).chain(lines).collect()
}

fn median(rounds: &[Values], name: &str) -> f64 {
    let mut values: Vec<f64> = rounds.iter().filter_map(|round| round.get(name).copied()).collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The anonymous resident memory of a process in bytes (`RssAnon`); 0 if it has ended.
fn private_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() * 1024
}

/// The size of all files. Files can disappear meanwhile.
fn size(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let size_of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size_of).sum()
}

#[expect(clippy::cast_precision_loss, reason = "a number for display")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / MIB
}

#[expect(clippy::cast_precision_loss, reason = "a number for display")]
fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_compares_the_first_third_with_the_last_and_omits_the_first_round() {
        let round = |value| Values::from([("ingest 0: memory, MiB".to_owned(), value)]);
        let rounds: Vec<_> = [99.0, 10.0, 10.0, 11.0, 11.0, 12.0, 12.0].map(round).into();
        let table = table(&rounds);
        assert!(table.ends_with("| ingest 0: memory, MiB | 10.00 | 12.00 | +20 % |\n"), "{table}");
    }

    #[test]
    fn memory_files_and_threads_of_this_process_are_measured() {
        let mut values = Values::new();
        add_process(&mut values, "test", i32::try_from(std::process::id()).unwrap());
        assert!(values.len() == 3 && values.values().all(|value| *value > 0.0), "{values:?}");
    }

    #[test]
    fn the_99th_percentile_is_exceeded_by_one_time_of_a_hundred() {
        let mut values = Values::new();
        add_latency(&mut values, "checks", (1..=100).map(Duration::from_millis).collect());
        let times: Vec<_> = values.values().map(|milliseconds| format!("{milliseconds:.0}")).collect();
        assert_eq!(times, ["50", "99"]);
    }
}
