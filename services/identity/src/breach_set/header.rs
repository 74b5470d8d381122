//! The header of a breach set file, all numbers big-endian: magic, version, entry width, number of entries, first entry, last
//! entry, CRC-32 of the preceding bytes.

use super::{Entry, OpenError};

/// Length of the header in bytes. The entries follow it.
pub(super) const HEADER_LEN: usize = 48;
pub(super) const DATA_START: u64 = HEADER_LEN as u64;
/// Length of an entry in bytes.
pub(super) const WIDTH: u64 = 8;

const MAGIC: &[u8; 12] = b"svc-breached";
const VERSION: u32 = 1;

/// The variable part of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) count: u64,
    pub(super) first: Entry,
    pub(super) last: Entry,
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER_LEN] {
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

    pub(super) fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, OpenError> {
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
