//! Log in with e-mail and password.

use std::net::IpAddr;

use authn::{IssueError, Unavailable};
use contract::internal::IssueSession;
use contract::session::{IssuedSession, SessionMethod};
use hashing::PasswordDigest;
use service::Problem;
use tenancy::{TenantId, TenantScope, UserId};

use super::App;
use super::attempt::{AttemptError, Purpose};
use crate::domain::attempt::AccountRef;
use crate::domain::email::EmailKey;
use crate::domain::password;
use crate::store::user;

/// What a client says of itself.
pub(crate) struct Client {
    pub(crate) address: IpAddr,
    pub(crate) user_agent: Option<String>,
}

/// Why nobody was logged in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogInError {
    #[error(transparent)]
    Attempt(#[from] AttemptError),
    #[error(transparent)]
    Database(#[from] database::Error),
    #[error(transparent)]
    Session(Unavailable),
}

impl From<LogInError> for Problem {
    fn from(error: LogInError) -> Self {
        match error {
            LogInError::Attempt(error) => error.into(),
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
        let email = EmailKey::of_login(email);
        let whom = AccountRef::Email(tenant_id, &email);
        let attempt = self.begin_attempt(whom, client.address, Purpose::LogIn).await?;
        let found = user::find_account(&self.database, tenant_id, &email).await?;
        let account = self.check_password(&attempt, found, raw_password).await?;

        let digest = account.password_digest;
        if let Some(outdated) = digest.filter(|digest| digest.is_outdated(self.hashes.settings())) {
            self.rehash(&account.tenant.tenant_id, account.subject.user_id, outdated, raw_password);
        }
        let request = IssueSession {
            subject: account.subject,
            tenant: account.tenant,
            method: SessionMethod::Password,
            ip: Some(client.address),
            user_agent: client.user_agent,
        };
        self.sessions.issue(&request).await.map_err(|error| match error {
            IssueError::Overtaken => AttemptError::Failed.into(),
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
