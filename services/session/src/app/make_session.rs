//! Make a session, however its user has proven themselves.

use audit::{Actor, AuditEvent, EventName};
use bus::Invalidation;
use contract::Secret;
use contract::session::{IssuedSession, TokenType};
use database::TenantTx;
use hashing::{RawToken, TokenKind};
use tenancy::SessionId;

use super::App;
use crate::domain::session::NewSession;
use crate::store::{session, standing};

/// So many sessions a user may have at once; the least recently used one gives way.
const MOST_SESSIONS: i64 = 50;

/// A session, and what is to be hinted at once it is committed.
pub(super) struct Made {
    pub(super) session: IssuedSession,
    /// The sessions that gave way to it.
    pub(super) surplus: Vec<Invalidation>,
}

impl App {
    /// Makes one, if its standing still holds.
    pub(super) async fn make_session(
        &self,
        tx: &mut TenantTx,
        new: NewSession,
    ) -> Result<Option<Made>, database::Error> {
        let now = self.clock.now();
        let Some(role) = standing::find_role(tx, &new.standing).await? else {
            return Ok(None);
        };
        let token = RawToken::generate(TokenKind::Session, &*self.entropy);
        let expiry = self.lifetimes.expiry(new.method, now);
        let (session_id, user_id) = (SessionId::generate(), new.standing.user_id);
        session::insert(tx, session_id, token.digest(), &new, &expiry, now).await?;
        let surplus = session::mark_surplus_revoked(tx, user_id, MOST_SESSIONS, now).await?;
        let created = AuditEvent {
            about: Some(session::method_as_str(new.method)),
            user_id: Some(user_id),
            session_id: Some(session_id),
            ip: new.ip,
            ..AuditEvent::new(EventName::SessionCreated, Actor::User { user_id }).credential(&token.digest())
        };
        self.audit.record_at(tx, &new.tenant_id, created, now).await?;
        let session = IssuedSession {
            session_id: Secret::new(token.expose()),
            token_type: TokenType::Bearer,
            user_id,
            tenant_id: new.tenant_id,
            role,
            expires_at: expiry.expires_at,
            idle_expires_at: expiry.idle_expires_at,
        };
        Ok(Some(Made { session, surplus: surplus.into_iter().map(Invalidation::Credential).collect() }))
    }
}
