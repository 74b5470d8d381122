//! The file of stored credentials: written whole or not at all, for its owner alone, by one process at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::Credentials;
use crate::error::{CliError, Fault, Result};

/// Reads the file; a missing one is empty, one that others can read is refused.
pub(super) fn read(path: &Path) -> Result<Credentials> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Credentials::default()),
        Err(error) => return Err(unusable(path, &error)),
    };
    refuse_exposed(path)?;
    serde_json::from_slice(&text).map_err(|error| {
        // Only the place: serde's words could repeat a token.
        let place = format!("line {}, column {}", error.line(), error.column());
        Fault::CredentialsUnusable.because(format!("{} is not what a login writes ({place})", path.display()))
    })
}

/// Writes the file beside its place and then moves it there, so that a reader never sees half of it.
pub(super) fn write(path: &Path, credentials: &Credentials) -> Result<()> {
    let fresh = path.with_extension("json.new");
    let write = || -> io::Result<()> {
        // A left-over of a killed process would keep its own permissions.
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = private(OpenOptions::new().write(true).create_new(true)).open(&fresh)?;
        serde_json::to_writer_pretty(&mut file, credentials)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    };
    write().map_err(|error| unusable(path, &error))
}

/// Holds other processes of this user back until it is dropped. Makes the directory where there is none.
pub(super) fn lock(directory: &Path) -> Result<File> {
    let take = || -> io::Result<File> {
        make_private_directory(directory)?;
        let file = private(OpenOptions::new().write(true).create(true).truncate(false))
            .open(directory.join("credentials.lock"))?;
        file.lock()?;
        Ok(file)
    };
    take().map_err(|error| unusable(directory, &error))
}

fn unusable(path: &Path, error: &io::Error) -> CliError {
    Fault::CredentialsUnusable.because(format!("{}: {error}", path.display()))
}

#[cfg(unix)]
fn refuse_exposed(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;

    let mode = fs::metadata(path).map_err(|error| unusable(path, &error))?.permissions().mode() & 0o777;
    let by_others = mode & 0o077;
    if by_others == 0 {
        return Ok(());
    }
    let shown = path.display();
    Err(Fault::CredentialsExposed
        .because(format!("{shown} holds credentials and has mode {mode:04o}, so others can read it"))
        .advising(format!(
            "Run: chmod 600 '{shown}'. If somebody may have read it: svc auth logout, and log in again."
        )))
}

#[cfg(not(unix))]
fn refuse_exposed(_: &Path) -> Result<()> {
    // The profile directory of other platforms is its owner's alone by inheritance.
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
    fn a_file_that_others_can_read_is_refused_with_what_to_type() {
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
    fn a_left_over_of_an_earlier_write_is_no_way_to_expose_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials.json");
        let fresh = directory.path().join("credentials.json.new");
        fs::write(&fresh, "left over").unwrap();
        fs::set_permissions(&fresh, fs::Permissions::from_mode(0o644)).unwrap();
        write(&path, &Credentials::default()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_malformed_file_is_named_without_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials.json");
        write(&path, &Credentials::default()).unwrap();
        fs::write(&path, r#"{"services":{"x":{"sessions":{"acme":{"token":["svc_st_secret"]}}}}}"#).unwrap();
        let error = read(&path).unwrap_err();
        assert_eq!(error.code, "credentials_unusable");
        assert!(!error.message.contains("svc_st_secret"), "{}", error.message);
    }
}
