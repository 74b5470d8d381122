//! An attempt at a password: counted before it is looked at, whoever it is about.
//!
//! Unknown tenant, unknown e-mail, invited, disabled, suspended, locked, waiting, unusable and wrong password all take one
//! path: one count, one look-up, one verification, one answer. Nothing on the way tells who has an account.

use std::net::IpAddr;

use audit::{Actor, AuditEvent, EventName};
use contract::ProblemKind;
use database::TenantTx;
use hashing::{Overloaded, Password, Verdict};
use ratelimit::{Refusal, source};
use service::Problem;
use tenancy::{TenantId, TenantScope, UserId};

use super::App;
use crate::domain::account::Account;
use crate::domain::attempt::{AccountKey, MOST_IN_A_ROW, Whom};
use crate::domain::email::EmailKey;
use crate::domain::password;
use crate::store::{attempt, tenant};

/// The name of these limits in metrics.
const LIMIT: &str = "account";

/// Why an attempt came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    #[error("the password is wrong, or there is nobody to whom it would belong")]
    Failed,
    #[error(transparent)]
    Uncounted(#[from] Refusal),
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

/// An attempt that was counted.
pub(crate) struct Attempt {
    tenant_id: TenantId,
    purpose: Purpose,
    address: IpAddr,
    /// The address that was given, for the audit.
    email: Option<String>,
    /// Whether this one locks the account.
    locks: bool,
    account: AccountKey,
    source: String,
    /// Whether it came outside a wait, and therefore counts.
    counted: bool,
    /// Whether the right password will do: there is no wait, and no lock.
    allowed: bool,
}

impl App {
    /// Counts an attempt as a failure; [`Self::check_password`] says whether it is one.
    pub(crate) async fn count_attempt(
        &self,
        whom: Whom<'_>,
        address: IpAddr,
        purpose: Purpose,
    ) -> Result<Attempt, AttemptError> {
        let (account, source) = (self.limiter_keys.account(&whom), source(address));
        let decisions = self.limiter.decisions();
        let counted = attempt::count(&self.database, &account, &source, self.clock.now()).await;
        let counted = counted.map_err(|error| {
            decisions.unavailable(LIMIT);
            Refusal::Unavailable(error)
        })?;
        let locks = counted.admitted && counted.in_a_row == MOST_IN_A_ROW + 1;
        if locks {
            tracing::warn!("an account takes no password any more: too many failures in a row");
        }
        let allowed = counted.admitted && counted.in_a_row <= MOST_IN_A_ROW;
        if allowed {
            decisions.admitted(LIMIT);
        } else {
            decisions.refused(LIMIT);
        }
        let (Whom::Email(tenant_id, _) | Whom::User(tenant_id, _)) = whom;
        let email = match whom {
            // What no database takes as text is left out.
            Whom::Email(_, email) => {
                Some(email.as_str().to_owned()).filter(|email| !email.contains(char::is_control))
            }
            Whom::User(..) => None,
        };
        let tenant_id = tenant_id.clone();
        let counted = counted.admitted;
        Ok(Attempt { tenant_id, purpose, address, email, locks, account, source, counted, allowed })
    }

    /// Checks a password against an account, or at the same cost against nobody. The account is who has proven themselves.
    pub(crate) async fn check_password(
        &self,
        attempt: &Attempt,
        account: Option<Account>,
        raw_password: &str,
    ) -> Result<Account, AttemptError> {
        let Attempt { account: key, source, counted, allowed, .. } = attempt;
        let prepared = password::prepare(raw_password);
        let digest = account.as_ref().and_then(|account| account.password_digest.clone());
        // What cannot be a password is hashed as an empty one, against nothing.
        let digest = digest.filter(|_| prepared.is_some());
        let verified = self.hashes.verify(prepared.unwrap_or_else(|| Password::new("")), digest).await;
        let Ok(verdict) = verified else {
            // Else a storm would lock out whoever tries again, as they were told.
            if *counted {
                attempt::mark_unchecked(&self.database, key, source).await?;
            }
            return Err(Overloaded.into());
        };
        let about = account.as_ref().map(|account| account.subject.user_id);
        let account = account.filter(|account| verdict == Verdict::Match && *allowed && account.may_log_in());
        self.tell_attempt(attempt, about, account.is_some()).await?;
        let account = account.ok_or(AttemptError::Failed)?;
        attempt::mark_succeeded(&self.database, key, source, self.clock.now()).await?;
        Ok(account)
    }

    /// Tells of an attempt, in the same way whatever came of it and whoever it was about.
    async fn tell_attempt(
        &self,
        attempt: &Attempt,
        user_id: Option<UserId>,
        succeeded: bool,
    ) -> Result<(), database::Error> {
        let (name, actor) = match (attempt.purpose, user_id.filter(|_| succeeded)) {
            (Purpose::LogIn, Some(user_id)) => (EventName::AuthnLoginSuccess, Actor::User { user_id }),
            (Purpose::LogIn, None) => (EventName::AuthnLoginFail, Actor::Anonymous),
            (Purpose::ChangePassword, None) => (EventName::AuthnPasswordChangeFail, Actor::Anonymous),
            // The change tells of itself.
            (Purpose::ChangePassword, Some(_)) => return Ok(()),
        };
        let event = |name, actor| AuditEvent {
            user_id,
            ip: Some(attempt.address),
            email: attempt.email.clone(),
            ..AuditEvent::new(name, actor)
        };
        let (tenant_id, now) = (&attempt.tenant_id, self.clock.now());
        let mut tx = self.database.tenant(&TenantScope::of_claim(tenant_id.clone())).await?;
        let exists = tenant::exists(&mut tx, tenant_id).await?;
        self.audit.record_claimed(&mut tx, tenant_id, exists, event(name, actor), now).await?;
        if attempt.locks {
            let lock = event(EventName::AuthnLoginLock, Actor::System);
            self.audit.record_claimed(&mut tx, tenant_id, exists, lock, now).await?;
        }
        tx.commit().await
    }

    /// Forgets what was counted at an account, from anywhere: its owner, or somebody who may, has spoken.
    pub(crate) async fn forget_attempts(
        &self,
        tx: &mut TenantTx,
        tenant_id: &TenantId,
        email: &EmailKey,
    ) -> Result<(), database::Error> {
        attempt::delete(tx, &self.limiter_keys.account(&Whom::Email(tenant_id, email))).await
    }
}
