//! One connection to the broker, from dialling to its end. Nothing of it outlives it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::{Client, Event, HeaderMap, Message, Request, Subject, Subscriber};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::ReadyChunks;
use serde::Deserialize;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::ack::{self, Verdict};
use super::slots::{Pending, Slots, Token};
use super::{Limits, PublishError, Shared};
use crate::connect::{self, Config, ConnectError};

/// How late a deadline may be noticed, and how long a message whose twin is in process waits.
const SWEEP: Duration = Duration::from_millis(50);
/// How often the stream is asked whether it has a leader.
const PROBE: Duration = Duration::from_secs(1);
/// How many answers are taken under one lock.
const CHUNK: usize = 256;
/// Room for answers that nobody waits for any more; an answer that finds no room would be lost.
const LATE_ANSWERS: usize = 4096;

/// Makes links.
pub(super) struct Dialer {
    config: Config,
    answers: usize,
}

/// What a link's task needs and nobody else has.
pub(super) struct Receiver {
    answers: Answers,
    outgoing: UnboundedReceiver<Outgoing>,
    broken: CancellationToken,
}

type Answers = ReadyChunks<Subscriber>;

/// A message that has its number and waits to be handed to the client.
struct Outgoing {
    token: Token,
    subject: Subject,
    headers: HeaderMap,
    payload: Bytes,
}

/// A connection through which messages are published.
pub(super) struct Link {
    client: Client,
    inbox: String,
    slots: Slots,
    outgoing: UnboundedSender<Outgoing>,
    answered: AtomicU64,
}

impl Dialer {
    /// Fails when the configuration can never work.
    pub(super) fn new(config: Config, limits: Limits) -> Result<Self, ConnectError> {
        connect::dial(&config)?;
        Ok(Self { config, answers: limits.messages + LATE_ANSWERS })
    }

    /// Connects once.
    pub(super) async fn dial(&self) -> Result<(Arc<Link>, Receiver), ConnectError> {
        let (options, servers) = connect::dial(&self.config)?;
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
        // The library cannot be told not to reconnect. Once round the servers is the least it does; after that it gives
        // up, and with it goes what was queued: late by two seconds at most, never by an outage.
        let client = options
            .max_reconnects(servers.len())
            .subscription_capacity(self.answers)
            .event_callback(on_event)
            .connect(servers)
            .await?;
        let inbox = client.new_inbox();
        let answers = client.subscribe(format!("{inbox}.*")).await.map_err(|_| ConnectError::Address)?;
        let (queue, outgoing) = mpsc::unbounded_channel();
        let (slots, answered) = (Slots::default(), AtomicU64::new(0));
        let link = Link { client, inbox, slots, outgoing: queue, answered };
        let answers = answers.ready_chunks(CHUNK);
        Ok((Arc::new(link), Receiver { answers, outgoing, broken }))
    }
}

impl Link {
    /// Takes the message on. Its outcome comes through its batch.
    pub(super) fn send(&self, pending: Pending) {
        let subject = pending.message.subject().clone();
        let headers = pending.message.headers();
        let payload = pending.message.payload().clone();
        if let Some(token) = self.slots.insert(pending) {
            // When nobody takes it any more the link is over, and what waits is settled with it.
            let _ = self.outgoing.send(Outgoing { token, subject, headers, payload });
        }
    }

    /// Hands messages to the client, as many at once as there are: the broker's work for a message is mostly that of a read
    /// and a write, which many then share.
    async fn forward(&self, outgoing: &mut UnboundedReceiver<Outgoing>) {
        while let Some(first) = outgoing.recv().await {
            // Whoever else is ready to send does so first. Costs nothing when nobody is.
            tokio::task::yield_now().await;
            self.hand_over(first).await;
            while let Ok(next) = outgoing.try_recv() {
                self.hand_over(next).await;
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one home of publication")]
    async fn hand_over(&self, Outgoing { token, subject, headers, payload }: Outgoing) {
        // Its time may be over: the client's queue is full when the broker takes nothing.
        if !self.slots.holds(token) {
            return;
        }
        let reply = format!("{}.{token}", self.inbox);
        let sent = self.client.publish_with_reply_and_headers(subject, reply, headers, payload).await;
        if let Err(fault) = sent
            && let Some(pending) = self.slots.take(token)
        {
            pending.settle(Err(match fault.kind() {
                async_nats::client::PublishErrorKind::Send => PublishError::Unavailable,
                kind => PublishError::Misconfigured { code: 0, description: kind.to_string() },
            }));
        }
    }

    /// Serves the link until it breaks, or until it is told to stop and nothing is in flight.
    pub(super) async fn run(self: &Arc<Self>, shared: &Shared, receiver: Receiver, stop: &CancellationToken) {
        let Receiver { answers, mut outgoing, broken } = receiver;
        tokio::select! {
            () = broken.cancelled() => {}
            () = self.dispatch(shared, answers, stop) => {}
            () = self.forward(&mut outgoing) => {}
            () = self.probe(shared) => {}
        }
        shared.link.send_replace(None);
        for pending in self.slots.close_and_take_all() {
            pending.settle(Err(PublishError::Unavailable));
        }
    }

    /// Brings answers to their requests, and ends requests whose time is over.
    async fn dispatch(&self, shared: &Shared, mut answers: Answers, stop: &CancellationToken) {
        let mut again = Vec::new();
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                some = answers.next() => match some {
                    Some(some) => self.deliver(shared, some, &mut again),
                    None => return,
                },
                now = sweep.tick() => self.sweep(now, &mut again),
                () = stop.cancelled(), if !self.slots.is_closed() => {
                    self.slots.close();
                    shared.link.send_replace(None);
                }
            }
            if self.slots.is_closed() && self.slots.is_empty() && again.is_empty() {
                return;
            }
        }
    }

    fn deliver(&self, shared: &Shared, answers: Vec<Message>, again: &mut Vec<Pending>) {
        let numbered = answers.into_iter().filter_map(|answer| {
            let (_, number) = answer.subject.rsplit_once('.')?;
            Some((number.parse().ok()?, answer))
        });
        let matched = self.slots.take_each(numbered);
        self.answered.fetch_add(matched.len() as u64, Ordering::Relaxed);
        for (pending, answer) in matched {
            match ack::read(&answer, &shared.stream) {
                Verdict::Settled(outcome) => pending.settle(outcome),
                Verdict::Again => again.push(pending),
            }
        }
    }

    fn sweep(&self, now: Instant, again: &mut Vec<Pending>) {
        for pending in self.slots.take_expired(now) {
            pending.settle(Err(PublishError::AckTimeout));
        }
        for pending in std::mem::take(again) {
            if pending.deadline <= now {
                pending.settle(Err(PublishError::AckTimeout));
            } else {
                self.send(pending);
            }
        }
    }

    /// Asks every second whether the stream has a leader, and opens or closes the way to this link accordingly.
    async fn probe(self: &Arc<Self>, shared: &Shared) {
        let mut tick = interval(PROBE);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let before = self.answered.load(Ordering::Relaxed);
            let answers = self.stream_answers(shared).await
                // Answers that kept coming say more than one question that was lost among them.
                || self.answered.load(Ordering::Relaxed) != before;
            let alive = answers && !self.slots.is_closed();
            let link = alive.then(|| Arc::clone(self));
            shared.link.send_if_modified(|known| {
                let changed = known.is_some() != alive;
                if changed {
                    tracing::info!(stream = &*shared.stream, alive, "publication");
                    *known = link;
                }
                changed
            });
        }
    }

    async fn stream_answers(&self, shared: &Shared) -> bool {
        // With an inbox of its own: one made by the library's multiplexer would stay in its map after a time-out.
        let question = Request::new().inbox(self.client.new_inbox()).timeout(Some(PROBE));
        let question = self.client.send_request(format!("$JS.API.STREAM.INFO.{}", shared.stream), question);
        let Ok(answer) = question.await else {
            return false;
        };
        let Some(Info { config, state, .. }) = Info::with_leader(&answer.payload) else {
            return false;
        };
        shared.metrics.show_fill(state.bytes, config.max_bytes);
        true
    }
}

/// What the stream says of itself; an error has none of it.
#[derive(Deserialize)]
struct Info {
    #[serde(default)]
    cluster: Option<Cluster>,
    config: Limit,
    state: Fill,
}

#[derive(Deserialize)]
struct Cluster {
    #[serde(default)]
    leader: String,
}

#[derive(Deserialize)]
struct Limit {
    max_bytes: i64,
}

#[derive(Deserialize)]
struct Fill {
    bytes: u64,
}

impl Info {
    /// Reads an answer that shows somebody who can take messages.
    fn with_leader(answer: &[u8]) -> Option<Self> {
        let info: Self = serde_json::from_slice(answer).ok()?;
        info.cluster.as_ref().is_none_or(|cluster| !cluster.leader.is_empty()).then_some(info)
    }
}
