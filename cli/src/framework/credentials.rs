//! Stored sessions, one for each context. Their tokens are in the keyring or in the credentials file.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, Utc};
use contract::{Role, Secret};
use serde::{Deserialize, Serialize};
use tenancy::{TenantId, UserId};

use crate::framework::configuration::ContextName;
use crate::framework::endpoint::BaseUrl;
use crate::framework::error::{ErrorKind, Result};
use crate::framework::files::{Directory, Document};
use crate::framework::keyring::{self, ItemKey};

/// A session stored by a login.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredSession {
    pub(crate) base_url: BaseUrl,
    pub(crate) tenant: TenantId,
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

impl StoredSession {
    /// Returns whether the session is one of this service and tenant.
    pub(crate) fn is_of(&self, service: &BaseUrl, tenant: &TenantId) -> bool {
        self.base_url == *service && self.tenant == *tenant
    }

    /// Its item in the keyring.
    pub(crate) fn key(&self, context: &ContextName) -> ItemKey {
        let Self { base_url, tenant, .. } = self;
        ItemKey { context: context.to_string(), service: base_url.to_string(), tenant: tenant.to_string() }
    }

    /// Token of the session of a context.
    pub(crate) fn load_token(&self, context: &ContextName) -> Result<Secret> {
        if let Some(token) = &self.token {
            return Ok(token.clone());
        }
        let Self { email, tenant, .. } = self;
        let until = self.expires_at.to_rfc3339_opts(SecondsFormat::Secs, true);
        let unusable = |reason: &str| {
            ErrorKind::CredentialsUnusable
                .with_message(format!("the session of {email} is stored in the keyring: {reason}"))
                .with_remediation(format!(
                    "Unlock or start the keyring, and run the command again. To do without it: `svc config set credential-store file`, \
                     then `svc auth login --context {context} --email {email} --tenant {tenant}`. The lost session stays active until \
                     {until} at the latest; `svc auth sessions revoke --context {context} --all --keep-current` revokes it, with all \
                     others of yours."
                ))
        };
        match keyring::load(&self.key(context)) {
            Ok(Some(token)) => Ok(token),
            Ok(None) => Err(unusable("it has no such item any more")),
            Err(reason) => Err(unusable(&reason)),
        }
    }
}

/// Content of the credentials file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Credentials {
    /// The session of each context. One of a deleted context is kept.
    #[serde(default)]
    pub(crate) sessions: BTreeMap<ContextName, StoredSession>,
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
        let found = stored.sessions.iter().find(|(context, session)| match &session.token {
            Some(own) => is_same(own),
            None => keyring::load(&session.key(context)).is_ok_and(|own| own.as_ref().is_some_and(is_same)),
        });
        let Some((context, session)) = found else { return Ok(false) };
        if session.token.is_none() {
            // The session is revoked, so a token that stays in the keyring is of no use.
            let _ = keyring::delete(&session.key(context));
        }
        Self::update(|all| all.sessions.remove(context))?;
        Ok(true)
    }
}

/// Reads and writes a credentials file; `None` if it is invalid.
#[cfg(fuzzing)]
pub fn fuzzed(file: &[u8]) -> Option<String> {
    let credentials: Credentials = serde_json::from_slice(file).ok()?;
    serde_json::to_string(&credentials).ok()
}
