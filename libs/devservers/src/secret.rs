//! Secrets of a local installation, in files that only their owner can read.

use std::fs;
use std::io;
use std::path::Path;

use hashing::{Entropy as _, SystemEntropy};
use service::files;

/// Reads the secret from the file. Creates a random one if the file is missing or empty.
///
/// # Errors
/// If the file cannot be read or written.
pub fn load_or_generate(file: &Path) -> io::Result<String> {
    load_or_create(file, generate)
}

/// Reads the secret from the file. Stores the result of `create` if the file is missing or empty.
///
/// # Errors
/// If the file cannot be read or written.
pub fn load_or_create(file: &Path, create: impl FnOnce() -> String) -> io::Result<String> {
    match fs::read_to_string(file) {
        Ok(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
        Ok(_) => store(file, create()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => store(file, create()),
        Err(error) => Err(error),
    }
}

fn store(file: &Path, secret: String) -> io::Result<String> {
    files::replace(file, secret.as_bytes(), 0o600)?;
    Ok(secret)
}

/// A new secret: 256 random bits in hexadecimal.
pub fn generate() -> String {
    let mut bytes = [0_u8; 32];
    SystemEntropy.fill(&mut bytes);
    data_encoding::HEXLOWER.encode(&bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secret_is_created_once_and_readable_by_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        let first = load_or_generate(&file).unwrap();
        assert_eq!(first.len(), 64);
        assert_eq!(load_or_generate(&file).unwrap(), first);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_ne!(load_or_generate(&dir.path().join("other")).unwrap(), first);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no temporary file remains");
    }
}
