//! Brings invalidations to the cache, and tells it when some may be missing.

use std::sync::Arc;
use std::time::Duration;

use bus::{FeedEvent, InvalidationListener};
use service::Clock;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::trust::Publishers;
use super::{Cache, Shared};

/// How late silence may be noticed.
const LOOK: Duration = Duration::from_millis(250);

/// Listens for ever.
pub(super) async fn listen(cache: Cache, config: bus::Config, clock: Arc<dyn Clock>) {
    let mut invalidations = match InvalidationListener::start(&config).await {
        Ok(invalidations) => invalidations,
        // Nothing is lost but the promptness: no answer is believed for long.
        Err(error) => return tracing::error!(error = ?error, "invalidations of revocations cannot be heard"),
    };
    let mut publishers = Publishers::default();
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            heard = invalidations.next() => cache.0.take(heard, &mut publishers, &*clock),
            _ = look.tick() => {
                let now = Instant::now();
                cache.0.marks.forget(now);
                if !publishers.forget_silent(now) {
                    cache.0.distrust("a publisher of invalidations is silent");
                }
            }
        }
    }
}

impl Shared {
    pub(super) fn take(&self, heard: FeedEvent, publishers: &mut Publishers, clock: &dyn Clock) {
        let now = Instant::now();
        match heard {
            FeedEvent::Connected => self.metrics.distrusted(self.trust.begin(now)),
            FeedEvent::Missed => {
                *publishers = Publishers::default();
                self.distrust("invalidations of revocations may have been missed");
            }
            FeedEvent::InvalidationMessage(hint) => {
                // First what it says: an answer that is good after this is good in any case.
                if !hint.revoked.is_empty() {
                    self.marks.make(&hint.revoked, now);
                    self.metrics.lag((clock.now() - hint.since).to_std().unwrap_or_default());
                }
                if !publishers.hear(&hint, now) {
                    self.distrust("a hint of revocations is missing");
                }
            }
        }
    }

    fn distrust(&self, why: &'static str) {
        let longer = self.trust.suspend(Instant::now());
        self.metrics.distrusted(longer);
        tracing::info!(why, "every credential is checked with session for a while");
    }
}
