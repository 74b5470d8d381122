//! Opaque tokens: `svc_<kind>_` + 43 base62 characters (256 bits) + `_` + 6 base62 characters of CRC-32 (IEEE 802.3)
//! of the preceding text.
//!
//! Secret scanners and people recognise a token by its prefix. The checksum detects typing errors before a lookup.
//! Randomness is injected, so that tests are repeatable: only this module uses a random generator.

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng, TryRng};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const SECRET_LEN: usize = 43;
const CHECKSUM_LEN: usize = 6;

/// Purpose of a token. A token of one kind is not accepted as another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A session, as a bearer credential.
    Session,
    /// An API key, as a bearer credential.
    ApiKey,
    /// An invite.
    Invite,
    /// A password reset.
    PasswordReset,
    /// A device code (RFC 8628).
    DeviceCode,
    /// The platform token, as a bearer credential.
    PlatformAdmin,
    /// The password of a consumer at the broker.
    ConsumerLogin,
    /// A login that waits for its second factor.
    Challenge,
}

impl TokenKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Session,
        Self::ApiKey,
        Self::Invite,
        Self::PasswordReset,
        Self::DeviceCode,
        Self::PlatformAdmin,
        Self::ConsumerLogin,
        Self::Challenge,
    ];

    /// Returns the prefix of all tokens of this kind.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Session => "svc_st_",
            Self::ApiKey => "svc_ak_",
            Self::Invite => "svc_iv_",
            Self::PasswordReset => "svc_pr_",
            Self::DeviceCode => "svc_dc_",
            Self::PlatformAdmin => "svc_pt_",
            Self::ConsumerLogin => "svc_cl_",
            Self::Challenge => "svc_ch_",
        }
    }
}

/// The text is not a token of the expected kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a token of this kind")]
pub struct InvalidToken;

/// A token with a valid format and checksum, zeroed on drop.
pub struct RawToken {
    kind: TokenKind,
    text: Zeroizing<String>,
}

impl RawToken {
    /// Generates a token with 256 random bits.
    pub fn generate(kind: TokenKind, entropy: &dyn Entropy) -> Self {
        let mut secret = Zeroizing::new([0_u8; 32]);
        entropy.fill(&mut *secret);
        // Full capacity from the start: growing would leave copies of the secret in memory.
        let mut text = Zeroizing::new(String::with_capacity(64));
        text.push_str(kind.prefix());
        push_base62(&mut text, &mut *secret, SECRET_LEN);
        let checksum = checksum(&text);
        text.push('_');
        text.push_str(&checksum);
        Self { kind, text }
    }

    /// Parses a token of one kind.
    ///
    /// # Errors
    /// [`InvalidToken`] for another kind, a wrong format or a wrong checksum.
    pub fn parse(kind: TokenKind, text: &str) -> Result<Self, InvalidToken> {
        let (prefix_and_secret, sum) = text.rsplit_once('_').ok_or(InvalidToken)?;
        let secret = prefix_and_secret.strip_prefix(kind.prefix()).ok_or(InvalidToken)?;
        let has_format = secret.len() == SECRET_LEN && secret.bytes().all(|b| b.is_ascii_alphanumeric());
        if !has_format || checksum(prefix_and_secret) != sum {
            return Err(InvalidToken);
        }
        Ok(Self { kind, text: Zeroizing::new(text.to_owned()) })
    }

    /// Parses a token of any of several kinds.
    ///
    /// # Errors
    /// [`InvalidToken`] if the text is not a token of these kinds.
    pub fn parse_any(kinds: &[TokenKind], text: &str) -> Result<Self, InvalidToken> {
        kinds.iter().find_map(|kind| Self::parse(*kind, text).ok()).ok_or(InvalidToken)
    }

    /// Returns the kind.
    pub fn kind(&self) -> TokenKind {
        self.kind
    }

    /// Returns the digest that is stored.
    pub fn digest(&self) -> TokenDigest {
        TokenDigest::from_text(&self.text)
    }

    /// Returns the raw text. Each call is a place where the token could leak.
    pub fn expose(&self) -> &str {
        &self.text
    }
}

/// SHA-256 digest of a token. Only the digest is stored, as bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, sqlx::Type)]
#[sqlx(transparent)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// Returns the digest of a secret without a token format, such as a service token.
    pub fn from_text(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// Returns the 32 bytes that the database stores.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The digest with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Compares in constant time, for secrets that are compared in memory.
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// Returns 64 lower-case hex digits, the format of the internal API.
    pub fn to_hex(self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// Returns the first 8 hex digits: enough to identify a row, too few to be useful to an attacker.
    pub fn prefix(&self) -> String {
        self.to_hex()[..8].to_owned()
    }

    /// Parses the format of [`Self::to_hex`]. Returns `None` for other texts.
    pub fn from_hex(hex: &str) -> Option<Self> {
        HEXLOWER.decode(hex.as_bytes()).ok()?.try_into().ok().map(Self)
    }
}

impl std::fmt::Debug for TokenDigest {
    /// Prints [`Self::prefix`].
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}…", self.prefix())
    }
}

fn checksum(of: &str) -> String {
    let mut text = String::with_capacity(CHECKSUM_LEN);
    push_base62(&mut text, &mut crc32fast::hash(of.as_bytes()).to_be_bytes(), CHECKSUM_LEN);
    text
}

/// Appends a big-endian number as exactly `len` base62 digits. `len` must suffice for the number. Overwrites the
/// number.
fn push_base62(text: &mut String, number: &mut [u8], len: usize) {
    let mut digits = Zeroizing::new([0_u8; SECRET_LEN]);
    for digit in digits[..len].iter_mut().rev() {
        let mut remainder = 0_u16;
        for byte in number.iter_mut() {
            let value = remainder << 8 | u16::from(*byte);
            // Both fit a byte: the quotient since remainder < 62, the remainder by definition.
            *byte = u8::try_from(value / 62).unwrap_or(u8::MAX);
            remainder = value % 62;
        }
        *digit = ALPHABET[usize::from(remainder)];
    }
    text.extend(digits[..len].iter().map(|digit| char::from(*digit)));
}

/// A source of random bytes.
pub trait Entropy: Send + Sync {
    /// Fills the buffer.
    fn fill(&self, buffer: &mut [u8]);
}

/// The operating system's generator, for production.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        if let Err(error) = SysRng.try_fill_bytes(buffer) {
            // The kernel's generator cannot fail after it was seeded at boot. Without it, tokens would be predictable.
            panic!("system random generator failed: {error}");
        }
    }
}

/// A generator with a fixed seed, for tests.
pub struct SeededEntropy(Mutex<StdRng>);

impl SeededEntropy {
    /// Creates a generator. Equal seeds yield equal bytes.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        self.0.lock().fill_bytes(buffer);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::SeededEntropy;

    struct Fixed(u8);
    impl Entropy for Fixed {
        fn fill(&self, buffer: &mut [u8]) {
            buffer.fill(self.0);
        }
    }

    #[test]
    fn a_token_has_the_documented_format() {
        let zero = RawToken::generate(TokenKind::Session, &Fixed(0));
        assert_eq!(&zero.expose()[..50], format!("svc_st_{}", "0".repeat(43)));
        let full = RawToken::generate(TokenKind::Invite, &Fixed(0xff));
        // 2^256 - 1 in base 62.
        assert_eq!(&full.expose()[7..50], "yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp1");
        assert_eq!(full.expose().len(), 57);
    }

    #[test]
    fn a_token_is_valid_for_its_own_kind_only() {
        let token = RawToken::generate(TokenKind::Invite, &SeededEntropy::new(1));
        for kind in TokenKind::ALL {
            assert_eq!(RawToken::parse(kind, token.expose()).is_ok(), kind == TokenKind::Invite);
        }
        assert!(RawToken::parse_any(&[TokenKind::Session, TokenKind::Invite], token.expose()).is_ok());
        assert!(RawToken::parse_any(&[TokenKind::Session], token.expose()).is_err());
    }

    #[test]
    fn a_valid_checksum_does_not_make_a_wrong_secret_valid() {
        for secret in ["0".repeat(42), "0".repeat(44), format!("{}-", "0".repeat(42)), "é".repeat(43)] {
            let text = format!("svc_st_{secret}");
            let token = format!("{text}_{}", checksum(&text));
            assert!(RawToken::parse(TokenKind::Session, &token).is_err(), "{token}");
        }
    }

    #[test]
    fn random_bytes_repeat_only_with_a_seed() {
        let fill = |entropy: &dyn Entropy| {
            let mut bytes = [0; 32];
            entropy.fill(&mut bytes);
            bytes
        };
        assert_ne!(fill(&SystemEntropy), fill(&SystemEntropy));
        assert_eq!(fill(&SeededEntropy::new(1)), fill(&SeededEntropy::new(1)));
        assert_ne!(fill(&SeededEntropy::new(1)), fill(&SeededEntropy::new(2)));
    }

    #[test]
    fn a_digest_matches_only_itself() {
        let [first, second] = [[1; 32], [2; 32]].map(TokenDigest::from_bytes);
        assert!(first.matches(&first) && !first.matches(&second));
        assert_eq!(first.as_bytes(), [1; 32]);
    }

    #[test]
    fn a_digest_prints_eight_digits_and_round_trips_through_hex() {
        let digest = RawToken::generate(TokenKind::Session, &SeededEntropy::new(2)).digest();
        assert_eq!(format!("{digest:?}").chars().count(), 9);
        assert_eq!(TokenDigest::from_hex(&digest.to_hex()), Some(digest));
        for bad in ["", "zz", &"g".repeat(64), &"A".repeat(64), &"é".repeat(32)] {
            assert_eq!(TokenDigest::from_hex(bad), None);
        }
    }

    proptest! {
        #[test]
        fn rejects_a_token_with_one_changed_character(seed: u64, at in 0_usize..57, to in "[0-9A-Za-z_]") {
            let token = RawToken::generate(TokenKind::ApiKey, &SeededEntropy::new(seed));
            let parsed = RawToken::parse(TokenKind::ApiKey, token.expose()).unwrap();
            prop_assert!(parsed.digest().matches(&token.digest()));
            let mut changed = token.expose().to_owned();
            changed.replace_range(at..=at, &to);
            prop_assert_eq!(RawToken::parse(TokenKind::ApiKey, &changed).is_ok(), changed == token.expose());
        }

        #[test]
        fn parsing_never_panics(text in ".{0,80}") {
            let _ = RawToken::parse(TokenKind::Session, &text);
            let _ = RawToken::parse(TokenKind::Session, &format!("svc_st_{text}"));
        }
    }
}
