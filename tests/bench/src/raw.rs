//! The limit of publication: the client library as it comes, on the same broker, with the same subjects, ids, headers and
//! bytes, and nothing else to do.

use std::time::{Duration, Instant};

use async_nats::jetstream::Context;
use async_nats::jetstream::context::PublishAckFuture;
use bus::Message;
use tokio::task::JoinSet;

/// Publishes batches, so many tasks at once; the acknowledgements of a batch are awaited together. A batch of one is a
/// single event.
pub(crate) async fn publish(
    context: &Context,
    mut messages: Vec<Message>,
    batch: usize,
    at_once: usize,
) -> anyhow::Result<Duration> {
    let share = messages.len().div_ceil(at_once);
    let mut tasks = JoinSet::new();
    let begun = Instant::now();
    while !messages.is_empty() {
        let own = messages.split_off(messages.len().saturating_sub(share));
        tasks.spawn(in_batches(context.clone(), own, batch));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(begun.elapsed())
}

async fn in_batches(context: Context, messages: Vec<Message>, batch: usize) -> anyhow::Result<()> {
    let mut acks = Vec::with_capacity(batch);
    for messages in messages.chunks(batch) {
        for message in messages {
            acks.push(send(&context, message).await?);
        }
        for ack in acks.drain(..) {
            ack.await?;
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "this is what the bus is measured against")]
async fn send(context: &Context, message: &Message) -> anyhow::Result<PublishAckFuture> {
    let (subject, payload) = (message.subject().clone(), message.payload().clone());
    Ok(context.publish_with_headers(subject, message.headers(), payload).await?)
}
