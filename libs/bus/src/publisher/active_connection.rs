//! The connection while it is up. Messages in flight fail when it breaks; the next connection starts without any.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use service::LogThrottle;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::in_flight::{InFlightMessages, Outgoing};
use super::pending_message::PendingMessage;
use super::reply_table::ReplyToken;
use super::target::Target;
use super::{PublishError, PublisherState, StreamSize, StreamUsage};
use crate::connect::{MAX_PINGS, PING_INTERVAL};
use crate::wire::{self, Malformed, PING, PONG, Reply, ServerMessage, ServerOperation, WireConnection};

/// Interval of checks for passed deadlines, and delay before a message is sent again.
const SWEEP_INTERVAL: Duration = Duration::from_millis(50);
/// Interval and timeout of stream probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Number of probes without an available stream after which the connection is dropped: the server can be cut off from the leaders
/// of the streams, and another one not. At this time, the messages in flight are close to their
/// deadlines.
const MAX_FAILED_PROBES: u32 = 5;
/// Size of a burst. Longer ones do not take less time per message.
const MAX_BURST: usize = 64 * 1024;
/// First character of the last token of the subject of a reply to a request. That of a reply to a message is a digit.
const REQUEST: char = 'r';

/// What the task of a connection reads and writes.
pub(super) struct ConnectionIo {
    reader: wire::Reader,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    outgoing: UnboundedReceiver<Outgoing>,
    commands: UnboundedReceiver<Vec<u8>>,
}

/// A connection for publishing.
pub(super) struct ActiveConnection {
    pub(super) in_flight: InFlightMessages,
    /// Operations other than messages.
    commands: UnboundedSender<Vec<u8>>,
    requests: Requests,
    unanswered_pings: AtomicU32,
    inbox: String,
    max_payload: usize,
    log_throttle: LogThrottle,
}

/// Requests that wait for their reply.
#[derive(Default)]
struct Requests {
    waiting: Mutex<HashMap<u64, oneshot::Sender<Bytes>>>,
    next: AtomicU64,
}

impl ActiveConnection {
    /// Subscribes to the replies.
    pub(super) fn new(connection: WireConnection) -> (Arc<Self>, ConnectionIo) {
        let WireConnection { reader, writer, inbox, max_payload } = connection;
        let (in_flight, outgoing) = InFlightMessages::new();
        let (sender, commands) = mpsc::unbounded_channel();
        let active = Self {
            in_flight,
            commands: sender,
            requests: Requests::default(),
            unanswered_pings: AtomicU32::new(0),
            inbox,
            max_payload,
            log_throttle: LogThrottle::default(),
        };
        let mut subscription = Vec::new();
        wire::write_subscription(&mut subscription, &format!("{}.*", active.inbox));
        active.command(subscription);
        (Arc::new(active), ConnectionIo { reader, writer, outgoing, commands })
    }

    /// Sends an operation.
    fn command(&self, command: Vec<u8>) {
        // Fails only after the connection ended.
        let _ = self.commands.send(command);
    }

    /// Sends messages in bursts: most of the cost per message is a system call of the client and of the server, which a burst shares.
    async fn send(
        &self,
        mut writer: Box<dyn AsyncWrite + Send + Unpin>,
        mut outgoing: UnboundedReceiver<Outgoing>,
        mut commands: UnboundedReceiver<Vec<u8>>,
    ) {
        let mut burst = Vec::new();
        loop {
            tokio::select! {
                Some(command) = commands.recv() => burst.extend(command),
                Some(message) = outgoing.recv() => {
                    // Other ready tasks queue their messages first, so that the burst contains them.
                    tokio::task::yield_now().await;
                    self.write(&mut burst, &message);
                }
                else => return,
            }
            while burst.len() < MAX_BURST
                && let Ok(message) = outgoing.try_recv()
            {
                self.write(&mut burst, &message);
            }
            let written = async {
                writer.write_all(&burst).await?;
                writer.flush().await
            };
            if written.await.is_err() {
                return;
            }
            burst.clear();
            burst.shrink_to(2 * MAX_BURST);
        }
    }

    /// Adds a message to a burst, unless it has an outcome already.
    fn write(&self, burst: &mut Vec<u8>, Outgoing { token, replied, message, batch_headers }: &Outgoing) {
        if !self.in_flight.waiting.contains(*token) {
            return;
        }
        let [own, shared] = message.header_lines();
        let headers = [own, shared, batch_headers];
        let (subject, payload) = (message.subject(), message.payload());
        if wire::headers_size(headers) + payload.len() > self.max_payload {
            // The server would close the connection.
            let description = "the message is larger than max_payload of the server".to_owned();
            self.in_flight.fail(*token, &PublishError::Misconfigured { code: 0, description });
        } else if *replied {
            let reply = format_args!("{}.{token} ", self.inbox);
            wire::write_message(burst, subject, reply, headers, payload);
        } else {
            wire::write_message(burst, subject, format_args!(""), headers, payload);
        }
    }

    /// Serves the connection until it breaks or no stream is available, or until `stop` is cancelled and no message is in flight.
    /// Returns the reason.
    pub(super) async fn run(
        self: &Arc<Self>,
        publisher: &PublisherState,
        ends: ConnectionIo,
        stop: &CancellationToken,
    ) -> &'static str {
        let ConnectionIo { reader, writer, outgoing, commands } = ends;
        let reason = tokio::select! {
            reason = self.settle_messages(publisher, reader, stop) => reason,
            () = self.send(writer, outgoing, commands) => "connection lost",
            () = self.probe(publisher) => "no stream available",
            () = self.keep_alive() => "no response to pings",
        };
        publisher.disconnect();
        self.in_flight.end();
        reason
    }

    /// Settles messages by their replies or deadlines. Returns why it ended.
    async fn settle_messages(
        &self,
        publisher: &PublisherState,
        mut reader: wire::Reader,
        stop: &CancellationToken,
    ) -> &'static str {
        let mut resend = Vec::new();
        let mut sweep = interval(SWEEP_INTERVAL);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                received = reader.receive() => {
                    if received.is_err() {
                        return "connection lost";
                    }
                    if self.handle(&publisher.targets, &mut reader, &mut resend).is_err() {
                        return "malformed reply";
                    }
                }
                now = sweep.tick() => self.in_flight.sweep(now, &mut resend),
                () = stop.cancelled(), if !self.in_flight.waiting.is_closed() => {
                    self.in_flight.waiting.close();
                    publisher.disconnect();
                }
            }
            if self.in_flight.waiting.is_closed() && self.in_flight.waiting.is_empty() && resend.is_empty() {
                return "connection closed";
            }
        }
    }

    /// Handles what the server sent.
    fn handle(
        &self,
        targets: &[Arc<Target>],
        reader: &mut wire::Reader,
        resend: &mut Vec<PendingMessage>,
    ) -> Result<(), Malformed> {
        let mut replies: Vec<(ReplyToken, Reply<'_>)> = Vec::new();
        let length = reader.handle(|operation| match operation {
            ServerOperation::Message(ServerMessage { subject, reply, .. }) => {
                let (_, token) = subject.rsplit_once('.').unwrap_or_default();
                match token.strip_prefix(REQUEST) {
                    Some(number) => self.requests.complete(number, reply),
                    None => replies.extend(token.parse().ok().map(|token| (token, reply))),
                }
            }
            ServerOperation::Ping => self.command(PONG.to_vec()),
            ServerOperation::Pong => self.unanswered_pings.store(0, Ordering::Relaxed),
            ServerOperation::Error(error) if self.log_throttle.is_due() => {
                tracing::warn!(error, "NATS reported an error");
            }
            ServerOperation::Error(_) | ServerOperation::Info(_) | ServerOperation::Ok => {}
        })?;
        self.in_flight.settle_replied(targets, replies, resend);
        reader.discard(length);
        Ok(())
    }

    /// Ends if the server does not respond to pings.
    async fn keep_alive(&self) {
        let mut tick = interval(PING_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            if self.unanswered_pings.fetch_add(1, Ordering::Relaxed) >= MAX_PINGS {
                return;
            }
            self.command(PING.to_vec());
        }
    }

    /// Queries the streams every second, and enables publishing to those that have a leader and acknowledge messages. Ends when no
    /// stream replies to several probes.
    async fn probe(self: &Arc<Self>, publisher: &PublisherState) {
        let mut tick = interval(PROBE_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut available = vec![false; publisher.targets.len()];
        let (mut reachable, mut failed) = (false, 0);
        while failed < MAX_FAILED_PROBES {
            tick.tick().await;
            let responsive = join_all(publisher.targets.iter().map(|target| self.probe_stream(target))).await;
            let open = !self.in_flight.waiting.is_closed();
            let mut changed = false;
            for ((target, responsive), known) in publisher.targets.iter().zip(responsive).zip(&mut available)
            {
                target.set_responsive(responsive && open);
                let available = target.is_available();
                if std::mem::replace(known, available) != available {
                    changed = true;
                    log_availability(target);
                }
            }
            let any = publisher.targets.iter().any(|target| target.is_responsive());
            failed = if any || !open { 0 } else { failed + 1 };
            if changed || any != reachable {
                reachable = any;
                publisher.connection.send_replace(any.then(|| Arc::clone(self)));
            }
        }
    }

    /// Returns whether the stream replies.
    async fn probe_stream(&self, target: &Target) -> bool {
        let (before, measured_at) = (target.replies(), Instant::now());
        match self.stream_info(&target.name, String::new()).await {
            Some(StreamInfo { config, state, .. }) => {
                target.metrics.set_size(state.bytes, config.max_bytes);
                target.size.send_replace(Some(StreamSize {
                    bytes: state.bytes,
                    max_bytes: u64::try_from(config.max_bytes).ok(),
                    max_age: Duration::from_nanos(config.max_age),
                    measured_at,
                }));
                true
            }
            // Acknowledgements that arrived meanwhile prove more than one lost probe.
            None => target.replies() != before,
        }
    }

    /// Returns the size of the stream, and its subjects that match the filter, with the number of their messages.
    pub(super) async fn usage(
        &self,
        stream: &str,
        filter: &str,
    ) -> Option<(StreamUsage, HashMap<String, u64>)> {
        let StreamInfo { config, state, .. } =
            self.stream_info(stream, json!({ "subjects_filter": filter }).to_string()).await?;
        let usage = StreamUsage {
            max_bytes: u64::try_from(config.max_bytes).ok(),
            bytes: state.bytes,
            messages: state.messages,
            matching: state.subjects.values().sum(),
        };
        Some((usage, state.subjects))
    }

    async fn stream_info(&self, stream: &str, request: String) -> Option<StreamInfo> {
        let subject = format!("$JS.API.STREAM.INFO.{stream}");
        let reply = self.request(&subject, request.as_bytes());
        StreamInfo::with_leader(&timeout(PROBE_INTERVAL, reply).await.ok()??)
    }

    async fn request(&self, subject: &str, payload: &[u8]) -> Option<Bytes> {
        let (number, reply) = self.requests.open();
        let mut command = Vec::new();
        let inbox = format!("{}.{REQUEST}{number}", self.inbox);
        wire::write_request(&mut command, subject, &inbox, payload);
        self.command(command);
        reply.await.ok()
    }
}

fn log_availability(target: &Target) {
    let (stream, available) = (&*target.name, target.is_available());
    if target.is_responsive() && !available {
        let reason = "no acknowledgement";
        tracing::warn!(stream, available, reason, "stream availability changed");
    } else {
        tracing::info!(stream, available, "stream availability changed");
    }
}

impl Requests {
    fn open(&self) -> (u64, oneshot::Receiver<Bytes>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        // Those of callers that are gone.
        waiting.retain(|_, sender| !sender.is_closed());
        waiting.insert(number, sender);
        drop(waiting);
        (number, receiver)
    }

    /// Completes a request. A reply to a request that has ended is ignored.
    fn complete(&self, number: &str, reply: Reply<'_>) {
        let waiting = number.parse().ok().and_then(|number| self.waiting.lock().remove(&number));
        if let (Some(waiting), Reply::Payload(payload)) = (waiting, reply) {
            let _ = waiting.send(Bytes::copy_from_slice(payload));
        }
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
