//! The limits of a tenant. Events above them are rejected, counted and logged. They can be sent again later.

use std::sync::Arc;
use std::time::Duration;

use bus::{Ack, PublishError};
use contract::identity::Quota;
use prometheus_client::metrics::counter::Counter;
use service::telemetry::Metrics;
use tenancy::{PerTenant, TenantId};
use tokio::time::Instant;

use super::over_quota::{Admission, Admit, Limit, MAX_RETRY_AFTER, OverQuota};
use super::quotas::{Allowance, Quotas};
use super::stream_share::StreamShare;

/// Minimum time between two warnings about one tenant.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// Enforces the limits of all tenants. Clones share the state.
#[derive(Clone)]
pub(crate) struct TenantLimits(Arc<TenantLimitsState>);

struct TenantLimitsState {
    quotas: Quotas,
    /// One per stream.
    shares: Vec<StreamShare>,
    rejections: Rejections,
}

/// The size of an event, and the number of its stream; `None` for an invalid item, which [`Quarantine`](super::Quarantine) bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventSize {
    pub(crate) bytes: usize,
    pub(crate) stream: Option<usize>,
}

impl TenantLimits {
    pub(crate) fn new(quotas: Quotas, shares: Vec<StreamShare>, metrics: &Metrics) -> Self {
        Self(Arc::new(TenantLimitsState { quotas, shares, rejections: Rejections::new(metrics) }))
    }

    /// Rejects a request before it is decompressed if the tenant has no token of its quota.
    ///
    /// # Errors
    /// The limit that the tenant has used.
    pub(crate) fn check(&self, tenant_id: &TenantId, quota: &Quota) -> Result<(), OverQuota> {
        let (TenantLimitsState { quotas, rejections, .. }, now) = (&*self.0, Instant::now());
        let Some(over_quota) = quotas.exhausted(tenant_id, quota, now) else { return Ok(()) };
        rejections.record(tenant_id, over_quota.limit, 1, now);
        Err(over_quota)
    }

    /// Counts the bytes of a request, after decompression if it was received completely, whatever becomes of them.
    pub(crate) fn take_bytes(&self, tenant_id: &TenantId, quota: &Quota, bytes: usize) -> Allowance {
        self.0.quotas.take_bytes(tenant_id, quota, bytes, Instant::now())
    }

    /// Returns the tokens of the bytes of a request that can be repeated.
    pub(crate) fn give_back_bytes(&self, tenant_id: &TenantId, bytes: usize) {
        self.0.quotas.give_back(tenant_id, 0, bytes);
    }

    /// Counts events that are not stored: invalid ones and copies.
    pub(crate) fn take_events(&self, tenant_id: &TenantId, quota: &Quota, events: usize) {
        if events > 0 {
            self.0.quotas.take_events(tenant_id, quota, events, Instant::now());
        }
    }

    /// Admits the events of a request up to the limits of the tenant.
    pub(crate) fn admit(
        &self,
        tenant_id: &TenantId,
        quota: &Quota,
        allowance: Allowance,
        events: &[EventSize],
        admit: Admit,
    ) -> Admission {
        let (TenantLimitsState { quotas, shares, rejections }, now) = (&*self.0, Instant::now());
        let sizes: Vec<_> = events.iter().map(|event| event.bytes).collect();
        let mut admission = quotas.admit(tenant_id, quota, allowance, &sizes, admit, now);
        let share_of = |event: &EventSize| event.stream.and_then(|stream| shares.get(stream));
        let mut within_share = 0;
        let exceeded = events.iter().take(admission.admitted).find_map(|event| {
            let share = share_of(event);
            let limit = share.and_then(|share| share.admit(tenant_id, event.bytes, now).err());
            within_share += usize::from(limit.is_none());
            share.zip(limit).zip(event.stream)
        });
        if let Some(((share, limit), stream)) = exceeded {
            if admit == Admit::AllOrNone {
                for event in &events[..within_share] {
                    share_of(event).inspect(|share| share.remove(tenant_id, event.bytes));
                }
                within_share = 0;
            }
            quotas.give_back(tenant_id, admission.admitted - within_share, 0);
            if limit == Limit::StreamSpace {
                let rest = events[within_share..].iter().filter(|event| event.stream == Some(stream));
                share.full.inc_by(rest.count() as u64);
            }
            let over_quota = OverQuota { limit, retry_after: MAX_RETRY_AFTER };
            admission = Admission { admitted: within_share, over_quota: Some(over_quota) };
        }
        if let Some(OverQuota { limit, .. }) = admission.over_quota {
            rejections.record(tenant_id, limit, events.len() - admission.admitted, now);
        }
        admission
    }

    /// Logs that the quarantine of a tenant is full.
    pub(crate) fn quarantine_is_full(&self, tenant_id: &TenantId) {
        if self.0.rejections.warns(tenant_id, Instant::now()) {
            tracing::warn!(%tenant_id, "the quarantine of the tenant is full; invalid items rejected");
        }
    }

    /// Takes the outcomes of admitted events. An event that was not stored does not count. Without a reply before the deadline,
    /// an event can be stored.
    pub(crate) fn settle<'a>(
        &self,
        tenant_id: &TenantId,
        outcomes: impl IntoIterator<Item = (EventSize, &'a Result<Ack, PublishError>)>,
    ) {
        let (mut failed, mut failed_bytes) = (0, 0);
        for (event, outcome) in outcomes {
            match outcome {
                Ok(ack) if !ack.duplicate => continue,
                Ok(_) => {}
                Err(PublishError::AckTimeout) => continue,
                Err(_) => (failed, failed_bytes) = (failed + 1, failed_bytes + event.bytes),
            }
            if let Some(share) = event.stream.and_then(|stream| self.0.shares.get(stream)) {
                share.remove(tenant_id, event.bytes);
            }
        }
        if failed > 0 {
            self.0.quotas.give_back(tenant_id, failed, failed_bytes);
        }
    }
}

/// Counts rejected events, and logs the tenants.
struct Rejections {
    events_per_second: Counter,
    bytes_per_second: Counter,
    stream_share: Counter,
    warned_at: PerTenant<Option<Instant>>,
}

impl Rejections {
    fn new(metrics: &Metrics) -> Self {
        let counter = |reason| {
            metrics.metric(
                "quota_rejected_events",
                "Events rejected by a limit of their tenant; an event that is sent again counts again",
                &[("reason", reason)],
            )
        };
        Self {
            events_per_second: counter("events_per_second"),
            bytes_per_second: counter("bytes_per_second"),
            stream_share: counter("stream_share"),
            warned_at: PerTenant::default(),
        }
    }

    fn record(&self, tenant_id: &TenantId, limit: Limit, events: usize, now: Instant) {
        let counter = match limit {
            Limit::EventsPerSecond(_) => Some(&self.events_per_second),
            Limit::BytesPerSecond(_) => Some(&self.bytes_per_second),
            Limit::StreamShare => Some(&self.stream_share),
            // An outcome of the stream.
            Limit::StreamSpace => None,
        };
        if let Some(counter) = counter {
            counter.inc_by(events as u64);
        }
        if !self.warns(tenant_id, now) {
            return;
        }
        if counter.is_some() {
            tracing::warn!(%tenant_id, %limit, "tenant exceeds its quota; events rejected");
        } else {
            tracing::warn!(%tenant_id, "the event stream has no space for a tenant below its share; events rejected");
        }
    }

    /// Returns whether a warning about the tenant is due.
    fn warns(&self, tenant_id: &TenantId, now: Instant) -> bool {
        let is_recent = |last: Option<Instant>| {
            last.is_some_and(|last| now.saturating_duration_since(last) < WARNING_INTERVAL)
        };
        self.warned_at.update(
            tenant_id,
            |last| !is_recent(*last),
            |last| {
                let is_due = !is_recent(*last);
                if is_due {
                    *last = Some(now);
                }
                is_due
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use bus::Replicas;

    use super::*;

    #[tokio::test]
    async fn tokens_are_returned_after_unavailable_but_not_after_ack_timeout() {
        let (acme, events) = ("acme".parse().unwrap(), [EventSize { bytes: 100, stream: Some(0) }; 6]);
        let quota = Quota { events_per_second: Some(2), bytes_per_second: None };
        let unlimited = Allowance::UNLIMITED;
        let admitted_again = |outcome: PublishError| {
            let quotas = Quotas::new(Quota::default(), Replicas::fixed(1));
            let limits = TenantLimits::new(quotas, Vec::new(), &Metrics::new("test"));
            assert_eq!(limits.admit(&acme, &quota, unlimited, &events, Admit::First).admitted, 6);
            let outcome = Err(outcome);
            limits.settle(&acme, events.map(|event| (event, &outcome)));
            limits.admit(&acme, &quota, unlimited, &events, Admit::First).admitted
        };
        assert_eq!(admitted_again(PublishError::AckTimeout), 0, "the stream may still store the events");
        assert_eq!(admitted_again(PublishError::Unavailable), 6);
    }

    #[test]
    fn each_tenant_is_logged_at_most_once_per_minute() {
        let (rejections, now) = (Rejections::new(&Metrics::new("test")), Instant::now());
        let (acme, other) = ("acme".parse().unwrap(), "other".parse().unwrap());
        let warns = |tenant_id, seconds| rejections.warns(tenant_id, now + Duration::from_secs(seconds));
        assert_eq!(
            [0, 1, 59, 60, 61].map(|seconds| warns(&acme, seconds)),
            [true, false, false, true, false]
        );
        assert!(warns(&other, 61));
    }
}
