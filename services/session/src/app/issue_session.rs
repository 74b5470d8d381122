//! Issue a session for a person who has just proven themselves to identity.

use audit::{Actor, AuditEvent, EventName};
use contract::Secret;
use contract::internal::IssueSession;
use contract::session::{IssuedSession, TokenType};
use hashing::{RawToken, TokenKind};
use tenancy::{SessionId, TenantScope};

use super::App;
use crate::store::{session, standing};

/// So many sessions a user may have at once; the least recently used one gives way.
const MOST_SESSIONS: i64 = 50;

/// Why no session was issued.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IssueError {
    /// What the login saw is over: a newer standing is known here, or the standing does not allow it.
    #[error("the standing behind this login is over")]
    Overtaken,
    /// The database failed.
    #[error(transparent)]
    Database(#[from] database::Error),
}

impl App {
    /// Takes over what is newer of both records, then issues, all in one transaction: so nothing depends on the order
    /// in which records arrive, and a login in flight across a change yields no session.
    pub(crate) async fn issue_session(&self, request: &IssueSession) -> Result<IssuedSession, IssueError> {
        let now = self.clock.now();
        let token = RawToken::generate(TokenKind::Session, &*self.entropy);
        let expiry = self.lifetimes.expiry(request.method, now);

        let mut tx = self.database.tenant(&TenantScope::of_work(request.tenant.tenant_id.clone())).await?;
        standing::take_tenant(&mut tx, &request.tenant).await?;
        standing::take_subject(&mut tx, &request.subject).await?;
        if !standing::allows_issue(&mut tx, &request.subject, &request.tenant).await? {
            // What was learned stays.
            tx.commit().await?;
            return Err(IssueError::Overtaken);
        }
        let session_id = SessionId::generate();
        session::insert(&mut tx, session_id, token.digest(), request, &expiry, now).await?;
        session::mark_surplus_revoked(&mut tx, request.subject.user_id, MOST_SESSIONS, now).await?;
        let user_id = request.subject.user_id;
        let created = AuditEvent {
            about: Some(session::method_as_str(request.method)),
            user_id: Some(user_id),
            session_id: Some(session_id),
            ip: request.ip,
            ..AuditEvent::new(EventName::SessionCreated, Actor::User { user_id }).credential(&token.digest())
        };
        self.audit.record(&mut tx, &request.tenant.tenant_id, created, now).await?;
        tx.commit().await?;

        Ok(IssuedSession {
            session_id: Secret::new(token.expose()),
            token_type: TokenType::Bearer,
            user_id: request.subject.user_id,
            tenant_id: request.tenant.tenant_id.clone(),
            role: request.subject.role,
            expires_at: expiry.expires_at,
            idle_expires_at: expiry.idle_expires_at,
        })
    }
}
