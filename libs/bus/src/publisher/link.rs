//! One connection to NATS. Messages in flight fail when it breaks; the next connection starts without any.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, Event, Request, Subscriber};
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::ReadyChunks;
use serde::Deserialize;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::flight::{Flight, Outgoing};
use super::target::Target;
use super::{PublishError, PublishLimits, Shared, StreamSize, StreamUsage};
use crate::connect::{self, Config, ConnectError};

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

/// A connection for publishing.
pub(super) struct Link {
    client: Client,
    inbox: String,
    pub(super) flight: Flight,
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
        let (flight, outgoing) = Flight::new();
        let link = Link { client, inbox, flight };
        let replies = replies.ready_chunks(REPLY_CHUNK);
        Ok((Arc::new(link), Receiver { replies, outgoing, broken }))
    }
}

impl Link {
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
        if !self.flight.contains(token) {
            return;
        }
        let sent = if replied {
            let reply = format!("{}.{token}", self.inbox);
            self.client.publish_with_reply_and_headers(subject, reply, headers, payload).await
        } else {
            self.client.publish_with_headers(subject, headers, payload).await
        };
        if let Err(error) = sent {
            let error = match error.kind() {
                async_nats::client::PublishErrorKind::Send => PublishError::Unavailable,
                kind => PublishError::Misconfigured { code: 0, description: kind.to_string() },
            };
            self.flight.fail(token, &error);
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
        self.flight.end();
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
                    Some(chunk) => self.flight.settle_replied(chunk, &mut resend),
                    None => return,
                },
                now = sweep.tick() => self.flight.sweep(now, &mut resend),
                () = stop.cancelled(), if !self.flight.is_closed() => {
                    self.flight.close();
                    shared.disconnect();
                }
            }
            if self.flight.is_closed() && self.flight.is_empty() && resend.is_empty() {
                return;
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
            let open = !self.flight.is_closed();
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
