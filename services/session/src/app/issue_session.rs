//! Issue a session for a person who has just proven themselves to identity.

use bus::Invalidation;
use contract::internal::IssueSession;
use contract::session::IssuedSession;
use tenancy::TenantScope;

use super::App;
use super::make_session::Made;
use crate::domain::session::NewSession;
use crate::domain::standing::Standing;
use crate::store::standing;

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
    pub(crate) async fn issue_session(&self, request: IssueSession) -> Result<IssuedSession, IssueError> {
        let mut tx = self.database.tenant(&TenantScope::of_outbox(request.tenant.tenant_id.clone())).await?;
        let mut changed = Vec::new();
        if standing::take_tenant(&mut tx, &request.tenant).await? {
            changed.push(Invalidation::Tenant(request.tenant.tenant_id.clone()));
        }
        if standing::take_subject(&mut tx, &request.subject).await? {
            changed.push(Invalidation::User(request.subject.user_id));
        }
        let session = NewSession {
            standing: Standing {
                user_id: request.subject.user_id,
                credential_version: request.subject.credential_version,
                session_version: request.tenant.session_version,
            },
            tenant_id: request.tenant.tenant_id,
            method: request.method,
            ip: request.ip,
            user_agent: request.user_agent,
        };
        let made = self.make_session(&mut tx, session).await?;
        // What was learned stays, also when there is no session.
        tx.commit().await?;
        self.invalidations.publish(changed);
        let Made { session, surplus } = made.ok_or(IssueError::Overtaken)?;
        self.invalidations.publish(surplus);
        Ok(session)
    }
}
