//! The space of `UDM_DLQ`: half of it is for the dead letters of consumers, the other half for quarantined items. NATS counts the messages
//! of a subject, and not their bytes.

use std::collections::HashMap;

use tenancy::TenantId;

use super::{MAX_DEAD_LETTER, QUARANTINE, SUBJECT_PREFIX};
use crate::publisher::{PublishError, Publisher, StreamUsage};
use crate::streams::share_of_free;

/// What a dead letter of a consumer counts: the maximum size of its payload, with 512 bytes for subject, headers and record.
const LETTER_BYTES: u64 = MAX_DEAD_LETTER as u64 + 512;

/// Size of the stream, and the number of dead letters of all consumers.
#[derive(Clone, Copy, Debug)]
pub struct DeadLetterSpace {
    max_bytes: Option<u64>,
    bytes: u64,
    letters: u64,
}

/// Why a dead letter of a consumer is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// Those of its tenant or of its consumer have used their share.
    Share,
    /// Those of all consumers have used their half.
    Half,
}

impl DeadLetterSpace {
    /// Returns the space of a stream with this many quarantined items.
    pub const fn new(stream: &StreamUsage, quarantined: u64) -> Self {
        let letters = stream.messages.saturating_sub(quarantined);
        Self { max_bytes: stream.max_bytes, bytes: stream.bytes, letters }
    }

    /// Returns the bytes that quarantined items can still take, if they have about this size. The dead letters of consumers cannot have
    /// more than they count, and the other bytes are those of quarantined items.
    pub fn free_for_quarantine(&self, quarantined_bytes: u64) -> u64 {
        let others = self.bytes.saturating_sub(self.letters.saturating_mul(LETTER_BYTES));
        self.half().saturating_sub(quarantined_bytes.clamp(others, self.bytes))
    }

    /// Returns the part of their half that the dead letters of consumers use: 0 to 1.
    pub fn used_by_consumers(&self) -> f64 {
        self.part(self.letters.saturating_mul(LETTER_BYTES))
    }

    /// Returns the part of their half that quarantined items of this size use: 0 to 1.
    pub fn used_by_quarantine(&self, quarantined_bytes: u64) -> f64 {
        self.part(self.half().saturating_sub(self.free_for_quarantine(quarantined_bytes)))
    }

    fn half(&self) -> u64 {
        self.max_bytes.map_or(u64::MAX, |max| max / 2)
    }

    #[expect(clippy::cast_precision_loss, reason = "a part needs few digits")]
    fn part(&self, bytes: u64) -> f64 {
        if self.half() == 0 { 1.0 } else { (bytes as f64 / self.half() as f64).min(1.0) }
    }
}

/// Returns why a dead letter is not stored; `None` if it is. `share` is what one tenant can fill of the half, in percent. `in_flight` is
/// the number of dead letters that are stored at the same time.
pub(crate) async fn check_space(
    publisher: &Publisher,
    share: u8,
    (tenant, consumer): (&TenantId, &str),
    in_flight: u64,
) -> Result<Option<Full>, PublishError> {
    let (stream, subjects) = publisher.usage_by_subject(&format!("{SUBJECT_PREFIX}.>")).await?;
    Ok(is_full(&stream, &Counts::new(&subjects, tenant, consumer), share, in_flight))
}

/// Numbers of messages.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    quarantined: u64,
    /// Dead letters of all consumers for one tenant.
    of_tenant: u64,
    /// Dead letters of one consumer for all tenants.
    of_consumer: u64,
}

impl Counts {
    fn new(subjects: &HashMap<String, u64>, tenant: &TenantId, consumer: &str) -> Self {
        let mut counts = Self::default();
        for (subject, count) in subjects {
            let name = subject.strip_prefix(SUBJECT_PREFIX).and_then(|rest| rest.strip_prefix('.'));
            let Some((of, name)) = name.and_then(|name| name.split_once('.')) else { continue };
            if name == QUARANTINE {
                counts.quarantined += count;
                continue;
            }
            counts.of_tenant += if of == tenant.as_str() { *count } else { 0 };
            counts.of_consumer += if name == consumer { *count } else { 0 };
        }
        counts
    }
}

fn is_full(stream: &StreamUsage, counts: &Counts, share: u8, in_flight: u64) -> Option<Full> {
    let space = DeadLetterSpace::new(stream, counts.quarantined);
    let used = space.letters.saturating_add(in_flight).saturating_mul(LETTER_BYTES);
    let free = space.half().saturating_sub(used);
    if free < LETTER_BYTES {
        return Some(Full::Half);
    }
    let own = counts.of_tenant.max(counts.of_consumer).saturating_mul(LETTER_BYTES);
    // The first dead letter of a consumer is always stored.
    (counts.of_consumer > 0 && own >= share_of_free(share, free)).then_some(Full::Share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn stream(bytes: u64, messages: u64) -> StreamUsage {
        StreamUsage { max_bytes: Some(64 * MIB), bytes, messages, matching: messages }
    }

    /// Stores dead letters until one is rejected. `subjects` has the messages of others.
    fn fill(subjects: &mut HashMap<String, u64>, share: u8, tenant: &str, consumer: &str) -> (u64, Full) {
        let tenant_id = tenant.parse().unwrap();
        let subject = format!("{SUBJECT_PREFIX}.{tenant}.{consumer}");
        for stored in 0.. {
            let messages = subjects.values().sum();
            let counts = Counts::new(subjects, &tenant_id, consumer);
            if let Some(full) = is_full(&stream(messages * 9000, messages), &counts, share, 0) {
                return (stored, full);
            }
            *subjects.entry(subject.clone()).or_default() += 1;
        }
        unreachable!()
    }

    #[test]
    fn the_consumers_of_a_tenant_share_a_quarter_and_a_consumer_of_all_tenants_has_one() {
        // 32 MiB for 3,855 dead letters.
        let mut subjects = HashMap::new();
        let (stored, full) = fill(&mut subjects, 25, "acme", "siem");
        assert!((960..=970).contains(&stored) && full == Full::Share, "{stored} {full:?}");
        assert_eq!(
            fill(&mut subjects, 25, "acme", "archive"),
            (1, Full::Share),
            "the share of the tenant is used"
        );
        let (stored, _) = fill(&mut subjects, 25, "beta", "copy");
        assert!((715..=730).contains(&stored), "{stored} of the free space");
        let invented: Vec<_> =
            (0..50).map(|number| fill(&mut subjects, 25, &format!("t{number}"), "copy")).collect();
        assert!(invented.iter().all(|(stored, full)| *stored == 0 && *full == Full::Share), "{invented:?}");
    }

    #[test]
    fn all_consumers_together_leave_the_other_half() {
        let mut subjects = HashMap::from([("udm.dlq.v1.acme._ingest".to_owned(), 7)]);
        let mut fill_as =
            |number: u64| fill(&mut subjects, 25, &format!("t{number}"), &format!("c{number}")).0;
        let all: u64 = (0..1000).map(&mut fill_as).sum();
        assert_eq!(all, 32 * MIB / LETTER_BYTES);
        assert_eq!(fill(&mut subjects, 25, "new", "siem"), (0, Full::Half));
        assert_eq!(fill(&mut HashMap::new(), 100, "acme", "siem"), (32 * MIB / LETTER_BYTES, Full::Half));
        let counts = Counts::default();
        assert_eq!(
            is_full(&stream(0, 0), &counts, 100, 32 * MIB / LETTER_BYTES),
            Some(Full::Half),
            "in flight"
        );
        let unlimited = StreamUsage { max_bytes: None, ..stream(0, 1 << 40) };
        assert_eq!(is_full(&unlimited, &counts, 25, 0), None);
    }

    #[test]
    fn the_half_of_the_quarantine_is_free_whatever_the_dead_letters_of_consumers_take() {
        let space =
            |bytes, messages, quarantined| DeadLetterSpace::new(&stream(bytes, messages), quarantined);
        let letters = 32 * MIB / LETTER_BYTES;
        assert_eq!(space(0, 0, 0).free_for_quarantine(0), 32 * MIB);
        assert_eq!(space(letters * LETTER_BYTES, letters, 0).free_for_quarantine(0), 32 * MIB);
        assert_eq!(space(MIB, letters, 0).free_for_quarantine(0), 32 * MIB, "small ones");
        assert_eq!(space(40 * MIB, 4, 4).free_for_quarantine(0), 0, "the estimate is too low");
        assert_eq!(space(8 * MIB, 4, 4).free_for_quarantine(99 * MIB), 24 * MIB, "the estimate is too high");
        assert_eq!(space(33 * MIB, letters + 2, 2).free_for_quarantine(30 * MIB), 2 * MIB);
    }

    #[test]
    fn both_parts_are_of_the_half() {
        let space = DeadLetterSpace::new(&stream(8 * MIB, 4 + 964), 4);
        assert!((space.used_by_quarantine(8 * MIB) - 0.25).abs() < 0.001);
        assert!((space.used_by_consumers() - 0.25).abs() < 0.001);
    }
}
