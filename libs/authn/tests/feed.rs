//! The credential cache over a real nats-server: it recovers when the feed does, and its listener is supervised.

#![expect(clippy::unwrap_used, reason = "a failed check fails the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use authn::{CredentialCache, CredentialVerifier as _, Introspection, Introspector, Unavailable};
use bus::{Connection, Invalidation, InvalidationPublisher};
use chrono::{DateTime, Utc};
use hashing::TokenDigest;
use service::clock::SystemClock;
use service::telemetry::{Telemetry, TraceSettings};
use service::{Clock, Tasks};
use testkit::nats::NatsServer;
use testkit::wait_until;

/// Clients without credentials are the user `services`.
const DENIED: &str = r#"authorization { users: [ { user: services, password: x,
    permissions: { subscribe: { deny: ["svc.invalidations.v1"] } } } ] }
    no_auth_user: services"#;
const ALLOWED: &str = "authorization { users: [ { user: services, password: x } ] }
    no_auth_user: services";

/// A session service without active credentials.
struct NoSessions(Arc<AtomicUsize>);

#[async_trait::async_trait]
impl Introspector for NoSessions {
    async fn look_up(&self, digests: &[TokenDigest]) -> Result<Vec<Introspection>, Unavailable> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(vec![None; digests.len()])
    }
}

struct PanickingClock;

impl Clock for PanickingClock {
    fn now(&self) -> DateTime<Utc> {
        panic!("on purpose")
    }
}

struct Fixture {
    nats: NatsServer,
    tasks: Tasks,
    telemetry: Telemetry,
    cache: CredentialCache,
    lookups: Arc<AtomicUsize>,
}

impl Fixture {
    async fn start(configuration: &str, clock: impl Clock + 'static) -> anyhow::Result<Self> {
        let nats = NatsServer::start_with(configuration).await?;
        let (tasks, lookups) = (Tasks::default(), Arc::<AtomicUsize>::default());
        let connection = Connection::open(&bus::Config::new(&nats.url, "test")).await?;
        let telemetry = Telemetry::start("test", &TraceSettings::default())?;
        let source = NoSessions(Arc::clone(&lookups));
        let cache = CredentialCache::start(source, connection, Arc::new(clock), &tasks, &telemetry);
        Ok(Self { nats, tasks, telemetry, cache, lookups })
    }

    fn publisher(&self) -> anyhow::Result<InvalidationPublisher> {
        let config = bus::Config::new(&self.nats.url, "test");
        Ok(InvalidationPublisher::start(config, Arc::new(SystemClock), &self.tasks)?)
    }

    async fn check(&self) {
        assert_eq!(self.cache.introspect(TokenDigest::from_text("key")).await.unwrap(), None);
    }

    /// Publishes invalidations until the cache has received one.
    async fn wait_for_feed(&self, publisher: &InvalidationPublisher) {
        wait_until("an invalidation is received", async || {
            publisher.publish([Invalidation::Credential(TokenDigest::from_text("key"))]);
            self.has_received().then_some(())
        })
        .await;
    }

    fn has_received(&self) -> bool {
        !self.telemetry.metrics().text().contains("invalidation_lag_seconds_count 0\n")
    }
}

#[tokio::test]
async fn a_denied_subscription_is_repeated_until_it_is_permitted() -> anyhow::Result<()> {
    let fixture = Fixture::start(DENIED, SystemClock).await?;
    let publisher = fixture.publisher()?;
    let denied = "Subscription Violation";
    wait_until("NATS denies", async || fixture.nats.log().contains(denied).then_some(())).await;
    assert!(!fixture.has_received());
    // A denied subscription receives nothing when it is permitted later.
    fixture.nats.reload(ALLOWED)?;
    fixture.wait_for_feed(&publisher).await;
    assert!(!fixture.tasks.draining().is_cancelled());
    Ok(())
}

#[tokio::test]
async fn a_published_invalidation_takes_effect_before_the_entry_expires() -> anyhow::Result<()> {
    let fixture = Fixture::start("", SystemClock).await?;
    let publisher = fixture.publisher()?;
    fixture.wait_for_feed(&publisher).await;
    let started_at = Instant::now();
    fixture.check().await;
    let before = fixture.lookups.load(Ordering::Relaxed);
    wait_until("an invalidation causes a lookup", async || {
        publisher.publish([Invalidation::Credential(TokenDigest::from_text("key"))]);
        fixture.check().await;
        (fixture.lookups.load(Ordering::Relaxed) > before).then_some(())
    })
    .await;
    assert!(started_at.elapsed() < Duration::from_secs(5));
    Ok(())
}

#[tokio::test]
async fn a_panic_of_the_listener_terminates_the_process() -> anyhow::Result<()> {
    let fixture = Fixture::start("", PanickingClock).await?;
    let publisher = fixture.publisher()?;
    let draining = fixture.tasks.draining().clone();
    wait_until("the process shuts down", async || {
        publisher.publish([Invalidation::Credential(TokenDigest::from_text("key"))]);
        draining.is_cancelled().then_some(())
    })
    .await;
    Ok(())
}
