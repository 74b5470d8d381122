//! A mounted set of passwords known from breaches, larger than the built-in one: a file of sorted digests, read where a
//! search needs it and nowhere else.
//!
//! Passwords are compared as people type them. An entry is the first eight bytes of the SHA-1 of a password: among a
//! thousand million entries, a password that is none of them is refused with a probability of one in 18 thousand million.

mod build;
mod header;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use sha1::{Digest as _, Sha1};

pub(crate) use self::build::build;
use self::header::{DATA_START, HEADER_LEN, Header, WIDTH};

/// How many entries are read at once: a page of the machine.
const BLOCK: u64 = 512;
/// How many entries are looked at when the file is opened.
const SAMPLES: u64 = 1024;
/// After so many guesses that did not hit, the search halves what is left: a file whose digests are not spread evenly takes
/// longer, and never long.
const GUESSES: u32 = 3;

/// An open file.
#[derive(Debug)]
pub(crate) struct BreachSet {
    file: File,
    header: Header,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("it is no breach set; `svc-identity breach-set build` makes one")]
    NotASet,
    #[error("it is a breach set of version {0}, which this binary does not know; build it anew")]
    Version(u32),
    #[error("it has {found} bytes where it should have {expected}: it was cut off; copy or build it anew")]
    Length { found: u64, expected: u64 },
    #[error("it is damaged: its entries are not in order; copy or build it anew")]
    Damaged,
}

impl BreachSet {
    /// Opens a file and looks at its header, its length, and at entries here and there.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        if length < DATA_START {
            return Err(OpenError::NotASet);
        }
        let mut bytes = [0; HEADER_LEN];
        file.read_exact_at(&mut bytes, 0)?;
        let header = Header::parse(&bytes)?;
        let expected = header.count.checked_mul(WIDTH).and_then(|entries| entries.checked_add(DATA_START));
        if expected != Some(length) {
            return Err(OpenError::Length { found: length, expected: expected.unwrap_or(u64::MAX) });
        }
        let set = Self { file, header };
        set.check_samples()?;
        Ok(set)
    }

    /// How many entries it has.
    pub(crate) fn count(&self) -> u64 {
        self.header.count
    }

    /// Whether it has an entry.
    pub(crate) fn contains(&self, entry: Entry) -> io::Result<bool> {
        let (mut low, mut high) = (0, self.header.count);
        let (mut low_entry, mut high_entry) = (self.header.first, self.header.last);
        let mut steps = 0;
        while low < high && (low_entry..=high_entry).contains(&entry) {
            let middle = if steps < GUESSES {
                low + share(entry.0 - low_entry.0, high_entry.0 - low_entry.0, high - low)
            } else {
                low + (high - low) / 2
            };
            steps += 1;
            let start = middle.saturating_sub(BLOCK / 2).clamp(low, high.saturating_sub(BLOCK).max(low));
            let block = self.read(start, BLOCK.min(high - start))?;
            match (block.first(), block.last()) {
                (Some(first), _) if entry < *first => (high, high_entry) = (start, *first),
                (_, Some(last)) if entry > *last => (low, low_entry) = (start + BLOCK, *last),
                _ => return Ok(block.binary_search(&entry).is_ok()),
            }
        }
        Ok(false)
    }

    fn check_samples(&self) -> Result<(), OpenError> {
        let Header { count, first, last } = self.header;
        let step = (count / SAMPLES).max(1);
        let mut before = None;
        for position in (0..count).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            let entry = self.entry(position)?;
            if before.is_some_and(|before| entry <= before) || !(first..=last).contains(&entry) {
                return Err(OpenError::Damaged);
            }
            before = Some(entry);
        }
        if self.entry(0)? != first || self.entry(count - 1)? != last {
            return Err(OpenError::Damaged);
        }
        Ok(())
    }

    fn entry(&self, position: u64) -> io::Result<Entry> {
        let mut bytes = [0; size_of::<u64>()];
        self.file.read_exact_at(&mut bytes, DATA_START + position * WIDTH)?;
        Ok(Entry(u64::from_be_bytes(bytes)))
    }

    fn read(&self, start: u64, count: u64) -> io::Result<Vec<Entry>> {
        let mut bytes = vec![0; usize::try_from(count * WIDTH).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, DATA_START + start * WIDTH)?;
        let (entries, _) = bytes.as_chunks();
        Ok(entries.iter().map(|entry| Entry(u64::from_be_bytes(*entry))).collect())
    }
}

/// What a password is looked up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry(u64);

impl Entry {
    /// The entry that a password would have.
    pub(crate) fn of_password(password: &str) -> Self {
        Self::of_digest(Sha1::digest(password.as_bytes()).into())
    }

    fn of_digest(digest: [u8; 20]) -> Self {
        let mut prefix = [0; size_of::<u64>()];
        prefix.copy_from_slice(&digest[..size_of::<u64>()]);
        Self(u64::from_be_bytes(prefix))
    }
}

/// `whole * part / of`, or less than `whole` in any case: where among `whole` evenly spread entries one would stand.
fn share(part: u64, of: u64, whole: u64) -> u64 {
    let place = u128::from(whole) * u128::from(part) / (u128::from(of) + 1);
    // Not above `whole`, which is a `u64`.
    u64::try_from(place).unwrap_or(whole)
}

#[cfg(test)]
mod tests;
