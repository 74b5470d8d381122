//! Acknowledged publication: a message is published when its stream says so, and not before.
//!
//! The client library's own way keeps waiting requests in a map that it never cleans, waits for permits without a
//! deadline, and sends what was queued while it was disconnected whenever it is connected again. So this module keeps
//! its own: one reply inbox, whose answers find their request by number; permits that are taken without waiting and
//! come back with the answer, the deadline or the end of the connection, whether or not anybody still waits; and one
//! client per connection, thrown away with everything queued in it when the connection breaks.

mod ack;
mod batch;
mod capacity;
mod link;
mod metrics;
mod slots;
mod supervisor;

use std::sync::Arc;

use tenancy::TenantId;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connect::{Config, ConnectError};
use crate::message::Message;

use batch::Batch;
use capacity::Capacity;
use link::Link;
use metrics::StreamMetrics;
use slots::Pending;

pub use metrics::PublishMetrics;

/// The stream holds the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Which stream.
    pub stream: Arc<str>,
    /// Under which number. Of a duplicate: the first one's.
    pub sequence: u64,
    /// The stream held a message of this id already, and keeps that one.
    pub duplicate: bool,
}

/// Why it is not known that the stream holds the message. It may hold it all the same after `Unavailable` and
/// `AckTimeout`, so the same message must be sent again with the same id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Too much is in flight, of this tenant or of all.
    #[error("too many messages in flight")]
    Overloaded,
    /// The broker is not there, has no leader for the stream, or went away before it answered.
    #[error("the broker is not available")]
    Unavailable,
    /// The stream has no room.
    #[error("the stream is full")]
    StreamFull,
    /// The stream did not answer before the deadline.
    #[error("the stream did not acknowledge in time")]
    AckTimeout,
    /// The broker refuses the message, and will again: something is set up wrongly.
    #[error("the broker refuses the message: {description} ({code})")]
    Misconfigured {
        /// `JetStream`'s error code; 0 when the client library refused it.
        code: u64,
        /// The broker's words.
        description: String,
    },
}

/// How much may be in flight at once. One tenant may hold a quarter of it, which must have room for a whole batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages.
    pub messages: usize,
    /// Bytes, with half a kibibyte for the headers of each message.
    pub bytes: usize,
}

impl Default for Limits {
    /// 16,384 messages and 64 MiB: four full batches.
    fn default() -> Self {
        Self { messages: 16 * 1024, bytes: 64 * 1024 * 1024 }
    }
}

/// Publishes into one stream. Clones share everything.
#[derive(Clone)]
pub struct Publisher(Arc<Shared>);

struct Shared {
    stream: Arc<str>,
    capacity: Capacity,
    metrics: Arc<StreamMetrics>,
    /// The connection, while publishing through it can work. That it is absent is the open breaker.
    link: watch::Sender<Option<Arc<Link>>>,
}

impl Publisher {
    /// Starts the tasks that connect, and keep connected, to the broker; publishing works once they have.
    ///
    /// When `stop` is cancelled nothing new is taken, and the tasks end when nothing is in flight any more.
    pub fn start(
        config: Config,
        stream: &str,
        limits: Limits,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) -> Result<Self, ConnectError> {
        let metrics = Arc::new(config.metrics.of(stream));
        let dialer = link::Dialer::new(config, limits)?;
        let shared = Arc::new(Shared {
            stream: stream.into(),
            capacity: Capacity::new(limits),
            metrics,
            link: watch::Sender::new(None),
        });
        tasks.spawn(supervisor::run(Arc::clone(&shared), dialer, stop));
        Ok(Self(shared))
    }

    /// Publishes one message and waits until the stream acknowledges it, at most until the deadline.
    pub async fn publish(
        &self,
        tenant: &TenantId,
        message: Message,
        deadline: Instant,
    ) -> Result<Ack, PublishError> {
        let mut outcomes = self.publish_all(tenant, vec![message], deadline).await;
        outcomes.pop().unwrap_or(Err(PublishError::Unavailable))
    }

    /// Publishes messages of one tenant in their order over one connection: one outcome each, in the same order.
    ///
    /// Room in flight is taken for all of them or for none. Dropping the future stops nothing: the messages go out, and their
    /// answers are waited for all the same.
    #[tracing::instrument(
        name = "stream.publish",
        skip_all,
        fields(otel.kind = "producer", messaging.system = "nats", messaging.destination.name = %self.0.stream)
    )]
    pub async fn publish_all(
        &self,
        tenant: &TenantId,
        messages: Vec<Message>,
        deadline: Instant,
    ) -> Vec<Result<Ack, PublishError>> {
        let count = messages.len();
        let refuse = |error: PublishError| {
            let outcome = Err(error);
            self.0.metrics.messages(&outcome).inc_by(count as u64);
            vec![outcome; count]
        };
        let Some(link) = self.0.link.borrow().clone() else {
            return refuse(PublishError::Unavailable);
        };
        let Some(permits) = self.0.capacity.take(tenant, &messages) else {
            return refuse(PublishError::Overloaded);
        };
        let batch = Batch::new(count, &self.0.metrics);
        for (index, (message, permit)) in messages.into_iter().zip(permits).enumerate() {
            link.send(Pending::new(message, permit, deadline, &batch, index));
        }
        batch.outcomes().await
    }

    /// Whether publishing can work now: connected, and the stream answered for itself within the last seconds.
    pub fn healthy(&self) -> bool {
        self.0.link.borrow().is_some()
    }

    /// Waits until publishing can work.
    pub async fn ready(&self) {
        // The sender lives as long as `self`, so this ends only when there is a link.
        let _ = self.0.link.subscribe().wait_for(Option::is_some).await;
    }

    /// Brings the metrics of what is under way up to date, for whoever reads them next.
    pub fn measure(&self) {
        self.0.metrics.show(self.in_flight(), self.healthy());
    }

    /// Messages and bytes in flight now.
    pub fn in_flight(&self) -> Limits {
        self.0.capacity.used()
    }
}
