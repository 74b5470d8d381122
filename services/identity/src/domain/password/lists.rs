//! The built-in lists of common and breached passwords (see `data/README.md`).
//!
//! Both lists are sorted and searched in the read-only pages of the binary: a lookup takes about twenty steps, allocates
//! nothing, and only the accessed pages are resident. `build.rs` verifies order and size, so there is no check at start.

use std::cmp::Ordering;

use sha1::{Digest as _, Sha1};

/// One password per line, sorted by bytes, each line terminated.
static COMMON: &[u8] = include_bytes!("../../../data/common-12plus.txt");
/// The first eight bytes of the SHA-1 digest of each password, sorted.
static BREACHED: &[u8] = include_bytes!("../../../data/breached-12plus.sha1p64.bin");

const PREFIX: usize = 8;

/// Returns whether the list of common passwords contains a password, given in lower case and trimmed.
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

/// Returns whether the built-in breach set contains a password, given in lower case and trimmed.
pub(super) fn is_breached(folded: &str) -> bool {
    let digest = Sha1::digest(folded.as_bytes());
    let (prefixes, _) = BREACHED.as_chunks::<PREFIX>();
    prefixes.binary_search_by(|prefix| prefix.as_slice().cmp(&digest[..PREFIX])).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_every_common_password_and_no_other() {
        for line in COMMON.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            let line = std::str::from_utf8(line).unwrap();
            assert!(is_common(line), "{line}");
        }
        for other in ["", "\n", "zzzzzzzzzzzzzzzzzzzzzzzz", "correct-horse-battery-9"] {
            assert!(!is_common(other), "{other}");
        }
    }

    #[test]
    fn finds_breached_passwords_and_no_other() {
        for breached in ["iloveyou1234", "qwertyuiop123", "123456789abcd"] {
            assert!(is_breached(breached), "{breached}");
        }
        for other in ["", "correct-horse-battery-9 unbreached"] {
            assert!(!is_breached(other), "{other}");
        }
    }
}
