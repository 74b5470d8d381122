//! Log in with e-mail and password.
//!
//! Unknown tenant, unknown e-mail, invited, disabled, suspended, unusable and wrong password all take one path: one
//! look-up, one verification, one answer. Nothing on the way tells who has an account.

use std::net::IpAddr;

use authn::{IssueError, Unavailable};
use contract::ProblemKind;
use contract::internal::IssueSession;
use contract::session::{IssuedSession, SessionMethod};
use hashing::{Overloaded, Password, PasswordDigest, Verdict};
use service::Problem;
use tenancy::{TenantId, TenantScope, UserId};

use super::App;
use crate::domain::email::EmailKey;
use crate::domain::password;
use crate::store::user;

/// What a client says of itself.
pub(crate) struct Client {
    pub(crate) ip: Option<IpAddr>,
    pub(crate) user_agent: Option<String>,
}

/// Why nobody was logged in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogInError {
    #[error("login failed")]
    Failed,
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
    #[error(transparent)]
    Database(#[from] database::Error),
    #[error(transparent)]
    Session(Unavailable),
}

impl From<LogInError> for Problem {
    fn from(error: LogInError) -> Self {
        match error {
            LogInError::Failed => ProblemKind::LoginFailed.into(),
            LogInError::Overloaded(_) => ProblemKind::Overloaded.into(),
            LogInError::Database(error) => error.into(),
            LogInError::Session(error) => error.into(),
        }
    }
}

impl App {
    /// Verifies, then asks session for a session under the standing that was seen here.
    pub(crate) async fn log_in(
        &self,
        tenant_id: &TenantId,
        email: &str,
        raw_password: &str,
        client: Client,
    ) -> Result<IssuedSession, LogInError> {
        let account = user::find_account(&self.database, tenant_id, &EmailKey::of_login(email)).await?;
        let prepared = password::prepare(raw_password);
        let digest = account.as_ref().and_then(|account| account.password_digest.clone());
        // What cannot be a password is hashed as an empty one, against nothing.
        let digest = digest.filter(|_| prepared.is_some());
        let password = prepared.unwrap_or_else(|| Password::new(""));
        let verdict = self.hashes.verify(password, digest.clone()).await?;

        let account = account.filter(|account| verdict == Verdict::Match && account.may_log_in());
        let account = account.ok_or(LogInError::Failed)?;
        if let Some(outdated) = digest.filter(|digest| digest.is_outdated(self.hashes.settings())) {
            self.rehash(&account.tenant.tenant_id, account.subject.user_id, outdated, raw_password);
        }
        let request = IssueSession {
            subject: account.subject,
            tenant: account.tenant,
            method: SessionMethod::Password,
            ip: client.ip,
            user_agent: client.user_agent,
        };
        self.sessions.issue(&request).await.map_err(|error| match error {
            IssueError::Overtaken => LogInError::Failed,
            IssueError::Unavailable(error) => LogInError::Session(error),
        })
    }

    /// Brings a digest to today's settings, best effort: the login does not wait for it.
    fn rehash(&self, tenant_id: &TenantId, user_id: UserId, outdated: PasswordDigest, raw_password: &str) {
        let Some(password) = password::prepare(raw_password) else {
            return;
        };
        let (app, scope) = (self.clone(), TenantScope::of_password(tenant_id.clone()));
        self.tasks.spawn_short(async move {
            let Ok(new) = app.hashes.hash(password).await else {
                return;
            };
            let replaced = async {
                let mut tx = app.database.tenant(&scope).await?;
                user::replace_digest(&mut tx, user_id, &outdated, &new).await?;
                tx.commit().await
            };
            if let Err(error) = replaced.await {
                tracing::warn!(%error, "a password digest keeps its old settings until the next login");
            }
        });
    }
}
