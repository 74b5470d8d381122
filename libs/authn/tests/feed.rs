//! The credential cache over a real nats-server: it recovers when the feed does, and its listener is supervised.

#![expect(clippy::unwrap_used, reason = "a failed check fails the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use authn::{CredentialCache, CredentialVerifier as _, Feed, Introspection, Introspector, Unavailable};
use bus::{InvalidationKeys, InvalidationPublisher};
use chrono::{DateTime, Utc};
use hashing::TokenDigest;
use service::clock::SystemClock;
use service::telemetry::{Telemetry, TraceSettings};
use service::{Clock, Tasks};
use testkit::nats::NatsServer;
use testkit::{wait_until, within};

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
    cache: CredentialCache,
    lookups: Arc<AtomicUsize>,
}

fn keys() -> InvalidationKeys {
    InvalidationKeys::new([&TokenDigest::of_text("token")])
}

impl Fixture {
    async fn start(configuration: &str, clock: impl Clock + 'static) -> anyhow::Result<Self> {
        let nats = NatsServer::start_with(configuration).await?;
        let (tasks, lookups) = (Tasks::default(), Arc::<AtomicUsize>::default());
        let feed = Feed { nats: bus::Config::new(&nats.url, "test"), keys: keys() };
        let telemetry = Telemetry::start("test", &TraceSettings::default())?;
        let source = NoSessions(Arc::clone(&lookups));
        let cache = CredentialCache::start(source, feed, Arc::new(clock), &tasks, &telemetry);
        Ok(Self { nats, tasks, cache, lookups })
    }

    fn publisher(&self) -> anyhow::Result<InvalidationPublisher> {
        let config = bus::Config::new(&self.nats.url, "test");
        Ok(InvalidationPublisher::start(config, keys(), Arc::new(SystemClock), &self.tasks)?)
    }

    /// Whether two checks need one lookup or none.
    async fn is_cached(&self) -> bool {
        let before = self.lookups.load(Ordering::Relaxed);
        for _ in 0..2 {
            assert_eq!(self.cache.introspect(TokenDigest::of_text("key")).await.unwrap(), None);
        }
        self.lookups.load(Ordering::Relaxed) - before < 2
    }
}

#[tokio::test]
async fn a_denied_subscription_is_repeated_until_it_is_permitted() -> anyhow::Result<()> {
    let fixture = Fixture::start(DENIED, SystemClock).await?;
    let _publisher = fixture.publisher()?;
    let denied = "Subscription Violation";
    wait_until("NATS denies", async || fixture.nats.log().contains(denied).then_some(())).await;
    assert!(!fixture.is_cached().await);
    // A denied subscription receives nothing when it is permitted later.
    fixture.nats.reload(ALLOWED)?;
    wait_until("the cache is in use", async || fixture.is_cached().await.then_some(())).await;
    assert!(!fixture.tasks.draining().is_cancelled());
    Ok(())
}

#[tokio::test]
async fn a_panic_of_the_listener_terminates_the_process() -> anyhow::Result<()> {
    let fixture = Fixture::start("", PanickingClock).await?;
    let _publisher = fixture.publisher()?;
    within(testkit::DEADLINE, "the shutdown", fixture.tasks.draining().cancelled()).await;
    Ok(())
}
