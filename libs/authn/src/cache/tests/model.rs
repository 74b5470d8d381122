//! Random sequences of checks, changes, deliveries and pauses, compared with a model of a correct cache.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

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
        delivery: Delivery,
    },
    DeliverQueued,
    Heartbeat,
    /// A copy of a message that was delivered before.
    Repeat(prop::sample::Index),
    Gap,
    Reconnect,
    HoldReplies(bool),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![Just(Kind::Credential), Just(Kind::User), Just(Kind::Tenant)];
    let delivery = prop_oneof![Just(Delivery::Immediate), Just(Delivery::Queued), Just(Delivery::Lost)];
    prop_oneof![
        8 => (0..3_usize).prop_map(Step::Check),
        4 => (0..3_usize, kind, delivery)
            .prop_map(|(number, kind, delivery)| Step::Change { number, kind, delivery }),
        2 => Just(Step::DeliverQueued),
        3 => Just(Step::Heartbeat),
        2 => any::<prop::sample::Index>().prop_map(Step::Repeat),
        1 => Just(Step::Gap),
        1 => Just(Step::Reconnect),
        3 => any::<bool>().prop_map(Step::HoldReplies),
        3 => (0..2500_u64).prop_map(Step::Wait),
    ]
}

/// The oracle: what a correct cache can know at any time.
struct Model {
    fixture: Fixture,
    /// Per credential. The first entry is the initial state.
    history: Vec<Vec<Change>>,
    queue: VecDeque<(u64, Invalidation, usize)>,
    delivered: Vec<(u64, Vec<Invalidation>)>,
    /// The last sequence number that the cache received.
    received: Option<u64>,
    last_message_at: Option<Instant>,
    feed_is_live: bool,
    replies_held: bool,
    checks: Vec<Check>,
}

struct Check {
    number: usize,
    /// Index of the oldest state that the result can show.
    oldest: usize,
    /// Whether the check used the cache.
    cached: bool,
    result: JoinSet<Result<bool, Unavailable>>,
}

impl Model {
    fn new() -> Self {
        let fixture = Fixture::start();
        let now = Instant::now();
        let initial = Change { active: true, committed_at: now, applied: true };
        Self {
            fixture,
            history: vec![vec![initial]; 3],
            queue: VecDeque::new(),
            delivered: vec![(1, Vec::new())],
            received: Some(1),
            last_message_at: Some(now),
            feed_is_live: true,
            replies_held: false,
            checks: Vec::new(),
        }
    }

    /// The oldest state of a credential that a check may return now.
    fn oldest(&self, number: usize) -> usize {
        let changes = &self.history[number];
        if !self.feed_is_live {
            return changes.len() - 1;
        }
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

    fn deliver(&mut self, sequence: u64, changes: Vec<(Invalidation, usize)>) {
        if self.received.map_or(sequence != 1, |received| sequence != received + 1) {
            self.apply_all();
        }
        (self.received, self.last_message_at, self.feed_is_live) =
            (Some(sequence), Some(Instant::now()), true);
        for (_, number) in &changes {
            // The invalidation covers every earlier change of the credential too.
            self.history[*number].iter_mut().for_each(|change| change.applied = true);
        }
        let invalidations: Vec<_> = changes.into_iter().map(|(invalidation, _)| invalidation).collect();
        self.delivered.push((sequence, invalidations.clone()));
        self.fixture.deliver(sequence, invalidations);
    }

    /// Delivers the queued messages: the feed keeps the order.
    fn deliver_queued(&mut self) {
        while let Some((sequence, invalidation, number)) = self.queue.pop_front() {
            self.deliver(sequence, vec![(invalidation, number)]);
        }
    }

    fn next_sequence(&mut self) -> u64 {
        self.fixture.sequence += 1;
        self.fixture.sequence
    }

    fn change(&mut self, number: usize, kind: Kind, delivery: Delivery) {
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
        let sequence = self.next_sequence();
        match delivery {
            Delivery::Immediate => {
                self.deliver_queued();
                self.deliver(sequence, vec![(invalidation, number)]);
            }
            Delivery::Queued => self.queue.push_back((sequence, invalidation, number)),
            Delivery::Lost => {}
        }
    }

    async fn check(&mut self, number: usize) {
        let (oldest, cached) = (self.oldest(number), self.feed_is_live);
        let (cache, mut result) = (self.fixture.cache.clone(), JoinSet::new());
        result.spawn(async move { Ok(cache.introspect(digest(number)).await?.is_some()) });
        self.checks.push(Check { number, oldest, cached, result });
        run_tasks().await;
    }

    async fn wait(&mut self, time: Duration) {
        advance(time).await;
        self.fixture.cache.0.check_feed(&mut self.fixture.health);
        let silent = self.last_message_at.is_none_or(|at| at.elapsed() >= 3 * SECOND);
        if silent && self.feed_is_live {
            self.apply_all();
            (self.received, self.feed_is_live) = (None, false);
        }
    }

    async fn run(&mut self, step: Step) {
        match step {
            Step::Check(number) => self.check(number).await,
            Step::Change { number, kind, delivery } => self.change(number, kind, delivery),
            Step::DeliverQueued => self.deliver_queued(),
            Step::Heartbeat => {
                self.deliver_queued();
                let sequence = self.next_sequence();
                self.deliver(sequence, Vec::new());
            }
            Step::Repeat(index) => {
                let (sequence, invalidations) = index.get(&self.delivered).clone();
                self.fixture.deliver(sequence, invalidations);
            }
            Step::Gap => {
                self.apply_all();
                self.fixture.apply(FeedEvent::Gap);
            }
            Step::Reconnect => {
                self.queue.clear();
                self.apply_all();
                (self.received, self.last_message_at, self.feed_is_live) = (None, None, false);
                self.fixture.apply(FeedEvent::Disconnected);
                self.fixture.apply(FeedEvent::Connected);
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
                    let Check { number, oldest, cached, .. } = check;
                    let oldest = if cached { oldest.max(applied[number]) } else { oldest };
                    let states = &self.history[number][oldest..];
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
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// For every interleaving of checks, changes, lost and late messages, gaps, reconnections and time: a result is not older
    /// than any invalidation or gap applied before or during the check, and not older than five seconds.
    #[test]
    fn no_stale_result_is_used(steps in proptest::collection::vec(step(), 1..80)) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut model = Model::new();
            for step in steps {
                // A check that finishes during the step finishes before a change of the step is applied.
                let applied: Vec<_> = (0..3).map(|number| model.newest_applied(number)).collect();
                model.run(step).await;
                model.verify_finished(&applied).await;
            }
            model.run(Step::HoldReplies(false)).await;
            model.run(Step::Heartbeat).await;
            model.run(Step::Wait(2000)).await;
            model.run(Step::Heartbeat).await;
            model.run(Step::Wait(2000)).await;
            model.run(Step::Heartbeat).await;
            model.run(Step::Wait(1000)).await;
            for number in 0..3 {
                let newest = model.history[number].last().is_some_and(|change| change.active);
                assert_eq!(model.fixture.is_active(number).await, newest, "after five seconds");
            }
        });
    }
}
