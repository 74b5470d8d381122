//! A position in the streams of events.

use crate::stored::Place;

/// A position: the last event that was read in each stream. It is valid only for the streams in which it was taken: the tag identifies
/// them, so that a position of a deleted stream or of another division is recognized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub(super) tag: u32,
    pub(super) places: Vec<Place>,
}

impl Position {
    /// Returns the position as bytes: the tag, and of each place the number and the mark, in big endian. The length depends on
    /// the number of streams only.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.tag.to_be_bytes().to_vec();
        for place in &self.places {
            bytes.extend(place.to_bytes());
        }
        bytes
    }

    /// Returns the position of these bytes, or `None` if they are not those of a position.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (tag, places) = bytes.split_first_chunk()?;
        let (places, rest) = places.as_chunks();
        let is_valid = !places.is_empty() && rest.is_empty();
        is_valid.then(|| Self {
            tag: u32::from_be_bytes(*tag),
            places: places.iter().map(Place::from_bytes).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_round_trip(tag: u32, places in prop::collection::vec(any::<(u64, u32)>(), 1..=64)) {
            let places = places.into_iter().map(|(sequence, mark)| Place { sequence, mark }).collect();
            let position = Position { tag, places };
            prop_assert_eq!(Position::from_bytes(&position.to_bytes()), Some(position));
        }

        #[test]
        fn any_bytes_are_rejected_or_round_trip(bytes in prop::collection::vec(any::<u8>(), 0..42)) {
            if let Some(position) = Position::from_bytes(&bytes) {
                prop_assert_eq!(position.to_bytes(), bytes);
            }
        }
    }
}
