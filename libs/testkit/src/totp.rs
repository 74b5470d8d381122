//! An authenticator app.

use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::BASE32_NOPAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;

/// Returns the code that an authenticator app shows for a Base32 secret at a Unix time (RFC 6238: SHA-1, 30 s, six digits).
///
/// # Panics
/// The secret is not Base32.
pub fn totp(secret: &str, time: i64) -> String {
    let key = BASE32_NOPAD.decode(secret.as_bytes()).expect("a Base32 secret");
    let mac = Hmac::<Sha1>::new_from_slice(&key).expect("HMAC accepts keys of every length");
    let digest = mac.chain_update((time / 30).to_be_bytes()).finalize().into_bytes();
    let offset = usize::from(digest[19] % 16);
    let number = digest[offset..offset + 4].iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    format!("{:06}", (number & 0x7fff_ffff) % 1_000_000)
}

/// Returns the code that an authenticator app shows a number of steps from now.
///
/// # Panics
/// The secret is not Base32.
pub fn totp_after(secret: &str, steps: i64) -> String {
    totp(secret, 30 * (totp_step() + steps))
}

/// Returns the number of the current time step.
///
/// # Panics
/// The clock is wrong.
#[expect(clippy::disallowed_methods, reason = "the clock of the phone")]
pub fn totp_step() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    i64::try_from(now.as_secs()).expect("a time in this millennium") / 30
}
