//! Revoke a session.

use authn::Caller;
use contract::ProblemKind;
use hashing::{RawToken, TokenKind};
use service::Problem;
use tenancy::SessionId;

use super::App;
use crate::store::session;

impl App {
    /// By its raw token, which is the proof. Repeating it is harmless.
    pub(crate) async fn log_out(&self, raw: &str) -> Result<(), Problem> {
        let token = RawToken::parse(TokenKind::Session, raw).map_err(|_| ProblemKind::SessionNotFound)?;
        let found = session::mark_revoked_by_digest(&self.database, token.digest(), self.clock.now()).await?;
        if found { Ok(()) } else { Err(ProblemKind::SessionNotFound.into()) }
    }

    /// By its listed id: one's own, or for an administrator any of the tenant.
    pub(crate) async fn revoke_session(&self, caller: &Caller, session_id: SessionId) -> Result<(), Problem> {
        let owner =
            if caller.is_admin() { None } else { Some(caller.user_id().ok_or(ProblemKind::NotFound)?) };
        let mut tx = self.database.tenant(&caller.scope()).await?;
        if !session::mark_revoked(&mut tx, session_id, owner, self.clock.now()).await? {
            return Err(ProblemKind::NotFound.into());
        }
        Ok(tx.commit().await?)
    }
}
