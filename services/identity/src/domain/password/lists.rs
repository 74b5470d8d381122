//! The built-in lists: common passwords, and passwords known from breaches (see `data/README.md`).
//!
//! Both are sorted and searched in place, inside the binary's read-only pages: a look-up takes about twenty steps,
//! allocates nothing, and only the pages that are touched are ever resident. The build fails when one is out of order or not
//! whole (`build.rs`); what is part of the binary cannot change after that, so nothing is left to check at the start.

use std::cmp::Ordering;

use sha1::{Digest as _, Sha1};

/// A line each, sorted by bytes, each line ended.
static COMMON: &[u8] = include_bytes!("../../../data/common-12plus.txt");
/// The first eight bytes of SHA-1 over each entry, sorted.
static BREACHED: &[u8] = include_bytes!("../../../data/breached-12plus.sha1p64.bin");

const PREFIX: usize = 8;

/// Whether the list of common passwords has this one, in lower case and trimmed.
pub(super) fn is_common(folded: &str) -> bool {
    let (mut low, mut high) = (0, COMMON.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let start = COMMON[low..middle].iter().rposition(|b| *b == b'\n').map_or(low, |at| low + at + 1);
        let end = COMMON[middle..].iter().position(|b| *b == b'\n').map_or(high, |at| middle + at);
        match COMMON[start..end].cmp(folded.as_bytes()) {
            Ordering::Equal => return true,
            Ordering::Less => low = end + 1,
            Ordering::Greater => high = start,
        }
    }
    false
}

/// Whether the breach set has this one, in lower case and trimmed.
pub(super) fn is_breached(folded: &str) -> bool {
    let digest = Sha1::digest(folded.as_bytes());
    let (prefixes, _) = BREACHED.as_chunks::<PREFIX>();
    prefixes.binary_search_by(|prefix| prefix.as_slice().cmp(&digest[..PREFIX])).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_common_password_is_found_and_its_neighbours_are_not() {
        for line in COMMON.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            let line = std::str::from_utf8(line).unwrap();
            assert!(is_common(line), "{line}");
        }
        for other in ["", "\n", "zzzzzzzzzzzzzzzzzzzzzzzz", "correct-horse-battery-9"] {
            assert!(!is_common(other), "{other}");
        }
    }

    #[test]
    fn breached_passwords_are_found_and_others_are_not() {
        for breached in ["iloveyou1234", "qwertyuiop123", "123456789abcd"] {
            assert!(is_breached(breached), "{breached}");
        }
        for other in ["", "correct-horse-battery-9 of our own"] {
            assert!(!is_breached(other), "{other}");
        }
    }
}
