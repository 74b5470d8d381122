//! The client's files: JSON documents in the configuration directory of the user, replaced atomically, readable only by their
//! owner, written by one process at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::terminal::print_line;

/// Content of a file of the client. A missing file is the default.
pub(crate) trait Document: Default + Serialize + DeserializeOwned {
    /// File name.
    const FILE: &'static str;
    /// Whether the file contains credentials. Such a file is rejected if other users can access it.
    const IS_SECRET: bool;
    /// Kind of the error for a file that cannot be read or written.
    const ERROR: ErrorKind;
}

/// The configuration directory.
#[derive(Clone, Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Directory of the current user, in the platform's location.
    pub(crate) fn for_current_user() -> Result<Self> {
        let strategy = etcetera::choose_base_strategy().map_err(|_| {
            ErrorKind::ConfigurationInvalid
                .with_message("cannot determine the home directory")
                .with_remediation("Set HOME or XDG_CONFIG_HOME.")
        })?;
        Ok(Self(strategy.config_dir().join("svc")))
    }

    /// Path of the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Path of the file of a document.
    pub(crate) fn path_of<D: Document>(&self) -> PathBuf {
        self.0.join(D::FILE)
    }

    /// Reads a document.
    pub(crate) fn load<D: Document>(&self) -> Result<D> {
        let path = self.path_of::<D>();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(D::default()),
            Err(error) => return Err(io_error::<D>(&path, &error)),
        };
        if D::IS_SECRET {
            reject_exposed::<D>(&path)?;
        }
        // Editors of Windows write a byte order mark.
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
        serde_json::from_slice(text).map_err(|error| {
            // The text of serde's error could repeat a token.
            let reason = if D::IS_SECRET {
                format!("line {}, column {}", error.line(), error.column())
            } else {
                error.to_string()
            };
            D::ERROR.with_message(format!("{} is malformed ({reason})", path.display())).with_remediation(
                format!(
                    "Correct or remove the file {}. After its removal, run `svc auth login`.",
                    path.display()
                ),
            )
        })
    }

    /// Changes a document under a lock. Writes nothing if the change fails.
    pub(crate) fn update<D: Document, T>(&self, change: impl FnOnce(&mut D) -> Result<T>) -> Result<T> {
        let _lock = self.lock().map_err(|(path, error)| io_error::<D>(&path, &error))?;
        let mut document = self.load::<D>()?;
        let result = change(&mut document)?;
        let path = self.path_of::<D>();
        replace(&path, &document).map_err(|error| io_error::<D>(&path, &error))?;
        Ok(result)
    }

    /// Checks that a document can be changed, before something is created that must be stored in it.
    pub(crate) fn require_writable<D: Document>(&self) -> Result<()> {
        let _lock = self.lock().map_err(|(path, error)| io_error::<D>(&path, &error))?;
        self.load::<D>()?;
        let path = resolved(&self.path_of::<D>());
        let temporary = path.with_extension("json.new");
        match write_new(&temporary, b"").and_then(|()| fs::remove_file(&temporary)) {
            Err(error) if OpenOptions::new().append(true).open(&path).is_err() => {
                Err(io_error::<D>(&path, &error))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the user may not read a document.
    pub(crate) fn is_denied<D: Document>(&self) -> bool {
        File::open(self.path_of::<D>()).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Locks out other processes of this user until dropped. Creates the directory if necessary. An error names its path.
    fn lock(&self) -> std::result::Result<File, (PathBuf, io::Error)> {
        let path = self.0.join("lock");
        let mut directory = fs::DirBuilder::new();
        directory.recursive(true).mode(0o700).create(&self.0).map_err(|error| (self.0.clone(), error))?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
        let locked = file.and_then(|file| {
            if file.try_lock().is_err() {
                if io::stderr().is_terminal() {
                    print_line(&format!("waiting for another svc command that holds {}", path.display()));
                }
                file.lock()?;
            }
            Ok(file)
        });
        locked.map_err(|error| (path, error))
    }
}

/// Replaces a file by one that only its owner can access. Readers never see a partial file. A symbolic link stays one.
pub(crate) fn replace_file(path: &Path, text: &[u8]) -> io::Result<()> {
    let path = resolved(path);
    let mut temporary = path.clone().into_os_string();
    // Another process can replace the file at the same time.
    temporary.push(format!(".{}.tmp", Uuid::now_v7()));
    write_and_rename(Path::new(&temporary), &path, text)
}

/// Replaces a document. A file that cannot be replaced, such as one that is mounted in a container, is overwritten.
fn replace(path: &Path, document: &impl Serialize) -> io::Result<()> {
    let path = &resolved(path);
    let mut text = serde_json::to_vec_pretty(document)?;
    text.push(b'\n');
    write_and_rename(&path.with_extension("json.new"), path, &text).or_else(|error| {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, ResourceBusy};

        match error.kind() {
            ResourceBusy | PermissionDenied | ReadOnlyFilesystem if path.exists() => {
                let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
                file.write_all(&text).and_then(|()| file.sync_all())
            }
            _ => Err(error),
        }
    })
}

/// The target of a symbolic link, else the path itself.
fn resolved(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn write_and_rename(temporary: &Path, path: &Path, text: &[u8]) -> io::Result<()> {
    write_new(temporary, text).and_then(|()| fs::rename(temporary, path)).inspect_err(|_| {
        // The first error is reported.
        let _ = fs::remove_file(temporary);
    })
}

fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    // A file left by a killed process would keep its permissions.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text).and_then(|()| file.sync_all())
}

fn io_error<D: Document>(path: &Path, error: &io::Error) -> CliError {
    let shown = path.display();
    D::ERROR
        .with_message(format!("{shown}: {error}"))
        .with_remediation(format!(
            "Make {shown} readable and writable for your user, or set XDG_CONFIG_HOME to another directory. Without files, pass the \
             credential in SVC_TOKEN, and --base-url and --tenant."
        ))
}

fn reject_exposed<D: Document>(path: &Path) -> Result<()> {
    let mode = fs::metadata(path).map_err(|error| io_error::<D>(path, &error))?.permissions().mode() & 0o777;
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

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Secrets {
        token: String,
    }

    impl Document for Secrets {
        const FILE: &'static str = "secrets.json";
        const IS_SECRET: bool = true;
        const ERROR: ErrorKind = ErrorKind::CredentialsUnusable;
    }

    fn empty_directory() -> (tempfile::TempDir, Directory) {
        let parent = tempfile::tempdir().unwrap();
        let directory = Directory(parent.path().join("svc"));
        (parent, directory)
    }

    fn store(directory: &Directory, token: &str) {
        let change = |secrets: &mut Secrets| {
            token.clone_into(&mut secrets.token);
            Ok(())
        };
        directory.update(change).unwrap();
    }

    #[test]
    fn a_failed_change_keeps_the_file() {
        let (_parent, directory) = empty_directory();
        store(&directory, "one");
        let failed = directory.update(|secrets: &mut Secrets| {
            secrets.token = "two".into();
            Err::<(), _>(ErrorKind::Declined.into())
        });
        assert_eq!(failed.unwrap_err().code, "declined");
        assert_eq!(directory.load::<Secrets>().unwrap().token, "one");
    }

    #[test]
    fn rejects_a_file_that_other_users_can_access() {
        let (_parent, directory) = empty_directory();
        store(&directory, "one");
        let path = directory.path_of::<Secrets>();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = directory.load::<Secrets>().err().unwrap();
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
        let (_parent, directory) = empty_directory();
        store(&directory, "one");
        let path = directory.path_of::<Secrets>();
        let temporary = path.with_extension("json.new");
        fs::write(&temporary, "left over").unwrap();
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o644)).unwrap();
        store(&directory, "two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!temporary.exists());
    }

    #[test]
    fn a_symbolic_link_stays_one() {
        let (parent, directory) = empty_directory();
        store(&directory, "one");
        let (path, target) = (directory.path_of::<Secrets>(), parent.path().join("dotfile.json"));
        fs::rename(&path, &target).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        store(&directory, "two");
        assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
        assert!(fs::read_to_string(target).unwrap().contains("two"));
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        let (_parent, directory) = empty_directory();
        store(&directory, "one");
        let path = directory.path_of::<Secrets>();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("\u{feff}{text}")).unwrap();
        assert_eq!(directory.load::<Secrets>().unwrap().token, "one");
    }

    #[test]
    fn error_for_a_malformed_file_does_not_contain_its_secrets() {
        let (_parent, directory) = empty_directory();
        store(&directory, "one");
        let path = directory.path_of::<Secrets>();
        fs::write(&path, r#"{"token":"svc_st_secret", "svc_st_secret":1}"#).unwrap();
        let error = directory.load::<Secrets>().err().unwrap();
        assert_eq!(error.code, "credentials_unusable");
        assert!(!error.message.contains("svc_st_secret"), "{}", error.message);
        assert!(error.remediation.contains(&*path.to_string_lossy()), "{}", error.remediation);
    }

    #[test]
    fn concurrent_changes_are_all_kept() {
        let (_parent, directory) = empty_directory();
        let append = |all: &mut Secrets| {
            all.token.push('x');
            Ok(())
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| directory.update(append).unwrap());
            }
        });
        assert_eq!(directory.load::<Secrets>().unwrap().token.len(), 8);
    }
}
