//! The credentials file: replaced atomically, readable only by its owner, written by one process at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::Credentials;
use crate::error::{CliError, ErrorKind, Result};

/// Reads the file. A missing file is empty; a file that other users can access is rejected.
pub(super) fn read(path: &Path) -> Result<Credentials> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Credentials::default()),
        Err(error) => return Err(io_error(path, &error)),
    };
    reject_exposed(path)?;
    serde_json::from_slice(&text).map_err(|error| {
        // Only the position: the text of serde's error could repeat a token.
        let position = format!("line {}, column {}", error.line(), error.column());
        let message = format!("{} is malformed ({position})", path.display());
        ErrorKind::CredentialsUnusable.with_message(message)
    })
}

/// Writes a temporary file and renames it, so that readers never see a partial file.
pub(super) fn write(path: &Path, credentials: &Credentials) -> Result<()> {
    let temporary = path.with_extension("json.new");
    let write = || -> io::Result<()> {
        // A file left by a killed process would keep its permissions.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = private(OpenOptions::new().write(true).create_new(true)).open(&temporary)?;
        serde_json::to_writer_pretty(&mut file, credentials)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| io_error(path, &error))
}

/// Locks out other processes of this user until dropped. Creates the directory if necessary.
pub(super) fn lock(directory: &Path) -> Result<File> {
    let acquire = || -> io::Result<File> {
        make_private_directory(directory)?;
        let file = private(OpenOptions::new().write(true).create(true).truncate(false))
            .open(directory.join("credentials.lock"))?;
        file.lock()?;
        Ok(file)
    };
    acquire().map_err(|error| io_error(directory, &error))
}

fn io_error(path: &Path, error: &io::Error) -> CliError {
    ErrorKind::CredentialsUnusable.with_message(format!("{}: {error}", path.display()))
}

#[cfg(unix)]
fn reject_exposed(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;

    let mode = fs::metadata(path).map_err(|error| io_error(path, &error))?.permissions().mode() & 0o777;
    let mode_of_others = mode & 0o077;
    if mode_of_others == 0 {
        return Ok(());
    }
    let shown = path.display();
    Err(ErrorKind::CredentialsExposed
        .with_message(format!("other users can access the credentials file {shown} (mode {mode:04o})"))
        .with_remediation(format!(
            "Run `chmod 600 '{shown}'`. If another user may have read the file, log out and log in again."
        )))
}

#[cfg(not(unix))]
fn reject_exposed(_: &Path) -> Result<()> {
    // Other platforms restrict the profile directory to its owner.
    Ok(())
}

#[cfg(unix)]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;

    options.mode(0o600)
}

#[cfg(not(unix))]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

#[cfg(unix)]
fn make_private_directory(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;

    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(not(unix))]
fn make_private_directory(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn rejects_a_file_that_other_users_can_access() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials.json");
        write(&path, &Credentials::default()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = read(&path).unwrap_err();
            assert_eq!(error.code, "credentials_exposed");
            assert!(
                error.remediation.contains(&format!("chmod 600 '{}'", path.display())),
                "{}",
                error.remediation
            );
        }
    }

    #[test]
    fn replaces_the_temporary_file_of_an_interrupted_write() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials.json");
        let temporary = directory.path().join("credentials.json.new");
        fs::write(&temporary, "left over").unwrap();
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o644)).unwrap();
        write(&path, &Credentials::default()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn error_for_a_malformed_file_does_not_contain_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials.json");
        write(&path, &Credentials::default()).unwrap();
        fs::write(&path, r#"{"services":{"x":{"sessions":{"acme":{"token":["svc_st_secret"]}}}}}"#).unwrap();
        let error = read(&path).unwrap_err();
        assert_eq!(error.code, "credentials_unusable");
        assert!(!error.message.contains("svc_st_secret"), "{}", error.message);
    }
}
