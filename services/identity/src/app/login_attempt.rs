//! Attempts at a password, for login and password change.
//!
//! Unknown tenant, unknown address, invited, disabled, suspended, locked, backing off, invalid and wrong password take the
//! same path: one admission, one verification, one settlement, one response. No step reveals whether the account
//! exists.

use std::net::IpAddr;
use std::time::Duration;

use audit::{AuditEvent, EventName, FailedAttempt};
use contract::ProblemKind;
use database::Error;
use hashing::{Argon2Settings, Overloaded, Password, Requester, StoredPassword};
use ratelimit::{RateLimitError, source};
use service::{Problem, chain};
use tenancy::{Actor, TenantId, UserId};
use tracing::field::display;

use super::passwords::{open, reserved};
use super::{App, Work};
use crate::domain::account::{Account, AccountKey, AccountRef};
use crate::domain::email::EmailKey;
use crate::domain::password;
use crate::domain::throttle::{LOCKOUT_THRESHOLD, Permit, Purpose};
use crate::store::login_attempt::{self, Admitted, Settlement, Stored, ThrottleKey};

/// The label `limit` of the throttling in metrics.
const LIMIT: &str = "account";

/// `Retry-After` when too many attempts are in flight.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// An admitted attempt. [`App::check_password`] settles it.
pub(crate) struct Attempt {
    tenant_id: TenantId,
    key: ThrottleKey,
    purpose: Purpose,
    address: IpAddr,
    /// The e-mail address from the request, for the audit.
    email: Option<String>,
    permit: Permit,
    admitted: Admitted,
}

/// Why an attempt is not admitted.
enum NotAdmitted {
    /// Too many attempts are in flight.
    Limited,
    /// The hash queue has no place. The attempt left no trace.
    Shed,
}

impl App {
    /// Admits an attempt at an account, which is found by `target`. `account` is the name that attempts are counted under.
    ///
    /// # Errors
    /// 429 if too many attempts are in flight; 503 if the hash queue is full or the attempt cannot be counted.
    pub(super) async fn begin_attempt(
        &self,
        account: AccountRef<'_>,
        target: AccountRef<'_>,
        address: IpAddr,
        purpose: Purpose,
    ) -> Result<Attempt, Problem> {
        let tenant_id = account.tenant_id().clone();
        let key = ThrottleKey {
            account: self.limiter_keys.get().account(&account),
            source: source(address).to_string(),
        };
        let decisions = self.limiter.metrics();
        let admission = self.admit(target, &key, address, purpose).await.map_err(|error| {
            decisions.unavailable(LIMIT);
            RateLimitError::Unavailable(error)
        })?;
        let (permit, admitted) = match admission {
            Ok(admitted) => admitted,
            Err(NotAdmitted::Limited) => {
                decisions.rejected(LIMIT);
                return Err(RateLimitError::Limited { retry_after: RETRY_AFTER }.into());
            }
            Err(NotAdmitted::Shed) => return Err(ProblemKind::Overloaded.into()),
        };
        if permit.is_allowed() {
            decisions.allowed(LIMIT);
        } else {
            decisions.rejected(LIMIT);
        }
        let email = match account {
            // Postgres does not store every control character.
            AccountRef::Email(_, email) => {
                Some(email.as_str().to_owned()).filter(|email| !email.contains(char::is_control))
            }
            AccountRef::User(..) => None,
        };
        Ok(Attempt { tenant_id, key, purpose, address, email, permit, admitted })
    }

    async fn admit(
        &self,
        target: AccountRef<'_>,
        key: &ThrottleKey,
        address: IpAddr,
        purpose: Purpose,
    ) -> Result<Result<(Permit, Admitted), NotAdmitted>, Error> {
        login_attempt::carry_over(&self.database, &key.account).await?;
        // Repeated if another attempt has changed the state meanwhile.
        loop {
            let now = self.clock.now();
            let mut stored = login_attempt::load(&self.database, key, now).await?;
            let Some(permit) = stored.throttle.admit(purpose, now) else {
                return Ok(Err(NotAdmitted::Limited));
            };
            let requester = requester(&permit, address, target.tenant_id(), &key.account);
            if self.hashes.check_capacity(&requester).is_err() {
                return Ok(Err(NotAdmitted::Shed));
            }
            if let Some(admitted) = login_attempt::admit(&self.database, key, stored, target).await? {
                return Ok(Ok((permit, admitted)));
            }
        }
    }

    /// Verifies a password against an account, or at the cost of a stored password against a dummy hash, and settles the attempt. Returns the
    /// account if the password is correct.
    ///
    /// # Errors
    /// 401 `login_failed`; 503 if the password was not verified or the result was not recorded. Then the attempt does not count.
    pub(super) async fn check_password(
        &self,
        attempt: Attempt,
        raw_password: &str,
    ) -> Result<Account, Problem> {
        let checked = self.verify_and_settle(&attempt, raw_password).await;
        if checked.is_err()
            && let Err(error) = self.cancel(&attempt).await
        {
            let tenant_id = &attempt.tenant_id;
            tracing::warn!(error = chain(&error), %tenant_id, "failed to release login attempt; it expires after 30 s");
        }
        Ok(checked?.ok_or(ProblemKind::LoginFailed)?)
    }

    async fn verify_and_settle(
        &self,
        attempt: &Attempt,
        raw_password: &str,
    ) -> Result<Option<Account>, Problem> {
        let account = attempt.admitted.account.clone();
        let prepared = password::prepare(raw_password);
        // Also for an account with a password, because it can wait.
        let cost = self.cost_of_missing(&attempt.key.account).await;
        let digest = account.as_ref().and_then(|account| account.password_digest.clone());
        let stored = digest.map_or(StoredPassword::Missing(cost), StoredPassword::Digest);
        // Invalid input is hashed as the empty password.
        let is_valid = prepared.is_some();
        let requester = requester(&attempt.permit, attempt.address, &attempt.tenant_id, &attempt.key.account);
        let prepared = prepared.unwrap_or_else(|| Password::new(""));
        let verified = self.hashes.verify(requester, prepared, stored).await;
        let matches = verified.map_err(|Overloaded| ProblemKind::Overloaded)?;
        let user_id = account.as_ref().map(|account| account.subject.user_id);
        let correct = matches && is_valid && attempt.permit.is_allowed();
        let account = account.filter(|account| correct && account.may_log_in());
        let succeeded = self.settle(attempt, user_id, account.is_some()).await?;
        Ok(account.filter(|_| succeeded))
    }

    /// The Argon2 parameters for an account without a password. After the start, waits for the first count of those of the stored
    /// passwords. The settings, if it failed.
    async fn cost_of_missing(&self, account: &AccountKey) -> Argon2Settings {
        let mut costs = self.password_costs.subscribe();
        // An error is impossible, because the sender is not dropped.
        let known = costs.wait_for(Option::is_some).await;
        let cost = known.ok().and_then(|costs| costs.as_ref()?.of_missing(account));
        cost.unwrap_or(*self.hashes.settings())
    }

    /// Counts the result and records it in the audit, in the same way for every account. Returns whether the attempt succeeded: a
    /// correct password is rejected if the account was locked in the meantime.
    async fn settle(&self, attempt: &Attempt, user_id: Option<UserId>, correct: bool) -> Result<bool, Error> {
        let mut before = attempt.admitted.stored.clone();
        // Repeated if another attempt has changed the state meanwhile.
        loop {
            let now = self.clock.now();
            let [mut call, mut lockout] =
                [(); 2].map(|()| self.database.call(&attempt.tenant_id, Actor::Anonymous, now));
            let mut after = before.throttle.clone();
            let succeeded = correct && after.succeed(&attempt.permit, now);
            if !succeeded {
                after.fail(&attempt.permit, now);
            }
            let tenant_exists = attempt.admitted.tenant_exists;
            let failed = FailedAttempt { tenant_exists, user_id, source: &attempt.key.source };
            if let Some(user_id) = user_id.filter(|_| succeeded) {
                attempt.success(user_id).into_iter().for_each(|event| call.audit(event));
            } else {
                call.audit_failure(failed, attempt.failure(user_id));
            }
            let event = attempt.event_named(EventName::AuthnLoginLock, user_id).by(Actor::System);
            lockout.audit_failure(failed, event);
            let counts = after.consecutive_failures > before.throttle.consecutive_failures;
            let settlement = Settlement { before: &before, after: &after, succeeded, user_id };
            if let Some(failures) = login_attempt::settle(call, &attempt.key, settlement, lockout).await? {
                if counts && failures == LOCKOUT_THRESHOLD {
                    let (tenant_id, user_id) = (&attempt.tenant_id, user_id.map(display));
                    tracing::warn!(%tenant_id, user_id, "account locked after {LOCKOUT_THRESHOLD} consecutive failures");
                }
                return Ok(succeeded);
            }
            before = login_attempt::load(&self.database, &attempt.key, now).await?;
        }
    }

    /// Releases an attempt without a verified password.
    async fn cancel(&self, attempt: &Attempt) -> Result<(), Error> {
        let mut stored = attempt.admitted.stored.clone();
        loop {
            stored.throttle.cancel(&attempt.permit);
            let Stored { throttle, version } = &stored;
            if login_attempt::save(&self.database, &attempt.key, &throttle.source, version).await? {
                return Ok(());
            }
            stored = login_attempt::load(&self.database, &attempt.key, self.clock.now()).await?;
        }
    }
}

/// The client of the hash of an attempt. While the queue is full, its lane reveals that a login to the account has recently
/// succeeded, but only to clients with the same source address as that login. All other steps are the same for every account.
fn requester(permit: &Permit, address: IpAddr, tenant_id: &TenantId, account: &AccountKey) -> Requester {
    if permit.uses_reserved_lane() { reserved(address, tenant_id, account) } else { open(address) }
}

impl Work<'_> {
    /// Deletes the counted failures of an account, from all sources. Its owner or an administrator has acted. Returns whether it was locked.
    pub(super) async fn delete_failures(&mut self, email: &EmailKey) -> Result<bool, Error> {
        let tenant_id = self.tenant_id().clone();
        let account = self.app.limiter_keys.get().account(&AccountRef::Email(&tenant_id, email));
        login_attempt::delete_failures(self, &account).await
    }
}

impl Attempt {
    /// The audit event of a success. A successful password change records its own event.
    fn success(&self, user_id: UserId) -> Option<AuditEvent> {
        let event = self.event_named(EventName::AuthnLoginSuccess, Some(user_id)).by(Actor::User { user_id });
        matches!(self.purpose, Purpose::LogIn).then_some(event)
    }

    /// The audit event of a failure.
    fn failure(&self, user_id: Option<UserId>) -> AuditEvent {
        let name = match self.purpose {
            Purpose::LogIn => EventName::AuthnLoginFail,
            Purpose::ChangePassword => EventName::AuthnPasswordChangeFail,
        };
        self.event_named(name, user_id)
    }

    fn event_named(&self, name: EventName, user_id: Option<UserId>) -> AuditEvent {
        let (ip, email) = (Some(self.address), self.email.clone());
        AuditEvent { user_id, ip, email, ..AuditEvent::of(name) }
    }
}
