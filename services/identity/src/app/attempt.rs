//! An attempt at a password: begun before anything is looked at, and settled once it is known what came of it, whoever it is
//! about.
//!
//! Unknown tenant, unknown e-mail, invited, disabled, suspended, locked, waiting, unusable and wrong password all take one
//! path: one beginning, one look-up, one verification, one settlement, one answer. Nothing on the way tells who has an
//! account.

use std::net::IpAddr;
use std::time::Duration;

use audit::{Actor, AuditEvent, EventName};
use contract::ProblemKind;
use database::TenantTx;
use hashing::{Overloaded, Password};
use ratelimit::{RateLimitError, source};
use service::Problem;
use tenancy::{TenantId, TenantScope, UserId};

use super::App;
use crate::domain::account::Account;
use crate::domain::attempt::{AccountRef, LOCKOUT_THRESHOLD};
use crate::domain::email::EmailKey;
use crate::domain::password;
use crate::store::attempt::{self, Origin};
use crate::store::tenant;

/// The name of these limits in metrics.
const LIMIT: &str = "account";

/// When to come back while too many attempts are under way.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why an attempt came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    #[error("the password is wrong, or there is nobody to whom it would belong")]
    Failed,
    #[error(transparent)]
    Uncounted(#[from] RateLimitError),
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
    #[error(transparent)]
    Database(#[from] database::Error),
}

impl From<AttemptError> for Problem {
    fn from(error: AttemptError) -> Self {
        match error {
            AttemptError::Failed => ProblemKind::LoginFailed.into(),
            AttemptError::Uncounted(refusal) => refusal.into(),
            AttemptError::Overloaded(_) => ProblemKind::Overloaded.into(),
            AttemptError::Database(error) => error.into(),
        }
    }
}

/// What somebody wants the password for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    LogIn,
    ChangePassword,
}

/// An attempt that has begun.
pub(crate) struct Attempt {
    tenant_id: TenantId,
    purpose: Purpose,
    address: IpAddr,
    /// The address that was given, for the audit.
    email: Option<String>,
    origin: Origin,
    /// Whether it came outside a wait, and therefore counts.
    counts: bool,
    /// Whether the account was logged in to from there lately: then no lock keeps it out.
    trusted: bool,
    /// Whether the right password will do: there is no wait, and no lock.
    allowed: bool,
}

impl App {
    /// Begins an attempt; [`Self::check_password`] says what comes of it. One too many at once is turned away.
    pub(crate) async fn begin_attempt(
        &self,
        whom: AccountRef<'_>,
        address: IpAddr,
        purpose: Purpose,
    ) -> Result<Attempt, AttemptError> {
        let (account, source) = (self.limiter_keys.account(&whom), source(address));
        let origin = Origin { account, source, since: self.clock.now() };
        let decisions = self.limiter.metrics();
        let begun = attempt::begin(&self.database, &origin).await.map_err(|error| {
            decisions.unavailable(LIMIT);
            RateLimitError::Unavailable(error)
        })?;
        let (counts, trusted) = (begun.admitted, begun.trusted);
        let allowed = counts && (trusted || begun.in_a_row < LOCKOUT_THRESHOLD);
        if allowed && !begun.crowded {
            decisions.allowed(LIMIT);
        } else {
            decisions.rejected(LIMIT);
        }
        if begun.crowded {
            return Err(RateLimitError::Limited { retry_after: RETRY_AFTER }.into());
        }
        let (AccountRef::Email(tenant_id, _) | AccountRef::User(tenant_id, _)) = whom;
        let email = match whom {
            // What no database takes as text is left out.
            AccountRef::Email(_, email) => {
                Some(email.as_str().to_owned()).filter(|email| !email.contains(char::is_control))
            }
            AccountRef::User(..) => None,
        };
        let tenant_id = tenant_id.clone();
        Ok(Attempt { tenant_id, purpose, address, email, origin, counts, trusted, allowed })
    }

    /// Checks a password against an account, or at the same cost against nobody. The account is who has proven themselves.
    pub(crate) async fn check_password(
        &self,
        attempt: &Attempt,
        account: Option<Account>,
        raw_password: &str,
    ) -> Result<Account, AttemptError> {
        let checked = self.look_and_settle(attempt, account, raw_password).await;
        // What was not looked at, or told to nobody, leaves nothing behind: who tries again as they were told gets in.
        if matches!(checked, Err(AttemptError::Overloaded(_) | AttemptError::Database(_)))
            && let Err(error) = attempt::release(&self.database, &attempt.origin).await
        {
            tracing::warn!(%error, "an attempt is held to be under way until its time is over");
        }
        checked
    }

    async fn look_and_settle(
        &self,
        attempt: &Attempt,
        account: Option<Account>,
        raw_password: &str,
    ) -> Result<Account, AttemptError> {
        let prepared = password::prepare(raw_password);
        let digest = account.as_ref().and_then(|account| account.password_digest.clone());
        // What cannot be a password is hashed as an empty one, against nothing.
        let digest = digest.filter(|_| prepared.is_some());
        let matches = self.hashes.verify(prepared.unwrap_or_else(|| Password::new("")), digest).await?;
        let about = account.as_ref().map(|account| account.subject.user_id);
        let right = matches && attempt.allowed;
        let account = account.filter(|account| right && account.may_log_in());
        let succeeded = self.settle_attempt(attempt, about, account.is_some()).await?;
        account.filter(|_| succeeded).ok_or(AttemptError::Failed)
    }

    /// Counts what came of an attempt and tells of it, at once, in the same way whoever it was about. Says whether it has
    /// succeeded: what was right is refused when the account was locked meanwhile.
    async fn settle_attempt(
        &self,
        attempt: &Attempt,
        user_id: Option<UserId>,
        right: bool,
    ) -> Result<bool, database::Error> {
        let Attempt { tenant_id, origin, counts, trusted, .. } = attempt;
        let now = self.clock.now();
        let scope = TenantScope::of_unverified_header(tenant_id.clone());
        let mut tx = self.database.begin(&scope, Actor::Anonymous, now).await?;
        let succeeded = right && attempt::mark_succeeded(&mut tx, origin, *trusted, now).await?;
        let mut locks = false;
        if !succeeded {
            let of_user = user_id.is_some();
            let in_a_row = attempt::mark_failed(&mut tx, origin, *counts, of_user, now).await?;
            locks = in_a_row == Some(LOCKOUT_THRESHOLD);
        }
        let exists = tenant::exists(&mut tx, tenant_id).await?;
        let mut events = Vec::from_iter(attempt.event(user_id, succeeded));
        if locks {
            tracing::warn!("an account takes no password any more: too many failures in a row");
            events.push(attempt.event_of(EventName::AuthnLoginLock, Actor::System, user_id));
        }
        for event in events {
            self.audit.record_claimed(&mut tx, exists, event);
        }
        tx.commit().await?;
        Ok(succeeded)
    }

    /// Forgets what was counted at an account, from anywhere: its owner, or somebody who may, has spoken.
    pub(crate) async fn forget_attempts(
        &self,
        tx: &mut TenantTx,
        tenant_id: &TenantId,
        email: &EmailKey,
    ) -> Result<(), database::Error> {
        let account = self.limiter_keys.account(&AccountRef::Email(tenant_id, email));
        attempt::delete(tx, &account, self.clock.now()).await
    }
}

impl Attempt {
    /// What is told of it; a change that succeeds tells of itself.
    fn event(&self, user_id: Option<UserId>, succeeded: bool) -> Option<AuditEvent> {
        let (name, actor) = match (self.purpose, user_id.filter(|_| succeeded)) {
            (Purpose::LogIn, Some(user_id)) => (EventName::AuthnLoginSuccess, Actor::User { user_id }),
            (Purpose::LogIn, None) => (EventName::AuthnLoginFail, Actor::Anonymous),
            (Purpose::ChangePassword, None) => (EventName::AuthnPasswordChangeFail, Actor::Anonymous),
            (Purpose::ChangePassword, Some(_)) => return None,
        };
        Some(self.event_of(name, actor, user_id))
    }

    fn event_of(&self, name: EventName, actor: Actor, user_id: Option<UserId>) -> AuditEvent {
        let (ip, email) = (Some(self.address), self.email.clone());
        AuditEvent { user_id, ip, email, ..AuditEvent::new(name, actor) }
    }
}
