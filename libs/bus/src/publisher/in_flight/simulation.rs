//! Simulation of a publisher with a stream: messages and replies are lost, delayed and repeated, the stream refuses messages, and
//! connections break. No step depends on time or threads, so a seed repeats a schedule, and a failing one is shortened.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use prometheus_client::metrics::histogram::Histogram;
use proptest::prelude::*;
use proptest::sample::Index;
use service::telemetry::Metrics;
use tenancy::TenantId;

use super::super::Ack;
use super::super::metrics::durations;
use super::super::pending_message::CallOutcomes;
use super::*;
use crate::budget::MemoryBudget;
use crate::message::MESSAGE_ID;
use crate::subject::AuditSubject;

const STREAM: &str = "UDM";

/// A message id. The payload is derived from it.
type Id = usize;

#[derive(Clone, Debug)]
enum Step {
    /// A call with new messages, and with some that were published before.
    Publish {
        new: usize,
        repeated: Vec<Index>,
        timeout: u64,
        atomic: bool,
    },
    /// Writes messages to the connection.
    PassOn(usize),
    /// The next message reaches the stream, or not.
    Arrive(Fate),
    /// A message of a connection that broke reaches the stream.
    ArriveLate(Index),
    /// Any reply arrives. With `copied`, it can arrive again.
    Reply {
        which: Index,
        copied: bool,
    },
    Wait(u64),
    Sweep,
    Break,
}

/// What happens to a message on its way.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Stored,
    StoredWithoutReply,
    /// The leader steps down: the message is stored, the reply is an error.
    StoredWithError,
    Lost,
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug)]
enum Refusal {
    /// A message with the same id is being stored.
    InProcess,
    Unavailable,
    Full,
    NoResponders,
    /// Another stream has the subject, and stores the message.
    OtherStream,
}

fn step() -> impl Strategy<Value = Step> {
    let publish = (0..4_usize, prop::collection::vec(any::<Index>(), 0..2), 0..400_u64, any::<bool>())
        .prop_map(|(new, repeated, timeout, atomic)| Step::Publish { new, repeated, timeout, atomic });
    let refusal = prop_oneof![
        3 => Just(Refusal::InProcess),
        1 => Just(Refusal::Unavailable),
        1 => Just(Refusal::Full),
        1 => Just(Refusal::NoResponders),
        1 => Just(Refusal::OtherStream),
    ];
    let fate = prop_oneof![
        8 => Just(Fate::Stored),
        2 => Just(Fate::StoredWithoutReply),
        1 => Just(Fate::StoredWithError),
        1 => Just(Fate::Lost),
        3 => refusal.prop_map(Fate::Refused),
    ];
    prop_oneof![
        5 => publish,
        5 => (1..5_usize).prop_map(Step::PassOn),
        10 => fate.prop_map(Step::Arrive),
        1 => any::<Index>().prop_map(Step::ArriveLate),
        8 => (any::<Index>(), prop::bool::weighted(0.2)).prop_map(|(which, copied)| Step::Reply { which, copied }),
        2 => (0..200_u64).prop_map(Step::Wait),
        3 => Just(Step::Sweep),
        1 => Just(Step::Break),
    ]
}

/// The stream, which removes duplicates by their id and stores an atomic batch completely or not at all.
#[derive(Default)]
struct Stream {
    stored: Vec<(String, Bytes)>,
    batches: BTreeMap<String, Vec<(String, Bytes)>>,
}

impl Stream {
    /// Returns the reply to a message.
    fn receive(&mut self, message: &Outgoing) -> String {
        let lines = [&message.message.header_lines().concat(), &*message.batch_headers].concat();
        let lines = String::from_utf8(lines).unwrap();
        let header = |name: &str| {
            let header =
                lines.lines().filter_map(|line| line.split_once(": ")).find(|(found, _)| *found == name);
            header.map(|(_, value)| value.to_owned())
        };
        let entry = (header(MESSAGE_ID).unwrap_or_default(), message.message.payload().clone());
        let Some(batch_id) = header("Nats-Batch-Id") else {
            let duplicate = self.sequence_of(&entry.0);
            if duplicate.is_none() {
                self.stored.push(entry);
            }
            let sequence = duplicate.unwrap_or(self.stored.len());
            return format!(
                r#"{{"stream":"{STREAM}","seq":{sequence},"duplicate":{}}}"#,
                duplicate.is_some()
            );
        };
        let batch = self.batches.entry(batch_id.clone()).or_default();
        batch.push(entry);
        if header("Nats-Batch-Commit").is_none() {
            return String::new();
        }
        let batch = self.batches.remove(&batch_id).unwrap_or_default();
        let is_complete = header("Nats-Batch-Sequence") == Some(batch.len().to_string());
        let mut ids: Vec<_> = batch.iter().map(|(id, _)| id).collect();
        ids.sort_unstable();
        ids.dedup();
        if !is_complete || ids.len() < batch.len() || ids.iter().any(|id| self.sequence_of(id).is_some()) {
            return error(400, 10_201, "batch didn't contain unique message ids");
        }
        let count = batch.len();
        self.stored.extend(batch);
        format!(r#"{{"stream":"{STREAM}","seq":{},"batch":"{batch_id}","count":{count}}}"#, self.stored.len())
    }

    fn sequence_of(&self, id: &str) -> Option<usize> {
        self.stored.iter().position(|(stored, _)| stored == id).map(|index| index + 1)
    }
}

fn error(code: u16, err_code: u64, description: &str) -> String {
    format!(
        r#"{{"error":{{"code":{code},"err_code":{err_code},"description":"{description}"}},"stream":"{STREAM}","seq":0}}"#
    )
}

/// A call of `publish_all`.
struct Call {
    ids: Vec<Id>,
    deadline: Instant,
    batch: Arc<CallOutcomes>,
}

struct Simulation {
    now: Instant,
    in_flight: InFlightMessages,
    outgoing: UnboundedReceiver<Outgoing>,
    resend: Vec<PendingMessage>,
    /// Messages on their way to the stream, in order.
    sent: VecDeque<Outgoing>,
    /// Messages of connections that broke: the server can still receive them.
    late: Vec<Outgoing>,
    /// Tokens and payloads of replies; `None` if no stream has the subject.
    replies: Vec<(ReplyToken, Option<String>)>,
    stream: Stream,
    calls: Vec<Call>,
    ids: Id,
    acknowledged: BTreeMap<Id, Ack>,
    /// Ids with an acknowledgement that is not a duplicate.
    first_acknowledgements: Vec<Id>,
    budget: MemoryBudget,
    target: Arc<Target>,
    durations: Histogram,
}

impl Simulation {
    fn new() -> Self {
        let metrics = Metrics::new("test");
        let (in_flight, outgoing) = InFlightMessages::new();
        Self {
            now: Instant::now(),
            in_flight,
            outgoing,
            resend: Vec::new(),
            sent: VecDeque::new(),
            late: Vec::new(),
            replies: Vec::new(),
            stream: Stream::default(),
            calls: Vec::new(),
            ids: 0,
            acknowledged: BTreeMap::new(),
            first_acknowledgements: Vec::new(),
            budget: MemoryBudget::with_max_reservations(4_000, 1 << 24),
            target: Arc::new(Target::new(0, STREAM, &metrics)),
            durations: durations(&metrics, STREAM),
        }
    }

    fn publish(&mut self, ids: Vec<Id>, timeout: u64, atomic: bool) {
        if ids.is_empty() {
            return;
        }
        let tenant: TenantId = "acme".parse().unwrap();
        let subject = AuditSubject::new(Some(&tenant), "identity", "user_invited").unwrap();
        let batch = CallOutcomes::new(ids.len(), &self.durations);
        let deadline = self.now + Duration::from_millis(timeout);
        let pending = ids.iter().enumerate().map(|(index, id)| {
            let message = Message::audit(&subject, &id.to_string(), None, payload(*id)).unwrap();
            let reservation = self.budget.reserve(&tenant, message.size()).unwrap();
            PendingMessage::new(message, Arc::clone(&self.target), reservation, deadline, &batch, index)
        });
        let pending: Vec<_> = pending.collect();
        if atomic {
            self.in_flight.send_atomic(pending);
        } else {
            for message in pending {
                self.in_flight.send(message);
            }
        }
        self.calls.push(Call { ids, deadline, batch });
    }

    fn pass_on(&mut self) {
        if let Ok(message) = self.outgoing.try_recv()
            && self.in_flight.waiting.contains(message.token)
        {
            self.sent.push_back(message);
        }
    }

    fn arrive(&mut self, fate: Fate) {
        let Some(message) = self.sent.pop_front() else { return };
        let reply = match fate {
            Fate::Lost => return,
            Fate::Stored => self.stream.receive(&message),
            Fate::StoredWithoutReply => {
                self.stream.receive(&message);
                return;
            }
            Fate::StoredWithError => {
                self.stream.receive(&message);
                error(503, 0, "raft: not leader")
            }
            Fate::Refused(Refusal::InProcess) => error(409, 10_158, "duplicate message id is in process"),
            Fate::Refused(Refusal::Unavailable) => error(503, 10_008, "temporarily unavailable"),
            Fate::Refused(Refusal::Full) => error(503, 10_077, "maximum bytes exceeded"),
            Fate::Refused(Refusal::NoResponders) => String::new(),
            Fate::Refused(Refusal::OtherStream) => r#"{"stream":"OTHER","seq":1,"count":1}"#.to_owned(),
        };
        if message.replied {
            let no_responders = matches!(fate, Fate::Refused(Refusal::NoResponders));
            self.replies.push((message.token, (!no_responders).then_some(reply)));
        }
    }

    fn reply(&mut self, which: usize, copied: bool) {
        let reply = if copied { self.replies[which].clone() } else { self.replies.remove(which) };
        let (token, payload) = &reply;
        let reply = payload.as_ref().map_or(Reply::NoResponders, |text| Reply::Payload(text.as_bytes()));
        let targets = std::slice::from_ref(&self.target);
        self.in_flight.settle_replied(targets, [(*token, reply)], &mut self.resend);
    }

    fn sweep(&mut self) {
        self.in_flight.sweep(self.now, &mut self.resend);
        self.verify_finished();
        for call in &self.calls {
            assert!(call.deadline > self.now, "no outcome at the deadline: {:?}", call.ids);
        }
    }

    /// The connection breaks, and the next one starts.
    fn reconnect(&mut self) {
        self.resend.clear();
        self.in_flight.end();
        self.verify_finished();
        assert!(self.calls.is_empty(), "an outcome is missing after the connection broke");
        assert!(self.in_flight.waiting.is_empty());
        assert_eq!((self.budget.reservations(), self.budget.reserved_bytes()), (0, 0));
        self.late.extend(self.sent.drain(..));
        self.replies.clear();
        (self.in_flight, self.outgoing) = InFlightMessages::new();
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Publish { new, repeated, timeout, atomic } => {
                let mut ids: Vec<Id> = (self.ids..self.ids + new).collect();
                if self.ids > 0 {
                    ids.extend(repeated.iter().map(|index| index.index(self.ids)));
                }
                self.ids += new;
                self.publish(ids, timeout, atomic);
            }
            Step::PassOn(count) => (0..count).for_each(|_| self.pass_on()),
            Step::Arrive(fate) => self.arrive(fate),
            Step::ArriveLate(which) if !self.late.is_empty() => {
                let message = self.late.remove(which.index(self.late.len()));
                self.stream.receive(&message);
            }
            Step::Reply { which, copied } if !self.replies.is_empty() => {
                self.reply(which.index(self.replies.len()), copied);
            }
            Step::ArriveLate(_) | Step::Reply { .. } => {}
            Step::Wait(milliseconds) => self.now += Duration::from_millis(milliseconds),
            Step::Sweep => self.sweep(),
            Step::Break => self.reconnect(),
        }
        self.verify_finished();
    }

    /// Compares the outcomes of finished calls with the content of the stream.
    fn verify_finished(&mut self) {
        for call in std::mem::take(&mut self.calls) {
            let Some(outcomes) = call.batch.outcomes().now_or_never() else {
                self.calls.push(call);
                continue;
            };
            assert_eq!(outcomes.len(), call.ids.len());
            for (id, outcome) in call.ids.iter().zip(outcomes) {
                if let Ok(ack) = outcome {
                    self.verify_acknowledgement(*id, ack);
                }
            }
        }
    }

    fn verify_acknowledgement(&mut self, id: Id, ack: Ack) {
        let index = usize::try_from(ack.sequence).unwrap() - 1;
        assert_eq!(self.stream.stored.get(index), Some(&(id.to_string(), payload(id))), "{ack:?}");
        if !ack.duplicate {
            assert!(!self.first_acknowledgements.contains(&id), "{id} was stored twice: {ack:?}");
            self.first_acknowledgements.push(id);
        }
        if let Some(earlier) = self.acknowledged.get(&id) {
            assert_eq!(earlier.sequence, ack.sequence);
        }
        self.acknowledged.insert(id, ack);
    }

    /// Publishes all messages again without faults: each is acknowledged.
    fn recover(&mut self, atomic: bool) {
        self.reconnect();
        let ids: Vec<Id> = (0..self.ids).collect();
        self.publish(ids, 10_000, atomic);
        // The first one is still in process.
        let mut fate = Fate::Refused(Refusal::InProcess);
        for _ in 0..4 {
            while !self.outgoing.is_empty() {
                self.pass_on();
            }
            while !self.sent.is_empty() {
                self.arrive(std::mem::replace(&mut fate, Fate::Stored));
            }
            while !self.replies.is_empty() {
                self.reply(0, false);
            }
            self.now += Duration::from_millis(50);
            self.sweep();
        }
        let acknowledged: Vec<Id> = self.acknowledged.keys().copied().collect();
        assert_eq!(acknowledged, (0..self.ids).collect::<Vec<_>>(), "unacknowledged without a fault");
        self.reconnect();
    }
}

fn payload(id: Id) -> Bytes {
    format!("payload of {id}").into()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::schedules(1_000)))]

    #[test]
    fn each_message_gets_one_outcome_by_its_deadline_and_an_acknowledged_one_is_stored_once(
        steps in prop::collection::vec(step(), 1..100), atomic: bool,
    ) {
        let mut simulation = Simulation::new();
        for step in steps {
            simulation.run(step);
        }
        simulation.recover(atomic);
    }
}
