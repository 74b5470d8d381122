use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bus::{FeedEvent, Invalidation, InvalidationMessage};
use chrono::{DateTime, TimeDelta};
use contract::Role;
use contract::identity::Quota;
use contract::internal::{Credential, Subject};
use contract::session::SessionMethod;
use prometheus_client::registry::Registry;
use proptest::prelude::*;
use service::clock::ManualClock;
use tenancy::{SessionId, UserId};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::advance;
use uuid::Uuid;

use super::trust::Publishers;
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Session, as these tests have it: it knows who is live, counts what it is asked, and can be made slow or silent.
struct Session {
    live: Mutex<HashMap<TokenDigest, Arc<Subject>>>,
    asked: AtomicUsize,
    /// An answer is decided when it is asked for, and leaves when there is a permit.
    answers: Semaphore,
    away: Mutex<bool>,
}

#[async_trait::async_trait]
impl Introspector for Arc<Session> {
    async fn look_up(&self, digests: &[TokenDigest]) -> Result<Vec<Introspection>, Unavailable> {
        self.asked.fetch_add(digests.len(), Ordering::Relaxed);
        if *self.away.lock().unwrap() {
            return Err(Unavailable::because("away"));
        }
        let live = self.live.lock().unwrap().clone();
        self.answers.acquire().await.unwrap().forget();
        self.answers.add_permits(1);
        Ok(digests.iter().map(|digest| live.get(digest).cloned()).collect())
    }
}

struct Fixture {
    session: Arc<Session>,
    cache: Cache,
    publishers: Publishers,
    clock: ManualClock,
    number: u64,
}

fn digest(number: usize) -> TokenDigest {
    TokenDigest::of_text(&number.to_string())
}

fn user(number: usize) -> UserId {
    UserId(Uuid::from_u128(number as u128))
}

fn subject(of: usize) -> Arc<Subject> {
    let credential = Credential::Session {
        session_id: SessionId(Uuid::from_u128(of as u128)),
        user_id: user(of),
        role: Role::Member,
        method: SessionMethod::Password,
        created_at: DateTime::UNIX_EPOCH,
        idle_expires_at: DateTime::UNIX_EPOCH,
    };
    Arc::new(Subject {
        credential,
        tenant_id: format!("tenant-{of}").parse().unwrap(),
        quota: Quota::default(),
        expires_at: DateTime::UNIX_EPOCH,
    })
}

impl Fixture {
    /// Credentials 0, 1 and 2 are live, and invalidations are heard.
    fn start() -> Self {
        let session = Arc::new(Session {
            live: Mutex::new((0..3).map(|of| (digest(of), subject(of))).collect()),
            asked: AtomicUsize::new(0),
            answers: Semaphore::new(1),
            away: Mutex::new(false),
        });
        let metrics = CacheMetrics::register(&mut Registry::default());
        let cache = Cache::new(Arc::clone(&session), &Tasks::default(), metrics);
        let clock = ManualClock::at(DateTime::UNIX_EPOCH);
        let mut fixture = Self { session, cache, publishers: Publishers::default(), clock, number: 0 };
        fixture.hear(FeedEvent::Connected);
        fixture
    }

    fn hear(&mut self, heard: FeedEvent) {
        self.cache.0.take(heard, &mut self.publishers, &self.clock);
    }

    fn hint(&mut self, revoked: Vec<Invalidation>) {
        self.number += 1;
        let (publisher, number, since) = (Uuid::from_u128(1), self.number, DateTime::UNIX_EPOCH);
        self.hear(FeedEvent::InvalidationMessage(InvalidationMessage {
            publisher,
            number,
            since,
            revoked,
            last: false,
        }));
    }

    fn revoke(&self, of: usize) {
        self.session.live.lock().unwrap().remove(&digest(of));
    }

    async fn lives(&self, of: usize) -> bool {
        self.cache.introspect(digest(of)).await.unwrap().is_some()
    }

    /// What session was asked since the last call.
    fn asked(&self) -> usize {
        self.session.asked.swap(0, Ordering::Relaxed)
    }

    /// A check in a task of its own, which has got as far as it can.
    async fn check_aside(&self, of: usize) -> JoinSet<bool> {
        let (cache, mut checking) = (self.cache.clone(), JoinSet::new());
        checking.spawn(async move { cache.introspect(digest(of)).await.unwrap().is_some() });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        checking
    }

    async fn hold_answers(&self) {
        self.session.answers.acquire().await.unwrap().forget();
    }

    fn let_answers_go(&self) {
        self.session.answers.add_permits(1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_believed_for_five_seconds_from_its_question() {
    let fixture = Fixture::start();
    fixture.hold_answers().await;
    let checking = fixture.check_aside(0).await;
    advance(2 * SECOND).await;
    fixture.let_answers_go();
    assert_eq!(checking.join_all().await, [true]);
    advance(Duration::from_millis(2999)).await;
    assert!(fixture.lives(0).await);
    assert_eq!(fixture.asked(), 1);
    advance(Duration::from_millis(1)).await;
    assert!(fixture.lives(0).await);
    assert_eq!(fixture.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_who_ask_at_once_ask_session_once_also_when_the_first_of_them_gives_up() {
    let fixture = Fixture::start();
    fixture.hold_answers().await;
    let mut first = fixture.check_aside(0).await;
    let mut others = JoinSet::new();
    for _ in 0..64 {
        let cache = fixture.cache.clone();
        others.spawn(async move { cache.introspect(digest(0)).await.unwrap().is_some() });
    }
    tokio::task::yield_now().await;
    assert_eq!(fixture.asked(), 1);
    first.abort_all();
    while first.join_next().await.is_some() {}
    fixture.let_answers_go();
    assert!(others.join_all().await.into_iter().all(|lives| lives));
    assert!(fixture.asked() <= 1, "one of them took over");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_live_is_remembered_apart_so_that_guesses_push_nobody_out() {
    let fixture = Fixture::start();
    assert!(fixture.lives(0).await && !fixture.lives(3).await && !fixture.lives(3).await);
    assert_eq!(fixture.asked(), 2);
    for guess in 1000..21_000 {
        assert!(!fixture.lives(guess).await);
    }
    fixture.asked();
    assert!(fixture.lives(0).await);
    assert_eq!(fixture.asked(), 0);
    let (live, dead) = fixture.cache.0.slots.lengths();
    assert_eq!(live, 1);
    assert!((8_000..=16_384).contains(&dead), "{dead}");
}

#[tokio::test(start_paused = true)]
async fn what_has_ended_takes_no_room_for_long() {
    let fixture = Fixture::start();
    for guess in 1000..3000 {
        fixture.lives(guess).await;
    }
    advance(5 * SECOND).await;
    for guess in 3000..4000 {
        fixture.lives(guess).await;
    }
    assert_eq!(fixture.cache.0.slots.lengths().1, 1000);
}

#[tokio::test(start_paused = true)]
async fn a_hint_ends_at_once_whom_it_is_about_and_nobody_else() {
    let invalidations = [
        Invalidation::Credential(digest(1).to_hex()),
        Invalidation::User(user(1)),
        Invalidation::Tenant("tenant-1".parse().unwrap()),
    ];
    for revoked in invalidations {
        let mut fixture = Fixture::start();
        assert!(fixture.lives(0).await && fixture.lives(1).await);
        fixture.asked();
        fixture.revoke(0);
        fixture.revoke(1);
        fixture.hint(vec![revoked]);
        assert!(!fixture.lives(1).await);
        assert!(fixture.lives(0).await, "no hint was about it");
        assert_eq!(fixture.asked(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_hint_brings_to_life_is_live_at_once() {
    let mut fixture = Fixture::start();
    assert!(!fixture.lives(3).await);
    fixture.session.live.lock().unwrap().insert(digest(3), subject(3));
    assert!(!fixture.lives(3).await);
    fixture.hint(vec![Invalidation::Tenant("tenant-3".parse().unwrap())]);
    assert!(fixture.lives(3).await);
}

#[tokio::test(start_paused = true)]
async fn an_answer_under_way_when_a_hint_comes_is_not_believed() {
    for hint in [Invalidation::Credential(digest(0).to_hex()), Invalidation::User(user(0))] {
        let mut fixture = Fixture::start();
        fixture.hold_answers().await;
        let checking = fixture.check_aside(0).await;
        assert_eq!(fixture.asked(), 1);
        fixture.revoke(0);
        fixture.hint(vec![hint]);
        fixture.let_answers_go();
        assert_eq!(checking.join_all().await, [false]);
        assert!(!fixture.lives(0).await);
        assert_eq!(fixture.asked(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_hints_ends_everything_rather_than_filling_the_memory() {
    let mut fixture = Fixture::start();
    assert!(fixture.lives(0).await && !fixture.lives(3).await);
    fixture.asked();
    fixture.hint((10..70_000).map(|of| Invalidation::Credential(digest(of).to_hex())).collect());
    assert!(fixture.lives(0).await && !fixture.lives(3).await);
    assert_eq!(fixture.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_believed_for_five_seconds_after_hints_may_have_been_missed() {
    for missed in [true, false] {
        let mut fixture = Fixture::start();
        fixture.hint(Vec::new());
        assert!(fixture.lives(0).await);
        fixture.revoke(0);
        if missed {
            fixture.hear(FeedEvent::Missed);
        } else {
            fixture.number += 1;
            fixture.hint(Vec::new());
        }
        fixture.asked();
        assert!(!fixture.lives(0).await && !fixture.lives(0).await && fixture.lives(1).await);
        assert_eq!(fixture.asked(), 3);
        advance(5 * SECOND).await;
        assert!(fixture.lives(1).await && fixture.lives(1).await);
        assert_eq!(fixture.asked(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn while_session_is_away_what_is_remembered_holds_and_everything_else_is_unavailable() {
    let fixture = Fixture::start();
    assert!(fixture.lives(0).await);
    *fixture.session.away.lock().unwrap() = true;
    assert!(fixture.lives(0).await);
    assert!(fixture.cache.introspect(digest(1)).await.is_err());
    advance(5 * SECOND).await;
    assert!(fixture.cache.introspect(digest(0)).await.is_err());
    *fixture.session.away.lock().unwrap() = false;
    assert!(fixture.lives(0).await && fixture.lives(1).await);
}

#[tokio::test(start_paused = true)]
async fn session_that_does_not_answer_is_unavailable_in_time() {
    let fixture = Fixture::start();
    fixture.hold_answers().await;
    let begun = Instant::now();
    assert!(fixture.cache.introspect(digest(0)).await.is_err());
    assert!(begun.elapsed() <= PATIENCE);
}

#[derive(Clone, Debug)]
enum Step {
    Check(usize),
    Revoke { of: usize, by_user: bool, heard: bool },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_usize).prop_map(Step::Check),
        1 => (0..3_usize, any::<bool>(), any::<bool>())
            .prop_map(|(of, by_user, heard)| Step::Revoke { of, by_user, heard }),
        2 => (0..4000_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Whatever happens in whatever order: a credential that was revoked is live at nobody who heard of it, and at nobody at
    /// all five seconds later; one that was not is always live.
    #[test]
    fn a_revocation_holds_when_it_is_heard_and_after_five_seconds_in_any_case(steps in proptest::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut fixture = Fixture::start();
            let mut revoked: HashMap<usize, (Instant, bool)> = HashMap::new();
            for step in steps {
                match step {
                    Step::Check(of) => {
                        let lives = fixture.lives(of).await;
                        match revoked.get(&of) {
                            None => assert!(lives),
                            Some((at, heard)) => {
                                assert!(!lives || !heard && at.elapsed() < BELIEVED, "{of}: {:?}", at.elapsed());
                            }
                        }
                    }
                    Step::Revoke { of, by_user, heard } => {
                        fixture.revoke(of);
                        let revocation = revoked.entry(of).or_insert((Instant::now(), false));
                        revocation.1 |= heard;
                        let hint =
                            if by_user { Invalidation::User(user(of)) } else { Invalidation::Credential(digest(of).to_hex()) };
                        if heard {
                            fixture.hint(vec![hint]);
                        }
                    }
                    Step::Wait(milliseconds) => {
                        fixture.clock.advance(TimeDelta::milliseconds(milliseconds.cast_signed()));
                        advance(Duration::from_millis(milliseconds)).await;
                        fixture.cache.0.marks.forget(Instant::now());
                    }
                }
            }
        });
    }
}
