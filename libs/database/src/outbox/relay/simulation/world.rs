//! What a simulated relay uses: the database, deliveries and a clock, with their faults.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use parking_lot::{Mutex, MutexGuard};
use proptest::prelude::*;
use serde_json::json;
use service::telemetry::Metrics;
use tenancy::OutboxId;
use tokio::sync::watch;
use tokio::time::sleep;
use uuid::Uuid;

use super::super::*;
use crate::outbox::queue::Stats;

pub(super) const TENANTS: [&str; 3] = ["acme", "other", "third"];
/// How many deliveries of one tenant can run at the same time.
const SHARE: usize = 2;

/// What happens to a statement.
#[derive(Clone, Copy, Debug)]
pub(super) enum Execution {
    /// It takes this long, in milliseconds.
    Complete(u64),
    /// It is executed, but the response is lost.
    NoResponse,
    Failed,
}

/// What happens in a delivery.
#[derive(Clone, Copy, Debug)]
pub(super) enum Attempt {
    /// It takes this long, in milliseconds.
    Success(u64),
    /// It has its effect, but the response is lost.
    NoResponse,
    Hangs,
    Fails,
    Panics,
    Permanent,
    TenantBlocked,
}

pub(super) fn execution() -> impl Strategy<Value = Execution> {
    prop_oneof![
        6 => (0..1_000_u64).prop_map(Execution::Complete),
        1 => Just(Execution::NoResponse),
        1 => Just(Execution::Failed),
    ]
}

pub(super) fn attempt() -> impl Strategy<Value = Attempt> {
    prop_oneof![
        8 => (0..9_000_u64).prop_map(Attempt::Success),
        2 => Just(Attempt::NoResponse),
        1 => Just(Attempt::Hangs),
        4 => Just(Attempt::Fails),
        1 => Just(Attempt::Panics),
        1 => Just(Attempt::Permanent),
        1 => Just(Attempt::TenantBlocked),
    ]
}

/// A row of the outbox.
pub(super) struct Row {
    pub(super) tenant: &'static str,
    pub(super) kind: &'static str,
    pub(super) due_at: DateTime<Utc>,
    pub(super) attempts: i32,
    pub(super) fence: Option<Uuid>,
    pub(super) dead_lettered: bool,
}

/// The observed facts about a message.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) effects: usize,
    /// Faults that justify another delivery: a statement or an attempt without an outcome, or a crash.
    pub(super) faults: usize,
    pub(super) permanent: bool,
    /// The relay that delivers it now.
    pub(super) delivering: Option<usize>,
}

/// The database, and the faults of the next statements and attempts.
#[derive(Default)]
pub(super) struct World {
    pub(super) rows: BTreeMap<OutboxId, Row>,
    /// Until when no message of a turn is claimed.
    pub(super) pauses: BTreeMap<String, DateTime<Utc>>,
    pub(super) histories: BTreeMap<OutboxId, History>,
    pub(super) fences: u128,
    pub(super) executions: Vec<Execution>,
    pub(super) attempts: Vec<Attempt>,
    /// Broken rules of a delivery. A relay catches panics of deliveries.
    pub(super) violations: Vec<String>,
}

pub(super) type SharedWorld = Arc<Mutex<World>>;

pub(super) fn lock(world: &SharedWorld) -> MutexGuard<'_, World> {
    world.lock()
}

/// The outbox as one relay sees it. It has the semantics of the functions in the migrations.
pub(super) struct SimulatedQueue {
    pub(super) world: SharedWorld,
    pub(super) wake: watch::Sender<()>,
    pub(super) metrics: Metrics,
}

impl SimulatedQueue {
    /// Executes a statement with the next fault.
    async fn execute<T>(&self, statement: impl FnOnce(&mut World) -> T + Send) -> Result<T, Error> {
        let execution = lock(&self.world).executions.pop().unwrap_or(Execution::Complete(1));
        let lost = || Err(Error::from(sqlx::Error::PoolTimedOut));
        match execution {
            Execution::Failed => lost(),
            Execution::NoResponse => {
                statement(&mut lock(&self.world));
                lost()
            }
            Execution::Complete(milliseconds) => {
                sleep(Duration::from_millis(milliseconds / 2)).await;
                let result = statement(&mut lock(&self.world));
                sleep(Duration::from_millis(milliseconds / 2)).await;
                Ok(result)
            }
        }
    }
}

impl World {
    pub(super) fn claim(&mut self, claim: &Claim<'_>) -> Vec<OutboxMessage> {
        let mut claimed = Vec::new();
        for kind in claim.kinds {
            // Tenants take turns, beginning after the last one.
            let mut tenants = TENANTS;
            tenants.sort_by_key(|tenant| (*tenant <= claim.after, *tenant));
            while claimed.len() < claim.limit {
                let before = claimed.len();
                for tenant in tenants {
                    let leased = self
                        .rows
                        .values()
                        .filter(|row| row.fence.is_some() && row.tenant == tenant && row.due_at > claim.now);
                    let next = self.rows.iter().filter(|(_, row)| {
                        !row.dead_lettered
                            && row.kind == *kind
                            && row.tenant == tenant
                            && row.due_at <= claim.now
                            && self.pauses.get(tenant).is_none_or(|until| *until <= claim.now)
                    });
                    let next = next.min_by_key(|(_, row)| row.due_at).map(|(id, _)| *id);
                    if claimed.len() < claim.limit
                        && leased.count() < usize::from(claim.share)
                        && let Some(id) = next
                    {
                        claimed.push(self.lease(id, claim.lease_until));
                    }
                }
                if claimed.len() == before {
                    break;
                }
            }
        }
        claimed
    }

    fn lease(&mut self, id: OutboxId, until: DateTime<Utc>) -> OutboxMessage {
        self.fences += 1;
        let fence = Uuid::from_u128(self.fences);
        let row = self.rows.get_mut(&id).unwrap();
        (row.fence, row.due_at, row.attempts) = (Some(fence), until, row.attempts + 1);
        OutboxMessage {
            outbox_id: id,
            tenant_id: row.tenant.parse().unwrap(),
            kind: row.kind.to_owned(),
            payload: json!({}),
            attempts: row.attempts,
            fence,
            turn: row.tenant.to_owned(),
        }
    }

    pub(super) fn settle(&mut self, outcomes: &[Outcome]) {
        for Outcome { message, settlement } in outcomes {
            let id = message.outbox_id;
            let Some(row) = self.rows.get_mut(&id).filter(|row| row.fence == Some(message.fence)) else {
                continue;
            };
            if settlement.state == State::Delivered {
                self.rows.remove(&id);
            } else {
                row.fence = None;
                row.due_at = settlement.due_at.unwrap_or(row.due_at);
                row.dead_lettered = settlement.state == State::DeadLettered;
            }
        }
    }

    pub(super) fn postpone(&mut self, postponement: &Postponement<'_>) {
        let until = postponement.until.unwrap();
        self.pauses.extend(postponement.turns.iter().map(|turn| ((*turn).to_owned(), until)));
    }

    fn start_delivery(&mut self, message: &OutboxMessage, relay: usize) {
        let id = message.outbox_id;
        if let Some(other) = self.history(id).delivering.replace(relay) {
            self.violations.push(format!("relay {relay} delivers {id} during the delivery by relay {other}"));
        }
        let running = self.histories.iter().filter_map(|(id, history)| Some((*id, history.delivering?)));
        let (of_relay, of_tenant) = (
            running.clone().filter(|(_, other)| *other == relay).count(),
            running.filter(|(id, _)| self.rows.get(id).is_some_and(|row| row.tenant == message.turn)).count(),
        );
        if of_relay > usize::from(CONCURRENCY) || of_tenant > SHARE {
            self.violations.push(format!("{of_relay} deliveries of relay {relay}, {of_tenant} for a tenant"));
        }
    }

    pub(super) fn history(&mut self, id: OutboxId) -> &mut History {
        self.histories.entry(id).or_default()
    }
}

impl Queue for SimulatedQueue {
    async fn claim(&self, claim: Claim<'_>) -> Result<Vec<OutboxMessage>, Error> {
        self.execute(|world| world.claim(&claim)).await
    }

    async fn settle(&self, outcomes: &[Outcome], _: DateTime<Utc>) -> Result<(), Error> {
        let settled = self.execute(|world| world.settle(outcomes)).await;
        if settled.is_err() {
            let mut world = lock(&self.world);
            for outcome in outcomes {
                world.history(outcome.message.outbox_id).faults += 1;
            }
        }
        settled
    }

    async fn postpone(&self, postponement: Postponement<'_>) -> Result<(), Error> {
        self.execute(|world| world.postpone(&postponement)).await
    }

    async fn stats(&self, _: &[&str], _: DateTime<Utc>) -> Result<Stats, Error> {
        Ok(Stats::default())
    }

    fn woken(&self, _: &'static [&'static str]) -> watch::Receiver<()> {
        self.wake.subscribe()
    }

    fn schema(&self) -> &'static str {
        "simulated"
    }

    fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

/// Delivers messages of one relay with the next fault.
pub(super) struct SimulatedDelivery {
    pub(super) world: SharedWorld,
    pub(super) relay: usize,
}

/// A delivery in progress. It ends with an outcome, the timeout, or the process.
struct InProgress<'a>(&'a SimulatedDelivery, OutboxId);

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        lock(&self.0.world).history(self.1).delivering = None;
    }
}

impl Deliver for SimulatedDelivery {
    async fn deliver(&self, message: &OutboxMessage) -> Result<(), DeliveryError> {
        let id = message.outbox_id;
        let attempt = {
            let mut world = lock(&self.world);
            let attempt = world.attempts.pop().unwrap_or(Attempt::Success(1));
            world.start_delivery(message, self.relay);
            attempt
        };
        let _in_progress = InProgress(self, id);
        let effect = || lock(&self.world).history(id).effects += 1;
        let transient = || Err(DeliveryError::Transient("on purpose".to_owned()));
        match attempt {
            Attempt::Success(milliseconds) => {
                sleep(Duration::from_millis(milliseconds)).await;
                effect();
                Ok(())
            }
            Attempt::NoResponse => {
                effect();
                lock(&self.world).history(id).faults += 1;
                transient()
            }
            Attempt::Hangs => std::future::pending().await,
            Attempt::Fails => transient(),
            Attempt::Panics => std::panic::resume_unwind(Box::new("on purpose")),
            Attempt::Permanent => {
                lock(&self.world).history(id).permanent = true;
                Err(DeliveryError::Permanent("on purpose".to_owned()))
            }
            Attempt::TenantBlocked => Err(DeliveryError::TenantBlocked("on purpose".to_owned())),
        }
    }
}

/// The clock of a relay: the simulated time with a difference.
pub(super) struct SimulatedClock {
    pub(super) started_at: Instant,
    pub(super) seconds: Arc<Mutex<i64>>,
}

impl Clock for SimulatedClock {
    fn now(&self) -> DateTime<Utc> {
        let elapsed = TimeDelta::from_std(self.started_at.elapsed()).unwrap();
        DateTime::UNIX_EPOCH + elapsed + TimeDelta::seconds(*self.seconds.lock())
    }
}
