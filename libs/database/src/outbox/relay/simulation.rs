//! Simulation of two relays of one outbox: failed and lost statements, failed, slow and repeated deliveries, crashes and wrong clocks.
//! The time is simulated, so that minutes of back-off take no time, and a failing schedule is shortened.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use chrono::{DateTime, Utc};
use proptest::prelude::*;
use serde_json::json;
use service::telemetry::Metrics;
use tenancy::OutboxId;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use super::*;
use crate::outbox::queue::Stats;

const RELAYS: usize = 2;
const TENANTS: [&str; 3] = ["acme", "other", "third"];
const KINDS: &[&str] = &["urgent", "usual"];
/// How many deliveries of one tenant can run at the same time.
const SHARE: usize = 2;
/// Longer than a lease, a back-off and the pause of a tenant together.
const RECOVERY: Duration = Duration::from_mins(10);

#[derive(Clone, Debug)]
enum Step {
    Send {
        tenant: usize,
        kind: usize,
        woken: Option<usize>,
    },
    Wait(u64),
    /// The process of a relay is killed, and started again.
    Crash(usize),
    /// A relay completes its deliveries, and is started again.
    Stop(usize),
    SetClock {
        relay: usize,
        seconds: i64,
    },
}

/// What happens to a statement.
#[derive(Clone, Copy, Debug)]
enum Execution {
    /// It takes this long, in milliseconds.
    Complete(u64),
    /// It is executed, but the response is lost.
    NoResponse,
    Failed,
}

/// What happens in a delivery.
#[derive(Clone, Copy, Debug)]
enum Attempt {
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

fn step() -> impl Strategy<Value = Step> {
    let send = (0..TENANTS.len(), 0..KINDS.len(), prop::option::of(0..RELAYS))
        .prop_map(|(tenant, kind, woken)| Step::Send { tenant, kind, woken });
    prop_oneof![
        6 => send,
        3 => prop_oneof![0..3_000_u64, 0..60_000_u64].prop_map(Step::Wait),
        1 => (0..RELAYS).prop_map(Step::Crash),
        1 => (0..RELAYS).prop_map(Step::Stop),
        1 => (0..RELAYS, -5..5_i64).prop_map(|(relay, seconds)| Step::SetClock { relay, seconds }),
    ]
}

fn execution() -> impl Strategy<Value = Execution> {
    prop_oneof![
        6 => (0..1_000_u64).prop_map(Execution::Complete),
        1 => Just(Execution::NoResponse),
        1 => Just(Execution::Failed),
    ]
}

fn attempt() -> impl Strategy<Value = Attempt> {
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
struct Row {
    tenant: &'static str,
    kind: &'static str,
    due_at: DateTime<Utc>,
    attempts: i32,
    fence: Option<Uuid>,
    dead_lettered: bool,
}

/// The observed facts about a message.
#[derive(Clone, Debug, Default)]
struct History {
    effects: usize,
    /// Faults that justify another delivery: a statement or an attempt without an outcome, or a crash.
    faults: usize,
    permanent: bool,
    /// The relay that delivers it now.
    delivering: Option<usize>,
}

/// The database, and the faults of the next statements and attempts.
#[derive(Default)]
struct World {
    rows: BTreeMap<OutboxId, Row>,
    histories: BTreeMap<OutboxId, History>,
    fences: u128,
    executions: Vec<Execution>,
    attempts: Vec<Attempt>,
    /// Broken rules of a delivery. A relay catches panics of deliveries.
    violations: Vec<String>,
}

type SharedWorld = Arc<Mutex<World>>;

fn lock(world: &SharedWorld) -> MutexGuard<'_, World> {
    world.lock().unwrap()
}

/// The outbox as one relay sees it. It has the semantics of the functions in the migrations.
struct SimulatedQueue {
    world: SharedWorld,
    wake: watch::Sender<()>,
    metrics: Metrics,
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
    fn claim(&mut self, claim: &Claim<'_>) -> Vec<OutboxMessage> {
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

    fn settle(&mut self, outcomes: &[Outcome]) {
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

    fn history(&mut self, id: OutboxId) -> &mut History {
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
        let postpone = |world: &mut World| {
            for row in world.rows.values_mut() {
                let waits = row.fence.is_none() && !row.dead_lettered && row.due_at <= postponement.now;
                if waits && postponement.turns.contains(row.tenant) {
                    row.due_at = postponement.due_at.unwrap();
                }
            }
        };
        self.execute(postpone).await
    }

    async fn stats(&self, _: &[&str], _: DateTime<Utc>) -> Result<Stats, Error> {
        Ok(Stats::default())
    }

    fn woken(&self) -> watch::Receiver<()> {
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
struct SimulatedDelivery {
    world: SharedWorld,
    relay: usize,
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
struct SimulatedClock {
    started_at: Instant,
    seconds: Arc<Mutex<i64>>,
}

impl Clock for SimulatedClock {
    fn now(&self) -> DateTime<Utc> {
        let elapsed = TimeDelta::from_std(self.started_at.elapsed()).unwrap();
        DateTime::UNIX_EPOCH + elapsed + TimeDelta::seconds(*self.seconds.lock().unwrap())
    }
}

/// A process with a relay.
struct Process {
    tasks: Tasks,
    run: JoinSet<()>,
    wake: watch::Sender<()>,
    clock_difference: Arc<Mutex<i64>>,
}

impl Process {
    async fn stop(&mut self) {
        self.tasks.stopping().cancel();
        self.run.join_next().await.unwrap().unwrap();
    }
}

struct Simulation {
    world: SharedWorld,
    started_at: Instant,
    retry_policy: RetryPolicy,
    processes: Vec<Process>,
    ids: u128,
}

impl Simulation {
    fn new(retry_policy: RetryPolicy, executions: Vec<Execution>, attempts: Vec<Attempt>) -> Self {
        let world = Arc::new(Mutex::new(World { executions, attempts, ..World::default() }));
        let mut simulation =
            Self { world, started_at: Instant::now(), retry_policy, processes: Vec::new(), ids: 0 };
        simulation.processes = (0..RELAYS).map(|relay| simulation.start(relay)).collect();
        simulation
    }

    fn start(&self, relay: usize) -> Process {
        let (tasks, wake, clock_difference) = (Tasks::default(), watch::Sender::new(()), Arc::default());
        let clock = SimulatedClock { started_at: self.started_at, seconds: Arc::clone(&clock_difference) };
        let running = Relay {
            queue: SimulatedQueue {
                world: Arc::clone(&self.world),
                wake: wake.clone(),
                metrics: Metrics::new("test"),
            },
            name: "simulated",
            kinds: KINDS,
            retry_policy: self.retry_policy,
            timeout: DELIVERY_TIMEOUT,
            concurrency: CONCURRENCY,
            deliver: SimulatedDelivery { world: Arc::clone(&self.world), relay },
            clock: Arc::new(clock),
        };
        let mut run = JoinSet::new();
        run.spawn(running.run(tasks.clone()));
        Process { tasks, run, wake, clock_difference }
    }

    async fn run(&mut self, step: Step) {
        match step {
            Step::Send { tenant, kind, woken } => self.send(tenant, kind, woken),
            Step::Wait(milliseconds) => sleep(Duration::from_millis(milliseconds)).await,
            Step::Crash(relay) => self.crash(relay).await,
            Step::Stop(relay) => {
                self.processes[relay].stop().await;
                self.processes[relay] = self.start(relay);
            }
            Step::SetClock { relay, seconds } => {
                *self.processes[relay].clock_difference.lock().unwrap() = seconds;
            }
        }
    }

    fn send(&mut self, tenant: usize, kind: usize, woken: Option<usize>) {
        self.ids += 1;
        let due_at = DateTime::UNIX_EPOCH + TimeDelta::from_std(self.started_at.elapsed()).unwrap();
        let (tenant, kind) = (TENANTS[tenant], KINDS[kind]);
        let row = Row { tenant, kind, due_at, attempts: 0, fence: None, dead_lettered: false };
        let id = OutboxId(Uuid::from_u128(self.ids));
        let mut world = lock(&self.world);
        world.rows.insert(id, row);
        world.history(id);
        if let Some(relay) = woken {
            self.processes[relay].wake.send_replace(());
        }
    }

    async fn crash(&mut self, relay: usize) {
        {
            // A claimed message may have had its effect.
            let mut world = lock(&self.world);
            let leased: Vec<_> =
                world.rows.iter().filter(|(_, row)| row.fence.is_some()).map(|(id, _)| *id).collect();
            for id in leased {
                world.history(id).faults += 1;
            }
        }
        self.processes[relay].run.abort_all();
        assert!(self.processes[relay].run.join_next().await.unwrap().unwrap_err().is_cancelled());
        self.processes[relay] = self.start(relay);
    }

    /// Without further faults, every message is delivered or dead-lettered.
    async fn recover(&mut self) {
        {
            let mut world = lock(&self.world);
            world.executions.clear();
            world.attempts.clear();
        }
        for relay in 0..RELAYS {
            self.run(Step::SetClock { relay, seconds: 0 }).await;
        }
        let started_at = Instant::now();
        while lock(&self.world).rows.values().any(|row| !row.dead_lettered) && started_at.elapsed() < RECOVERY
        {
            sleep(POLL_INTERVAL).await;
        }
        self.verify();
        // A new message does not wait.
        self.send(0, 0, None);
        sleep(POLL_INTERVAL + Duration::from_millis(100)).await;
        self.send(1, 1, Some(1));
        sleep(Duration::from_millis(100)).await;
        self.verify();
        for process in &mut self.processes {
            process.stop().await;
        }
    }

    fn verify(&self) {
        let world = lock(&self.world);
        assert_eq!(world.violations, Vec::<String>::new());
        for (id, history) in &world.histories {
            assert_eq!(history.delivering, None);
            match world.rows.get(id) {
                None => {
                    let most = 1 + history.faults;
                    assert!((1..=most).contains(&history.effects), "{id}: {history:?}");
                }
                Some(row) => {
                    assert!(row.dead_lettered, "{id} waits: {history:?}");
                    assert_eq!(self.retry_policy, RetryPolicy::DeadLetter, "{id}: {history:?}");
                    assert!(history.permanent || row.attempts >= 5, "{id}: {history:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::schedules(100)))]

    #[test]
    fn each_message_is_delivered_or_dead_lettered_and_never_by_two_relays_at_once(
        steps in prop::collection::vec(step(), 1..40),
        executions in prop::collection::vec(execution(), 0..60),
        attempts in prop::collection::vec(attempt(), 0..40),
        unlimited: bool,
    ) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let retry_policy = if unlimited { RetryPolicy::Unlimited } else { RetryPolicy::DeadLetter };
        runtime.block_on(async {
            let mut simulation = Simulation::new(retry_policy, executions, attempts);
            for step in steps {
                simulation.run(step).await;
            }
            simulation.recover().await;
        });
    }
}
