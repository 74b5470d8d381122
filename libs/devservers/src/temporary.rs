//! The data directory of servers for one command. The next process that creates one removes what a killed process left behind.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{StatVfsMountFlags, statvfs};

use crate::{DataDir, Lock, LockAttempt, secret, stop_orphans};

const PREFIX: &str = "svc-servers-";
/// The file system of POSIX shared memory on Linux.
const MEMORY: &str = "/dev/shm";
/// Ten times the bytes that the tests use at a time.
const MIN_MEMORY: u64 = 4 << 30;

/// Creates and locks a directory, after it has removed those of this user's processes that were killed. The caller removes the
/// directory before it drops the lock.
///
/// # Errors
/// If a directory cannot be created or removed, or a server of a killed process cannot be stopped.
pub async fn create_temporary_directory() -> anyhow::Result<(DataDir, Lock)> {
    let temp = &parent();
    remove_leftovers(temp).await?;
    let name = &secret::generate()[..12];
    // The directory gets its final name only after it is locked: another process removes unlocked ones.
    let (part, whole) = (temp.join(format!("svc-new-{name}")), temp.join(format!("{PREFIX}{name}")));
    let data = DataDir::at(&part)?;
    data.create().with_context(|| format!("failed to create a directory in {}", temp.display()))?;
    let LockAttempt::Acquired(lock) = Lock::try_acquire(&data.lock()).await? else {
        anyhow::bail!("another process has locked {}", part.display())
    };
    std::fs::rename(&part, &whole)?;
    Ok((DataDir::at(&whole)?, lock))
}

/// `TMPDIR` if it is set, else memory if there is enough: each test database is hundreds of files.
fn parent() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "the standard library reads it too")]
    let is_set = std::env::var_os("TMPDIR").is_some();
    let has_space = statvfs(MEMORY).is_ok_and(|memory| {
        // Postgres may be copied there (`Cluster`).
        let can_execute = !memory.f_flag.contains(StatVfsMountFlags::NOEXEC);
        can_execute && memory.f_bavail.saturating_mul(memory.f_frsize) >= MIN_MEMORY
    });
    if !is_set && has_space { MEMORY.into() } else { std::env::temp_dir() }
}

/// Stops the servers and removes the directories of this user's processes that were killed.
async fn remove_leftovers(temp: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(temp)?.flatten() {
        let data = DataDir::at(&entry.path())?;
        // All users write to the temporary directory: directories of other users are not touched.
        let has_prefix = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let is_leftover = has_prefix && data.is_own() && data.lock().exists();
        if !is_leftover {
            continue;
        }
        if let Ok(LockAttempt::Acquired(_lock)) = Lock::try_acquire(&data.lock()).await {
            stop_orphans(&data).await?;
            data.remove()?;
        }
    }
    Ok(())
}
