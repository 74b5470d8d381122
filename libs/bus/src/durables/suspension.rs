//! The suspension of a login that sends too many messages. It is in the metadata of the durable, so that the keepers of all servers follow
//! it, and ends by itself.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use contract::consumers::ConsumerSuspension;
use serde_json::json;

/// Key of the metadata. It remains after the end, for the duration of the next suspension.
const SUSPENSION: &str = "svc-suspension";
/// A suspension within this time after the last one is twice as long.
const REPEATED_WITHIN: Duration = Duration::from_hours(1);
/// Maximum of such a duration, unless the first one is longer.
const MAX_DURATION: Duration = Duration::from_hours(1);

/// Returns a suspension that starts now. `last` is the previous one of the login.
pub(super) fn start(
    last: Option<&ConsumerSuspension>,
    first: Duration,
    messages_per_second: u64,
    now: DateTime<Utc>,
) -> ConsumerSuspension {
    let repeated = last.filter(|last| now < last.until + REPEATED_WITHIN);
    let last = repeated.and_then(|last| (last.until - last.since).to_std().ok());
    let duration = last.map_or(first, |last| (2 * last).min(MAX_DURATION).max(first));
    ConsumerSuspension { since: now, until: now + duration, messages_per_second }
}

pub(super) fn read(metadata: &HashMap<String, String>) -> Option<ConsumerSuspension> {
    serde_json::from_str(metadata.get(SUSPENSION)?).ok()
}

pub(super) fn write(suspension: &ConsumerSuspension, metadata: &mut HashMap<String, String>) {
    metadata.insert(SUSPENSION.to_owned(), json!(suspension).to_string());
}

pub(super) fn remove(metadata: &mut HashMap<String, String>) {
    metadata.remove(SUSPENSION);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_suspensions_last_longer_up_to_an_hour() {
        let (first, mut now) = (Duration::from_mins(1), DateTime::UNIX_EPOCH);
        let mut last: Option<ConsumerSuspension> = None;
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            let next = start(last.as_ref(), first, 7, now);
            assert_eq!((next.until - now).num_minutes(), minutes);
            assert!(next.is_active(now) && !next.is_active(next.until));
            now = next.until + Duration::from_mins(59);
            last = Some(next);
        }
        let later = last.unwrap().until + REPEATED_WITHIN;
        assert_eq!((start(last.as_ref(), first, 7, later).until - later).num_minutes(), 1);
    }

    #[test]
    fn the_metadata_contain_the_suspension_until_it_is_removed() {
        let suspension = start(None, Duration::from_mins(1), 7, DateTime::UNIX_EPOCH);
        let mut metadata = HashMap::new();
        write(&suspension, &mut metadata);
        assert_eq!(read(&metadata), Some(suspension));
        remove(&mut metadata);
        assert_eq!(read(&metadata), None);
    }
}
