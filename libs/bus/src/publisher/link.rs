//! One connection to NATS. Messages in flight fail when it breaks; the next connection starts without any.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, Event, HeaderMap, Request, Subject, Subscriber};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::ReadyChunks;
use serde::Deserialize;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::ack::{self, Reply};
use super::exchange::{self, Exchange, MAX_BATCH};
use super::pending::{Pending, PendingTable, ReplyToken};
use super::target::Target;
use super::{PublishError, PublishLimits, Shared, StreamSize, StreamUsage};
use crate::connect::{self, Config, ConnectError};
use crate::message::Message;

/// Interval of checks for passed deadlines, and delay before a message is sent again.
const SWEEP_INTERVAL: Duration = Duration::from_millis(50);
/// Interval and timeout of stream probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Number of probes without an available stream after which the connection is dropped: the server can be cut off from the leaders
/// of the streams, and another one not. At this time, the messages in flight are close to their
/// deadlines.
const MAX_FAILED_PROBES: u32 = 5;
/// Maximum number of replies that are processed under one lock.
const REPLY_CHUNK: usize = 256;
/// Capacity for replies to messages that are no longer in flight. A reply beyond the capacity would be lost.
const LATE_REPLIES: usize = 4096;

/// Opens connections to the servers of a configuration.
pub(super) struct Dialer {
    config: Config,
    reply_capacity: usize,
}

/// Receiving ends of a connection, used by its task.
pub(super) struct Receiver {
    replies: Replies,
    outgoing: UnboundedReceiver<Outgoing>,
    broken: CancellationToken,
}

type Replies = ReadyChunks<Subscriber>;

/// A message with its reply token, before it is passed to the client library.
struct Outgoing {
    token: ReplyToken,
    /// Whether the server replies to this message: to the last one of an atomic batch only.
    replied: bool,
    subject: Subject,
    headers: HeaderMap,
    payload: Bytes,
}

/// A connection for publishing.
pub(super) struct Link {
    client: Client,
    inbox: String,
    pending: PendingTable,
    outgoing: UnboundedSender<Outgoing>,
}

impl Dialer {
    /// Checks the configuration.
    ///
    /// # Errors
    /// The address or the credentials are malformed.
    pub(super) fn new(config: Config, limits: PublishLimits) -> Result<Self, ConnectError> {
        connect::connect_options(&config)?;
        Ok(Self { config, reply_capacity: limits.messages + LATE_REPLIES })
    }

    /// Connects once.
    pub(super) async fn dial(&self) -> Result<(Arc<Link>, Receiver), ConnectError> {
        let (options, servers) = connect::connect_options(&self.config)?;
        let broken = CancellationToken::new();
        let on_event = {
            let broken = broken.clone();
            move |event| {
                if matches!(event, Event::Disconnected | Event::Closed) {
                    broken.cancel();
                }
                std::future::ready(())
            }
        };
        // The reconnection of the client library cannot be disabled. This limit makes it try each server once and then drop
        // its queue, so a queued message is sent at most two seconds late.
        let client = options
            .max_reconnects(servers.len())
            .subscription_capacity(self.reply_capacity)
            .event_callback(on_event)
            .connect(servers)
            .await?;
        let inbox = client.new_inbox();
        let replies = client.subscribe(format!("{inbox}.*")).await.map_err(|_| ConnectError::Address)?;
        let (queue, outgoing) = mpsc::unbounded_channel();
        let link = Link { client, inbox, pending: PendingTable::default(), outgoing: queue };
        let replies = replies.ready_chunks(REPLY_CHUNK);
        Ok((Arc::new(link), Receiver { replies, outgoing, broken }))
    }
}

impl Link {
    /// Queues the message. Its batch receives the outcome.
    pub(super) fn send(&self, pending: Pending) {
        let message = pending.message.clone();
        if let Some(token) = self.pending.insert(Exchange::Single(pending)) {
            self.queue(token, true, &message, message.headers());
        }
    }

    /// Queues messages of one stream as atomic batches.
    pub(super) fn send_atomic(&self, mut messages: Vec<Pending>) {
        while messages.len() > 1 {
            let rest = messages.split_off(messages.len().min(MAX_BATCH));
            self.send_batch(std::mem::replace(&mut messages, rest));
        }
        for pending in messages {
            self.send(pending);
        }
    }

    fn send_batch(&self, batch: Vec<Pending>) {
        let messages: Vec<Message> = batch.iter().map(|pending| pending.message.clone()).collect();
        let headers = exchange::batch_headers(&batch);
        let Some(token) = self.pending.insert(Exchange::Batch(batch)) else { return };
        for (index, (message, headers)) in messages.iter().zip(headers).enumerate() {
            self.queue(token, index + 1 == messages.len(), message, headers);
        }
    }

    fn queue(&self, token: ReplyToken, replied: bool, message: &Message, headers: HeaderMap) {
        let (subject, payload) = (message.subject().clone(), message.payload().clone());
        // Fails only after the connection ended, which settles all pending messages.
        let _ = self.outgoing.send(Outgoing { token, replied, subject, headers, payload });
    }

    /// Passes messages to the client library in bursts: most of the cost per message is a system call of the server, which
    /// a burst shares.
    async fn forward(&self, outgoing: &mut UnboundedReceiver<Outgoing>) {
        while let Some(first) = outgoing.recv().await {
            // Other ready tasks queue their messages first, so that the burst contains them.
            tokio::task::yield_now().await;
            self.pass_on(first).await;
            while let Ok(next) = outgoing.try_recv() {
                self.pass_on(next).await;
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the only place that publishes with acknowledgement")]
    async fn pass_on(&self, Outgoing { token, replied, subject, headers, payload }: Outgoing) {
        // The deadline can have passed: the queue of the client is full while the server accepts nothing.
        if !self.pending.contains(token) {
            return;
        }
        let sent = if replied {
            let reply = format!("{}.{token}", self.inbox);
            self.client.publish_with_reply_and_headers(subject, reply, headers, payload).await
        } else {
            self.client.publish_with_headers(subject, headers, payload).await
        };
        if let Err(error) = sent
            && let Some(exchange) = self.pending.remove(token)
        {
            exchange.fail(&match error.kind() {
                async_nats::client::PublishErrorKind::Send => PublishError::Unavailable,
                kind => PublishError::Misconfigured { code: 0, description: kind.to_string() },
            });
        }
    }

    /// Serves the connection until it breaks or no stream is available, or until `stop` is cancelled and no message is in flight.
    /// Returns the reason.
    pub(super) async fn run(
        self: &Arc<Self>,
        shared: &Shared,
        receiver: Receiver,
        stop: &CancellationToken,
    ) -> &'static str {
        let Receiver { replies, mut outgoing, broken } = receiver;
        let reason = tokio::select! {
            () = broken.cancelled() => "connection lost",
            () = self.settle_messages(shared, replies, stop) => "connection closed",
            () = self.forward(&mut outgoing) => "connection closed",
            () = self.probe(shared) => "no stream available",
        };
        shared.disconnect();
        for exchange in self.pending.close_and_remove_all() {
            exchange.fail(&PublishError::Unavailable);
        }
        reason
    }

    /// Settles messages by their replies or deadlines.
    async fn settle_messages(&self, shared: &Shared, mut replies: Replies, stop: &CancellationToken) {
        let mut resend = Vec::new();
        let mut sweep = interval(SWEEP_INTERVAL);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                chunk = replies.next() => match chunk {
                    Some(chunk) => self.settle_replied(chunk, &mut resend),
                    None => return,
                },
                now = sweep.tick() => self.sweep(now, &mut resend),
                () = stop.cancelled(), if !self.pending.is_closed() => {
                    self.pending.close();
                    shared.disconnect();
                }
            }
            if self.pending.is_closed() && self.pending.is_empty() && resend.is_empty() {
                return;
            }
        }
    }

    fn settle_replied(&self, replies: Vec<async_nats::Message>, resend: &mut Vec<Pending>) {
        let with_tokens = replies.into_iter().filter_map(|reply| {
            let (_, token) = reply.subject.rsplit_once('.')?;
            Some((token.parse().ok()?, reply))
        });
        for (exchange, reply) in self.pending.remove_all(with_tokens) {
            if let Some(target) = exchange.target() {
                target.count_reply();
            }
            match exchange {
                Exchange::Single(pending) => match ack::parse(&reply, &pending.target.name) {
                    Reply::Outcome(outcome) => pending.settle(outcome),
                    Reply::Resend => resend.push(pending),
                },
                Exchange::Batch(batch) => {
                    for pending in exchange::settle_batch(batch, &reply) {
                        self.send(pending);
                    }
                }
            }
        }
    }

    fn sweep(&self, now: Instant, resend: &mut Vec<Pending>) {
        for exchange in self.pending.remove_expired(now) {
            exchange.fail(&PublishError::AckTimeout);
        }
        for pending in std::mem::take(resend) {
            if pending.deadline <= now {
                pending.settle(Err(PublishError::AckTimeout));
            } else {
                self.send(pending);
            }
        }
    }

    /// Queries the streams every second, and enables publishing to those that have a leader. Ends when no stream is available for
    /// several probes.
    async fn probe(self: &Arc<Self>, shared: &Shared) {
        let mut tick = interval(PROBE_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failed = 0;
        while failed < MAX_FAILED_PROBES {
            tick.tick().await;
            let responsive = join_all(shared.targets.iter().map(|target| self.probe_stream(target))).await;
            let open = !self.pending.is_closed();
            let mut changed = false;
            for (target, responsive) in shared.targets.iter().zip(responsive) {
                let available = responsive && open;
                if target.set_available(available) {
                    changed = true;
                    tracing::info!(stream = &*target.name, available, "stream availability changed");
                }
            }
            let any = shared.targets.iter().any(|target| target.is_available());
            failed = if any || !open { 0 } else { failed + 1 };
            if changed {
                shared.link.send_replace(any.then(|| Arc::clone(self)));
            }
        }
    }

    /// Returns whether the stream replies.
    async fn probe_stream(&self, target: &Target) -> bool {
        let (before, measured_at) = (target.replies(), Instant::now());
        match self.stream_info(&target.name, String::new()).await {
            Some(StreamInfo { config, state, .. }) => {
                target.metrics.set_size(state.bytes, config.max_bytes);
                target.set_size(StreamSize {
                    bytes: state.bytes,
                    max_bytes: u64::try_from(config.max_bytes).ok(),
                    max_age: Duration::from_nanos(config.max_age),
                    measured_at,
                });
                true
            }
            // Acknowledgements that arrived meanwhile prove more than one lost probe.
            None => target.replies() != before,
        }
    }

    /// Returns the size of the stream and the number of messages with a subject that matches the filter.
    pub(super) async fn usage(&self, stream: &str, subjects: &str) -> Option<StreamUsage> {
        let request = serde_json::json!({ "subjects_filter": subjects }).to_string();
        let StreamInfo { config, state, .. } = self.stream_info(stream, request).await?;
        Some(StreamUsage {
            max_bytes: u64::try_from(config.max_bytes).ok(),
            bytes: state.bytes,
            messages: state.messages,
            matching: state.subjects.values().sum(),
        })
    }

    async fn stream_info(&self, stream: &str, request: String) -> Option<StreamInfo> {
        // A separate inbox: the multiplexer of the client library keeps requests that timed out in its map.
        let request = Request::new()
            .inbox(self.client.new_inbox())
            .timeout(Some(PROBE_INTERVAL))
            .payload(request.into());
        let subject = format!("$JS.API.STREAM.INFO.{stream}");
        let reply = self.client.send_request(subject, request).await.ok()?;
        StreamInfo::with_leader(&reply.payload)
    }
}

/// The used part of a stream information reply. An error reply does not have these fields.
#[derive(Deserialize)]
struct StreamInfo {
    #[serde(default)]
    cluster: Option<ClusterInfo>,
    config: StreamConfig,
    state: StreamState,
}

#[derive(Deserialize)]
struct ClusterInfo {
    #[serde(default)]
    leader: String,
}

#[derive(Deserialize)]
struct StreamConfig {
    max_bytes: i64,
    /// In nanoseconds; 0 if unlimited.
    #[serde(default)]
    max_age: u64,
}

#[derive(Deserialize)]
struct StreamState {
    bytes: u64,
    messages: u64,
    /// Number of messages per subject; only in the reply to a request with a filter, and absent if no subject matches.
    #[serde(default)]
    subjects: HashMap<String, u64>,
}

impl StreamInfo {
    /// Parses a reply. Returns `None` if the stream has no leader.
    fn with_leader(reply: &[u8]) -> Option<Self> {
        let info: Self = serde_json::from_slice(reply).ok()?;
        info.cluster.as_ref().is_none_or(|cluster| !cluster.leader.is_empty()).then_some(info)
    }
}
