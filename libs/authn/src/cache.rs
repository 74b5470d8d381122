//! Remembers what session said, so that a check costs no network hop in the steady state.
//!
//! Nothing is believed for longer than five seconds from the moment the question was put, so a revocation holds everywhere
//! by then whatever fails. Hints of session end it within milliseconds: each is a mark against a credential, a user or a
//! tenant, and an answer whose question was put before the mark is asked anew. Marks rather than searching for what to
//! forget: a hint then costs the same however much is remembered, and a question that is under way when a hint comes needs
//! no care of its own. While invalidations may be missing nothing is believed, and every check asks session.

mod listener;
mod marks;
mod metrics;
mod slots;
mod trust;

use std::sync::Arc;
use std::time::Duration;

use hashing::TokenDigest;
use service::telemetry::Telemetry;
use service::{Clock, Tasks};
use tokio::time::{Instant, timeout};

use crate::batcher::PATIENCE;
use crate::{CredentialVerifier, Introspection, IntrospectionBatcher, Introspector, Unavailable};

use marks::Marks;
use metrics::{CacheMetrics, Way};
use slots::{Slot, Slots};
use trust::Trust;

/// No answer is believed for longer than this after its question was put, and no longer is the cache distrusted after invalidations
/// may have been missed: by then everything that was remembered before has ended.
const BELIEVED: Duration = Duration::from_secs(5);

/// An authority in front of session. Clones share everything.
#[derive(Clone)]
pub struct Cache(Arc<Shared>);

struct Shared {
    session: IntrospectionBatcher,
    slots: Slots,
    marks: Marks,
    trust: Trust,
    metrics: CacheMetrics,
}

impl Cache {
    /// A cache in front of this source, which listens to session's invalidations on the broker. The broker need not be there.
    pub fn start(
        session: impl Introspector + 'static,
        invalidations: bus::Config,
        clock: Arc<dyn Clock>,
        tasks: &Tasks,
        telemetry: &Telemetry,
    ) -> Self {
        let cache = Self::new(session, tasks, telemetry.metrics().shared(CacheMetrics::register));
        let measured = Arc::clone(&cache.0);
        telemetry.metrics().at_scrape(move || measured.measure());
        let (heard, stop) = (cache.clone(), tasks.stopping().clone());
        tasks.spawn_short(async move {
            stop.run_until_cancelled(listener::listen(heard, invalidations, clock)).await;
        });
        cache
    }

    fn new(session: impl Introspector + 'static, tasks: &Tasks, metrics: CacheMetrics) -> Self {
        Self(Arc::new(Shared {
            session: IntrospectionBatcher::new(session, tasks),
            slots: Slots::new(Instant::now()),
            marks: Marks::default(),
            trust: Trust::none_yet(),
            metrics,
        }))
    }
}

#[async_trait::async_trait]
impl CredentialVerifier for Cache {
    async fn introspect(&self, digest: TokenDigest) -> Result<Introspection, Unavailable> {
        let Shared { session, trust, metrics, .. } = &*self.0;
        let now = Instant::now();
        if !trust.holds(now) {
            metrics.count(Way::Distrusted);
            return session.introspect(digest).await;
        }
        if let Some(known) = self.0.remembered(digest, now) {
            metrics.count(if known.is_some() { Way::Hit } else { Way::Negative });
            return Ok(known);
        }
        metrics.count(Way::Miss);
        let asking = timeout(PATIENCE, self.0.ask(digest));
        asking.await.unwrap_or_else(|_| Err(Unavailable::because("session did not answer in time")))
    }
}

impl Shared {
    fn remembered(&self, digest: TokenDigest, now: Instant) -> Option<Introspection> {
        let slot = self.slots.find(digest, now)?;
        let known = slot.answer.get()?;
        self.marks.spare(digest, &slot, known).then(|| known.clone())
    }

    /// Asks session once for all who ask now, and again when a mark has come meanwhile.
    async fn ask(&self, digest: TokenDigest) -> Result<Introspection, Unavailable> {
        loop {
            let now = Instant::now();
            let slot = self.slots.find_or_insert(digest, now, || Slot::new(now, self.marks.latest()));
            let known = slot.answer.get_or_try_init(async || {
                let known = self.session.introspect(digest).await?;
                if known.is_none() {
                    self.slots.bury(digest, &slot, now);
                }
                Ok(known)
            });
            let known = known.await?;
            if self.marks.spare(digest, &slot, known) {
                return Ok(known.clone());
            }
            self.slots.remove(digest, &slot);
        }
    }

    fn measure(&self) {
        let (live, dead) = self.slots.lengths();
        self.metrics.show(live, dead);
    }
}

#[cfg(test)]
mod tests;
