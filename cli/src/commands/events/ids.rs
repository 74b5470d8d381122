//! Ids for events that bring none, so that sending a file twice is harmless.

use std::fs::File;
use std::io::{self, BufReader, Read};

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The namespace of ids made from a file and a line: UUIDv5 of `svc.events.line` in the DNS namespace of RFC 9562.
const NAMESPACE: Uuid = Uuid::from_u128(0x94b4_da3d_c139_5ff3_921b_6f8a_b463_b7c4);

/// Where ids come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ids {
    /// From what the file holds: the same file gives the same ids, today and in a year.
    OfFile([u8; 32]),
    /// From chance: each run gives others.
    Random,
}

impl Ids {
    /// Reads the file to its end. Its name and its place do not matter.
    pub(super) fn of_file(file: &File) -> io::Result<Self> {
        let mut digest = Sha256::new();
        let mut reader = BufReader::with_capacity(256 * 1024, file);
        let mut chunk = vec![0; 256 * 1024];
        loop {
            match reader.read(&mut chunk)? {
                0 => return Ok(Self::OfFile(digest.finalize().into())),
                read => digest.update(&chunk[..read]),
            }
        }
    }

    /// The id of the event on this line.
    pub(super) fn of_line(&self, line: u64) -> String {
        match self {
            Self::OfFile(digest) => {
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
    fn the_namespace_is_what_its_comment_says() {
        assert_eq!(NAMESPACE, Uuid::new_v5(&Uuid::NAMESPACE_DNS, b"svc.events.line"));
    }

    #[test]
    fn the_id_of_a_line_never_changes_and_no_two_are_equal() {
        let ids = Ids::OfFile([7; 32]);
        assert_eq!(ids.of_line(1), "fa68c564-af40-50ca-861e-e639e7b1b384");
        assert_ne!(ids.of_line(1), ids.of_line(11));
        assert_ne!(ids.of_line(1), Ids::OfFile([8; 32]).of_line(1));
        assert_ne!(Ids::Random.of_line(1), Ids::Random.of_line(1));
    }
}
