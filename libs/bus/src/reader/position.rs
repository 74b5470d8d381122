//! A position in the streams of events.

/// A position: the sequence number of the last event that was read in each stream. It is valid only for the streams in which it
/// was taken: the tag identifies them, so that a position of a deleted stream or of another division is recognized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub(super) tag: u32,
    pub(super) sequences: Vec<u64>,
}

impl Position {
    /// Returns the position as bytes: the tag and the numbers, in big endian. The length depends on the number of streams only.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.tag.to_be_bytes().to_vec();
        self.sequences.iter().for_each(|sequence| bytes.extend(sequence.to_be_bytes()));
        bytes
    }

    /// Returns the position of these bytes, or `None` if they are not those of a position.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (tag, sequences) = bytes.split_first_chunk()?;
        let (sequences, rest) = sequences.as_chunks();
        let is_valid = !sequences.is_empty() && rest.is_empty();
        let sequences = sequences.iter().map(|sequence| u64::from_be_bytes(*sequence)).collect();
        is_valid.then(|| Self { tag: u32::from_be_bytes(*tag), sequences })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_round_trip(tag: u32, sequences in prop::collection::vec(any::<u64>(), 1..=64)) {
            let position = Position { tag, sequences };
            prop_assert_eq!(Position::from_bytes(&position.to_bytes()), Some(position));
        }

        #[test]
        fn any_bytes_are_rejected_or_round_trip(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(position) = Position::from_bytes(&bytes) {
                prop_assert_eq!(position.to_bytes(), bytes);
            }
        }
    }
}
