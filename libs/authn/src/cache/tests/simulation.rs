//! Simulation of the cache with two publishers of its feed: changes, lost and late messages, crashes, reconnections, slow and failed
//! lookups, in any order. The results are compared with a model of a correct cache. A failing schedule is shortened.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const CREDENTIALS: usize = 3;
const PUBLISHERS: usize = 2;
/// Silence after which a publisher and the feed count as down.
const SILENCE: Duration = Duration::from_secs(3);

/// A change of a credential, and what the model knows about its invalidation.
#[derive(Clone, Copy, Debug)]
struct Change {
    active: bool,
    committed_at: Instant,
    /// Whether its invalidation, or a later gap, was applied.
    applied: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Credential,
    User,
    Tenant,
}

#[derive(Clone, Copy, Debug)]
enum Delivery {
    Immediate,
    Queued,
    Lost,
}

#[derive(Clone, Debug)]
enum Step {
    Check(usize),
    Change {
        number: usize,
        kind: Kind,
        by: usize,
        delivery: Delivery,
    },
    DeliverQueued(usize),
    Heartbeat(usize),
    /// A publisher restarts. Its queued messages are lost.
    Restart(usize),
    Reconnect,
    HoldReplies(bool),
    SetUnavailable(bool),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![Just(Kind::Credential), Just(Kind::User), Just(Kind::Tenant)];
    let delivery = prop_oneof![Just(Delivery::Immediate), Just(Delivery::Queued), Just(Delivery::Lost)];
    prop_oneof![
        8 => (0..CREDENTIALS).prop_map(Step::Check),
        4 => (0..CREDENTIALS, kind, 0..PUBLISHERS, delivery)
            .prop_map(|(number, kind, by, delivery)| Step::Change { number, kind, by, delivery }),
        2 => (0..PUBLISHERS).prop_map(Step::DeliverQueued),
        4 => (0..PUBLISHERS).prop_map(Step::Heartbeat),
        1 => (0..PUBLISHERS).prop_map(Step::Restart),
        2 => Just(Step::Reconnect),
        3 => any::<bool>().prop_map(Step::HoldReplies),
        1 => prop::bool::weighted(0.3).prop_map(Step::SetUnavailable),
        3 => (0..2500_u64).prop_map(Step::Wait),
    ]
}

/// A publisher of the feed, and what the cache knows of it.
struct Publisher {
    id: u128,
    sequence: u64,
    /// Messages that are not delivered yet, with the credential that changed.
    queue: VecDeque<(InvalidationMessage, Option<usize>)>,
    /// The last sequence number that the cache received, while it expects the next one.
    expected_after: Option<u64>,
    last_message_at: Instant,
}

/// The oracle: what a correct cache can know at any time.
struct Model {
    fixture: Fixture,
    /// Per credential. The first entry is the initial state.
    history: Vec<Vec<Change>>,
    publishers: Vec<Publisher>,
    ids: u128,
    last_message_at: Option<Instant>,
    feed_is_up: bool,
    replies_held: bool,
    checks: Vec<Check>,
}

struct Check {
    number: usize,
    /// Index of the oldest state that the result can show.
    oldest: usize,
    result: JoinSet<Result<bool, Unavailable>>,
}

impl Model {
    fn new() -> Self {
        let now = Instant::now();
        let initial = Change { active: true, committed_at: now, applied: true };
        let publisher = |id| Publisher {
            id,
            sequence: 0,
            queue: VecDeque::new(),
            expected_after: None,
            last_message_at: now,
        };
        let mut model = Self {
            fixture: Fixture::without_feed(),
            history: vec![vec![initial]; CREDENTIALS],
            publishers: (1..).take(PUBLISHERS).map(publisher).collect(),
            ids: PUBLISHERS as u128,
            last_message_at: None,
            feed_is_up: false,
            replies_held: false,
            checks: Vec::new(),
        };
        model.heartbeat(0);
        model
    }

    /// The oldest state of a credential that a check may return now.
    fn oldest(&self, number: usize) -> usize {
        let changes = &self.history[number];
        let must_see = |change: &Change| change.applied || change.committed_at.elapsed() >= TTL;
        changes.iter().rposition(must_see).unwrap_or(0)
    }

    /// The newest state with an applied invalidation.
    fn newest_applied(&self, number: usize) -> usize {
        self.history[number].iter().rposition(|change| change.applied).unwrap_or(0)
    }

    fn apply_all(&mut self) {
        self.history.iter_mut().flatten().for_each(|change| change.applied = true);
    }

    /// Returns the next message of a publisher.
    fn message(&mut self, publisher: usize, invalidations: Vec<Invalidation>) -> InvalidationMessage {
        let committed_at = self.fixture.clock.now();
        let publisher = &mut self.publishers[publisher];
        publisher.sequence += 1;
        let (id, sequence) = (Uuid::from_u128(publisher.id), publisher.sequence);
        InvalidationMessage { publisher: id, sequence, committed_at, invalidations }
    }

    fn deliver(&mut self, by: usize, message: InvalidationMessage, changed: Option<usize>) {
        let (now, publisher) = (Instant::now(), &mut self.publishers[by]);
        let missing = publisher.expected_after.unwrap_or(0) + 1 != message.sequence;
        publisher.expected_after = Some(message.sequence);
        publisher.last_message_at = now;
        if missing || !self.feed_is_up {
            self.apply_all();
        }
        (self.last_message_at, self.feed_is_up) = (Some(now), true);
        if let Some(number) = changed {
            // The invalidation covers every earlier change of the credential too.
            self.history[number].iter_mut().for_each(|change| change.applied = true);
        }
        self.fixture.apply(FeedEvent::Message(message));
    }

    /// Delivers the queued messages of a publisher: the feed keeps their order.
    fn deliver_queued(&mut self, by: usize) {
        while let Some((message, changed)) = self.publishers[by].queue.pop_front() {
            self.deliver(by, message, changed);
        }
    }

    fn heartbeat(&mut self, by: usize) {
        self.deliver_queued(by);
        let message = self.message(by, Vec::new());
        self.deliver(by, message, None);
    }

    fn change(&mut self, number: usize, kind: Kind, by: usize, delivery: Delivery) {
        let was_active = self.history[number].last().is_some_and(|change| change.active);
        // Only a user or a tenant changes back to active.
        let kind = if was_active { kind } else { Kind::Tenant };
        if was_active {
            self.fixture.deactivate(number);
        } else {
            self.fixture.activate(number);
        }
        let change = Change { active: !was_active, committed_at: Instant::now(), applied: false };
        self.history[number].push(change);
        let invalidation = match kind {
            Kind::Credential => invalidation_of_credential(number),
            Kind::User => Invalidation::User(user(number)),
            Kind::Tenant => invalidation_of_tenant(number),
        };
        let message = self.message(by, vec![invalidation]);
        match delivery {
            Delivery::Immediate => {
                self.deliver_queued(by);
                self.deliver(by, message, Some(number));
            }
            Delivery::Queued => self.publishers[by].queue.push_back((message, Some(number))),
            Delivery::Lost => {}
        }
    }

    fn restart(&mut self, number: usize) {
        self.ids += 1;
        let publisher = &mut self.publishers[number];
        publisher.queue.clear();
        (publisher.id, publisher.sequence) = (self.ids, 0);
        // The cache still expects messages of the former process. Its silence is a gap; the model expects it with the reconnection
        // or with the silence of the feed.
        publisher.expected_after = None;
    }

    async fn check(&mut self, number: usize) {
        let oldest = self.oldest(number);
        let (cache, mut result) = (self.fixture.cache.clone(), JoinSet::new());
        result.spawn(async move { Ok(cache.introspect(digest(number)).await?.is_some()) });
        self.checks.push(Check { number, oldest, result });
        run_tasks().await;
    }

    async fn wait(&mut self, time: Duration) {
        advance(time).await;
        self.fixture.clock.advance(chrono::TimeDelta::from_std(time).unwrap());
        self.fixture.cache.0.check_feed(&mut self.fixture.publishers);
        let mut silent = false;
        for publisher in &mut self.publishers {
            if publisher.expected_after.is_some() && publisher.last_message_at.elapsed() >= SILENCE {
                publisher.expected_after = None;
                silent = true;
            }
        }
        if self.last_message_at.is_none_or(|at| at.elapsed() >= SILENCE) {
            silent |= self.feed_is_up;
            self.feed_is_up = false;
        }
        if silent {
            self.apply_all();
        }
    }

    async fn run(&mut self, step: Step) {
        match step {
            Step::Check(number) => self.check(number).await,
            Step::Change { number, kind, by, delivery } => self.change(number, kind, by, delivery),
            Step::DeliverQueued(by) => self.deliver_queued(by),
            Step::Heartbeat(by) => self.heartbeat(by),
            Step::Restart(publisher) => self.restart(publisher),
            Step::Reconnect => {
                for publisher in &mut self.publishers {
                    publisher.queue.clear();
                    publisher.expected_after = None;
                }
                self.apply_all();
                (self.last_message_at, self.feed_is_up) = (None, false);
                self.fixture.apply(FeedEvent::Lost);
            }
            Step::HoldReplies(hold) if hold != self.replies_held => {
                self.replies_held = hold;
                if hold {
                    self.fixture.hold_replies().await;
                } else {
                    self.fixture.release_replies();
                }
            }
            Step::HoldReplies(_) => {}
            Step::SetUnavailable(unavailable) => {
                *self.fixture.session.unavailable.lock() = unavailable;
            }
            Step::Wait(milliseconds) => self.wait(Duration::from_millis(milliseconds)).await,
        }
    }

    /// Compares the results of the finished checks with the states that they can show.
    async fn verify_finished(&mut self, applied: &[usize]) {
        run_tasks().await;
        let mut open = Vec::new();
        for mut check in std::mem::take(&mut self.checks) {
            match check.result.try_join_next() {
                None => open.push(check),
                // A lookup that takes too long fails. That is not a stale result.
                Some(Ok(Err(_))) => {}
                Some(Ok(Ok(active))) => {
                    let Check { number, oldest, .. } = check;
                    let states = &self.history[number][oldest.max(applied[number])..];
                    assert!(
                        states.iter().any(|change| change.active == active),
                        "credential {number} is {active}, possible: {states:?}"
                    );
                }
                Some(Err(error)) => panic!("{error}"),
            }
        }
        self.checks = open;
    }

    /// Without faults, every credential has its last state after five seconds, and a second check needs no lookup.
    async fn recover(&mut self) {
        self.run(Step::HoldReplies(false)).await;
        self.run(Step::SetUnavailable(false)).await;
        for _ in 0..6 {
            (0..PUBLISHERS).for_each(|publisher| self.heartbeat(publisher));
            self.wait(SECOND).await;
        }
        self.heartbeat(0);
        for number in 0..CREDENTIALS {
            let newest = self.history[number].last().is_some_and(|change| change.active);
            assert_eq!(self.fixture.is_active(number).await, newest, "after five seconds");
            self.fixture.lookups();
            assert_eq!(self.fixture.is_active(number).await, newest);
            assert_eq!(self.fixture.lookups(), 0, "the result is not cached");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::schedules(500)))]

    /// A result is not older than any invalidation or gap applied before or during the check, and not older than five seconds.
    #[test]
    fn no_stale_result_is_used(steps in proptest::collection::vec(step(), 1..80)) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut model = Model::new();
            for step in steps {
                // A check that finishes during the step finishes before a change of the step is applied.
                let applied: Vec<_> = (0..CREDENTIALS).map(|number| model.newest_applied(number)).collect();
                model.run(step).await;
                model.verify_finished(&applied).await;
            }
            model.recover().await;
        });
    }
}
