//! Ids for events without `event_id`. The ids of a file are deterministic, so that sending it twice is harmless.

use std::fs::File;
use std::io::{self, BufReader, Read};

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Namespace of ids derived from a file and a line: UUIDv5 of `svc.events.line` in the DNS namespace of RFC 9562.
const NAMESPACE: Uuid = Uuid::from_u128(0x94b4_da3d_c139_5ff3_921b_6f8a_b463_b7c4);

/// Source of event ids.
#[derive(Clone, Copy, Debug)]
pub(super) enum EventIds {
    /// Derived from the SHA-256 of a file and the line.
    Deterministic([u8; 32]),
    /// Different in each run.
    Random,
}

impl EventIds {
    /// Reads the file to its end. The ids do not depend on its name.
    pub(super) fn from_file(file: &File) -> io::Result<Self> {
        let mut digest = Sha256::new();
        let mut reader = BufReader::with_capacity(256 * 1024, file);
        let mut chunk = vec![0; 256 * 1024];
        loop {
            match reader.read(&mut chunk)? {
                0 => return Ok(Self::Deterministic(digest.finalize().into())),
                read => digest.update(&chunk[..read]),
            }
        }
    }

    /// Id of the event on this line.
    pub(super) fn for_line(&self, line: u64) -> String {
        match self {
            Self::Deterministic(digest) => {
                let name = [digest.as_slice(), b":", line.to_string().as_bytes()].concat();
                Uuid::new_v5(&NAMESPACE, &name).to_string()
            }
            Self::Random => transport::new_event_id(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_is_derived_as_documented() {
        assert_eq!(NAMESPACE, Uuid::new_v5(&Uuid::NAMESPACE_DNS, b"svc.events.line"));
    }

    #[test]
    fn deterministic_ids_are_stable_and_differ_by_file_and_line() {
        let ids = EventIds::Deterministic([7; 32]);
        assert_eq!(ids.for_line(1), "fa68c564-af40-50ca-861e-e639e7b1b384");
        assert_ne!(ids.for_line(1), ids.for_line(11));
        assert_ne!(ids.for_line(1), EventIds::Deterministic([8; 32]).for_line(1));
        assert_ne!(EventIds::Random.for_line(1), EventIds::Random.for_line(1));
    }
}
