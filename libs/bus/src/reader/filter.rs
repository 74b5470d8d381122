//! Selection of the events of a read, and the event that a message contains.

use std::ops::RangeInclusive;

use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use percent_encoding::percent_decode_str;
use tenancy::TenantId;

use crate::message::{CE_ID, CE_SOURCE, CE_TYPE, RECEIVED_AT};
use crate::streams::EventStreams;
use crate::subject::{EventSubject, partition};

/// The broker compares each message with all subjects of a consumer. With more subjects, this process compares.
const MAX_SUBJECTS: usize = 64;

/// Selects events of one tenant.
#[derive(Clone, Debug)]
pub struct EventFilter {
    /// The tenant.
    pub tenant: TenantId,
    /// Types; empty: all.
    pub event_types: Vec<String>,
    /// Sources; empty: all.
    pub source_ids: Vec<String>,
}

/// An event in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// The tenant.
    pub tenant: TenantId,
    /// The type.
    pub event_type: String,
    /// The source.
    pub source_id: String,
    /// The id that the producer set, or a generated one.
    pub event_id: String,
    /// Time at which ingest received the event, in milliseconds.
    pub received_at: DateTime<Utc>,
    /// The bytes of the producer.
    pub payload: Bytes,
}

impl EventFilter {
    /// Returns subjects that include all selected events in these partitions of a stream. Empty if no event of these partitions
    /// is selected.
    pub(super) fn subjects(&self, partitions: RangeInclusive<u8>) -> Vec<String> {
        let is_whole = EventStreams::ONE.with_ranges().any(|(_, whole)| whole == partitions);
        let mut selected: Vec<Option<u8>> = if !self.source_ids.is_empty() {
            let own = self.source_ids.iter().map(|source| partition(&self.tenant, source));
            own.filter(|partition| partitions.contains(partition)).map(Some).collect()
        } else if is_whole {
            vec![None]
        } else {
            // The subjects of a consumer must be a part of those of the stream.
            partitions.map(Some).collect()
        };
        selected.sort_unstable();
        selected.dedup();
        if is_whole && selected.len() > MAX_SUBJECTS / 2 {
            selected = vec![None];
        }
        let mut types: Vec<_> = EventSubject::filter_types(&self.event_types).into_iter().map(Some).collect();
        if types.is_empty() || selected.len() * types.len() > MAX_SUBJECTS {
            types = vec![None];
        }
        let subject =
            |partition, event_type| EventSubject::tenant_filter(&self.tenant, partition, event_type);
        selected
            .iter()
            .flat_map(|partition| types.iter().map(move |name| subject(*partition, *name)))
            .collect()
    }

    /// Returns the event of a message if it is selected. A message that ingest did not publish is not an event.
    pub(super) fn select(&self, message: &Message) -> Option<StoredEvent> {
        let event = stored_event(message);
        if event.is_none() {
            tracing::warn!(subject = %message.subject, "message in the stream of events is not an event");
        }
        event.filter(|event| {
            let is_of = |selected: &[String], value: &str| {
                selected.is_empty() || selected.iter().any(|selected| selected == value)
            };
            event.tenant == self.tenant
                && is_of(&self.event_types, &event.event_type)
                && is_of(&self.source_ids, &event.source_id)
        })
    }
}

fn stored_event(message: &Message) -> Option<StoredEvent> {
    let headers = message.headers.as_ref()?;
    let header = |headers: &HeaderMap, name: &str| headers.get(name).map(|value| value.as_str().to_owned());
    let source = header(headers, CE_SOURCE)?;
    let source_id = percent_decode_str(&source).decode_utf8().ok()?.into_owned();
    let subject: EventSubject = message.subject.parse().ok()?;
    let event_type = header(headers, CE_TYPE)?;
    let is_valid = subject.partition() == partition(subject.tenant(), &source_id)
        && (subject.event_type() == event_type || subject.event_type() == udm::DEFAULT_EVENT_TYPE);
    is_valid.then_some(())?;
    let received_at = header(headers, RECEIVED_AT)?.parse().ok()?;
    Some(StoredEvent {
        tenant: subject.tenant().clone(),
        event_type,
        source_id,
        event_id: header(headers, CE_ID)?,
        received_at: DateTime::from_timestamp_millis(received_at)?,
        payload: message.payload.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::PARTITIONS;

    fn subjects(event_types: &[&str], sources: usize, partitions: RangeInclusive<u8>) -> Vec<String> {
        let filter = EventFilter {
            tenant: "acme".parse().unwrap(),
            event_types: event_types.iter().map(ToString::to_string).collect(),
            source_ids: (0..sources).map(|number| format!("fw-{number}")).collect(),
        };
        filter.subjects(partitions)
    }

    #[test]
    fn subjects_select_partitions_and_types() {
        let all = 0..=PARTITIONS - 1;
        assert_eq!(subjects(&[], 0, all.clone()), ["udm.v1.*.acme.*"]);
        let types = ["udm.v1.*.acme.A", "udm.v1.*.acme.B", "udm.v1.*.acme.GENERIC_EVENT"];
        assert_eq!(subjects(&["A", "B", "A"], 0, all.clone()), types);
        assert_eq!(subjects(&["GENERIC_EVENT"], 0, all.clone()), ["udm.v1.*.acme.GENERIC_EVENT"]);
        let own = partition(&"acme".parse().unwrap(), "fw-0");
        let expected = ["A", "GENERIC_EVENT"].map(|name| format!("udm.v1.{own:02}.acme.{name}"));
        assert_eq!(subjects(&["A"], 1, all), expected);
        assert_eq!(subjects(&[], 0, 2..=3), ["udm.v1.02.acme.*", "udm.v1.03.acme.*"]);
        let other = (own + 1) % PARTITIONS;
        assert!(subjects(&["A"], 1, other..=other).is_empty());
    }

    #[test]
    fn the_number_of_subjects_is_bounded() {
        let types: Vec<_> = (0..20).map(|number| format!("T{number}")).collect();
        let types: Vec<_> = types.iter().map(String::as_str).collect();
        for sources in [0, 1, 5, 100] {
            for partitions in [0..=63, 0..=31, 32..=63, 60..=63] {
                assert!(subjects(&types, sources, partitions).len() <= MAX_SUBJECTS, "{sources}");
            }
        }
        assert_eq!(subjects(&types, 100, 0..=63).len(), 21);
    }
}
