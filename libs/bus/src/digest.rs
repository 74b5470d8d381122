//! Short digests that stand for a source id where its own letters may not.

use data_encoding::BASE32_NOPAD;
use sha2::{Digest, Sha256};

/// Ten bytes are 16 letters without padding, and enough that two sources of a tenant never meet.
const SHORT_BYTES: usize = 10;

/// Base32 of the first ten bytes of SHA-256: 16 of `A-Z2-7`.
pub(crate) fn short(text: &str) -> String {
    let digest = Sha256::digest(text);
    BASE32_NOPAD.encode(digest.get(..SHORT_BYTES).unwrap_or(&digest))
}

/// Base32 of SHA-256: 52 of `A-Z2-7`.
pub(crate) fn long(text: &str) -> String {
    BASE32_NOPAD.encode(&Sha256::digest(text))
}
