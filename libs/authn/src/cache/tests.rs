use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use bus::{FeedEvent, Invalidation, InvalidationMessage};
use chrono::DateTime;
use contract::Role;
use contract::identity::Quota;
use contract::internal::{Credential, Subject};
use contract::session::{AuthMethod, SessionMethod};
use parking_lot::Mutex;
use service::clock::ManualClock;
use service::telemetry::Metrics;
use tenancy::{SessionId, UserId};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::advance;
use uuid::Uuid;

use super::feed::Publishers;
use super::*;

mod simulation;
mod watching;

const SECOND: Duration = Duration::from_secs(1);
/// Capacity for negative entries: few, because the library uses the real time, and a slow test would see them expire.
const MAX_NEGATIVE: u64 = 500;

/// A session service that counts lookups, and that can delay its replies or be unavailable.
struct Session {
    active: Mutex<HashMap<TokenDigest, Arc<Subject>>>,
    lookups: AtomicUsize,
    /// A lookup reads the state at once. Its reply needs a permit.
    replies: Semaphore,
    unavailable: Mutex<bool>,
}

#[async_trait::async_trait]
impl Introspector for Arc<Session> {
    async fn look_up(&self, digests: &[TokenDigest]) -> Result<Vec<Introspection>, Unavailable> {
        self.lookups.fetch_add(digests.len(), Ordering::Relaxed);
        if *self.unavailable.lock() {
            return Err(Unavailable::because("on purpose"));
        }
        let active = self.active.lock().clone();
        self.replies.acquire().await.unwrap().forget();
        self.replies.add_permits(1);
        Ok(digests.iter().map(|digest| active.get(digest).cloned()).collect())
    }
}

struct Fixture {
    session: Arc<Session>,
    cache: CredentialCache,
    metrics: Metrics,
    publishers: Publishers,
    clock: ManualClock,
    sequence: u64,
}

fn message(publisher: u128, sequence: u64, invalidations: Vec<Invalidation>) -> InvalidationMessage {
    let (publisher, now) = (Uuid::from_u128(publisher), DateTime::UNIX_EPOCH);
    InvalidationMessage { publisher, sequence, committed_at: now, invalidations }
}

fn digest(number: usize) -> TokenDigest {
    TokenDigest::from_text(&number.to_string())
}

fn user(number: usize) -> UserId {
    UserId(Uuid::from_u128(number as u128))
}

fn subject(number: usize) -> Arc<Subject> {
    let credential = Credential::Session {
        session_id: SessionId(Uuid::from_u128(number as u128)),
        user_id: user(number),
        role: Role::Member,
        method: SessionMethod::Password,
        amr: vec![AuthMethod::Pwd],
        has_factor: false,
        created_at: DateTime::UNIX_EPOCH,
        idle_expires_at: DateTime::UNIX_EPOCH,
    };
    Arc::new(Subject {
        credential,
        tenant_id: format!("tenant-{number}").parse().unwrap(),
        quota: Quota::default(),
        expires_at: DateTime::UNIX_EPOCH,
    })
}

fn invalidation_of_credential(number: usize) -> Invalidation {
    Invalidation::Credential(digest(number))
}

fn invalidation_of_tenant(number: usize) -> Invalidation {
    Invalidation::Tenant(format!("tenant-{number}").parse().unwrap())
}

impl Fixture {
    /// Returns a cache with a live feed. Credentials 0, 1 and 2 are active.
    fn start() -> Self {
        let mut fixture = Self::without_feed();
        fixture.heartbeat();
        fixture
    }

    fn without_feed() -> Self {
        let session = Arc::new(Session {
            active: Mutex::new((0..3).map(|number| (digest(number), subject(number))).collect()),
            lookups: AtomicUsize::new(0),
            replies: Semaphore::new(1),
            unavailable: Mutex::new(false),
        });
        let metrics = Metrics::new("test");
        let measured = CacheMetrics::new(&metrics);
        let cache = CredentialCache::new(Arc::clone(&session), &Tasks::default(), measured, MAX_NEGATIVE);
        let (publishers, clock) = (Publishers::default(), ManualClock::at(DateTime::UNIX_EPOCH));
        Self { session, cache, metrics, publishers, clock, sequence: 0 }
    }

    fn apply(&mut self, event: FeedEvent) {
        self.cache.0.apply(event, &mut self.publishers, &self.clock);
    }

    fn invalidate(&mut self, invalidations: Vec<Invalidation>) {
        self.sequence += 1;
        self.deliver(self.sequence, invalidations);
    }

    fn deliver(&mut self, sequence: u64, invalidations: Vec<Invalidation>) {
        self.apply(FeedEvent::Message(message(1, sequence, invalidations)));
    }

    fn heartbeat(&mut self) {
        self.invalidate(Vec::new());
    }

    /// Advances the time in steps with a heartbeat each, so that the feed stays live.
    async fn advance_with_heartbeats(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            advance(SECOND.min(end - Instant::now())).await;
            self.heartbeat();
            self.cache.0.check_feed(&mut self.publishers);
        }
    }

    fn deactivate(&self, number: usize) {
        self.session.active.lock().remove(&digest(number));
    }

    fn activate(&self, number: usize) {
        self.session.active.lock().insert(digest(number), subject(number));
    }

    async fn is_active(&self, number: usize) -> bool {
        self.cache.introspect(digest(number)).await.unwrap().is_some()
    }

    /// Returns the number of lookups since the last call.
    fn lookups(&self) -> usize {
        self.session.lookups.swap(0, Ordering::Relaxed)
    }

    /// Starts a check in its own task and runs it until it waits.
    async fn start_check(&self, number: usize) -> JoinSet<bool> {
        let (cache, mut check) = (self.cache.clone(), JoinSet::new());
        check.spawn(async move { cache.introspect(digest(number)).await.unwrap().is_some() });
        run_tasks().await;
        check
    }

    async fn hold_replies(&self) {
        self.session.replies.acquire().await.unwrap().forget();
    }

    fn release_replies(&self) {
        self.session.replies.add_permits(1);
    }
}

/// Runs every task until it waits.
async fn run_tasks() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn each_event_changes_its_metric_only() {
    let registry = Metrics::new("test");
    let metrics = CacheMetrics::new(&registry);
    for (count, outcome) in (1..).zip([&metrics.hit, &metrics.negative, &metrics.miss]) {
        outcome.inc_by(count);
    }
    metrics.feed_down.inc_by(2.5);
    metrics.lag.observe(0.5);
    let text = registry.text();
    for line in [
        r#"credential_checks_total{outcome="hit"} 1"#,
        r#"credential_checks_total{outcome="negative"} 2"#,
        r#"credential_checks_total{outcome="miss"} 3"#,
        "invalidation_feed_down_seconds_total 2.5",
        "invalidation_lag_seconds_sum 0.5",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_metrics_contain_the_number_of_entries() {
    let fixture = Fixture::start();
    for number in [0, 1, 7] {
        fixture.is_active(number).await;
    }
    let CacheState { active, negative, .. } = &*fixture.cache.0;
    // The library counts entries some time after they are added.
    active.run_pending_tasks();
    negative.run_pending_tasks();
    fixture.cache.0.measure();
    let text = fixture.metrics.text();
    for line in
        [r#"credential_cache_entries{kind="active"} 2"#, r#"credential_cache_entries{kind="negative"} 1"#]
    {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn entry_is_valid_for_five_seconds_from_the_start_of_its_lookup() {
    let mut fixture = Fixture::start();
    fixture.hold_replies().await;
    let check = fixture.start_check(0).await;
    fixture.advance_with_heartbeats(2 * SECOND).await;
    fixture.release_replies();
    assert_eq!(check.join_all().await, [true]);
    fixture.advance_with_heartbeats(Duration::from_millis(2999)).await;
    assert!(fixture.is_active(0).await);
    assert_eq!(fixture.lookups(), 1);
    advance(Duration::from_millis(1)).await;
    assert!(fixture.is_active(0).await);
    assert_eq!(fixture.lookups(), 1);
}

#[tokio::test(start_paused = true)]
async fn concurrent_checks_share_a_lookup_even_if_the_first_caller_disconnects() {
    let fixture = Fixture::start();
    fixture.hold_replies().await;
    let mut first = fixture.start_check(0).await;
    let mut others = JoinSet::new();
    for _ in 0..64 {
        let cache = fixture.cache.clone();
        others.spawn(async move { cache.introspect(digest(0)).await.unwrap().is_some() });
    }
    run_tasks().await;
    assert_eq!(fixture.lookups(), 1);
    first.abort_all();
    while first.join_next().await.is_some() {}
    fixture.release_replies();
    assert!(others.join_all().await.into_iter().all(|active| active));
    assert!(fixture.lookups() <= 1, "another caller repeats the lookup");
}

#[tokio::test(start_paused = true)]
async fn lookup_continues_after_hundreds_of_callers_disconnect() {
    let fixture = Fixture::start();
    fixture.hold_replies().await;
    let mut disconnecting = Vec::new();
    for _ in 0..300 {
        disconnecting.push(fixture.start_check(0).await);
    }
    let last = fixture.start_check(0).await;
    for mut check in disconnecting {
        check.abort_all();
        while check.join_next().await.is_some() {}
        run_tasks().await;
    }
    fixture.release_replies();
    assert_eq!(last.join_all().await, [true]);
}

#[tokio::test(start_paused = true)]
async fn guessed_tokens_do_not_evict_active_credentials() {
    let fixture = Fixture::start();
    assert!(fixture.is_active(0).await && !fixture.is_active(3).await && !fixture.is_active(3).await);
    assert_eq!(fixture.lookups(), 2);
    for guess in 1000..2000 {
        assert!(!fixture.is_active(guess).await);
    }
    fixture.lookups();
    assert!(fixture.is_active(0).await);
    assert_eq!(fixture.lookups(), 0);
    let CacheState { active, negative, .. } = &*fixture.cache.0;
    active.run_pending_tasks();
    negative.run_pending_tasks();
    assert_eq!(active.entry_count(), 1);
    assert!(
        (MAX_NEGATIVE / 2..=MAX_NEGATIVE).contains(&negative.entry_count()),
        "{}",
        negative.entry_count()
    );
}

#[tokio::test]
async fn expired_entries_free_their_memory() {
    let fixture = Fixture::start();
    for guess in 1000..1500 {
        fixture.is_active(guess).await;
    }
    let CacheState { negative, .. } = &*fixture.cache.0;
    negative.run_pending_tasks();
    assert_eq!(negative.entry_count(), MAX_NEGATIVE);
    // The library uses the real time.
    let started_at = std::time::Instant::now();
    while negative.entry_count() > 0 {
        assert!(started_at.elapsed() < 6 * TTL, "{} entries left", negative.entry_count());
        tokio::time::sleep(Duration::from_millis(50)).await;
        negative.run_pending_tasks();
    }
}

#[tokio::test(start_paused = true)]
async fn invalidation_applies_at_once_and_only_to_matching_entries() {
    let invalidations =
        [invalidation_of_credential(1), Invalidation::User(user(1)), invalidation_of_tenant(1)];
    for invalidation in invalidations {
        let mut fixture = Fixture::start();
        assert!(fixture.is_active(0).await && fixture.is_active(1).await);
        fixture.lookups();
        fixture.deactivate(0);
        fixture.deactivate(1);
        fixture.invalidate(vec![invalidation]);
        assert!(!fixture.is_active(1).await);
        assert!(fixture.is_active(0).await, "not invalidated");
        assert_eq!(fixture.lookups(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn invalidation_of_a_tenant_also_applies_to_negative_entries() {
    let mut fixture = Fixture::start();
    assert!(!fixture.is_active(3).await);
    fixture.activate(3);
    assert!(!fixture.is_active(3).await);
    fixture.invalidate(vec![invalidation_of_tenant(3)]);
    assert!(fixture.is_active(3).await);
}

#[tokio::test(start_paused = true)]
async fn result_in_flight_when_an_invalidation_arrives_is_not_used() {
    for invalidation in [invalidation_of_credential(0), Invalidation::User(user(0))] {
        let mut fixture = Fixture::start();
        fixture.hold_replies().await;
        let check = fixture.start_check(0).await;
        assert_eq!(fixture.lookups(), 1);
        fixture.deactivate(0);
        fixture.invalidate(vec![invalidation]);
        fixture.release_replies();
        assert_eq!(check.join_all().await, [false]);
        assert!(!fixture.is_active(0).await);
        assert_eq!(fixture.lookups(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn every_invalidation_of_a_storm_is_applied_in_constant_memory() {
    let mut fixture = Fixture::start();
    assert!(fixture.is_active(0).await && fixture.is_active(1).await);
    fixture.lookups();
    fixture.deactivate(0);
    fixture.invalidate((0..200_000).map(invalidation_of_credential).collect());
    assert!(!fixture.is_active(0).await && fixture.is_active(1).await);
    assert_eq!(fixture.lookups(), 2);
}

#[tokio::test(start_paused = true)]
async fn gap_drops_all_entries_and_the_cache_is_used_again_at_once() {
    for lost in [true, false] {
        let mut fixture = Fixture::start();
        assert!(fixture.is_active(0).await && fixture.is_active(1).await && !fixture.is_active(3).await);
        fixture.deactivate(0);
        if lost {
            fixture.apply(FeedEvent::Lost);
        } else {
            fixture.sequence += 1;
            fixture.heartbeat();
        }
        fixture.lookups();
        assert!(!fixture.is_active(0).await && fixture.is_active(1).await && !fixture.is_active(3).await);
        assert_eq!(fixture.lookups(), 3);
        assert!(!fixture.is_active(0).await && fixture.is_active(1).await && !fixture.is_active(3).await);
        assert_eq!(fixture.lookups(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn result_in_flight_during_a_gap_is_not_used() {
    let mut fixture = Fixture::start();
    fixture.hold_replies().await;
    let check = fixture.start_check(0).await;
    fixture.deactivate(0);
    fixture.apply(FeedEvent::Lost);
    fixture.release_replies();
    assert_eq!(check.join_all().await, [false]);
}

#[tokio::test(start_paused = true)]
async fn without_the_feed_an_entry_is_valid_for_five_seconds() {
    let fixture = Fixture::without_feed();
    assert!(fixture.is_active(0).await);
    fixture.deactivate(0);
    advance(Duration::from_millis(4999)).await;
    assert!(fixture.is_active(0).await);
    assert_eq!(fixture.lookups(), 1);
    advance(Duration::from_millis(1)).await;
    assert!(!fixture.is_active(0).await);
}

#[tokio::test(start_paused = true)]
async fn entries_of_lookups_before_the_feed_is_up_are_not_used_after_it() {
    let mut fixture = Fixture::start();
    fixture.hold_replies().await;
    let check = fixture.start_check(0).await;
    fixture.apply(FeedEvent::Lost);
    fixture.release_replies();
    assert_eq!(check.join_all().await, [true]);
    // The invalidation is lost, and its publisher has ended: no number is missing.
    fixture.deactivate(0);
    fixture.apply(FeedEvent::Message(message(2, 1, Vec::new())));
    assert!(!fixture.is_active(0).await);
}

#[tokio::test(start_paused = true)]
async fn entries_are_dropped_after_three_seconds_without_a_message() {
    let mut fixture = Fixture::start();
    assert!(fixture.is_active(0).await);
    fixture.lookups();
    advance(Duration::from_millis(2999)).await;
    fixture.cache.0.check_feed(&mut fixture.publishers);
    assert!(fixture.is_active(0).await);
    assert_eq!(fixture.lookups(), 0);
    advance(Duration::from_millis(1)).await;
    fixture.cache.0.check_feed(&mut fixture.publishers);
    assert!(fixture.is_active(0).await && fixture.is_active(0).await);
    assert_eq!(fixture.lookups(), 1);
}

#[tokio::test(start_paused = true)]
async fn silent_publisher_drops_all_entries_once() {
    let mut fixture = Fixture::start();
    fixture.apply(FeedEvent::Message(message(2, 1, Vec::new())));
    fixture.advance_with_heartbeats(2 * SECOND).await;
    assert!(fixture.is_active(0).await);
    fixture.lookups();
    fixture.advance_with_heartbeats(SECOND).await;
    assert!(fixture.is_active(0).await);
    assert_eq!(fixture.lookups(), 1, "the other publisher is silent");
    fixture.advance_with_heartbeats(SECOND).await;
    assert!(fixture.is_active(0).await);
    assert_eq!(fixture.lookups(), 0, "the silent publisher was removed");
}

#[tokio::test(start_paused = true)]
async fn the_feed_continues_after_messages_with_the_largest_sequence_number() {
    let mut fixture = Fixture::start();
    for _ in 0..2 {
        fixture.apply(FeedEvent::Message(message(2, u64::MAX, Vec::new())));
    }
    fixture.heartbeat();
    assert!(fixture.is_active(0).await && fixture.is_active(0).await);
    assert_eq!(fixture.lookups(), 1);
    fixture.deactivate(0);
    fixture.invalidate(vec![invalidation_of_credential(0)]);
    assert!(!fixture.is_active(0).await);
}

#[tokio::test(start_paused = true)]
async fn entries_stay_valid_while_the_session_service_is_unavailable() {
    let mut fixture = Fixture::start();
    assert!(fixture.is_active(0).await);
    *fixture.session.unavailable.lock() = true;
    assert!(fixture.is_active(0).await);
    assert!(fixture.cache.introspect(digest(1)).await.is_err());
    fixture.advance_with_heartbeats(5 * SECOND).await;
    assert!(fixture.cache.introspect(digest(0)).await.is_err());
    *fixture.session.unavailable.lock() = false;
    assert!(fixture.is_active(0).await && fixture.is_active(1).await);
}

#[tokio::test(start_paused = true)]
async fn check_fails_in_time_if_the_session_service_does_not_reply() {
    let fixture = Fixture::start();
    fixture.hold_replies().await;
    let started_at = Instant::now();
    assert!(fixture.cache.introspect(digest(0)).await.is_err());
    assert!(started_at.elapsed() <= LOOKUP_TIMEOUT);
}

#[test]
fn dependencies_of_different_credentials_rarely_share_a_slot() {
    let epochs = Epochs::default();
    let entries: Vec<_> =
        (0..1000).map(|number| Dependencies::new(digest(number), &Some(subject(number)))).collect();
    epochs.change(&(1000..2000).map(invalidation_of_credential).collect::<Vec<_>>());
    let changed = entries.iter().filter(|entry| epochs.changed_after(0, **entry)).count();
    assert!(changed < 100, "{changed}");
}
