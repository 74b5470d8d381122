//! Watches the credential of a response that takes longer than a credential check is valid, for example of an event stream.

use std::sync::Arc;
use std::time::Duration;

use contract::Scope;
use service::Clock;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::epochs::EpochReceiver;
use super::{CredentialCache, TTL};
use crate::Caller;

/// Delay from an invalidation to the check, so that many invalidations cause one check.
const INVALIDATION_DELAY: Duration = Duration::from_millis(200);
/// Delay after a check that failed because the session service did not respond.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Age of a lookup after which it is repeated. Until [`TTL`], a failed one can be repeated.
const MAX_AGE: Duration = Duration::from_secs(3);

/// The credential of a caller, checked again and again.
pub struct CredentialWatch {
    cache: CredentialCache,
    epochs: EpochReceiver,
    caller: Caller,
    scope: Scope,
    clock: Arc<dyn Clock>,
    /// Start of the last lookup that found the credential.
    verified_at: Instant,
}

impl CredentialCache {
    /// Returns a watch of the caller's credential. The caller has the scope.
    pub fn watch(&self, caller: &Caller, scope: Scope, clock: Arc<dyn Clock>) -> CredentialWatch {
        let (cache, epochs, caller) = (self.clone(), self.0.epochs.subscribe(), caller.clone());
        CredentialWatch { cache, epochs, caller, scope, clock, verified_at: Instant::now() }
    }
}

impl CredentialWatch {
    /// Returns when the credential is not active, lacks the scope, or was not looked up for five seconds. This is less than a
    /// second after an invalidation or the expiry, and at most five seconds after any other revocation.
    pub async fn ended(mut self) {
        // The first check is now: a change since the check of the caller has no later epoch.
        while self.is_valid().await {
            let until_expiry = self.caller.subject().expires_at - self.clock.now();
            // A negative duration: the credential is expired already.
            let expires_at = Instant::now() + until_expiry.to_std().unwrap_or_default().min(MAX_AGE);
            if timeout_at(expires_at.min(self.verified_at + MAX_AGE), self.epochs.changed()).await.is_ok() {
                sleep(INVALIDATION_DELAY).await;
                self.epochs.mark_unchanged();
            }
        }
    }

    /// Returns whether the credential is active and has the scope. Repeats a failed lookup until the last successful one is older than
    /// [`TTL`].
    async fn is_valid(&mut self) -> bool {
        loop {
            let (now, deadline) = (Instant::now(), self.verified_at + TTL);
            match timeout_at(deadline, self.cache.verify(self.caller.digest(), MAX_AGE)).await {
                Ok(Ok(lookup)) => {
                    let Some(subject) = lookup.introspection() else { return false };
                    self.caller = self.caller.with_subject(subject);
                    self.verified_at = lookup.started_at;
                    let is_expired = self.caller.subject().expires_at <= self.clock.now();
                    return !is_expired && self.caller.scopes().contains(&self.scope);
                }
                Ok(Err(_)) | Err(_) if now >= deadline => return false,
                Ok(Err(_)) | Err(_) => sleep_until(deadline.min(Instant::now() + RETRY_DELAY)).await,
            }
        }
    }
}
