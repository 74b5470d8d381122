//! Watches the credential of a response that takes longer than a credential check is valid, for example of an event stream.

use std::sync::Arc;
use std::time::Duration;

use contract::Scope;
use service::Clock;
use tokio::time::{Instant, sleep, sleep_until};

use crate::cache::EpochReceiver;
use crate::{Caller, CredentialCache, CredentialVerifier as _, Unavailable};

/// Interval of checks without an invalidation.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Delay from an invalidation to the check, so that many invalidations cause one check.
const INVALIDATION_DELAY: Duration = Duration::from_millis(200);
/// Delay after a check that failed because the session service did not respond.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// The watch ends if no check succeeded for this time, see [`CredentialCache`].
const MAX_UNVERIFIED: Duration = Duration::from_secs(5);

/// The credential of a caller, checked again and again.
pub struct CredentialWatch {
    cache: CredentialCache,
    epochs: EpochReceiver,
    caller: Caller,
    scope: Scope,
    clock: Arc<dyn Clock>,
    verified_at: Instant,
}

impl CredentialCache {
    /// Returns a watch of the caller's credential. The caller has the scope.
    pub fn watch(&self, caller: &Caller, scope: Scope, clock: Arc<dyn Clock>) -> CredentialWatch {
        // A change before this call is newer than the check of the caller, so the first check follows at once.
        let mut epochs = self.epochs();
        epochs.mark_changed();
        CredentialWatch {
            cache: self.clone(),
            epochs,
            caller: caller.clone(),
            scope,
            clock,
            verified_at: Instant::now(),
        }
    }
}

impl CredentialWatch {
    /// Returns when the credential is not active, lacks the scope, or was not verified for five seconds. This is less than a
    /// second after an invalidation or the expiry, and at most five seconds after any other revocation.
    pub async fn ended(mut self) {
        loop {
            let next_check = self.next_check();
            let is_invalidated = tokio::select! {
                changed = self.epochs.changed() => changed.is_ok(),
                () = sleep_until(next_check) => false,
            };
            if is_invalidated {
                sleep(INVALIDATION_DELAY).await;
                self.epochs.mark_unchanged();
            }
            if !self.is_valid().await {
                return;
            }
        }
    }

    /// Checks the credential. Repeats a check without a result until no check succeeded for [`MAX_UNVERIFIED`].
    async fn is_valid(&mut self) -> bool {
        loop {
            let (now, deadline) = (Instant::now(), self.verified_at + MAX_UNVERIFIED);
            match self.check().await {
                Ok(is_valid) => return is_valid,
                Err(_) if now >= deadline => return false,
                Err(_) => sleep_until(deadline.min(Instant::now() + RETRY_DELAY)).await,
            }
        }
    }

    /// Returns whether the credential is active and has the scope.
    async fn check(&mut self) -> Result<bool, Unavailable> {
        let started_at = Instant::now();
        let deadline = (self.verified_at + MAX_UNVERIFIED).max(started_at);
        let check = self.cache.introspect(self.caller.digest());
        let Ok(introspection) = tokio::time::timeout_at(deadline, check).await else {
            return Err(Unavailable::because("the session service did not reply in time"));
        };
        let Some(subject) = introspection? else { return Ok(false) };
        self.caller = self.caller.with_subject(subject);
        self.verified_at = started_at;
        let is_expired = self.caller.subject().expires_at <= self.clock.now();
        Ok(!is_expired && self.caller.scopes().contains(&self.scope))
    }

    fn next_check(&self) -> Instant {
        let until_expiry = self.caller.subject().expires_at - self.clock.now();
        // A negative duration: the credential is expired already.
        Instant::now() + until_expiry.to_std().unwrap_or_default().min(CHECK_INTERVAL)
    }
}
