//! Stored sessions, keyed by service and tenant. Their tokens are in the keyring or in the credentials file.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use contract::{Role, Secret};
use serde::{Deserialize, Serialize};
use tenancy::{TenantId, UserId};

use crate::framework::endpoint::BaseUrl;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::files::{Directory, Document};
use crate::framework::keyring;

/// A session stored by a login.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredSession {
    /// Raw session token; `None` if it is in the keyring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<Secret>,
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

    /// Removes the session with this token. Returns whether it was stored.
    pub(crate) fn forget(token: &Secret) -> Result<bool> {
        let stored = Self::load()?;
        let is_same = |own: &Secret| own.expose() == token.expose();
        let found = stored.all().find(|(service, tenant, session)| match &session.token {
            Some(own) => is_same(own),
            None => keyring::load(service, tenant).is_ok_and(|own| own.as_ref().is_some_and(is_same)),
        });
        let Some((service, tenant, session)) = found else { return Ok(false) };
        if session.token.is_none() {
            // The session is revoked, so a token that stays in the keyring is of no use.
            let _ = keyring::delete(service, tenant);
        }
        Self::update(|all| all.remove(service, tenant))?;
        Ok(true)
    }

    /// Token of a stored session.
    pub(crate) fn token(&self, service: &BaseUrl, tenant: &TenantId) -> Result<Option<Secret>> {
        let Some(session) = self.session(service, tenant) else { return Ok(None) };
        if session.token.is_some() {
            return Ok(session.token.clone());
        }
        let unusable = |reason: &str| {
            ErrorKind::CredentialsUnusable
                .with_message(format!("the session of {} is stored in the keyring: {reason}", session.email))
                .with_remediation(format!(
                    "Unlock or start the keyring. To do without it: `svc config set credential-store file`, then `svc auth \
                     login --email {} --tenant {tenant}`.",
                    session.email
                ))
        };
        match keyring::load(service.as_str(), tenant) {
            Ok(Some(token)) => Ok(Some(token)),
            Ok(None) => Err(unusable("it has no such item any more")),
            Err(reason) => Err(unusable(&reason)),
        }
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

    fn remove(&mut self, service: &str, tenant: &TenantId) {
        if let Some(sessions) = self.services.get_mut(service) {
            sessions.remove(tenant);
        }
    }
}

/// Reads and writes a credentials file; `None` if it is invalid.
#[cfg(fuzzing)]
pub fn fuzzed(file: &[u8]) -> Option<String> {
    let credentials: Credentials = serde_json::from_slice(file).ok()?;
    serde_json::to_string(&credentials).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(token: &str) -> StoredSession {
        StoredSession {
            token: Some(Secret::new(token)),
            user_id: UserId(uuid::Uuid::nil()),
            email: "a@acme.example".into(),
            role: Role::Admin,
            expires_at: DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn sessions_are_kept_per_service_and_tenant() {
        let service = |url| BaseUrl::parse(url).unwrap();
        let (here, there) = (service("http://127.0.0.1:8080"), service("https://svc.example"));
        let (acme, umbrella): (TenantId, TenantId) = ("acme".parse().unwrap(), "umbrella".parse().unwrap());
        let mut all = Credentials::default();
        assert!(all.insert(&here, acme.clone(), session("zero")).is_none());
        assert_eq!(all.insert(&here, acme.clone(), session("one")).unwrap().token.unwrap().expose(), "zero");
        all.insert(&there, acme.clone(), session("two"));
        all.insert(&there, umbrella.clone(), session("three"));
        all.remove(there.as_str(), &umbrella);

        assert_eq!(all.token(&here, &acme).unwrap().unwrap().expose(), "one");
        assert_eq!(all.token(&there, &acme).unwrap().unwrap().expose(), "two");
        assert!(all.session(&here, &umbrella).is_none() && all.session(&there, &umbrella).is_none());
    }
}
