//! The data directory of one installation, and its lock. The kernel releases the lock when the process ends.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The result of [`Lock::try_acquire`].
#[derive(Debug)]
pub enum LockAttempt {
    /// This process holds the lock until the [`Lock`] is dropped.
    Acquired(Lock),
    /// Another process holds the lock.
    Held {
        /// The process id; `None` if the process has not written it yet.
        pid: Option<i32>,
    },
}

/// A locked file that contains the id of this process.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a process that starts at this moment has a copy of the descriptor until it runs its program.
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Tries to acquire the lock for 100 ms, because [`Lock::holder`] of another process holds it briefly.
    ///
    /// # Errors
    /// If the file cannot be opened or written.
    pub async fn try_acquire(path: &Path) -> io::Result<LockAttempt> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // Another user could have placed a symbolic link there.
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)?;
        for _ in 0..5 {
            match file.try_lock() {
                Ok(()) => {
                    file.set_len(0)?;
                    writeln!(file, "{}", std::process::id())?;
                    return Ok(LockAttempt::Acquired(Self { file }));
                }
                Err(TryLockError::WouldBlock) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(LockAttempt::Held { pid: read_pid(&mut file)? })
    }

    /// The process that holds the lock. A missing file is not created.
    ///
    /// # Errors
    /// If the file exists but cannot be read.
    pub fn holder(path: &Path) -> io::Result<Option<i32>> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => read_pid(&mut file),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Waits until no process holds the lock.
    ///
    /// # Errors
    /// If the file cannot be read, or `TimedOut` after `timeout`.
    pub async fn wait_for_release(path: &Path, timeout: Duration) -> io::Result<()> {
        let poll = async {
            while Self::holder(path)?.is_some() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(())
        };
        tokio::time::timeout(timeout, poll).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

fn read_pid(file: &mut File) -> io::Result<Option<i32>> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text.trim().parse().ok())
}

/// The paths of one installation. Only its owner can access the directory.
#[derive(Clone, Debug)]
pub struct DataDir {
    root: PathBuf,
}

impl DataDir {
    /// Makes the path absolute. Nothing is created.
    ///
    /// # Errors
    /// If the current directory does not exist.
    pub fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { root: std::path::absolute(path)? })
    }

    /// Creates the directory and its subdirectories with mode 0700.
    ///
    /// # Errors
    /// If a directory cannot be created.
    pub fn create(&self) -> io::Result<()> {
        for directory in [self.root.clone(), self.secrets(), self.logs(), self.mails()] {
            DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        }
        fs::set_permissions(&self.root, fs::Permissions::from_mode(0o700))
    }

    /// Returns whether only this user can have written to the directory.
    pub fn is_own(&self) -> bool {
        fs::symlink_metadata(&self.root).is_ok_and(|metadata| {
            metadata.is_dir()
                && metadata.uid() == rustix::process::geteuid().as_raw()
                && metadata.mode() & 0o7777 == 0o700
        })
    }

    /// Removes the directory, and the Postgres data if they are elsewhere. The caller holds the lock.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        if let Ok(target) = fs::read_link(self.root.join("postgres")) {
            fs::remove_dir_all(target)?;
        }
        fs::remove_dir_all(&self.root)
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The lock of the process that runs the installation.
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// The run file.
    pub fn run_file(&self) -> PathBuf {
        self.root.join("standalone.json")
    }

    /// Passwords and tokens, one file each.
    pub fn secrets(&self) -> PathBuf {
        self.root.join("secrets")
    }

    /// The logs of the servers.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Outgoing mails, one file each.
    pub fn mails(&self) -> PathBuf {
        self.root.join("mails")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_contains_the_pid_of_its_holder_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert_eq!(Lock::holder(&path).unwrap(), None);
        assert!(!path.exists());
        let LockAttempt::Acquired(lock) = Lock::try_acquire(&path).await.unwrap() else {
            panic!("the lock is free")
        };
        let own = i32::try_from(std::process::id()).unwrap();
        let second = Lock::try_acquire(&path).await.unwrap();
        assert!(matches!(second, LockAttempt::Held { pid: Some(pid) } if pid == own));
        assert_eq!(Lock::holder(&path).unwrap(), Some(own));
        drop(lock);
        assert_eq!(Lock::holder(&path).unwrap(), None);
    }
}
