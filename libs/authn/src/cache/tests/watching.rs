//! The watch of a credential: it ends soon after the credential is not valid any more.

use contract::Scope;
use tokio::time::timeout;

use super::*;
use crate::Caller;

/// The clock of the watch: the credentials of the fixture expire at the Unix epoch.
const NOW: DateTime<chrono::Utc> = DateTime::from_timestamp(-3600, 0).unwrap();

/// Waits until the watch ends, with a heartbeat of the feed per step. Returns the time.
async fn time_until_ended(fixture: &mut Fixture, watch: JoinSet<()>) -> Option<Duration> {
    const STEP: Duration = Duration::from_millis(100);
    let mut watch = watch;
    for step in 0..100 {
        run_tasks().await;
        if watch.try_join_next().is_some() {
            return Some(step * STEP);
        }
        advance(STEP).await;
        fixture.heartbeat();
    }
    None
}

fn start(fixture: &Fixture, number: usize, clock: Arc<dyn Clock>) -> JoinSet<()> {
    let caller = Caller::for_test(subject(number), digest(number));
    let mut watch = JoinSet::new();
    watch.spawn(fixture.cache.watch(&caller, Scope::EventsWrite, clock).ended());
    watch
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(NOW))
}

#[tokio::test(start_paused = true)]
async fn watch_of_an_active_credential_does_not_end() {
    let mut fixture = Fixture::start();
    let watch = start(&fixture, 0, clock());
    assert_eq!(time_until_ended(&mut fixture, watch).await, None);
    assert!(fixture.lookups() <= 4, "most checks are answered by the cache");
}

#[tokio::test(start_paused = true)]
async fn watch_ends_within_a_second_of_an_invalidation() {
    let mut fixture = Fixture::start();
    let (revoked, other) = (start(&fixture, 0, clock()), start(&fixture, 1, clock()));
    fixture.advance_with_heartbeats(SECOND).await;
    fixture.deactivate(0);
    fixture.invalidate(vec![invalidation_of_tenant(0)]);
    assert!(time_until_ended(&mut fixture, revoked).await.unwrap() < SECOND);
    assert_eq!(time_until_ended(&mut fixture, other).await, None);
}

#[tokio::test(start_paused = true)]
async fn watch_ends_if_the_scope_is_withdrawn() {
    let mut fixture = Fixture::start();
    let watch = start(&fixture, 0, clock());
    fixture.advance_with_heartbeats(SECOND).await;
    let mut changed = (*subject(0)).clone();
    let key_id = tenancy::KeyId::generate();
    changed.credential = Credential::ApiKey { key_id, scopes: Vec::new(), source_ids: Vec::new() };
    fixture.session.active.lock().insert(digest(0), Arc::new(changed));
    fixture.invalidate(vec![invalidation_of_credential(0)]);
    assert!(time_until_ended(&mut fixture, watch).await.unwrap() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn watch_ends_when_the_credential_expires() {
    let mut fixture = Fixture::start();
    let clock = clock();
    let watch = start(&fixture, 0, clock.clone());
    fixture.advance_with_heartbeats(SECOND).await;
    clock.advance(chrono::TimeDelta::minutes(59) + chrono::TimeDelta::milliseconds(59_500));
    fixture.advance_with_heartbeats(3 * SECOND).await;
    clock.advance(chrono::TimeDelta::milliseconds(500));
    assert!(time_until_ended(&mut fixture, watch).await.unwrap() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn watch_ends_five_seconds_after_a_revocation_without_the_feed() {
    let fixture = Fixture::without_feed();
    let mut watch = start(&fixture, 0, clock());
    advance(SECOND).await;
    run_tasks().await;
    fixture.deactivate(0);
    timeout(5 * SECOND, watch.join_next()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn watch_survives_a_short_outage_of_the_session_service_and_ends_after_five_seconds() {
    let fixture = Fixture::without_feed();
    let mut watch = start(&fixture, 0, clock());
    let unavailable = |is| *fixture.session.unavailable.lock() = is;
    unavailable(true);
    assert!(timeout(4 * SECOND, watch.join_next()).await.is_err());
    unavailable(false);
    assert!(timeout(10 * SECOND, watch.join_next()).await.is_err());
    unavailable(true);
    timeout(6 * SECOND, watch.join_next()).await.unwrap();
}
