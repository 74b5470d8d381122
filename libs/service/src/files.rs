//! Files that appear complete or not at all.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Replaces a file in one step. It has this mode, for example 0600: only its owner can read it.
///
/// # Errors
/// The file cannot be written.
pub fn replace(file: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let name = file.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let part = file.with_file_name(format!(".{}.{}.part", name.display(), std::process::id()));
    // Removed and created exclusively: another user could have placed a symbolic link there.
    let _ = fs::remove_file(&part);
    let mut open = OpenOptions::new().write(true).create_new(true).mode(mode).open(&part)?;
    open.write_all(content)?;
    open.sync_all()?;
    fs::rename(part, file)
}
