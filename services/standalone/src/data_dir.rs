//! The directory of one installation and the lock that says who runs it. A lock ends with its process, however that ends.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a try to lock came to.
#[derive(Debug)]
pub enum Claim {
    /// It is ours until the [`Lock`] is dropped.
    Ours(Lock),
    /// A living process has it.
    Held {
        /// That process; `None` in the instant before it has written its id down.
        pid: Option<i32>,
    },
}

/// A lock file that this process holds; it names the process.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Tries to take the lock. Waits a moment only, since [`Lock::holder`] must lock too to find out.
    ///
    /// # Errors
    /// When the file cannot be opened or written.
    pub async fn claim(path: &Path) -> io::Result<Claim> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // A link would have somebody else's file written to.
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)?;
        for _ in 0..5 {
            match file.try_lock() {
                Ok(()) => {
                    file.set_len(0)?;
                    writeln!(file, "{}", std::process::id())?;
                    return Ok(Claim::Ours(Self { _file: file }));
                }
                Err(TryLockError::WouldBlock) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(Claim::Held { pid: named_in(&mut file)? })
    }

    /// Who holds the lock, if anybody. A missing file is held by nobody, and is not made.
    ///
    /// # Errors
    /// When the file is there but cannot be read.
    pub fn holder(path: &Path) -> io::Result<Option<i32>> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => named_in(&mut file),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Waits until nobody holds the lock.
    ///
    /// # Errors
    /// When the file cannot be read, or the time is over.
    pub async fn released(path: &Path, most: Duration) -> io::Result<()> {
        let poll = async {
            while Self::holder(path)?.is_some() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(())
        };
        tokio::time::timeout(most, poll).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

fn named_in(file: &mut File) -> io::Result<Option<i32>> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text.trim().parse().ok())
}

/// The paths of one installation. Only its owner can enter the directory.
#[derive(Clone, Debug)]
pub struct DataDir {
    root: PathBuf,
}

impl DataDir {
    /// Names the directory, absolutely; nothing is made.
    ///
    /// # Errors
    /// When the current directory is gone.
    pub fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { root: std::path::absolute(path)? })
    }

    /// Makes the directory and those in it, closed to everybody else.
    ///
    /// # Errors
    /// When one cannot be made.
    pub fn create(&self) -> io::Result<()> {
        for directory in [self.root.clone(), self.secrets(), self.logs(), self.mails()] {
            DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        }
        fs::set_permissions(&self.root, fs::Permissions::from_mode(0o700))
    }

    /// Whether the directory is this user's alone, so that everything in it was put there by this user.
    pub fn is_own(&self) -> bool {
        fs::symlink_metadata(&self.root).is_ok_and(|metadata| {
            metadata.is_dir()
                && metadata.uid() == rustix::process::geteuid().as_raw()
                && metadata.mode() & 0o7777 == 0o700
        })
    }

    /// Removes everything, also what had to be put elsewhere. The caller holds the lock.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        if let Ok(elsewhere) = fs::read_link(self.root.join("postgres")) {
            fs::remove_dir_all(elsewhere)?;
        }
        fs::remove_dir_all(&self.root)
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The lock of whoever runs the installation.
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// The run_file of the run, while it runs.
    pub fn run_file(&self) -> PathBuf {
        self.root.join("standalone.json")
    }

    /// Passwords and tokens, a file each.
    pub fn secrets(&self) -> PathBuf {
        self.root.join("secrets")
    }

    /// What the servers write about themselves.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// Outgoing mails, a file each.
    pub fn mails(&self) -> PathBuf {
        self.root.join("mails")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_names_its_holder_and_ends_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert_eq!(Lock::holder(&path).unwrap(), None);
        assert!(!path.exists());
        let Claim::Ours(lock) = Lock::claim(&path).await.unwrap() else { panic!("nobody else holds it") };
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(matches!(Lock::claim(&path).await.unwrap(), Claim::Held { pid: Some(pid) } if pid == own));
        assert_eq!(Lock::holder(&path).unwrap(), Some(own));
        drop(lock);
        assert_eq!(Lock::holder(&path).unwrap(), None);
    }
}
