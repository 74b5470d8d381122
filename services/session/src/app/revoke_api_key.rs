//! Revoke an API key.

use audit::{Actor, AuditEvent, EventName};
use authn::Caller;
use bus::Invalidation;
use contract::ProblemKind;
use service::Problem;
use tenancy::KeyId;

use super::App;
use crate::store::api_key;

impl App {
    /// One of the administrator's tenant. Repeating it is harmless.
    pub(crate) async fn revoke_api_key(&self, admin: &Caller, key_id: KeyId) -> Result<(), Problem> {
        let mut tx = self.database.tenant(&admin.scope()).await?;
        let now = self.clock.now();
        let key = api_key::mark_revoked(&mut tx, key_id, now).await?.ok_or(ProblemKind::NotFound)?;
        if key.newly {
            let revoked = AuditEvent {
                about: Some("api_key"),
                key_id: Some(key_id),
                ..AuditEvent::new(EventName::AuthnTokenRevoked, Actor::from(admin))
            };
            self.audit.record_at(&mut tx, admin.tenant_id(), revoked, now).await?;
        }
        tx.commit().await?;
        self.invalidations.publish([Invalidation::Credential(key.digest)]);
        Ok(())
    }
}
