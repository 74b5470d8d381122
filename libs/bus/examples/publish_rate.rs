//! Acknowledged events per second, compared with pipelined async-nats and the same ids: `publish_rate <url> <events>`.
//!
//! Both publish 500-byte events in batches of 500, four batches at a time, and wait for every acknowledgement.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use async_nats::jetstream;
use bus::{Config, Durability, EventContext, Message, Profile, PublishLimits, Publisher};
use bytes::Bytes;
use chrono::DateTime;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use service::Tasks;
use service::telemetry::Metrics;

const BATCH: usize = 500;
const CONCURRENT_BATCHES: usize = 4;
const ROUNDS: usize = 3;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let url = args.next().context("usage: publish_rate <url> <events>")?;
    let events: usize = args.next().context("usage: publish_rate <url> <events>")?.parse()?;
    let config = Config::new(url, "publish_rate");
    let context = jetstream::new(bus::connect(&config).await?);
    let profile = Profile { durability: Durability::Dev, replicas: 1, max_bytes: 8 << 30 };
    bus::ensure(&context, &bus::events(&profile)).await?;
    let publisher = Publisher::start(
        config,
        bus::UDM_STREAM,
        PublishLimits::default(),
        &Metrics::new("publish_rate"),
        &Tasks::default(),
    )?;
    publisher.ready().await;
    for round in 0..ROUNDS {
        let publisher_rate =
            rate(events, &format!("o{round}"), async |batch| with_publisher(&publisher, batch).await).await?;
        let client_rate =
            rate(events, &format!("r{round}"), async |batch| with_client(&context, batch).await).await?;
        println!(
            "publisher {publisher_rate:.0}/s, async-nats {client_rate:.0}/s, ratio {:.2}",
            publisher_rate / client_rate
        );
    }
    Ok(())
}

async fn rate(
    events: usize,
    prefix: &str,
    publish: impl AsyncFn(Vec<Message>) -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    let started_at = Instant::now();
    stream::iter(0..events / BATCH)
        .map(|batch| publish(messages(&format!("{prefix}-{batch}"))))
        .buffer_unordered(CONCURRENT_BATCHES)
        .try_collect::<()>()
        .await?;
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    Ok(events as f64 / started_at.elapsed().as_secs_f64())
}

fn messages(prefix: &str) -> Vec<Message> {
    let raw = Bytes::from(format!(r#"{{"source_id":"fw-1","x":"{}"}}"#, "x".repeat(470)));
    let tenant = tenancy::TenantId::try_from("acme".to_owned()).unwrap_or_else(|_| unreachable!("a label"));
    let context = EventContext::new(tenant, DateTime::UNIX_EPOCH, "request", "key:k", None);
    let event = udm::parse(&raw).unwrap_or_else(|_| unreachable!("an event"));
    (0..BATCH)
        .filter_map(|n| Message::event(&context, &event, &format!("{prefix}-{n}"), raw.clone()).ok())
        .collect()
}

async fn with_publisher(publisher: &Publisher, batch: Vec<Message>) -> anyhow::Result<()> {
    let tenant = "acme".parse()?;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    for outcome in publisher.publish_all(&tenant, batch, deadline).await {
        outcome?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the client library is the reference")]
async fn with_client(context: &jetstream::Context, batch: Vec<Message>) -> anyhow::Result<()> {
    let mut acks = Vec::with_capacity(batch.len());
    for message in batch {
        let (subject, headers) = (message.subject().clone(), message.headers());
        acks.push(context.publish_with_headers(subject, headers, message.payload().clone()).await?);
    }
    for ack in acks {
        ack.await?;
    }
    Ok(())
}
