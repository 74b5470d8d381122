//! Introspection: the subjects of active credentials. `authn::IntrospectionBatcher` combines the lookups of concurrent
//! requests.

use std::sync::Arc;

use authn::{Introspection, Introspector, Unavailable};
use chrono::{DateTime, Utc};
use contract::TenantStatus;
use contract::internal::Credential;
use database::Database;
use hashing::TokenDigest;
use service::Clock;

use super::credential_uses::CredentialUses;
use crate::domain::session::{SessionLifecycle, is_use_due};
use crate::store::credential::{self, CredentialState, StoredCredential, Use, Uses};

/// The lookup of credentials in the database.
pub(crate) struct CredentialLookup {
    pub(crate) database: Database,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) uses: CredentialUses,
}

#[async_trait::async_trait]
impl Introspector for CredentialLookup {
    /// Runs one indexed statement.
    async fn look_up(&self, digests: &[TokenDigest]) -> Result<Vec<Introspection>, Unavailable> {
        let now = self.clock.now();
        let credentials = credential::find(&self.database, digests).await.map_err(Unavailable::because)?;
        let (mut subjects, mut uses) = (vec![None; digests.len()], Uses::default());
        for mut credential in credentials {
            if !is_active(&credential.state, now) {
                continue;
            }
            add_use(&mut credential, &mut uses, now);
            if let Some(subject) = subjects.get_mut(credential.index) {
                *subject = Some(Arc::new(credential.subject));
            }
        }
        self.uses.add(uses);
        Ok(subjects)
    }
}

fn is_active(state: &CredentialState, now: DateTime<Utc>) -> bool {
    match state {
        CredentialState::Session { session, account } => session.is_active(account, now),
        CredentialState::ApiKey { lifecycle, tenant_status, .. } => lifecycle.is_active(*tenant_status, now),
        CredentialState::Producer { tenant_status } => *tenant_status == TenantStatus::Active,
    }
}

/// Adds the use of an active credential, if it is due. The subject gets the new idle timeout.
fn add_use(credential: &mut StoredCredential, uses: &mut Uses, now: DateTime<Utc>) {
    match &credential.state {
        CredentialState::Session { session, .. } => {
            let Some(SessionLifecycle { idle_expires_at: new, .. }) = session.lifecycle.touch(now) else {
                return;
            };
            if let Credential::Session { idle_expires_at, .. } = &mut credential.subject.credential {
                *idle_expires_at = new;
            }
            uses.insert(session.id.0, Use { used_at: now, idle_expires_at: Some(new) });
        }
        CredentialState::ApiKey { key_id, last_used_at, .. } if is_use_due(*last_used_at, now) => {
            uses.insert(key_id.0, Use { used_at: now, idle_expires_at: None });
        }
        CredentialState::ApiKey { .. } | CredentialState::Producer { .. } => {}
    }
}
