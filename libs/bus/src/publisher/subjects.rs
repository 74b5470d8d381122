//! Bounds the number of subjects of a tenant in the streams of events. The broker holds all subjects in memory, and while it counts
//! those of a new reader, the messages of all tenants wait.
//!
//! A tenant has at most 1,000 event types and 2,048 subjects, which are pairs of type and partition. Further events have the
//! subject of `GENERIC_EVENT`, and only the header `ce-type` contains their type. The streams are the state: a publisher queries the
//! subjects of a tenant before its first event, and again while events exceed the bound, because a subject disappears with its
//! last event. Between two queries, each replica adds at most its part of the free ones, as for quotas.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use service::LogThrottle;
use service::telemetry::Metrics;
use tenancy::{PerTenant, TenantId};
use tokio::time::Instant;

use crate::message::Message;
use crate::replicas::Replicas;
use crate::subject::EventSubject;

/// Several times the types of UDM.
const MAX_TYPES: usize = 1_000;
/// 32 types in all partitions. The delay by a new reader grows with this number and with the size of the stream.
const MAX_SUBJECTS: usize = 2_048;
/// Minimum time between two queries for one tenant.
const QUERY_INTERVAL: Duration = Duration::from_secs(10);
/// The state of a tenant that has sent nothing for this time can be removed. Its subjects are queried again.
const IDLE_TIME: Duration = Duration::from_mins(10);

/// Bounds the subjects of each tenant.
pub(super) struct BoundedSubjects {
    replicas: Replicas,
    tenants: PerTenant<TenantSubjects>,
    replaced: Counter,
    log_throttle: LogThrottle,
}

/// The subjects of a tenant that this replica knows.
#[derive(Default)]
struct TenantSubjects {
    known: Subjects,
    /// Those that were added since the last query. Its response can lack them.
    added: Subjects,
    /// How many can be added until the next query.
    free: Size,
    /// When the last query ended; `None` before the first one.
    queried_at: Option<Instant>,
    used_at: Option<Instant>,
    /// Locked during a query.
    query_lock: Arc<tokio::sync::Mutex<()>>,
}

/// The partitions of each type, as bits.
#[derive(Default)]
struct Subjects(HashMap<Box<str>, u64>);

/// A number of types and of subjects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    types: usize,
    subjects: usize,
}

impl BoundedSubjects {
    /// Returns the bounds. `replicas` is the number of processes that publish events.
    pub(super) fn new(replicas: Replicas, metrics: &Metrics) -> Self {
        let help = "Events with the subject of `GENERIC_EVENT` because their tenant has too many event types";
        Self {
            replicas,
            tenants: PerTenant::default(),
            replaced: metrics.metric("publish_replaced_subjects", help, &[]),
            log_throttle: LogThrottle::default(),
        }
    }

    /// Replaces the subjects of messages that exceed the bound of the tenant. `query` returns the subjects of the tenant in the
    /// streams, or `None` if a stream does not answer.
    pub(super) async fn apply(
        &self,
        tenant: &TenantId,
        messages: &mut [Message],
        query: impl Future<Output = Option<Vec<EventSubject>>>,
    ) {
        let mut excess = self.add(tenant, messages, Instant::now());
        if excess.is_empty() {
            return;
        }
        if let Some(query_lock) = self.due_query(tenant, Instant::now()) {
            let _locked = query_lock.lock().await;
            // If the request ends meanwhile, the next one queries again.
            if self.starts_query(tenant, Instant::now()) {
                let found = query.await;
                self.set(tenant, found.as_deref(), Instant::now());
            }
            excess = self.add(tenant, messages, Instant::now());
        }
        for index in &excess {
            messages[*index].use_generic_subject();
        }
        self.replaced.inc_by(excess.len() as u64);
        if !excess.is_empty() && self.log_throttle.is_due() {
            tracing::warn!(
                tenant_id = %tenant,
                "tenant has too many event types; further ones have the subject of GENERIC_EVENT"
            );
        }
    }

    /// Adds the subjects of the messages. Returns the indices of the messages that exceed the bound.
    fn add(&self, tenant: &TenantId, messages: &[Message], now: Instant) -> Vec<usize> {
        self.update(tenant, now, |own| {
            own.used_at = Some(now);
            let exceeds = |message: &Message| {
                message.event_type().is_some_and(|event_type| !own.add(event_type, message.partition()))
            };
            let results: Vec<bool> = messages.iter().map(exceeds).collect();
            results.into_iter().enumerate().filter_map(|(index, exceeds)| exceeds.then_some(index)).collect()
        })
    }

    /// Returns the lock for a query of the subjects of the tenant, if one is due.
    fn due_query(&self, tenant: &TenantId, now: Instant) -> Option<Arc<tokio::sync::Mutex<()>>> {
        self.update(tenant, now, |own| own.is_query_due(now).then(|| Arc::clone(&own.query_lock)))
    }

    /// Returns whether the caller, which has the lock, sends the query: no other call has completed it meanwhile.
    fn starts_query(&self, tenant: &TenantId, now: Instant) -> bool {
        self.update(tenant, now, |own| {
            let is_due = own.is_query_due(now);
            if is_due {
                own.added = Subjects::default();
            }
            is_due
        })
    }

    /// Sets the subjects in the streams. Without them, those that are known remain.
    fn set(&self, tenant: &TenantId, found: Option<&[EventSubject]>, now: Instant) {
        self.update(tenant, now, |own| {
            own.queried_at = Some(now);
            if let Some(found) = found {
                own.known = std::mem::take(&mut own.added);
                for subject in found {
                    own.known.insert(subject.event_type(), subject.partition());
                }
            }
            own.free = own.known.size().free_part(self.replicas.count() as usize);
        });
    }

    fn update<R>(&self, tenant: &TenantId, now: Instant, update: impl FnOnce(&mut TenantSubjects) -> R) -> R {
        let is_idle = |own: &mut TenantSubjects| {
            own.used_at.is_none_or(|used_at| now.saturating_duration_since(used_at) >= IDLE_TIME)
        };
        self.tenants.update(tenant, is_idle, update)
    }
}

impl TenantSubjects {
    /// Returns whether the subject is within the bound.
    fn add(&mut self, event_type: &str, partition: u8) -> bool {
        if event_type == udm::DEFAULT_EVENT_TYPE || self.known.contains(event_type, partition) {
            return true;
        }
        let is_new_type = !self.known.0.contains_key(event_type);
        if self.free.subjects == 0 || is_new_type && self.free.types == 0 {
            return false;
        }
        self.free.subjects -= 1;
        self.free.types -= usize::from(is_new_type);
        self.known.insert(event_type, partition);
        self.added.insert(event_type, partition);
        true
    }

    fn is_query_due(&self, now: Instant) -> bool {
        self.queried_at.is_none_or(|at| now.saturating_duration_since(at) >= QUERY_INTERVAL)
    }
}

impl Subjects {
    fn contains(&self, event_type: &str, partition: u8) -> bool {
        self.0.get(event_type).is_some_and(|partitions| partitions & bit(partition) != 0)
    }

    fn insert(&mut self, event_type: &str, partition: u8) {
        match self.0.get_mut(event_type) {
            Some(partitions) => *partitions |= bit(partition),
            None => drop(self.0.insert(event_type.into(), bit(partition))),
        }
    }

    /// Returns the size without the subjects of [`udm::DEFAULT_EVENT_TYPE`], which every tenant can have.
    fn size(&self) -> Size {
        let counted = self.0.iter().filter(|(event_type, _)| ***event_type != *udm::DEFAULT_EVENT_TYPE);
        counted.fold(Size::default(), |Size { types, subjects }, (_, partitions)| Size {
            types: types + 1,
            subjects: subjects + partitions.count_ones() as usize,
        })
    }
}

impl Size {
    /// Returns how many one of the replicas can add.
    fn free_part(self, replicas: usize) -> Self {
        Self {
            types: MAX_TYPES.saturating_sub(self.types) / replicas,
            subjects: MAX_SUBJECTS.saturating_sub(self.subjects) / replicas,
        }
    }
}

fn bit(partition: u8) -> u64 {
    1 << (partition % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use bytes::Bytes;
    use chrono::DateTime;
    use futures::future::poll_immediate;

    use super::*;
    use crate::message::EventContext;

    const START: DateTime<chrono::Utc> = DateTime::UNIX_EPOCH;

    fn acme() -> TenantId {
        "acme".parse().unwrap()
    }

    fn message(event_type: &str, source: usize) -> Message {
        let context = EventContext::new(acme(), START, "req-1", "key:k1", None);
        let raw = format!(r#"{{"source_id":"fw-{source}","metadata":{{"event_type":"{event_type}"}}}}"#);
        Message::event(&context, &udm::parse(raw.as_bytes()).unwrap(), "e", Bytes::new()).unwrap()
    }

    fn types(range: std::ops::Range<usize>) -> Vec<Message> {
        range.map(|number| message(&format!("T{number}"), 0)).collect()
    }

    /// The streams, which several replicas publish to.
    #[derive(Default)]
    struct Streams(HashSet<EventSubject>);

    impl Streams {
        async fn publish(&mut self, replica: &BoundedSubjects, mut messages: Vec<Message>) {
            let stored = self.0.iter().cloned().collect();
            replica.apply(&acme(), &mut messages, async { Some(stored) }).await;
            self.0.extend(messages.iter().map(|message| message.subject().parse().unwrap()));
        }

        fn types(&self) -> usize {
            let types: HashSet<_> = self.0.iter().map(EventSubject::event_type).collect();
            types.iter().filter(|name| **name != udm::DEFAULT_EVENT_TYPE).count()
        }
    }

    fn replica(replicas: u32) -> BoundedSubjects {
        BoundedSubjects::new(Replicas::fixed(replicas), &Metrics::new("test"))
    }

    #[tokio::test]
    async fn further_types_have_the_subject_of_generic_events_and_keep_their_header() {
        let (replica, mut messages) = (replica(1), types(0..MAX_TYPES + 2));
        replica.apply(&acme(), &mut messages, async { Some(Vec::new()) }).await;
        let subject = |message: &Message| message.subject().parse::<EventSubject>().unwrap();
        assert_eq!(subject(&messages[MAX_TYPES - 1]).event_type(), "T999");
        for (message, name) in messages[MAX_TYPES..].iter().zip(["T1000", "T1001"]) {
            assert_eq!(subject(message).event_type(), "GENERIC_EVENT");
            assert_eq!(subject(message).partition(), message.partition());
            assert_eq!(message.headers().get("ce-type").unwrap().as_str(), name);
        }
        assert_eq!(replica.replaced.get(), 2);
        let mut other = types(5000..5001);
        replica.apply(&"other".parse().unwrap(), &mut other, async { Some(Vec::new()) }).await;
        assert_eq!(subject(&other[0]).event_type(), "T5000", "each tenant has its own bound");
    }

    #[tokio::test]
    async fn a_type_in_many_partitions_is_bounded_too() {
        let (replica, mut streams) = (replica(1), Streams::default());
        let partition = |source: &usize| crate::partition(&acme(), &format!("fw-{source}"));
        let source_of = |number| (0..10_000).find(|source| partition(source) == number).unwrap();
        let sources: Vec<usize> = (0..64).map(source_of).collect();
        for number in 0..50 {
            let messages = sources.iter().map(|source| message(&format!("T{number}"), *source)).collect();
            streams.publish(&replica, messages).await;
        }
        let generic = streams.0.iter().filter(|it| it.event_type() == "GENERIC_EVENT").count();
        assert_eq!((streams.0.len() - generic, generic), (MAX_SUBJECTS, 64));
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_and_restarts_do_not_exceed_the_bound() {
        let (replicas, mut streams) = ([(); 4].map(|()| replica(4)), Streams::default());
        for round in 0..10 {
            for (number, replica) in replicas.iter().enumerate() {
                let first = 10_000 * number + 300 * round;
                streams.publish(replica, types(first..first + 300)).await;
            }
            tokio::time::advance(QUERY_INTERVAL).await;
        }
        assert!((900..=MAX_TYPES).contains(&streams.types()), "{}", streams.types());
        for restart in 0..10 {
            streams.publish(&replica(1), types(100_000 * restart..100_000 * restart + 1000)).await;
        }
        assert_eq!(streams.types(), MAX_TYPES);
    }

    #[tokio::test]
    async fn types_that_are_not_stored_any_more_make_place() {
        let (replica, mut streams) = (replica(1), Streams::default());
        streams.publish(&replica, types(0..MAX_TYPES)).await;
        streams.0.clear();
        let (tenant, later) = (acme(), Instant::now() + QUERY_INTERVAL);
        streams.publish(&replica, types(5000..5001)).await;
        assert_eq!(streams.types(), 0, "the next query is not due");
        assert!(replica.starts_query(&tenant, later));
        replica.set(&tenant, Some(&[]), later);
        assert!(!replica.starts_query(&tenant, later + QUERY_INTERVAL / 2));
        streams.publish(&replica, types(5000..5001)).await;
        assert_eq!(streams.types(), 1);
    }

    #[tokio::test]
    async fn a_request_that_ends_during_the_query_replaces_no_subject_of_another_one() {
        let replica = replica(1);
        let [mut ended, mut waiting, mut next] = [0, 1, 2].map(|number| types(number..number + 1));
        let (tenant, found) = (acme(), || async { Some(Vec::new()) });
        let mut first = Box::pin(replica.apply(&tenant, &mut ended, std::future::pending()));
        let mut second = Box::pin(replica.apply(&tenant, &mut waiting, found()));
        assert!(poll_immediate(&mut first).await.is_none());
        assert!(poll_immediate(&mut second).await.is_none(), "one request queries");
        drop(first);
        second.await;
        replica.apply(&tenant, &mut next, found()).await;
        let types = [&waiting[0], &next[0]].map(|message| message.event_type().unwrap());
        assert_eq!((types, replica.replaced.get()), (["T1", "T2"], 0));
    }

    #[tokio::test]
    async fn without_an_answer_of_the_stream_the_known_subjects_count() {
        let (replica, mut messages) = (replica(2), types(0..MAX_TYPES));
        replica.apply(&acme(), &mut messages, async { None }).await;
        let generic = messages.iter().filter(|message| message.event_type() == Some("GENERIC_EVENT")).count();
        assert_eq!(generic, MAX_TYPES / 2);
    }

    #[test]
    fn tenants_that_send_nothing_are_removed() {
        let (replica, now) = (replica(1), Instant::now());
        for number in 0..1024 {
            replica.add(&format!("tenant{number}").parse().unwrap(), &types(0..1), now);
        }
        replica.add(&"last".parse().unwrap(), &types(0..1), now + IDLE_TIME);
        assert_eq!(replica.tenants.count(), 1);
    }
}
