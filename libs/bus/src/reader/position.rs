//! A position in the streams of events.

use std::fmt;
use std::str::FromStr;

/// A position: the sequence number of the last event that was read in each stream. It is valid only for the streams in which it
/// was taken: the tag identifies them, so that a position of a deleted stream or of another division is recognized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub(super) tag: u32,
    pub(super) sequences: Vec<u64>,
}

/// The text is not a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be the id of an event of this stream")]
pub struct InvalidPosition;

/// Longest text: 64 streams, each with a number of 20 digits.
const MAX_TEXT: usize = 2048;

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.tag)?;
        self.sequences.iter().try_for_each(|sequence| write!(f, "-{sequence}"))
    }
}

impl FromStr for Position {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        let mut parts = text.split('-');
        let tag = parts.next().filter(|tag| tag.len() == 8).ok_or(InvalidPosition)?;
        let tag = u32::from_str_radix(tag, 16).map_err(|_| InvalidPosition)?;
        let sequences: Result<Vec<u64>, _> = parts.map(str::parse).collect();
        let position = Self { tag, sequences: sequences.map_err(|_| InvalidPosition)? };
        // One spelling per position: `parse` also accepts a sign, leading zeros and capital letters.
        let is_valid =
            text.len() <= MAX_TEXT && !position.sequences.is_empty() && position.to_string() == text;
        is_valid.then_some(position).ok_or(InvalidPosition)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rejects_other_texts() {
        for text in [
            "",
            "1",
            "0000000a",
            "0000000a-",
            "0000000A-1",
            "0000000a-01",
            "0000000a-+1",
            "+000000a-1",
            "0000000a-1-",
        ] {
            assert_eq!(text.parse::<Position>(), Err(InvalidPosition), "{text}");
        }
        assert!(format!("0000000a{}", "-1".repeat(2000)).parse::<Position>().is_err());
    }

    proptest! {
        #[test]
        fn text_round_trips(tag: u32, sequences in prop::collection::vec(any::<u64>(), 1..=64)) {
            let position = Position { tag, sequences };
            prop_assert_eq!(position.to_string().parse(), Ok(position));
        }

        #[test]
        fn any_text_is_rejected_or_round_trips(text in "[0-9a-f]{7,9}(-[0-9+]{0,3}){0,3}") {
            if let Ok(position) = text.parse::<Position>() {
                prop_assert_eq!(position.to_string(), text);
            }
        }
    }
}
