//! Stream definitions: names, subjects and limits of the streams that the services use. Those of events and those of audit events are in
//! separate accounts (`deploy/nats/accounts.conf`).

mod check;
mod command;
mod settings;

use std::ops::RangeInclusive;
use std::time::Duration;

use async_nats::jetstream::stream::{Compression, Config, DiscardPolicy, RetentionPolicy, StorageType};

use serde::Serialize;

pub use check::{StreamError, create, ensure, verify};
pub use command::StreamsCommand;
pub use settings::{StreamMode, StreamSettings, retention, until_valid};

use crate::subject::{EventSubject, PARTITIONS};

/// Name of the stream of events of all tenants, and prefix of the names of several such streams.
pub const UDM_STREAM: &str = "UDM";
/// Name of the stream of events that a consumer failed to process.
pub const DEAD_LETTER_STREAM: &str = "UDM_DLQ";
/// Prefix of the API of an account in the account itself.
pub const API_PREFIX: &str = "$JS.API";
/// Prefix of the API of the account `FACADE` in the account of the streams of events.
pub const FACADE_API_PREFIX: &str = "FACADE.API";
/// Name of the stream of audit events of tenants.
pub const AUDIT_STREAM: &str = "AUDIT";
/// Name of the stream of audit events that belong to no tenant.
pub const ANONYMOUS_AUDIT_STREAM: &str = "AUDIT_ANONYMOUS";

const DAY: Duration = Duration::from_hours(24);
/// Every retry of a producer is inside this window (`libs/transport`).
const DUPLICATE_WINDOW: Duration = Duration::from_mins(2);
/// The maximum size of `AUDIT` and `UDM_DLQ` is this fraction of the size for events.
const SIDE_STREAM_FRACTION: u64 = 8;
/// The maximum size of `AUDIT_ANONYMOUS` is this fraction of the size for events.
const ANONYMOUS_AUDIT_FRACTION: u64 = 64;
/// Maximum number of dead letters of a tenant and consumer: more than an administrator reads, and a fraction of the stream.
const MAX_DEAD_LETTERS: i64 = 10_000;
/// Size of a stream without messages.
const FACADE_STREAM_BYTES: u64 = 1024;
/// Allowance for headers in the maximum message size.
const HEADER_ALLOWANCE: usize = 16 * 1024;

/// Guarantee of a 202 response. A client cannot see how a server syncs, so `Strict` is declared by the administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Every replica synced the event to disk before the response (`sync_interval: always`).
    Strict,
    /// A majority of the replicas wrote the event. Replicas sync at the interval of the server.
    Standard,
    /// One server wrote the event. A power failure can lose events that are not synced yet.
    Dev,
}

/// Division of the events into streams, each with an equal range of partitions. All events of a source are in one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventStreams(u8);

impl EventStreams {
    /// One stream with all partitions: `UDM`.
    pub const ONE: Self = Self(1);

    /// Returns the division into this number of streams: 1, 2, 4, … 64.
    pub fn new(count: u8) -> Option<Self> {
        (count.is_power_of_two() && count <= PARTITIONS).then_some(Self(count))
    }

    /// Returns the names in the order of the partitions: `UDM`, or `UDM_00_15`, `UDM_16_31`, ….
    pub fn names(self) -> Vec<String> {
        self.with_ranges().map(|(name, _)| name).collect()
    }

    /// Returns the names with their partitions.
    pub(crate) fn with_ranges(self) -> impl Iterator<Item = (String, RangeInclusive<u8>)> {
        let size = PARTITIONS / self.0;
        (0..self.0).map(move |index| {
            let (first, last) = (index * size, index * size + (size - 1));
            let name = if self == Self::ONE {
                UDM_STREAM.to_owned()
            } else {
                format!("{UDM_STREAM}_{first:02}_{last:02}")
            };
            (name, first..=last)
        })
    }

    fn subjects(self, range: RangeInclusive<u8>) -> Vec<String> {
        if self == Self::ONE {
            return vec![EventSubject::ALL.to_owned()];
        }
        range.map(EventSubject::partition_filter).collect()
    }
}

/// Settings of the streams of events and dead letters of this installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Guarantee of a 202 response.
    pub durability: Durability,
    /// Number of servers that store each message: 3 in a cluster, 1 standalone.
    pub replicas: usize,
    /// The streams of events.
    pub streams: EventStreams,
    /// Maximum size of the events, divided equally among their streams. `AUDIT` and `UDM_DLQ` have an eighth of it each,
    /// `AUDIT_ANONYMOUS` a 64th. At most 75 % of what a server may store, so that all fit.
    pub max_bytes: u64,
    /// Retention of events.
    pub max_age: Duration,
    /// Retention of `UDM_DLQ`.
    pub dead_letter_max_age: Duration,
    /// Whether the server compresses stored messages.
    pub compression: bool,
}

/// Settings of the streams of audit events of this installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditProfile {
    /// Number of servers that store each message.
    pub replicas: usize,
    /// Maximum size of the events, as in [`Profile`].
    pub max_bytes: u64,
    /// Retention of `AUDIT`.
    pub max_age: Duration,
    /// Whether the server compresses stored messages.
    pub compression: bool,
}

impl Profile {
    /// Returns the default settings for one server and this maximum size.
    pub const fn single_server(max_bytes: u64) -> Self {
        Self {
            durability: Durability::Dev,
            replicas: 1,
            streams: EventStreams::ONE,
            max_bytes,
            max_age: Duration::from_hours(72),
            dead_letter_max_age: Duration::from_hours(14 * 24),
            compression: false,
        }
    }

    /// Returns the streams of the account `FACADE`: one for each stream of events, with its name and subjects. No user can publish there.
    pub fn facade(&self) -> Vec<StreamDefinition> {
        let streams = self.streams.with_ranges().map(|(name, range)| {
            stream(&name, self.streams.subjects(range), self.max_age, FACADE_STREAM_BYTES)
        });
        stored_on(streams.collect(), self.replicas, false)
    }
}

impl AuditProfile {
    /// Returns the default settings for one server and this maximum size.
    pub const fn single_server(max_bytes: u64) -> Self {
        Self { replicas: 1, max_bytes, max_age: Duration::from_hours(400 * 24), compression: false }
    }
}

impl From<&Profile> for Vec<StreamDefinition> {
    /// Returns the definitions. The streams of events are last: publishing is possible when they exist.
    fn from(profile: &Profile) -> Self {
        let Profile { durability, replicas, streams, max_bytes, max_age, compression, .. } = *profile;
        let subjects = vec!["udm.dlq.v1.>".to_owned()];
        let side_bytes = max_bytes / SIDE_STREAM_FRACTION;
        let mut dead_letters = stream(DEAD_LETTER_STREAM, subjects, profile.dead_letter_max_age, side_bytes);
        // A subject is that of a tenant and consumer. One that exceeds the limit waits instead of filling the stream for all.
        dead_letters.0.max_messages_per_subject = MAX_DEAD_LETTERS;
        dead_letters.0.discard_new_per_subject = true;
        let mut definitions = vec![dead_letters];
        for (name, range) in streams.with_ranges() {
            let mut events =
                stream(&name, streams.subjects(range), max_age, max_bytes / u64::from(streams.0));
            events.0.allow_atomic_publish = durability == Durability::Strict;
            definitions.push(events);
        }
        stored_on(definitions, replicas, compression)
    }
}

impl From<&AuditProfile> for Vec<StreamDefinition> {
    fn from(profile: &AuditProfile) -> Self {
        let AuditProfile { replicas, max_bytes, max_age, compression } = *profile;
        let subjects = vec!["audit.v1.>".to_owned()];
        let audit = stream(AUDIT_STREAM, subjects, max_age, max_bytes / SIDE_STREAM_FRACTION);
        let (subjects, bytes) =
            (vec!["audit.anonymous.v1.>".to_owned()], max_bytes / ANONYMOUS_AUDIT_FRACTION);
        let mut anonymous = stream(ANONYMOUS_AUDIT_STREAM, subjects, 7 * DAY, bytes);
        // Unauthenticated clients cause these events, so the newest replace the oldest.
        anonymous.0.discard = DiscardPolicy::Old;
        stored_on(vec![audit, anonymous], replicas, compression)
    }
}

/// Returns a stream with these subjects, retention and size.
fn stream(name: &str, subjects: Vec<String>, max_age: Duration, max_bytes: u64) -> StreamDefinition {
    StreamDefinition(Config {
        name: name.to_owned(),
        subjects,
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        // A full stream rejects new events. It never drops stored ones.
        discard: DiscardPolicy::New,
        max_age,
        max_bytes: i64::try_from(max_bytes).unwrap_or(i64::MAX),
        max_messages: -1,
        max_messages_per_subject: -1,
        max_message_size: i32::try_from(udm::MAX_EVENT_BYTES + HEADER_ALLOWANCE).unwrap_or(i32::MAX),
        duplicate_window: DUPLICATE_WINDOW,
        ..Config::default()
    })
}

/// Sets what all streams of a profile have in common.
fn stored_on(
    mut definitions: Vec<StreamDefinition>,
    replicas: usize,
    compression: bool,
) -> Vec<StreamDefinition> {
    for StreamDefinition(config) in &mut definitions {
        config.num_replicas = replicas;
        config.compression = Some(if compression { Compression::S2 } else { Compression::None });
    }
    definitions
}

/// Returns how many bytes one tenant can store while this many are free. `percent` is its share of an otherwise empty stream.
pub fn share_of_free(percent: u8, free: u64) -> u64 {
    if percent >= 100 {
        return u64::MAX;
    }
    let bytes = u128::from(free) * u128::from(percent) / u128::from(100 - percent);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Configuration of one stream.
#[derive(Clone, Debug)]
pub struct StreamDefinition(Config);

impl StreamDefinition {
    /// Returns the configuration as the API of JetStream and `nats stream add --config` read it.
    pub fn config(&self) -> &impl Serialize {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_divide_the_partitions_into_equal_ranges() {
        let names = |count| EventStreams::new(count).map(EventStreams::names);
        assert_eq!(names(1), Some(vec!["UDM".to_owned()]));
        assert_eq!(names(4).unwrap(), ["UDM_00_15", "UDM_16_31", "UDM_32_47", "UDM_48_63"]);
        assert_eq!((names(64).unwrap().len(), names(64).unwrap()[63].as_str()), (64, "UDM_63_63"));
        assert_eq!([0, 3, 65, 128].map(names), [None, None, None, None]);
    }

    #[test]
    fn streams_of_events_have_the_maximum_size_together() {
        let profile = Profile { streams: EventStreams(4), ..Profile::single_server(64 << 20) };
        let definitions = Vec::<StreamDefinition>::from(&profile);
        let of = |name: &str| definitions.iter().map(|it| &it.0).find(|config| config.name == name).unwrap();
        assert_eq!(of("UDM_16_31").max_bytes, 16 << 20);
        assert_eq!(of("UDM_16_31").subjects.first().unwrap(), "udm.v1.16.>");
        assert_eq!(of("UDM_16_31").subjects.last().unwrap(), "udm.v1.31.>");
        assert_eq!(of("UDM_DLQ").max_bytes, 8 << 20);
    }
}
