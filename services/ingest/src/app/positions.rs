//! Positions in the streams as opaque text. The numbers of a stream count the events of all tenants, so a position is encrypted with a
//! key of its tenant: another tenant can neither read nor use it.
//!
//! The encryption is deterministic, so that a position has one text: a synthetic initialization vector (as in RFC 5297) authenticates the
//! position and selects the key stream. Both use HMAC-SHA-256.

use authn::ServiceSecret;
use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tenancy::TenantId;

/// Bytes of the initialization vector.
const VECTOR: usize = 16;
/// Longest text: a position in 64 streams.
const MAX_TEXT: usize = 1052;
/// Bits of one half of a number of a tenant. Larger numbers of a stream are not replaced: it would have had to number 10^12 messages.
const HALF: u32 = 20;
const MASK: u64 = (1 << HALF) - 1;

/// What a position is a position in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Events,
    Audit,
    Quarantine,
}

/// The keys of positions, which follow from the service token. A position is valid as long as its token is.
#[derive(Clone)]
pub(crate) struct PositionKeys(ServiceSecret);

/// The keys of one tenant. The first one is that of new positions.
#[derive(Clone)]
pub(crate) struct PositionKey(Vec<Hmac<Sha256>>);

impl PositionKeys {
    pub(crate) fn new(secret: ServiceSecret) -> Self {
        Self(secret)
    }

    /// Returns the keys of a tenant, or those of the platform administrator, who reads all tenants.
    pub(crate) fn key(&self, stream: Stream, tenant: Option<&TenantId>) -> PositionKey {
        let stream = match stream {
            Stream::Events => "events",
            Stream::Audit => "audit",
            Stream::Quarantine => "quarantine",
        };
        // A tenant id has no colon.
        let purpose = format!("position:{stream}:{}", tenant.map_or("", TenantId::as_str));
        let keys = self.0.derive(&purpose);
        // HMAC accepts a key of any length.
        PositionKey(keys.filter_map(|key| Hmac::new_from_slice(&key).ok()).collect())
    }
}

impl PositionKey {
    /// Returns the numbers of the tenant.
    pub(crate) fn numbers(&self) -> Numbers {
        Numbers(self.0.first().cloned())
    }

    /// Returns the text of a position.
    pub(crate) fn seal(&self, position: &[u8]) -> String {
        let Some(key) = self.0.first() else { return String::new() };
        let vector = vector(key, position);
        let mut sealed = [&vector, position].concat();
        apply(key, &vector, sealed.get_mut(VECTOR..).unwrap_or_default());
        BASE64URL_NOPAD.encode(&sealed)
    }

    /// Returns the position of a text, or `None` if it is not a position of this tenant.
    pub(crate) fn open(&self, text: &str) -> Option<Vec<u8>> {
        let sealed = Some(text).filter(|text| text.len() <= MAX_TEXT)?;
        let sealed = BASE64URL_NOPAD.decode(sealed.as_bytes()).ok()?;
        let (known, sealed) = sealed.split_at_checked(VECTOR)?;
        self.0.iter().find_map(|key| {
            let mut position = sealed.to_vec();
            apply(key, known, &mut position);
            // Not secret: a position grants nothing that its tenant cannot read.
            (vector(key, &position) == known).then_some(position)
        })
    }
}

/// The numbers that a tenant gets in place of those of a stream: a permutation with the key of the tenant, a Feistel network (as in NIST
/// SP 800-38G) with four rounds.
#[derive(Clone)]
pub(crate) struct Numbers(Option<Hmac<Sha256>>);

impl Numbers {
    /// The numbers of the stream, for the platform administrator.
    pub(crate) const PLAIN: Self = Self(None);

    /// Returns the number for the tenant.
    pub(crate) fn seal(&self, number: u64) -> u64 {
        self.permute(number, |key, mut halves| {
            for round in 0..4 {
                halves = (halves.1, halves.0 ^ round_function(key, round, halves.1));
            }
            halves
        })
    }

    /// Returns the number of the stream. For a number that the tenant has not got, it is one that no message of the tenant has.
    pub(crate) fn open(&self, number: u64) -> u64 {
        self.permute(number, |key, mut halves| {
            for round in (0..4).rev() {
                halves = (halves.1 ^ round_function(key, round, halves.0), halves.0);
            }
            halves
        })
    }

    fn permute(&self, number: u64, rounds: impl FnOnce(&Hmac<Sha256>, (u64, u64)) -> (u64, u64)) -> u64 {
        match &self.0 {
            Some(key) if number >> (2 * HALF) == 0 => {
                let (left, right) = rounds(key, (number >> HALF, number & MASK));
                (left << HALF) | right
            }
            _ => number,
        }
    }
}

/// Returns pseudorandom bits for a half of a number.
fn round_function(key: &Hmac<Sha256>, round: u8, half: u64) -> u64 {
    let digest = key.clone().chain_update([round]).chain_update(half.to_be_bytes()).finalize().into_bytes();
    digest.iter().take(8).fold(0, |bits, byte| (bits << 8) | u64::from(*byte)) & MASK
}

fn vector(key: &Hmac<Sha256>, position: &[u8]) -> [u8; VECTOR] {
    let mut vector = [0; VECTOR];
    let digest = key.clone().chain_update([0]).chain_update(position).finalize().into_bytes();
    vector.iter_mut().zip(digest).for_each(|(byte, of_digest)| *byte = of_digest);
    vector
}

/// Encrypts or decrypts.
fn apply(key: &Hmac<Sha256>, vector: &[u8], text: &mut [u8]) {
    for (number, block) in (0_u32..).zip(text.chunks_mut(32)) {
        let mac = key.clone().chain_update([1]).chain_update(vector).chain_update(number.to_be_bytes());
        block.iter_mut().zip(mac.finalize().into_bytes()).for_each(|(byte, of_key)| *byte ^= of_key);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn key(token: &str, stream: Stream, tenant: Option<&str>) -> PositionKey {
        let tenant = tenant.map(|tenant| tenant.parse().unwrap());
        PositionKeys::new(ServiceSecret::new(token).unwrap()).key(stream, tenant.as_ref())
    }

    #[test]
    fn a_position_has_one_text_that_is_useless_for_others() {
        let acme = key(TOKEN, Stream::Events, Some("acme"));
        let texts: Vec<_> = (0..100_u64).map(|sequence| acme.seal(&sequence.to_be_bytes())).collect();
        assert_eq!(texts[7], key(TOKEN, Stream::Events, Some("acme")).seal(&7_u64.to_be_bytes()));
        for other in [
            key(TOKEN, Stream::Events, Some("other")),
            key(TOKEN, Stream::Events, None),
            key(TOKEN, Stream::Audit, Some("acme")),
            key("another-token-of-32-characters-or-more", Stream::Events, Some("acme")),
        ] {
            assert!(texts.iter().all(|text| other.open(text).is_none()));
            assert!(!texts.contains(&other.seal(&7_u64.to_be_bytes())));
        }
        // Neither the number nor the distance of two is visible.
        let common = texts.windows(2).filter(|pair| pair[0][..3] == pair[1][..3]).count();
        assert!(common < 5, "{texts:?}");
    }

    proptest! {
        #[test]
        fn positions_round_trip_and_changed_texts_are_rejected(
            position in prop::collection::vec(any::<u8>(), 0..520),
            at: prop::sample::Index,
        ) {
            let key = key(TOKEN, Stream::Audit, Some("acme"));
            let text = key.seal(&position);
            prop_assert_eq!(key.open(&text), Some(position));
            let mut changed = text.into_bytes();
            let at = at.index(changed.len());
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            prop_assert_eq!(key.open(std::str::from_utf8(&changed).unwrap()), None);
        }

        #[test]
        fn numbers_of_a_tenant_are_others_and_lead_back(number in any::<u64>(), small in 1..100_000_u64) {
            let (acme, other) = ["acme", "other"].map(|id| key(TOKEN, Stream::Quarantine, Some(id)).numbers()).into();
            for number in [number, small] {
                prop_assert_eq!(acme.open(acme.seal(number)), number);
                prop_assert_eq!(Numbers::PLAIN.seal(number), number);
            }
            let sealed = acme.seal(small);
            prop_assert!(sealed != small && sealed >> (2 * HALF) == 0);
            prop_assert_ne!(other.open(sealed), small);
            prop_assert!(acme.seal(small + 1).abs_diff(sealed) > 1);
        }

        #[test]
        fn any_text_is_rejected(text in "\\PC{0,60}") {
            prop_assert_eq!(key(TOKEN, Stream::Audit, Some("acme")).open(&text), None);
        }
    }
}
