//! Simulation of two relays of one outbox: failed and lost statements, failed, slow and repeated deliveries, crashes and wrong clocks.
//! The time is simulated, so that minutes of back-off take no time, and a failing schedule is shortened.

mod postgres;
mod world;

use chrono::DateTime;
use parking_lot::Mutex;
use proptest::prelude::*;
use service::telemetry::Metrics;
use tenancy::OutboxId;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use super::*;
use world::{
    Attempt, Execution, Row, SharedWorld, SimulatedClock, SimulatedDelivery, SimulatedQueue, TENANTS, World,
    attempt, execution, lock,
};

const RELAYS: usize = 2;
const FIVE_ATTEMPTS: RetryPolicy = RetryPolicy::DeadLetter { attempts: 5 };
const KINDS: &[&str] = &["urgent", "usual"];
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
                *self.processes[relay].clock_difference.lock() = seconds;
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
        // The back-off of a claim that failed before.
        sleep(MAX_CLAIM_BACK_OFF + POLL_INTERVAL).await;
        // A new message does not wait for the poll.
        self.send(0, 0, None);
        sleep(POLL_INTERVAL + Duration::from_millis(100)).await;
        self.send(1, 1, Some(1));
        sleep(CLAIM_INTERVAL + Duration::from_millis(100)).await;
        self.verify();
        // After a pause, it does not wait for other messages.
        sleep(2 * POLL_INTERVAL).await;
        self.send(1, 1, Some(1));
        sleep(Duration::from_millis(10)).await;
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
                    assert_eq!(self.retry_policy, FIVE_ATTEMPTS, "{id}: {history:?}");
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
        let retry_policy = if unlimited { RetryPolicy::Unlimited } else { FIVE_ATTEMPTS };
        runtime.block_on(async {
            let mut simulation = Simulation::new(retry_policy, executions, attempts);
            for step in steps {
                simulation.run(step).await;
            }
            simulation.recover().await;
        });
    }
}
