//! List a user's live sessions.

use authn::Caller;
use contract::session::Session;
use contract::{Page, ProblemKind};
use service::Problem;
use service::http::page::Paging;
use tenancy::{SessionId, UserId};

use super::App;
use crate::store::{session, standing};

impl App {
    /// The caller's own sessions, or for an administrator those of anybody in the tenant.
    pub(crate) async fn list_sessions(
        &self,
        caller: &Caller,
        user_id: UserId,
        paging: &Paging<SessionId>,
    ) -> Result<Page<Session>, Problem> {
        let user_id = caller.about(user_id)?;
        let mut tx = self.database.tenant(&caller.scope()).await?;
        if !standing::knows_subject(&mut tx, user_id).await? {
            return Err(ProblemKind::NotFound.into());
        }
        let mut sessions =
            session::list(&mut tx, user_id, paging.after, paging.rows(), self.clock.now()).await?;
        for session in &mut sessions {
            session.current = Some(session.id) == caller.session_id();
        }
        Ok(paging.page(sessions, |session| session.id))
    }
}
