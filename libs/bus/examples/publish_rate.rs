//! Acknowledged events a second, beside pipelined async-nats with the same ids: `publish_rate <url> <events>`.
//!
//! Both publish 500-byte events in batches of 500, four at once, and wait for every acknowledgement.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use async_nats::jetstream;
use bus::{Config, Durability, Limits, Message, Profile, Publisher, Request};
use bytes::Bytes;
use chrono::DateTime;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const BATCH: usize = 500;
const BATCHES_AT_ONCE: usize = 4;
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
        Limits::default(),
        &TaskTracker::new(),
        CancellationToken::new(),
    )?;
    publisher.ready().await;
    for round in 0..ROUNDS {
        let ours = rate(events, &format!("o{round}"), async |batch| ours(&publisher, batch).await).await?;
        let raw = rate(events, &format!("r{round}"), async |batch| raw(&context, batch).await).await?;
        println!("publisher {ours:.0}/s, async-nats {raw:.0}/s, ratio {:.2}", ours / raw);
    }
    Ok(())
}

async fn rate(
    events: usize,
    prefix: &str,
    publish: impl AsyncFn(Vec<Message>) -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    let begun = Instant::now();
    stream::iter(0..events / BATCH)
        .map(|batch| publish(messages(&format!("{prefix}-{batch}"))))
        .buffer_unordered(BATCHES_AT_ONCE)
        .try_collect::<()>()
        .await?;
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    Ok(events as f64 / begun.elapsed().as_secs_f64())
}

fn messages(prefix: &str) -> Vec<Message> {
    let raw = Bytes::from(format!(r#"{{"source_id":"fw-1","x":"{}"}}"#, "x".repeat(470)));
    let tenant = tenancy::TenantId::try_from("acme".to_owned()).unwrap_or_else(|_| unreachable!("a label"));
    let request = Request::new(tenant, DateTime::UNIX_EPOCH, "request", "key:k", None);
    let event = udm::parse(&raw).unwrap_or_else(|_| unreachable!("an event"));
    (0..BATCH)
        .filter_map(|n| Message::event(&request, &event, &format!("{prefix}-{n}"), raw.clone()).ok())
        .collect()
}

async fn ours(publisher: &Publisher, batch: Vec<Message>) -> anyhow::Result<()> {
    let tenant = "acme".parse()?;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    for outcome in publisher.publish_all(&tenant, batch, deadline).await {
        outcome?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the client library's own way is what is compared with")]
async fn raw(context: &jetstream::Context, batch: Vec<Message>) -> anyhow::Result<()> {
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
