//! Stored sessions, keyed by service and tenant: one file, replaced atomically, readable only by its owner, written by one
//! process at a time.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use contract::{Role, Secret};
use etcetera::BaseStrategy;
use serde::{Deserialize, Serialize};
use tenancy::{TenantId, UserId};

use crate::endpoint::BaseUrl;
use crate::error::{CliError, ErrorKind, Result};

/// A session stored by a login.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredSession {
    /// Raw session token.
    pub(crate) token: Secret,
    pub(crate) user_id: UserId,
    /// E-mail address of the login.
    pub(crate) email: String,
    /// Role at the time of the login.
    pub(crate) role: Role,
    /// End of the absolute lifetime.
    pub(crate) expires_at: DateTime<Utc>,
}

/// Content of the credentials file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Credentials {
    /// Service of the last login.
    #[serde(default)]
    current: Option<String>,
    /// By base URL.
    #[serde(default)]
    services: BTreeMap<String, StoredService>,
}

/// Stored sessions of one service.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct StoredService {
    /// Tenant of the last login.
    #[serde(default)]
    current: Option<TenantId>,
    #[serde(default)]
    sessions: BTreeMap<TenantId, StoredSession>,
}

impl Credentials {
    /// Base URL of the last login.
    pub(crate) fn current_service(&self) -> Option<&str> {
        self.current.as_deref()
    }

    /// Tenant of the last login to this service.
    pub(crate) fn current_tenant(&self, service: &BaseUrl) -> Option<&TenantId> {
        self.services.get(service.as_str())?.current.as_ref()
    }

    /// Stored session of this tenant and service.
    pub(crate) fn session(&self, service: &BaseUrl, tenant: &TenantId) -> Option<&StoredSession> {
        self.services.get(service.as_str())?.sessions.get(tenant)
    }

    /// All sessions, with base URL and tenant.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &TenantId, &StoredSession)> {
        self.services.iter().flat_map(|(service, stored)| {
            stored.sessions.iter().map(move |(tenant, session)| (service.as_str(), tenant, session))
        })
    }

    /// Stores a session and makes it the current one. Returns the session of the tenant that it replaces.
    pub(crate) fn insert(
        &mut self,
        service: &BaseUrl,
        tenant: TenantId,
        session: StoredSession,
    ) -> Option<StoredSession> {
        self.current = Some(service.as_str().to_owned());
        let stored = self.services.entry(service.as_str().to_owned()).or_default();
        stored.current = Some(tenant.clone());
        stored.sessions.insert(tenant, session)
    }

    /// Removes the session with this token. Returns whether it was stored.
    pub(crate) fn remove(&mut self, token: &Secret) -> bool {
        let mut removed = false;
        for service in self.services.values_mut() {
            service.sessions.retain(|_, session| {
                let same = session.token.expose() == token.expose();
                removed |= same;
                !same
            });
        }
        removed
    }
}

/// The credentials file and its directory.
#[derive(Clone, Debug)]
pub(crate) struct CredentialStore {
    directory: PathBuf,
}

impl CredentialStore {
    /// Store in the user's configuration directory of the platform.
    pub(crate) fn for_current_user() -> Result<Self> {
        let strategy = etcetera::choose_base_strategy().map_err(|_| {
            ErrorKind::ConfigurationInvalid
                .with_message("cannot determine the home directory")
                .with_remediation("Set HOME or XDG_CONFIG_HOME.")
        })?;
        Ok(Self { directory: strategy.config_dir().join("svc") })
    }

    /// Configuration directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Path of the credentials file.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("credentials.json")
    }

    /// Reads the file. A missing file is empty; a file that other users can access is rejected.
    pub(crate) fn load(&self) -> Result<Credentials> {
        let path = self.path();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Credentials::default()),
            Err(error) => return Err(io_error(&path, &error)),
        };
        reject_exposed(&path)?;
        serde_json::from_slice(&text).map_err(|error| {
            // Only the position: the text of serde's error could repeat a token.
            let position = format!("line {}, column {}", error.line(), error.column());
            let message = format!("{} is malformed ({position})", path.display());
            ErrorKind::CredentialsUnusable.with_message(message)
        })
    }

    /// Changes the file under a lock.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Credentials) -> T) -> Result<T> {
        let _lock = lock(&self.directory)?;
        let mut credentials = self.load()?;
        let result = change(&mut credentials);
        write(&self.path(), &credentials)?;
        Ok(result)
    }
}

/// Writes a temporary file and renames it, so that readers never see a partial file.
fn write(path: &Path, credentials: &Credentials) -> Result<()> {
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
fn lock(directory: &Path) -> Result<File> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn session(token: &str) -> StoredSession {
        StoredSession {
            token: Secret::new(token),
            user_id: UserId(uuid::Uuid::nil()),
            email: "a@acme.example".into(),
            role: Role::Admin,
            expires_at: DateTime::UNIX_EPOCH,
        }
    }

    fn service(url: &str) -> BaseUrl {
        BaseUrl::parse(url).unwrap()
    }

    #[test]
    fn login_becomes_current_and_keeps_other_sessions() {
        let directory = tempfile::tempdir().unwrap();
        let store = CredentialStore { directory: directory.path().join("svc") };
        let (here, there) = (service("http://127.0.0.1:8080"), service("https://svc.example"));
        let (acme, umbrella): (TenantId, TenantId) = ("acme".parse().unwrap(), "umbrella".parse().unwrap());
        store.update(|all| all.insert(&here, acme.clone(), session("one"))).unwrap();
        store.update(|all| all.insert(&there, acme.clone(), session("two"))).unwrap();
        store.update(|all| all.insert(&there, umbrella.clone(), session("three"))).unwrap();

        let all = store.load().unwrap();
        assert_eq!(all.current_service(), Some(there.as_str()));
        assert_eq!(all.current_tenant(&there), Some(&umbrella));
        assert_eq!(all.current_tenant(&here), Some(&acme));
        assert_eq!(all.session(&here, &acme).unwrap().token.expose(), "one");
        assert_eq!(all.session(&there, &acme).unwrap().token.expose(), "two");
        assert!(all.session(&here, &umbrella).is_none());
    }

    #[test]
    fn removes_only_the_session_with_the_token() {
        let directory = tempfile::tempdir().unwrap();
        let store = CredentialStore { directory: directory.path().to_owned() };
        let here = service("http://127.0.0.1:8080");
        let (acme, umbrella): (TenantId, TenantId) = ("acme".parse().unwrap(), "umbrella".parse().unwrap());
        store.update(|all| all.insert(&here, acme.clone(), session("one"))).unwrap();
        store.update(|all| all.insert(&here, umbrella.clone(), session("two"))).unwrap();
        assert!(store.update(|all| all.remove(&Secret::new("one"))).unwrap());
        assert!(!store.update(|all| all.remove(&Secret::new("one"))).unwrap());
        let all = store.load().unwrap();
        assert!(all.session(&here, &acme).is_none());
        assert!(all.session(&here, &umbrella).is_some());
    }

    #[cfg(unix)]
    #[test]
    fn rejects_a_file_that_other_users_can_access() {
        use std::os::unix::fs::PermissionsExt;

        let directory = tempfile::tempdir().unwrap();
        let store = CredentialStore { directory: directory.path().to_owned() };
        let path = store.path();
        write(&path, &Credentials::default()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = store.load().unwrap_err();
            assert_eq!(error.code, "credentials_exposed");
            assert!(
                error.remediation.contains(&format!("chmod 600 '{}'", path.display())),
                "{}",
                error.remediation
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn replaces_the_temporary_file_of_an_interrupted_write() {
        use std::os::unix::fs::PermissionsExt;

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
        let store = CredentialStore { directory: directory.path().to_owned() };
        let path = store.path();
        write(&path, &Credentials::default()).unwrap();
        fs::write(&path, r#"{"services":{"x":{"sessions":{"acme":{"token":["svc_st_secret"]}}}}}"#).unwrap();
        let error = store.load().unwrap_err();
        assert_eq!(error.code, "credentials_unusable");
        assert!(!error.message.contains("svc_st_secret"), "{}", error.message);
    }
}
