//! Stored sessions, keyed by service and tenant.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use contract::{Role, Secret};
use serde::{Deserialize, Serialize};
use tenancy::{TenantId, UserId};

use crate::endpoint::BaseUrl;
use crate::error::{ErrorKind, Result};
use crate::files::{Directory, Document};

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
    /// By base URL and tenant.
    #[serde(default)]
    services: BTreeMap<String, BTreeMap<TenantId, StoredSession>>,
}

impl Document for Credentials {
    const FILE: &'static str = "credentials.json";
    const IS_SECRET: bool = true;
    const ERROR: ErrorKind = ErrorKind::CredentialsUnusable;
}

impl Credentials {
    /// Reads the stored sessions of the current user.
    pub(crate) fn load() -> Result<Self> {
        Directory::for_current_user()?.load()
    }

    /// Changes the stored sessions of the current user.
    pub(crate) fn update<T>(change: impl FnOnce(&mut Self) -> T) -> Result<T> {
        Directory::for_current_user()?.update(|credentials| Ok(change(credentials)))
    }

    /// Stored session of this tenant and service.
    pub(crate) fn session(&self, service: &BaseUrl, tenant: &TenantId) -> Option<&StoredSession> {
        self.services.get(service.as_str())?.get(tenant)
    }

    /// All sessions, with base URL and tenant.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &TenantId, &StoredSession)> {
        self.services.iter().flat_map(|(service, sessions)| {
            sessions.iter().map(move |(tenant, session)| (service.as_str(), tenant, session))
        })
    }

    /// Stores a session. Returns the session of the tenant that it replaces.
    pub(crate) fn insert(
        &mut self,
        service: &BaseUrl,
        tenant: TenantId,
        session: StoredSession,
    ) -> Option<StoredSession> {
        self.services.entry(service.as_str().to_owned()).or_default().insert(tenant, session)
    }

    /// Removes the session with this token. Returns whether it was stored.
    pub(crate) fn remove(&mut self, token: &Secret) -> bool {
        let mut removed = false;
        for sessions in self.services.values_mut() {
            sessions.retain(|_, session| {
                let same = session.token.expose() == token.expose();
                removed |= same;
                !same
            });
        }
        removed
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

    #[test]
    fn sessions_are_kept_per_service_and_tenant_and_removed_by_token() {
        let service = |url| BaseUrl::parse(url).unwrap();
        let (here, there) = (service("http://127.0.0.1:8080"), service("https://svc.example"));
        let (acme, umbrella): (TenantId, TenantId) = ("acme".parse().unwrap(), "umbrella".parse().unwrap());
        let mut all = Credentials::default();
        assert!(all.insert(&here, acme.clone(), session("zero")).is_none());
        assert_eq!(all.insert(&here, acme.clone(), session("one")).unwrap().token.expose(), "zero");
        all.insert(&there, acme.clone(), session("two"));
        all.insert(&there, umbrella.clone(), session("three"));
        assert!(all.remove(&Secret::new("three")) && !all.remove(&Secret::new("three")));

        assert_eq!(all.session(&here, &acme).unwrap().token.expose(), "one");
        assert_eq!(all.session(&there, &acme).unwrap().token.expose(), "two");
        assert!(all.session(&here, &umbrella).is_none() && all.session(&there, &umbrella).is_none());
    }
}
