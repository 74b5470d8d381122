//! The open streams of the process. If all places are taken, the tenant with the most streams loses one to a tenant that has fewer, so
//! that a few tenants cannot keep out the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use bus::{MemoryBudget, READ_BYTES, Reservation};
use contract::ProblemKind;
use parking_lot::Mutex;
use tenancy::TenantId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Streams of the process. A tenant can have a quarter of them. `max_pending` of the broker is for a request of each.
const MAX_STREAMS: usize = 80;

/// The open streams. Clones share them.
#[derive(Clone)]
pub(crate) struct OpenStreams(Arc<OpenStreamsState>);

struct OpenStreamsState {
    budget: MemoryBudget,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    last_id: u64,
    places: BTreeMap<u64, Taken>,
}

struct Taken {
    tenant: TenantId,
    /// When the stream was opened, or sent its last event.
    active_at: Instant,
    replaced: CancellationToken,
    _reservation: Reservation,
}

/// The place of a stream, which is free after it is dropped.
pub(crate) struct Place {
    id: u64,
    streams: OpenStreams,
    replaced: CancellationToken,
}

impl OpenStreams {
    pub(super) fn new() -> Self {
        let budget = MemoryBudget::with_max_reservations(MAX_STREAMS, MAX_STREAMS * READ_BYTES);
        Self(Arc::new(OpenStreamsState { budget, open: Mutex::default() }))
    }

    /// Number of open streams.
    pub(super) fn count(&self) -> usize {
        self.0.budget.reservations()
    }

    /// Takes a place for a stream of a tenant, if necessary that of the idlest stream of a tenant that has more of them.
    ///
    /// # Errors
    /// `too_many_streams` if the tenant has its quarter; `overloaded` if no tenant has more streams than this one.
    pub(super) fn open(&self, tenant: &TenantId) -> Result<Place, ProblemKind> {
        let (budget, mut open) = (&self.0.budget, self.0.open.lock());
        let reserve = || budget.reserve(tenant, READ_BYTES);
        let reservation = match reserve() {
            Ok(reservation) => reservation,
            Err(_) if budget.reservations() < MAX_STREAMS => return Err(ProblemKind::TooManyStreams),
            Err(_) => {
                let idlest = open.idlest_of_larger_tenant(tenant).ok_or(ProblemKind::Overloaded)?;
                if let Some(taken) = open.places.remove(&idlest) {
                    tracing::info!(tenant_id = %taken.tenant, "event stream ended: another tenant has fewer");
                    taken.replaced.cancel();
                }
                reserve().map_err(|_| ProblemKind::Overloaded)?
            }
        };
        open.last_id += 1;
        let (id, replaced) = (open.last_id, CancellationToken::new());
        open.places.insert(
            id,
            Taken {
                tenant: tenant.clone(),
                active_at: Instant::now(),
                replaced: replaced.clone(),
                _reservation: reservation,
            },
        );
        Ok(Place { id, streams: self.clone(), replaced })
    }
}

impl Open {
    /// Returns the stream that has been idle for the longest time of a tenant with the most streams, if that tenant has more also after
    /// the change.
    fn idlest_of_larger_tenant(&self, tenant: &TenantId) -> Option<u64> {
        let mut counts = BTreeMap::<_, usize>::new();
        for taken in self.places.values() {
            *counts.entry(&taken.tenant).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        if most <= counts.get(tenant).copied().unwrap_or_default() + 1 {
            return None;
        }
        let of_largest = self.places.iter().filter(|(_, taken)| counts.get(&taken.tenant) == Some(&most));
        of_largest.min_by_key(|(_, taken)| taken.active_at).map(|(id, _)| *id)
    }
}

impl Place {
    /// Records that the stream has sent an event.
    pub(crate) fn record_event(&self) {
        if let Some(taken) = self.streams.0.open.lock().places.get_mut(&self.id) {
            taken.active_at = Instant::now();
        }
    }

    /// Waits until a stream of another tenant has taken the place.
    pub(crate) async fn replaced(&self) {
        self.replaced.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.streams.0.open.lock().places.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(streams: &OpenStreams, tenant: &str) -> Result<Place, ProblemKind> {
        streams.open(&tenant.parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_divided_evenly_when_all_are_taken_and_the_idlest_streams_end() {
        let streams = OpenStreams::new();
        let mut places = Vec::new();
        for number in 0..MAX_STREAMS {
            places.push(open(&streams, &format!("tenant{}", number % 4)).unwrap());
            tokio::time::advance(std::time::Duration::from_secs(1)).await;
        }
        assert_eq!(open(&streams, "tenant0").err(), Some(ProblemKind::Overloaded), "no tenant has more");
        places[0].record_event();
        let of_new: Vec<_> = (0..16).map(|_| open(&streams, "new").unwrap()).collect();
        assert_eq!(open(&streams, "new").err(), Some(ProblemKind::Overloaded), "each tenant has 16");
        let replaced: Vec<_> =
            (0..MAX_STREAMS).filter(|number| places[*number].replaced.is_cancelled()).collect();
        assert_eq!(replaced, (1..=16).collect::<Vec<_>>(), "the stream with an event is kept");
        assert_eq!(streams.count(), MAX_STREAMS);
        drop((places, of_new));
        assert_eq!((streams.count(), streams.0.open.lock().places.len()), (0, 0));
    }

    #[test]
    fn a_tenant_has_at_most_a_quarter_while_places_are_free() {
        let streams = OpenStreams::new();
        let _places: Vec<_> = (0..MAX_STREAMS / 4).map(|_| open(&streams, "acme").unwrap()).collect();
        assert_eq!(open(&streams, "acme").err(), Some(ProblemKind::TooManyStreams));
        assert!(open(&streams, "other").is_ok());
    }
}
