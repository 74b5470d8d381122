//! State of a stream at the start of a read: which positions are still stored.

use async_nats::datetime::DateTime as NatsTime;
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::DeliverPolicy;
use chrono::{DateTime, Utc};
use sha2::{Digest as _, Sha256};

use crate::stored::{Place, nats_time, policy_since};

use super::{ReadError, Start};

/// State of one stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamState {
    created: i128,
    /// Number of the first stored message.
    first: u64,
    first_time: NatsTime,
    /// The last message, also if it is not stored any more.
    pub(super) last: Place,
}

/// Where the read of one stream starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CursorStart {
    New,
    All,
    After(Place),
    Since(DateTime<Utc>),
}

impl StreamState {
    pub(super) async fn query(context: &Context, stream: &str) -> Result<Self, ReadError> {
        let stream = context.get_stream(stream).await.map_err(ReadError::from_server)?;
        let info = stream.cached_info();
        Ok(Self {
            created: info.created.unix_timestamp_nanos(),
            first: info.state.first_sequence,
            first_time: info.state.first_timestamp,
            last: Place::new(info.state.last_sequence, info.state.last_timestamp),
        })
    }

    /// Returns whether every message after this number is stored.
    pub(super) fn contains_all_after(&self, sequence: u64) -> bool {
        sequence <= self.last.sequence && self.first <= sequence.saturating_add(1)
    }

    /// Returns whether a message of this time or later may have been removed.
    fn may_lack_messages_since(&self, time: DateTime<Utc>) -> bool {
        let is_empty = self.first > self.last.sequence;
        self.first > 1 && (is_empty || nats_time(time) < self.first_time)
    }

    /// The last message that is not stored any more.
    pub(super) fn last_removed(&self) -> Place {
        Place::without_time(self.first.saturating_sub(1))
    }
}

impl CursorStart {
    /// Returns the start of the read in a stream, and whether messages after the start are not stored any more.
    pub(super) fn new(start: &Start, tag: u32, index: usize, state: &StreamState) -> (Self, bool) {
        match start {
            Start::New => (Self::New, false),
            Start::Since(time) => (Self::Since(*time), state.may_lack_messages_since(*time)),
            Start::After(position) => {
                let known = position.places.get(index).filter(|_| position.tag == tag);
                match known {
                    // A number after the last one belongs to a stream that was replaced by an older copy.
                    Some(place) if place.sequence <= state.last.sequence => {
                        (Self::After(*place), !state.contains_all_after(place.sequence))
                    }
                    _ => (Self::All, true),
                }
            }
        }
    }

    pub(super) async fn policy(self, context: &Context, stream: &str) -> Result<DeliverPolicy, ReadError> {
        Ok(match self {
            Self::New => DeliverPolicy::New,
            Self::All => DeliverPolicy::All,
            // The server replaces the number of a removed message by the first one.
            Self::After(place) => DeliverPolicy::ByStartSequence { start_sequence: place.sequence + 1 },
            Self::Since(time) => policy_since(context, stream, time).await.map_err(ReadError::from_server)?,
        })
    }

    /// The position in a stream of which no event matches the filter.
    pub(super) fn place_of_unread(self, state: &StreamState) -> Place {
        match self {
            Self::After(place) => place,
            _ => state.last,
        }
    }
}

/// Returns a number that identifies these streams: it changes with their names and when one of them is created again.
pub(super) fn tag<'a>(streams: impl Iterator<Item = (&'a str, &'a StreamState)>) -> u32 {
    let mut hasher = Sha256::new();
    for (name, state) in streams {
        hasher.update(name);
        hasher.update(state.created.to_be_bytes());
    }
    let digest = hasher.finalize();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

#[cfg(test)]
mod tests {
    use super::super::Position;
    use super::*;

    fn state(first: u64, last: u64) -> StreamState {
        let first_time = nats_time(DateTime::from_timestamp(10, 0).unwrap());
        StreamState { created: 7, first, first_time, last: Place::without_time(last) }
    }

    #[test]
    fn a_position_is_lost_if_a_later_message_was_removed_or_the_stream_is_another_one() {
        let place = Place::without_time;
        let after = |tag, sequence| Start::After(Position { tag, places: vec![place(sequence)] });
        let start = |start: Start, state: StreamState| CursorStart::new(&start, 1, 0, &state);
        assert_eq!(start(after(1, 4), state(5, 9)), (CursorStart::After(place(4)), false));
        assert_eq!(start(after(1, 3), state(5, 9)), (CursorStart::After(place(3)), true));
        assert_eq!(start(after(1, 9), state(10, 9)), (CursorStart::After(place(9)), false));
        assert_eq!(start(after(1, 0), state(0, 0)), (CursorStart::After(place(0)), false));
        assert_eq!(start(after(1, 10), state(5, 9)), (CursorStart::All, true));
        assert_eq!(start(after(1, u64::MAX), state(5, 9)), (CursorStart::All, true));
        assert_eq!(start(after(2, 7), state(5, 9)), (CursorStart::All, true));
        let short = Start::After(Position { tag: 1, places: Vec::new() });
        assert_eq!(start(short, state(5, 9)), (CursorStart::All, true));
    }

    #[test]
    fn a_time_before_the_first_stored_message_is_lost_unless_none_was_removed() {
        let (before, after) =
            (DateTime::from_timestamp(9, 0).unwrap(), DateTime::from_timestamp(11, 0).unwrap());
        let is_lost = |time, state| CursorStart::new(&Start::Since(time), 1, 0, &state).1;
        assert!(is_lost(before, state(5, 9)) && !is_lost(after, state(5, 9)));
        assert!(!is_lost(before, state(1, 9)) && !is_lost(before, state(0, 0)));
        assert!(is_lost(after, state(10, 9)), "the time of the removed messages is unknown");
    }

    #[test]
    fn the_tag_changes_with_names_and_creation() {
        let other = StreamState { created: 8, ..state(1, 1) };
        let tags = [
            tag([("UDM", &state(1, 1))].into_iter()),
            tag([("UDM", &other)].into_iter()),
            tag([("UDM_00_31", &state(1, 1))].into_iter()),
        ];
        assert_eq!(tag([("UDM", &state(5, 9))].into_iter()), tags[0]);
        assert!(tags[0] != tags[1] && tags[0] != tags[2]);
    }
}
