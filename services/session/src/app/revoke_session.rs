//! Revoke a session.

use authn::Caller;
use bus::Revoked;
use contract::ProblemKind;
use hashing::{RawToken, TokenKind};
use service::Problem;
use tenancy::{SessionId, UserId};

use super::App;
use crate::store::{session, standing};

impl App {
    /// By its raw token, which is the proof. Repeating it is harmless.
    pub(crate) async fn log_out(&self, raw: &str) -> Result<(), Problem> {
        let token = RawToken::parse(TokenKind::Session, raw).map_err(|_| ProblemKind::SessionNotFound)?;
        let found = session::mark_revoked_by_digest(&self.database, token.digest(), self.clock.now()).await?;
        if !found {
            return Err(ProblemKind::SessionNotFound.into());
        }
        self.hints.publish([Revoked::Credential(token.digest().to_hex())]);
        Ok(())
    }

    /// All of a user: one's own, or for an administrator those of anybody in the tenant. The one that asks may stay.
    pub(crate) async fn revoke_all_sessions(
        &self,
        caller: &Caller,
        user_id: UserId,
        keep_current: bool,
    ) -> Result<(), Problem> {
        let user_id = caller.about(user_id)?;
        let mut tx = self.database.tenant(&caller.scope()).await?;
        if !standing::knows_subject(&mut tx, user_id).await? {
            return Err(ProblemKind::NotFound.into());
        }
        let stays = caller.session_id().filter(|_| keep_current);
        session::mark_all_revoked(&mut tx, user_id, stays, self.clock.now()).await?;
        tx.commit().await?;
        self.hints.publish([Revoked::User(user_id)]);
        Ok(())
    }

    /// By its listed id: one's own, or for an administrator any of the tenant.
    pub(crate) async fn revoke_session(&self, caller: &Caller, session_id: SessionId) -> Result<(), Problem> {
        let owner =
            if caller.is_admin() { None } else { Some(caller.user_id().ok_or(ProblemKind::NotFound)?) };
        let mut tx = self.database.tenant(&caller.scope()).await?;
        let revoked = session::mark_revoked(&mut tx, session_id, owner, self.clock.now()).await?;
        let digest = revoked.ok_or(ProblemKind::NotFound)?;
        tx.commit().await?;
        self.hints.publish([Revoked::Credential(digest)]);
        Ok(())
    }
}
