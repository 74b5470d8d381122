//! The mounted breach set (`SVC_BREACH_FILE`): a file of sorted digests, searched in place.
//!
//! Passwords are compared in their exact case. An entry is the first eight bytes of the SHA-1 digest of a password. With
//! 10^9 entries, the false-positive rate is about 1 in 18 billion.
//!
//! The entries follow a header, all numbers big-endian: magic, version, entry width, number of entries, first entry, last
//! entry, CRC-32 of the preceding bytes.

mod build;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use sha1::{Digest as _, Sha1};

pub(crate) use self::build::build;

/// Length of the header in bytes. The entries follow it.
const HEADER_LEN: usize = 48;
const DATA_START: u64 = HEADER_LEN as u64;
/// Length of an entry in bytes.
const WIDTH: u64 = 8;

const MAGIC: &[u8; 12] = b"svc-breached";
const VERSION: u32 = 1;

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
    pub(crate) fn from_password(password: &str) -> Self {
        Self::from_digest(Sha1::digest(password.as_bytes()).into())
    }

    fn from_digest(digest: [u8; 20]) -> Self {
        let mut prefix = [0; size_of::<u64>()];
        prefix.copy_from_slice(&digest[..size_of::<u64>()]);
        Self(u64::from_be_bytes(prefix))
    }
}

/// The variable part of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    count: u64,
    first: Entry,
    last: Entry,
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..12].copy_from_slice(MAGIC);
        bytes[12..16].copy_from_slice(&VERSION.to_be_bytes());
        bytes[16..20].copy_from_slice(&8_u32.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.count.to_be_bytes());
        bytes[28..36].copy_from_slice(&self.first.0.to_be_bytes());
        bytes[36..44].copy_from_slice(&self.last.0.to_be_bytes());
        let checksum = crc32fast::hash(&bytes[..44]);
        bytes[44..].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, OpenError> {
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(number)
        };
        if bytes[..12] != *MAGIC {
            return Err(OpenError::NotABreachSet);
        }
        // Version and entry width are adjacent 32-bit numbers.
        let version = u32::try_from(number(12) >> 32).unwrap_or(u32::MAX);
        if version != VERSION {
            return Err(OpenError::Version(version));
        }
        let header = Self { count: number(20), first: Entry(number(28)), last: Entry(number(36)) };
        if header.to_bytes() != *bytes || header.count == 0 {
            return Err(OpenError::Damaged);
        }
        Ok(header)
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
