//! Room in flight: taken without waiting, given back by dropping the permit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenancy::TenantId;

use super::Limits;
use crate::message::Message;

/// One tenant may hold one part in so many of the whole.
const TENANT_SHARE: usize = 4;
/// Shares of tenants that hold nothing are forgotten when there are more than this.
const IDLE_SHARES: usize = 1024;

/// All the room there is, and what each tenant holds of it.
pub(super) struct Capacity {
    total: Arc<Room>,
    share: Limits,
    tenants: Mutex<HashMap<TenantId, Arc<Room>>>,
}

struct Room {
    messages: Gauge,
    bytes: Gauge,
}

struct Gauge {
    used: AtomicUsize,
    limit: usize,
}

/// Room for one message.
pub(super) struct Permit {
    rooms: [Arc<Room>; 2],
    bytes: usize,
}

impl Capacity {
    pub(super) fn new(limits: Limits) -> Self {
        let share = Limits { messages: limits.messages / TENANT_SHARE, bytes: limits.bytes / TENANT_SHARE };
        Self { total: Room::new(limits), share, tenants: Mutex::default() }
    }

    /// A permit for each message, or none at all when there is not room for all.
    pub(super) fn take(&self, tenant: &TenantId, messages: &[Message]) -> Option<Vec<Permit>> {
        let weights: Vec<usize> = messages.iter().map(Message::weight).collect();
        let (count, bytes) = (weights.len(), weights.iter().sum());
        let own = self.room_of(tenant);
        if !own.take(count, bytes) {
            return None;
        }
        if !self.total.take(count, bytes) {
            own.give_back(count, bytes);
            return None;
        }
        let permit = |bytes| Permit { rooms: [Arc::clone(&self.total), Arc::clone(&own)], bytes };
        Some(weights.into_iter().map(permit).collect())
    }

    pub(super) fn used(&self) -> Limits {
        let used = |gauge: &Gauge| gauge.used.load(Ordering::Relaxed);
        Limits { messages: used(&self.total.messages), bytes: used(&self.total.bytes) }
    }

    fn room_of(&self, tenant: &TenantId) -> Arc<Room> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = tenants.get(tenant) {
            return Arc::clone(room);
        }
        if tenants.len() >= IDLE_SHARES {
            tenants.retain(|_, room| Arc::strong_count(room) > 1);
        }
        let room = Room::new(self.share);
        tenants.insert(tenant.clone(), Arc::clone(&room));
        room
    }
}

impl Room {
    fn new(limits: Limits) -> Arc<Self> {
        let gauge = |limit| Gauge { used: AtomicUsize::new(0), limit };
        Arc::new(Self { messages: gauge(limits.messages), bytes: gauge(limits.bytes) })
    }

    fn take(&self, messages: usize, bytes: usize) -> bool {
        if !self.messages.take(messages) {
            return false;
        }
        let fits = self.bytes.take(bytes);
        if !fits {
            self.messages.give_back(messages);
        }
        fits
    }

    fn give_back(&self, messages: usize, bytes: usize) {
        self.messages.give_back(messages);
        self.bytes.give_back(bytes);
    }
}

impl Gauge {
    fn take(&self, amount: usize) -> bool {
        let added = |used: usize| used.checked_add(amount).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added).is_ok()
    }

    fn give_back(&self, amount: usize) {
        self.used.fetch_sub(amount, Ordering::Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        for room in &self.rooms {
            room.give_back(1, self.bytes);
        }
    }
}
