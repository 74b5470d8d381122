//! The sessions that logins have left on this machine: one file, readable by its owner alone, keyed by service and tenant.

mod file;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use contract::{Role, Secret};
use etcetera::BaseStrategy;
use serde::{Deserialize, Serialize};
use tenancy::{TenantId, UserId};

use crate::base_url::BaseUrl;
use crate::error::{Fault, Result};

/// A session as a login left it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredSession {
    /// The raw session token.
    pub(crate) token: Secret,
    /// Whose session it is.
    pub(crate) user_id: UserId,
    /// The address that logged in.
    pub(crate) email: String,
    /// What the user may do, as of the login.
    pub(crate) role: Role,
    /// When it ends in any case.
    pub(crate) expires_at: DateTime<Utc>,
}

/// All that is stored.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Credentials {
    /// The service of the last login.
    #[serde(default)]
    current: Option<String>,
    /// What is stored for each service, by its base URL.
    #[serde(default)]
    services: BTreeMap<String, StoredService>,
}

/// What is stored for one service.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct StoredService {
    /// The tenant of the last login.
    #[serde(default)]
    current: Option<TenantId>,
    /// The session in each tenant.
    #[serde(default)]
    sessions: BTreeMap<TenantId, StoredSession>,
}

impl Credentials {
    /// The service of the last login.
    pub(crate) fn current_service(&self) -> Option<&str> {
        self.current.as_deref()
    }

    /// The tenant of the last login to this service.
    pub(crate) fn current_tenant(&self, service: &BaseUrl) -> Option<&TenantId> {
        self.services.get(service.as_str())?.current.as_ref()
    }

    /// The session in this tenant of this service.
    pub(crate) fn session(&self, service: &BaseUrl, tenant: &TenantId) -> Option<&StoredSession> {
        self.services.get(service.as_str())?.sessions.get(tenant)
    }

    /// Every session, with its service and tenant.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &TenantId, &StoredSession)> {
        self.services.iter().flat_map(|(service, stored)| {
            stored.sessions.iter().map(move |(tenant, session)| (service.as_str(), tenant, session))
        })
    }

    /// Keeps a session and makes it the current one.
    pub(crate) fn keep(&mut self, service: &BaseUrl, tenant: TenantId, session: StoredSession) {
        self.current = Some(service.as_str().to_owned());
        let stored = self.services.entry(service.as_str().to_owned()).or_default();
        stored.current = Some(tenant.clone());
        stored.sessions.insert(tenant, session);
    }

    /// Drops the session with this token, wherever it is kept; says whether there was one.
    pub(crate) fn forget(&mut self, token: &Secret) -> bool {
        let mut found = false;
        for service in self.services.values_mut() {
            service.sessions.retain(|_, session| {
                let same = session.token.expose() == token.expose();
                found |= same;
                !same
            });
        }
        found
    }
}

/// Where the credentials lie.
#[derive(Clone, Debug)]
pub(crate) struct CredentialStore {
    directory: PathBuf,
}

impl CredentialStore {
    /// The store in the directory that the platform keeps for configuration.
    pub(crate) fn of_this_user() -> Result<Self> {
        let strategy = etcetera::choose_base_strategy().map_err(|_| {
            Fault::ConfigurationInvalid
                .because("the home directory is not known")
                .advising("Set HOME, or XDG_CONFIG_HOME.")
        })?;
        Ok(Self { directory: strategy.config_dir().join("svc") })
    }

    /// The directory of the client's files.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("credentials.json")
    }

    /// What is stored; nothing when there is no file. A file that others can read is refused.
    pub(crate) fn load(&self) -> Result<Credentials> {
        file::read(&self.path())
    }

    /// Changes what is stored, one process at a time.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut Credentials) -> T) -> Result<T> {
        let _lock = file::lock(&self.directory)?;
        let mut credentials = self.load()?;
        let outcome = change(&mut credentials);
        file::write(&self.path(), &credentials)?;
        Ok(outcome)
    }
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
    fn a_login_becomes_the_current_one_and_others_stay() {
        let directory = tempfile::tempdir().unwrap();
        let store = CredentialStore { directory: directory.path().join("svc") };
        let (here, there) = (service("http://127.0.0.1:8080"), service("https://svc.example"));
        let (acme, umbrella): (TenantId, TenantId) = ("acme".parse().unwrap(), "umbrella".parse().unwrap());
        store.update(|all| all.keep(&here, acme.clone(), session("one"))).unwrap();
        store.update(|all| all.keep(&there, acme.clone(), session("two"))).unwrap();
        store.update(|all| all.keep(&there, umbrella.clone(), session("three"))).unwrap();

        let all = store.load().unwrap();
        assert_eq!(all.current_service(), Some(there.as_str()));
        assert_eq!(all.current_tenant(&there), Some(&umbrella));
        assert_eq!(all.current_tenant(&here), Some(&acme));
        assert_eq!(all.session(&here, &acme).unwrap().token.expose(), "one");
        assert_eq!(all.session(&there, &acme).unwrap().token.expose(), "two");
        assert!(all.session(&here, &umbrella).is_none());
    }

    #[test]
    fn a_forgotten_token_is_gone_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let store = CredentialStore { directory: directory.path().to_owned() };
        let here = service("http://127.0.0.1:8080");
        let (acme, umbrella): (TenantId, TenantId) = ("acme".parse().unwrap(), "umbrella".parse().unwrap());
        store.update(|all| all.keep(&here, acme.clone(), session("one"))).unwrap();
        store.update(|all| all.keep(&here, umbrella.clone(), session("two"))).unwrap();
        assert!(store.update(|all| all.forget(&Secret::new("one"))).unwrap());
        assert!(!store.update(|all| all.forget(&Secret::new("one"))).unwrap());
        let all = store.load().unwrap();
        assert!(all.session(&here, &acme).is_none());
        assert!(all.session(&here, &umbrella).is_some());
    }
}
