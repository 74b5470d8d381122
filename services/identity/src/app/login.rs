//! Login with e-mail address and password.

use std::net::IpAddr;

use authn::IssueError;
use contract::ProblemKind;
use contract::internal::IssueSession;
use contract::session::{AuthMethod, IssuedSession, SessionMethod};
use hashing::PasswordDigest;
use service::{Problem, chain};
use tenancy::{Actor, TenantId};

use super::App;
use super::passwords::open_lane;
use crate::domain::account::{Account, AccountRef};
use crate::domain::email::EmailKey;
use crate::domain::password;
use crate::domain::throttle::Purpose;
use crate::store::user;

/// The client of a login.
pub(crate) struct Client {
    /// Where the client logs in: through the API, or on a page.
    pub(crate) method: SessionMethod,
    pub(crate) address: IpAddr,
    pub(crate) user_agent: Option<String>,
}

/// A completed login.
pub(crate) struct LoggedIn {
    pub(crate) session: IssuedSession,
    /// The address of the user.
    pub(crate) email: EmailKey,
}

impl App {
    /// Verifies the password, then requests a session under the account status that was verified. If the user has a second
    /// factor or must have one, the login is completed by [`App::use_factor`] instead.
    #[tracing::instrument(skip_all)]
    pub(crate) async fn log_in(
        &self,
        tenant_id: &TenantId,
        email: &str,
        raw_password: &str,
        client: Client,
    ) -> Result<LoggedIn, Problem> {
        let email = EmailKey::from_typed(email);
        let account = AccountRef::Email(tenant_id, &email);
        let attempt = self.begin_attempt(account, account, client.address, Purpose::LogIn).await?;
        let verified = self.verify(attempt, raw_password).await?;
        let account = verified.account();
        let digest = account.password_digest.clone();
        if let Some(outdated) = digest.filter(|digest| digest.is_outdated(self.hashes.settings())) {
            self.rehash(account, outdated, raw_password, client.address);
        }
        let is_complete = !account.subject.has_factor && !account.lacks_factor();
        let decision = if is_complete { Ok(()) } else { Err(self.challenge(account, &client).await) };
        let (account, ()) = self.settle(verified, decision).await?;
        self.issue(account, client, vec![AuthMethod::Pwd]).await
    }

    /// Requests a session for a user who has authenticated.
    pub(super) async fn issue(
        &self,
        account: Account,
        client: Client,
        amr: Vec<AuthMethod>,
    ) -> Result<LoggedIn, Problem> {
        let request = IssueSession {
            subject: account.subject,
            tenant: account.tenant,
            method: client.method,
            amr,
            ip: Some(client.address),
            user_agent: client.user_agent,
        };
        let session = self.sessions.issue(&request).await.map_err(|error| match error {
            IssueError::Outdated => Problem::from(ProblemKind::LoginFailed),
            IssueError::Unavailable(error) => error.into(),
        })?;
        Ok(LoggedIn { session, email: account.email })
    }

    /// Replaces a digest by one with the current parameters, best effort and in the background.
    fn rehash(&self, account: &Account, outdated: PasswordDigest, raw_password: &str, address: IpAddr) {
        let Some(password) = password::prepare(raw_password) else {
            return;
        };
        let (app, tenant_id) = (self.clone(), account.tenant.tenant_id.clone());
        let (user_id, requester) = (account.subject.user_id, open_lane(address));
        self.tasks.spawn_short(async move {
            let Ok(new) = app.hashes.hash(requester, password).await else {
                return;
            };
            let replaced = async {
                let mut tx = app.begin(&tenant_id, Actor::System).await?;
                user::replace_digest(&mut tx, user_id, &outdated, &new).await?;
                tx.commit().await
            };
            if let Err(error) = replaced.await {
                let error = chain(&error);
                tracing::warn!(error, %tenant_id, %user_id, "failed to replace an outdated password digest");
            }
        });
    }
}
