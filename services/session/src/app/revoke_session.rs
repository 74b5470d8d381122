//! Revoke a session.

use audit::{Actor, AuditEvent, EventName};
use authn::Caller;
use bus::Invalidation;
use contract::ProblemKind;
use database::TenantTx;
use hashing::{RawToken, TokenKind};
use service::Problem;
use tenancy::{SessionId, TenantId, TenantScope, UserId};

use super::App;
use crate::store::{device_grant, session, standing};

impl App {
    /// By its raw token, which is the proof. Repeating it is harmless.
    pub(crate) async fn log_out(&self, raw: &str) -> Result<(), Problem> {
        let token = RawToken::parse(TokenKind::Session, raw).map_err(|_| ProblemKind::SessionNotFound)?;
        let found = session::find_by_digest(&self.database, token.digest()).await?;
        let (session_id, tenant_id, user_id) = found.ok_or(ProblemKind::SessionNotFound)?;
        let mut tx = self.database.tenant(&TenantScope::of_token(tenant_id.clone())).await?;
        self.revoke_one(&mut tx, &tenant_id, Actor::User { user_id }, session_id, None).await?;
        tx.commit().await?;
        self.invalidations.publish([Invalidation::Credential(token.digest().to_hex())]);
        Ok(())
    }

    /// All of a user: one's own, or for an administrator those of anybody in the tenant. The one that asks may stay. Devices
    /// that were let in and have not fetched their session get none.
    pub(crate) async fn revoke_all_sessions(
        &self,
        caller: &Caller,
        user_id: UserId,
        keep_current: bool,
    ) -> Result<(), Problem> {
        let user_id = caller.about(user_id)?;
        let mut tx = self.database.tenant(&caller.scope()).await?;
        if !standing::lock_subject(&mut tx, user_id).await? {
            return Err(ProblemKind::NotFound.into());
        }
        let stays = caller.session_id().filter(|_| keep_current);
        let now = self.clock.now();
        session::mark_all_revoked(&mut tx, user_id, stays, now).await?;
        device_grant::deny_approved(&mut tx, user_id).await?;
        let revoked = AuditEvent {
            about: Some("all_sessions"),
            user_id: Some(user_id),
            ..AuditEvent::new(EventName::AuthnTokenRevoked, Actor::from(caller))
        };
        self.audit.record_at(&mut tx, caller.tenant_id(), revoked, now).await?;
        tx.commit().await?;
        self.invalidations.publish([Invalidation::User(user_id)]);
        Ok(())
    }

    /// By its listed id: one's own, or for an administrator any of the tenant.
    pub(crate) async fn revoke_session(&self, caller: &Caller, session_id: SessionId) -> Result<(), Problem> {
        let owner =
            if caller.is_admin() { None } else { Some(caller.user_id().ok_or(ProblemKind::NotFound)?) };
        let mut tx = self.database.tenant(&caller.scope()).await?;
        let actor = Actor::from(caller);
        let revoked = self.revoke_one(&mut tx, caller.tenant_id(), actor, session_id, owner).await?;
        let digest = revoked.ok_or(ProblemKind::NotFound)?;
        tx.commit().await?;
        self.invalidations.publish([Invalidation::Credential(digest)]);
        Ok(())
    }

    /// Revokes one, and tells of it the first time. Returns the digest of its token in hex, if it is there.
    async fn revoke_one(
        &self,
        tx: &mut TenantTx,
        tenant_id: &TenantId,
        actor: Actor,
        session_id: SessionId,
        owner: Option<UserId>,
    ) -> Result<Option<String>, database::Error> {
        let now = self.clock.now();
        let Some(session) = session::mark_revoked(tx, session_id, owner, now).await? else {
            return Ok(None);
        };
        if session.newly {
            let revoked = AuditEvent {
                about: Some("session"),
                user_id: Some(session.user_id),
                session_id: Some(session_id),
                credential: Some(session.digest[..8].to_owned()),
                ..AuditEvent::new(EventName::AuthnTokenRevoked, actor)
            };
            self.audit.record_at(tx, tenant_id, revoked, now).await?;
        }
        Ok(Some(session.digest))
    }
}
