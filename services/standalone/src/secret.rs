//! Secrets of a local installation: made once, kept in files that only their owner can read.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use hashing::{Entropy as _, SystemEntropy};

/// The secret that the file keeps; when there is none yet, a fresh one of 256 bits in hexadecimal.
pub(crate) fn kept(file: &Path) -> io::Result<String> {
    kept_or(file, fresh)
}

/// The secret that the file keeps; when there is none yet, the one that `make` makes.
pub(crate) fn kept_or(file: &Path, make: impl FnOnce() -> String) -> io::Result<String> {
    match fs::read_to_string(file) {
        Ok(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
        Ok(_) => store(file, make()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => store(file, make()),
        Err(error) => Err(error),
    }
}

/// Replaces the file as a whole, so that nobody ever reads half of it.
pub(crate) fn write_private(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut part = file.as_os_str().to_owned();
    part.push(format!(".{}", std::process::id()));
    let part = Path::new(&part);
    // Made anew, never followed: somebody else may have put a link there.
    let _ = fs::remove_file(part);
    let mut open = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part)?;
    open.write_all(content)?;
    open.sync_all()?;
    fs::rename(part, file)
}

fn store(file: &Path, secret: String) -> io::Result<String> {
    write_private(file, secret.as_bytes())?;
    Ok(secret)
}

/// A new secret.
pub(crate) fn fresh() -> String {
    let mut bytes = [0_u8; 32];
    SystemEntropy.fill(&mut bytes);
    data_encoding::HEXLOWER.encode(&bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secret_is_made_once_and_only_its_owner_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        let first = kept(&file).unwrap();
        assert_eq!(first.len(), 64);
        assert_eq!(kept(&file).unwrap(), first);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_ne!(kept(&dir.path().join("other")).unwrap(), first);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing but the secrets is left behind");
    }
}
