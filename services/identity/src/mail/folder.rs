//! Mails as files in a directory: for one machine, and for tests.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Writes a file that its owner alone can read, whole or not at all.
pub(crate) async fn store(directory: PathBuf, name: String, bytes: Vec<u8>) -> io::Result<()> {
    let written = tokio::task::spawn_blocking(move || write(&directory, &name, &bytes));
    written.await.map_err(io::Error::other)?
}

fn write(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let partial = directory.join(format!(".{name}.partial"));
    // Made anew, never followed: somebody else may have put a link there.
    let _ = std::fs::remove_file(&partial);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&partial, directory.join(name))
}
