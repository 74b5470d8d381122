//! Events per second of the publisher of ingest with other servers: each write synchronized to disk, and three replicas.

use std::time::{Duration, Instant};

use anyhow::ensure;
use async_nats::jetstream;
use bus::{Config, Durability, Profile, PublishLimits, Publisher};
use service::Tasks;
use service::telemetry::Metrics;
use testkit::nats::{NatsCluster, NatsServer};

use super::Bench;
use crate::events::{events, messages, publish_baseline};
use crate::load::per_second;
use crate::report::Comparison;

const ROUNDS: usize = 3;
const BATCH: usize = 100;
/// An atomic batch is synchronized once, so its size determines the rate: the maximum of a request.
const SYNCED_BATCH: usize = 1_000;
/// Events of a round with synchronized writes, which are slow, and without.
const SYNCED_EVENTS: usize = 4_000;
const EVENTS: usize = 20_000;
const STREAM_BYTES: u64 = 2 << 30;
const TIMEOUT: Duration = Duration::from_secs(30);

/// A publisher and the streams of its server.
struct Target {
    publisher: Publisher,
    tasks: Tasks,
}

impl Target {
    async fn connect(url: &str, profile: &Profile) -> anyhow::Result<Self> {
        let tasks = Tasks::default();
        let config = Config::new(url, "bench");
        bus::ensure(&jetstream::new(bus::connect(&config).await?), profile).await?;
        let metrics = Metrics::new("bench");
        let publisher = Publisher::start(config, profile, PublishLimits::default(), &metrics, &tasks)?;
        tokio::time::timeout(TIMEOUT, publisher.ready()).await?;
        Ok(Self { publisher, tasks })
    }

    /// Publishes batches, one after the other. Returns events per second.
    async fn publish(&self, bench: &Bench<'_>, count: usize, batch: usize) -> anyhow::Result<f64> {
        let tenant = bench.user.tenant_id();
        let mut batches = Vec::new();
        for batch in events(count).chunks(batch) {
            batches.push(messages(tenant, batch)?);
        }
        let started = Instant::now();
        for batch in batches {
            let deadline = tokio::time::Instant::now() + TIMEOUT;
            for outcome in self.publisher.publish_all(tenant, batch, deadline).await {
                outcome?;
            }
        }
        Ok(per_second(count, started.elapsed()))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.tasks.stopping().cancel();
    }
}

impl Bench<'_> {
    /// Durability `strict`: an atomic batch is synchronized once, single messages each.
    pub(crate) async fn strict(&mut self) -> anyhow::Result<()> {
        let server = NatsServer::start_with("jetstream { sync_interval: always }").await?;
        let profile = |durability| Profile { durability, ..Profile::single_server(STREAM_BYTES) };
        let batches = Target::connect(&server.url, &profile(Durability::Strict)).await?;
        let single = Target::connect(&server.url, &profile(Durability::Dev)).await?;
        let mut rounds = Vec::new();
        // The first round is a warm-up.
        for _ in 0..=self.rounds(ROUNDS) {
            let rate = batches.publish(self, SYNCED_EVENTS, SYNCED_BATCH).await?;
            rounds.push((rate, single.publish(self, SYNCED_EVENTS, SYNCED_BATCH).await?));
        }
        self.report.add_comparison(Comparison {
            name: "events per second, synchronized, strict, batches of 1,000",
            baseline: "message by message, each write synchronized",
            rounds: rounds.split_off(1),
            target: Some("≥ 10"),
        });
        Ok(())
    }

    /// Three servers on this machine, with three replicas of each event.
    pub(crate) async fn replicas(&mut self) -> anyhow::Result<()> {
        let cluster = NatsCluster::start_with("").await?;
        let profile =
            Profile { durability: Durability::Standard, replicas: 3, ..Profile::single_server(STREAM_BYTES) };
        let target = Target::connect(&cluster.url, &profile).await?;
        let context = jetstream::new(bus::connect(&Config::new(&cluster.url, "bench")).await?);
        let mut rounds = Vec::new();
        for _ in 0..=self.rounds(ROUNDS) {
            let rate = target.publish(self, EVENTS, BATCH).await?;
            let messages = messages(self.user.tenant_id(), &events(EVENTS))?;
            let baseline = publish_baseline(&context, messages, BATCH, 1).await?;
            rounds.push((rate, per_second(EVENTS, baseline)));
        }
        let stored = context.get_stream(bus::UDM_STREAM).await?.cached_info().state.messages;
        ensure!(stored == (rounds.len() * 2 * EVENTS) as u64, "{stored} events are stored");
        self.report.add_comparison(Comparison {
            name: "events per second, three replicas",
            baseline: "async-nats, same messages, 100 in flight",
            rounds: rounds.split_off(1),
            target: None,
        });
        Ok(())
    }
}
