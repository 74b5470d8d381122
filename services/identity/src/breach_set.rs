//! The mounted breach set (`SVC_BREACH_FILE`): a file of sorted digests, searched in place.
//!
//! Passwords are compared in their exact case. An entry is the first eight bytes of the SHA-1 digest of a password. With
//! 10^9 entries, the false-positive rate is about 1 in 18 billion.

mod build;
mod header;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use sha1::{Digest as _, Sha1};

pub(crate) use self::build::build;
use self::header::{DATA_START, HEADER_LEN, Header, WIDTH};

/// Entries per read: 4 KiB, one memory page.
const BLOCK: u64 = 512;
/// Number of entries that [`BreachSet::open`] checks.
const SAMPLES: u64 = 1024;
/// Number of interpolation steps before the search falls back to bisection, so that unevenly distributed digests are also
/// found in logarithmic time.
const INTERPOLATION_STEPS: u32 = 3;

/// An open breach set file.
#[derive(Debug)]
pub(crate) struct BreachSet {
    file: File,
    header: Header,
}

/// Why a breach set file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("not a breach set file; create one with `svc-identity breach-set build`")]
    NotABreachSet,
    #[error("breach set version {0} is not supported by this binary; rebuild the file")]
    Version(u32),
    #[error("the file has {found} bytes, expected {expected}; copy or build it again")]
    Length { found: u64, expected: u64 },
    #[error("the file is corrupt: its entries are not sorted; copy or build it again")]
    Damaged,
}

impl BreachSet {
    /// Opens a file and checks its header, its length and a sample of its entries.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        if length < DATA_START {
            return Err(OpenError::NotABreachSet);
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

    /// Returns the number of entries.
    pub(crate) fn count(&self) -> u64 {
        self.header.count
    }

    /// Returns whether the set contains the entry.
    pub(crate) fn contains(&self, entry: Entry) -> io::Result<bool> {
        let (mut low, mut high) = (0, self.header.count);
        let (mut low_entry, mut high_entry) = (self.header.first, self.header.last);
        let mut steps = 0;
        while low < high && (low_entry..=high_entry).contains(&entry) {
            let middle = if steps < INTERPOLATION_STEPS {
                low + interpolate(entry.0 - low_entry.0, high_entry.0 - low_entry.0, high - low)
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
        let mut previous = None;
        for position in (0..count).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            let entry = self.entry(position)?;
            if previous.is_some_and(|previous| entry <= previous) || !(first..=last).contains(&entry) {
                return Err(OpenError::Damaged);
            }
            previous = Some(entry);
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

/// The search key of a password: the first eight bytes of its SHA-1 digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry(u64);

impl Entry {
    pub(crate) fn of_password(password: &str) -> Self {
        Self::of_digest(Sha1::digest(password.as_bytes()).into())
    }

    fn of_digest(digest: [u8; 20]) -> Self {
        let mut prefix = [0; size_of::<u64>()];
        prefix.copy_from_slice(&digest[..size_of::<u64>()]);
        Self(u64::from_be_bytes(prefix))
    }
}

/// Returns the expected position of an entry among `whole` evenly distributed entries: `whole * part / of`, below `whole`.
fn interpolate(part: u64, of: u64, whole: u64) -> u64 {
    let position = u128::from(whole) * u128::from(part) / (u128::from(of) + 1);
    // At most `whole`, which is a `u64`.
    u64::try_from(position).unwrap_or(whole)
}

#[cfg(test)]
mod tests;
