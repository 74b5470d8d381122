//! A set of numbers of events, stored as ranges.

use serde::{Deserialize, Serialize};

/// Numbers as ranges, in order and not adjacent. Events that are settled in the order of the input are one range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u64, u64)>")]
pub(super) struct ItemRanges(Vec<(u64, u64)>);

impl ItemRanges {
    /// Adds the numbers from `first` to `last`.
    pub(super) fn insert(&mut self, first: u64, last: u64) {
        if first > last {
            return;
        }
        // Ranges that overlap the new one or are adjacent to it.
        let from = self.0.partition_point(|&(_, end)| end + 1 < first);
        let to = self.0.partition_point(|&(start, _)| start <= last + 1);
        let merged = self.0[from..to]
            .iter()
            .fold((first, last), |(first, last), &(start, end)| (first.min(start), last.max(end)));
        self.0.splice(from..to, [merged]);
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        let index = self.0.partition_point(|&(_, end)| end < number);
        self.0.get(index).is_some_and(|&(start, _)| start <= number)
    }

    /// How many numbers there are.
    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }
}

impl TryFrom<Vec<(u64, u64)>> for ItemRanges {
    type Error = &'static str;

    fn try_from(ranges: Vec<(u64, u64)>) -> Result<Self, Self::Error> {
        let is_valid = ranges.iter().all(|&(first, last)| 1 <= first && first <= last && last < u64::MAX / 2)
            && ranges.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0);
        if is_valid { Ok(Self(ranges)) } else { Err("ranges are not in order") }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_of_a_file_are_in_order_and_not_adjacent() {
        let is_valid = |json: &str| serde_json::from_str::<ItemRanges>(json).is_ok();
        assert!(is_valid("[]") && is_valid("[[1,2],[4,4]]"));
        for json in ["[[0,1]]", "[[2,1]]", "[[4,5],[1,2]]", "[[1,2],[3,4]]", "[[1,18446744073709551615]]"] {
            assert!(!is_valid(json), "{json}");
        }
    }

    proptest! {
        #[test]
        fn contains_exactly_the_inserted_numbers_in_as_few_ranges_as_possible(
            ranges in prop::collection::vec((1_u64..60, 0_u64..9), 0..12),
        ) {
            let (mut numbers, mut expected) = (ItemRanges::default(), BTreeSet::new());
            for (first, length) in ranges {
                numbers.insert(first, first + length);
                expected.extend(first..=first + length);
            }
            for number in 0..80 {
                prop_assert_eq!(numbers.contains(number), expected.contains(&number), "{}", number);
            }
            prop_assert_eq!(numbers.count(), expected.len() as u64);
            prop_assert!(numbers.0.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "{:?}", numbers);
        }
    }
}
