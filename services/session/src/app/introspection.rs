//! Introspection: the subjects of active credentials. `authn::IntrospectionBatcher` combines the lookups of concurrent
//! requests.

use std::sync::Arc;

use authn::{Introspection, Introspector, Unavailable};
use chrono::{DateTime, Utc};
use contract::TenantStatus;
use database::Database;
use hashing::TokenDigest;
use service::Clock;

use crate::domain::session::is_use_due;
use crate::store::credential::{self, CredentialState, Uses};

/// The lookup of credentials in the database.
pub(crate) struct CredentialLookup {
    pub(crate) database: Database,
    pub(crate) clock: Arc<dyn Clock>,
}

#[async_trait::async_trait]
impl Introspector for CredentialLookup {
    /// Runs one indexed statement, and another one at most once per minute and credential to record its use.
    async fn look_up(&self, digests: &[TokenDigest]) -> Result<Vec<Introspection>, Unavailable> {
        let now = self.clock.now();
        let credentials = credential::find(&self.database, digests).await.map_err(Unavailable::because)?;
        let (mut subjects, mut uses) = (vec![None; digests.len()], Uses::default());
        for credential in credentials {
            if !is_active(&credential.state, now) {
                continue;
            }
            add_use(&mut uses, &credential.state, now);
            if let Some(subject) = subjects.get_mut(credential.index) {
                *subject = Some(Arc::new(credential.subject));
            }
        }
        // A failure does not change the result. The next use is recorded instead.
        if let Err(error) = credential::save_uses(&self.database, &uses, now).await {
            tracing::warn!(error = service::chain(&error), "failed to save the last use of credentials");
        }
        Ok(subjects)
    }
}

fn is_active(state: &CredentialState, now: DateTime<Utc>) -> bool {
    match state {
        CredentialState::Session { session, account } => session.is_active(account, now),
        CredentialState::ApiKey { lifecycle, .. } => lifecycle.is_active(now),
        CredentialState::Producer { tenant_status } => *tenant_status == TenantStatus::Active,
    }
}

/// Adds the use of an active credential, if it is due.
fn add_use(uses: &mut Uses, state: &CredentialState, now: DateTime<Utc>) {
    match state {
        CredentialState::Session { session, .. } => {
            if let Some(touched) = session.lifecycle.touch(now) {
                uses.add_session(session.id, &touched);
            }
        }
        CredentialState::ApiKey { key_id, last_used_at, .. } if is_use_due(*last_used_at, now) => {
            uses.add_key(*key_id);
        }
        CredentialState::ApiKey { .. } | CredentialState::Producer { .. } => {}
    }
}
