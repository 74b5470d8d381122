//! A set of line numbers, stored as ranges.

use serde::{Deserialize, Serialize};

/// Line numbers as ranges, in order and not adjacent. Lines that are settled in the order of the input are one range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u64, u64)>")]
pub(super) struct LineRanges(Vec<(u64, u64)>);

impl LineRanges {
    /// Adds the lines from `first` to `last`.
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

    pub(super) fn contains(&self, line: u64) -> bool {
        let index = self.0.partition_point(|&(_, end)| end < line);
        self.0.get(index).is_some_and(|&(start, _)| start <= line)
    }

    /// Number of lines.
    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }
}

impl TryFrom<Vec<(u64, u64)>> for LineRanges {
    type Error = &'static str;

    fn try_from(ranges: Vec<(u64, u64)>) -> Result<Self, Self::Error> {
        let is_valid = ranges.iter().all(|&(first, last)| 1 <= first && first <= last && last < u64::MAX / 2)
            && ranges.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0);
        if is_valid { Ok(Self(ranges)) } else { Err("line ranges are not in order") }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_of_a_file_are_in_order_and_not_adjacent() {
        let is_valid = |json: &str| serde_json::from_str::<LineRanges>(json).is_ok();
        assert!(is_valid("[]") && is_valid("[[1,2],[4,4]]"));
        for json in ["[[0,1]]", "[[2,1]]", "[[4,5],[1,2]]", "[[1,2],[3,4]]", "[[1,18446744073709551615]]"] {
            assert!(!is_valid(json), "{json}");
        }
    }

    proptest! {
        #[test]
        fn contains_exactly_the_inserted_lines_in_as_few_ranges_as_possible(
            ranges in prop::collection::vec((1_u64..60, 0_u64..9), 0..12),
        ) {
            let (mut lines, mut expected) = (LineRanges::default(), BTreeSet::new());
            for (first, length) in ranges {
                lines.insert(first, first + length);
                expected.extend(first..=first + length);
            }
            for line in 0..80 {
                prop_assert_eq!(lines.contains(line), expected.contains(&line), "{}", line);
            }
            prop_assert_eq!(lines.count(), expected.len() as u64);
            prop_assert!(lines.0.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "{:?}", lines);
        }
    }
}
