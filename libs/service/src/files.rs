//! Atomic replacement of files: a reader gets the complete previous or the complete new content.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Replaces a file atomically. The new file has this mode, for example 0600, so that only its owner can read it.
///
/// # Errors
/// The file cannot be written.
pub fn replace(file: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let name = file.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let part = file.with_file_name(format!(".{}.{}.part", name.display(), std::process::id()));
    // Removed and created exclusively: another user could have placed a symbolic link there.
    let _ = fs::remove_file(&part);
    let replaced = write_new(&part, content, mode).and_then(|()| fs::rename(&part, file));
    if replaced.is_err() {
        let _ = fs::remove_file(&part);
    }
    replaced
}

fn write_new(file: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut open = OpenOptions::new().write(true).create_new(true).mode(mode).open(file)?;
    open.write_all(content)?;
    open.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_or_a_link_is_replaced_by_a_file_with_the_mode() {
        let directory = tempfile::tempdir().unwrap();
        let [file, link, other] = ["file", "link", "other"].map(|name| directory.path().join(name));
        fs::write(&file, "previous").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(&other, "unchanged").unwrap();
        symlink(&other, &link).unwrap();
        for replaced in [&file, &link] {
            replace(replaced, b"new", 0o600).unwrap();
            let metadata = fs::symlink_metadata(replaced).unwrap();
            assert!(metadata.is_file());
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
            assert_eq!(fs::read(replaced).unwrap(), b"new");
        }
        assert_eq!(fs::read(other).unwrap(), b"unchanged");
    }

    #[test]
    fn a_failed_replacement_leaves_no_copy_of_the_content() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        // A file cannot replace a directory.
        fs::create_dir(&file).unwrap();
        assert!(replace(&file, b"secret", 0o600).is_err());
        let left: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [file]);
    }
}
