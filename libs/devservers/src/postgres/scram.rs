//! The stored form of a password of a role.

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

/// Returns a SCRAM verifier with one iteration (RFC 5802, section 3), in the form of `pg_authid.rolpassword`. Iterations slow
/// down guessing, which a random password does not need. The default of 4,096 costs an unoptimized client 0.1 s per connection.
pub(super) fn fast_verifier(password: &str) -> String {
    let salt = b"temporary";
    // One iteration: Hi(password, salt, 1) is the first block of PBKDF2.
    let salted = hmac(password.as_bytes(), &[salt.as_slice(), &1_u32.to_be_bytes()].concat());
    let stored_key = Sha256::digest(hmac(&salted, b"Client Key"));
    let server_key = hmac(&salted, b"Server Key");
    let encoded = [salt.as_slice(), &stored_key, &server_key].map(|part| BASE64.encode(part));
    format!("SCRAM-SHA-256$1:{}${}:{}", encoded[0], encoded[1], encoded[2])
}

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    #[expect(clippy::expect_used, reason = "HMAC accepts keys of any length")]
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.chain_update(text).finalize().into_bytes().into()
}
