//! Second factors: codes of authenticator apps (TOTP, RFC 6238), recovery codes, and what a person sends to complete a login. The secret of
//! an app is encrypted under `SVC_FACTOR_KEY`, so a copy of the database alone yields no codes.

use chrono::{DateTime, TimeDelta, Utc};
use contract::factors::{Assertion, FactorMethod, Registration};
use data_encoding::BASE32_NOPAD;
use hashing::{Entropy, TokenDigest};
use hmac::{Hmac, KeyInit as _, Mac as _};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use qrcode::render::svg;
use qrcode::{EcLevel, QrCode};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use service::config::Rotating;
use sha1::Sha1;
use tenancy::{TenantId, UserId};
use zeroize::Zeroizing;

use super::account::{InvalidKey, mac_with_key};

/// Lifetime of a challenge.
pub(crate) const CHALLENGE_TTL: TimeDelta = TimeDelta::minutes(5);
/// Codes that a challenge accepts.
pub(crate) const MAX_ATTEMPTS: i32 = 5;
/// Challenges of a user at the same time. A new one replaces the oldest of the network with the most.
pub(crate) const MAX_CHALLENGES: i64 = 20;
/// Wrong answers within [`FAILURE_WINDOW`] that lock the app and the passkeys of a user for the same time.
pub(crate) const MAX_FAILURES: i32 = 50;
/// How long wrong answers count, from the first of them.
pub(crate) const FAILURE_WINDOW: TimeDelta = TimeDelta::hours(24);
/// Number of recovery codes.
const RECOVERY_CODES: usize = 10;

/// Length of a time step (RFC 6238, section 4.1).
const STEP_SECONDS: i64 = 30;
/// Steps before and after the current one of which the codes are accepted (section 5.2).
const TOLERANCE: i64 = 1;
/// Length of a secret, that of an HMAC-SHA-1 (RFC 4226, section 4, R6).
const SECRET_LEN: usize = 20;
/// Length of the id of a key. Two keys are in use at a time.
const KEY_ID_LEN: usize = 8;

/// The secret of an authenticator app, zeroed on drop.
pub(crate) struct TotpSecret(Zeroizing<[u8; SECRET_LEN]>);

impl TotpSecret {
    /// Generates a secret.
    pub(crate) fn generate(entropy: &dyn Entropy) -> Self {
        let mut secret = Zeroizing::new([0; SECRET_LEN]);
        entropy.fill(&mut *secret);
        Self(secret)
    }

    /// Returns the secret in Base32.
    pub(crate) fn text(&self) -> String {
        BASE32_NOPAD.encode(&*self.0)
    }

    /// Returns the `otpauth` URI that apps read from a QR code. The other parameters have the values that apps expect.
    pub(crate) fn uri(&self, issuer: &str, account: &str) -> String {
        let [issuer, account] = [issuer, account].map(|text| utf8_percent_encode(text, NON_ALPHANUMERIC));
        format!("otpauth://totp/{issuer}:{account}?secret={}&issuer={issuer}", self.text())
    }

    /// Returns a QR code of the URI as an SVG image. `None` for an account that is too long for a QR code.
    pub(crate) fn qr_code(&self, issuer: &str, account: &str) -> Option<String> {
        let code = QrCode::with_error_correction_level(self.uri(issuer, account), EcLevel::L).ok()?;
        Some(code.render::<svg::Color<'_>>().min_dimensions(240, 240).build())
    }

    /// Returns the time step of a code, if it is that of a step near `now` and after `last_step`.
    pub(crate) fn step_of(&self, code: TotpCode, now: DateTime<Utc>, last_step: i64) -> Option<i64> {
        let current = now.timestamp().div_euclid(STEP_SECONDS);
        let steps = current - TOLERANCE..=current + TOLERANCE;
        steps.filter(|step| *step > last_step).find(|step| self.code(*step) == code)
    }

    /// The code of a time step (RFC 4226, section 5.3).
    fn code(&self, step: i64) -> TotpCode {
        #[expect(clippy::expect_used, reason = "HMAC accepts keys of every length")]
        let mac = Hmac::<Sha1>::new_from_slice(&*self.0).expect("HMAC accepts keys of every length");
        let digest: [u8; 20] = mac.chain_update(step.to_be_bytes()).finalize().into_bytes().into();
        let offset = usize::from(digest[19] & 0xf);
        let bytes = [digest[offset], digest[offset + 1], digest[offset + 2], digest[offset + 3]];
        TotpCode((u32::from_be_bytes(bytes) & 0x7fff_ffff) % 1_000_000)
    }
}

/// A code of an authenticator app: six digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TotpCode(u32);

impl TotpCode {
    /// Parses a code. Apps show it with spaces.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let is_code = digits.len() == 6 && digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse().ok().filter(|_| is_code).map(Self)
    }
}

/// A recovery code: 80 bits in Base32, in groups of four.
pub(crate) struct RecoveryCode(Zeroizing<String>);

impl RecoveryCode {
    /// Generates the codes of a user.
    pub(crate) fn generate_all(entropy: &dyn Entropy) -> Vec<Self> {
        let generate = || {
            let mut bytes = Zeroizing::new([0; 10]);
            entropy.fill(&mut *bytes);
            Self(Zeroizing::new(BASE32_NOPAD.encode(&*bytes)))
        };
        std::iter::repeat_with(generate).take(RECOVERY_CODES).collect()
    }

    /// Parses a code without regard to case, spaces and hyphens.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.chars().filter(|c| !c.is_whitespace() && *c != '-').take(17);
        let text = Zeroizing::new(text.collect::<String>().to_ascii_uppercase());
        let is_code = text.len() == 16 && text.bytes().all(|b| matches!(b, b'A'..=b'Z' | b'2'..=b'7'));
        is_code.then_some(Self(text))
    }

    /// Returns the code as people read it.
    pub(crate) fn grouped(&self) -> String {
        let letters: Vec<_> = self.0.chars().collect();
        letters.chunks(4).map(String::from_iter).collect::<Vec<_>>().join("-")
    }

    /// Returns the digest that is stored. A code has enough entropy for a fast one.
    pub(crate) fn digest(&self) -> TokenDigest {
        TokenDigest::from_text(&self.0)
    }
}

/// What a person sends to complete a login.
pub(crate) enum Proof<'a> {
    /// A code of the authenticator app.
    Totp(TotpCode),
    /// A recovery code.
    Recovery(RecoveryCode),
    /// An assertion of a passkey.
    Passkey(&'a Assertion),
    /// A new passkey with its name.
    Registration { name: &'a str, credential: &'a Registration },
}

impl Proof<'_> {
    /// The method.
    pub(crate) const fn method(&self) -> FactorMethod {
        match self {
            Self::Totp(_) => FactorMethod::Totp,
            Self::Recovery(_) => FactorMethod::RecoveryCode,
            Self::Passkey(_) | Self::Registration { .. } => FactorMethod::Passkey,
        }
    }
}

/// The wrong answers of a user to challenges since the window began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failures {
    pub(crate) count: i32,
    pub(crate) window_ends_at: DateTime<Utc>,
}

impl Failures {
    /// Returns the stored failures. Without a window, no answer was wrong.
    pub(crate) fn from_stored(count: i32, window_ends_at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Self {
        Self { count, window_ends_at: window_ends_at.unwrap_or(now) }
    }

    /// Returns the time until which codes of the app and passkeys are rejected; `None` if they are accepted.
    pub(crate) fn locked_until(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        (self.count >= MAX_FAILURES && now < self.window_ends_at).then_some(self.window_ends_at)
    }

    /// Returns whether codes of the app and passkeys are rejected.
    pub(crate) fn is_locked(&self, now: DateTime<Utc>) -> bool {
        self.locked_until(now).is_some()
    }

    /// Counts a wrong answer.
    pub(crate) fn fail(self, now: DateTime<Utc>) -> Self {
        if now >= self.window_ends_at {
            return Self { count: 1, window_ends_at: now + FAILURE_WINDOW };
        }
        let count = self.count.saturating_add(1);
        // The lock lasts for a whole window from its start.
        let window_ends_at = if count == MAX_FAILURES { now + FAILURE_WINDOW } else { self.window_ends_at };
        Self { count, window_ends_at }
    }
}

/// The id of a key, at the start of each secret that it encrypts.
pub(crate) type FactorKeyId = [u8; KEY_ID_LEN];

/// A key that encrypts secrets.
struct FactorKey {
    id: FactorKeyId,
    cipher: LessSafeKey,
}

impl FactorKey {
    fn new(text: &str) -> Result<Self, InvalidKey> {
        let mac = mac_with_key(text)?;
        let derive =
            |purpose: &str| -> [u8; 32] { mac.clone().chain_update(purpose).finalize().into_bytes().into() };
        let key = UnboundKey::new(&CHACHA20_POLY1305, &derive("svc totp secret")).map_err(|_| InvalidKey)?;
        let mut id = FactorKeyId::default();
        id.copy_from_slice(&derive("svc totp key id")[..KEY_ID_LEN]);
        Ok(Self { id, cipher: LessSafeKey::new(key) })
    }
}

/// The current key, and the previous one during a rotation.
pub(crate) struct FactorKeys(Rotating<FactorKey>);

/// The owner of a secret. It is authenticated with the secret, so that a row that is copied to another user is not accepted.
pub(crate) type Owner<'a> = (&'a TenantId, UserId);

impl FactorKeys {
    /// Parses the current key, and the previous one in a second line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Rotating::parse(text, FactorKey::new).map(Self)
    }

    /// Returns the id of the current key, and that of the previous one.
    pub(crate) fn ids(&self) -> (FactorKeyId, Option<FactorKeyId>) {
        (self.0.current.id, self.0.previous.as_ref().map(|key| key.id))
    }

    /// Encrypts a secret under the current key: id of the key, nonce, ciphertext, tag. `None` only for a secret beyond the limits of the
    /// cipher.
    pub(crate) fn seal(
        &self,
        secret: &TotpSecret,
        owner: Owner<'_>,
        entropy: &dyn Entropy,
    ) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        entropy.fill(&mut nonce);
        let mut text = secret.0.to_vec();
        let FactorKey { id, cipher } = &self.0.current;
        cipher
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), associated(owner), &mut text)
            .ok()?;
        Some([&id[..], &nonce[..], &text].concat())
    }

    /// Encrypts a secret under the current key, if it is stored under the previous one.
    pub(crate) fn renew(
        &self,
        secret: &TotpSecret,
        stored: &[u8],
        owner: Owner<'_>,
        entropy: &dyn Entropy,
    ) -> Option<Vec<u8>> {
        if stored.starts_with(&self.0.current.id) { None } else { self.seal(secret, owner, entropy) }
    }

    /// Decrypts a secret; `None` if it was encrypted under another key or for another user.
    pub(crate) fn open(&self, sealed: &[u8], owner: Owner<'_>) -> Option<TotpSecret> {
        let (id, sealed) = sealed.split_first_chunk::<KEY_ID_LEN>()?;
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN)?;
        let key = self.0.iter().find(|key| key.id == *id)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = Zeroizing::new(text.to_vec());
        let opened = key.cipher.open_in_place(nonce, associated(owner), &mut text).ok()?;
        Some(TotpSecret(Zeroizing::new(<[u8; SECRET_LEN]>::try_from(&*opened).ok()?)))
    }
}

fn associated((tenant_id, user_id): Owner<'_>) -> Aad<String> {
    // A tenant id contains no zero byte.
    Aad::from(format!("{tenant_id}\0{user_id}"))
}

#[cfg(test)]
mod tests {
    use hashing::SeededEntropy;
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn rfc_secret() -> TotpSecret {
        TotpSecret(Zeroizing::new(*b"12345678901234567890"))
    }

    fn code(text: &str) -> TotpCode {
        TotpCode::parse(text).unwrap()
    }

    fn keys(text: &str) -> FactorKeys {
        let lines: Vec<_> = text.split(' ').map(|line| line.repeat(32)).collect();
        FactorKeys::parse(&lines.join("\n")).unwrap()
    }

    #[test]
    fn codes_are_those_of_rfc_6238_appendix_b() {
        // The last six of the eight digits.
        for (time, expected) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            assert_eq!(rfc_secret().step_of(code(expected), at(time), 0), Some(time / 30), "{time}");
        }
    }

    #[test]
    fn a_clock_may_differ_by_one_step() {
        for (difference, accepted) in [(25, true), (-25, true), (90, false), (-90, false)] {
            let (secret, now) = (rfc_secret(), 1_111_111_125);
            let shown = secret.code((now + difference) / 30);
            assert_eq!(secret.step_of(shown, at(now), 0).is_some(), accepted, "{difference}");
        }
    }

    #[test]
    fn the_code_of_a_used_or_an_earlier_step_is_not_accepted() {
        let (secret, now) = (rfc_secret(), at(1_111_111_111));
        let step = 1_111_111_111 / 30;
        assert_eq!(secret.step_of(secret.code(step), now, step - 1), Some(step));
        assert_eq!(secret.step_of(secret.code(step), now, step), None);
        assert_eq!(secret.step_of(secret.code(step - 1), now, step), None);
        assert_eq!(secret.step_of(secret.code(step + 1), now, step), Some(step + 1));
    }

    #[test]
    fn a_code_has_six_digits_and_any_spaces() {
        assert_eq!(TotpCode::parse(" 005 924 "), Some(TotpCode(5924)));
        for invalid in ["", "12345", "1234567", "12345a", "+12345", "１２３４５６"] {
            assert_eq!(TotpCode::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn ten_different_recovery_codes_are_read_back_in_any_form() {
        let codes = RecoveryCode::generate_all(&SeededEntropy::new(1));
        let mut digests: Vec<_> = codes.iter().map(RecoveryCode::digest).collect();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!((codes.len(), digests.len()), (10, 10));
        for code in &codes {
            let shown = code.grouped();
            assert_eq!((shown.len(), shown.matches('-').count()), (19, 3), "{shown}");
            for typed in
                [shown.clone(), shown.to_lowercase(), shown.replace('-', " "), shown.replace('-', "")]
            {
                assert_eq!(RecoveryCode::parse(&typed).unwrap().digest(), code.digest(), "{typed}");
            }
        }
        for invalid in ["", "ABCD-EFGH-IJKL-MNO", "ABCD-EFGH-IJKL-MNOPQ", "ABCD-EFGH-IJKL-MN01"] {
            assert!(RecoveryCode::parse(invalid).is_none(), "{invalid}");
        }
    }

    #[test]
    fn a_uri_names_the_issuer_and_the_account_without_ambiguous_characters() {
        let uri = rfc_secret().uri("Ada & Co", "ada@acme.example (acme)");
        let secret = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
        let label = "Ada%20%26%20Co:ada%40acme%2Eexample%20%28acme%29";
        assert_eq!(uri, format!("otpauth://totp/{label}?secret={secret}&issuer=Ada%20%26%20Co"));
    }

    #[test]
    fn a_secret_opens_only_for_its_user_and_under_its_keys() {
        let entropy = SeededEntropy::new(1);
        let (tenant, other): (TenantId, TenantId) = ("acme".parse().unwrap(), "other".parse().unwrap());
        let user = UserId::generate();
        let sealed = keys("a").seal(&rfc_secret(), (&tenant, user), &entropy).unwrap();
        let open = |text: &str, owner| keys(text).open(&sealed, owner);
        assert!(open("a", (&tenant, user)).unwrap().text() == rfc_secret().text());
        assert!(open("b", (&tenant, user)).is_none(), "another key");
        assert!(open("a", (&other, user)).is_none(), "another tenant");
        assert!(open("a", (&tenant, UserId::generate())).is_none(), "another user");
        assert!(open("b a", (&tenant, user)).is_some(), "the previous key");
        assert_eq!(sealed[..KEY_ID_LEN], keys("a").ids().0);
        assert_eq!(keys("b a").ids(), (keys("b").ids().0, Some(keys("a").ids().0)));
    }

    #[test]
    fn a_key_has_32_characters_and_at_most_one_predecessor() {
        let line = "k".repeat(32);
        assert!(FactorKeys::parse(&line).is_ok() && FactorKeys::parse(&format!("{line}\n{line}")).is_ok());
        assert!(FactorKeys::parse(&"k".repeat(31)).is_err());
        assert!(FactorKeys::parse(&format!("{line}\n{line}\n{line}")).is_err());
    }

    #[test]
    fn fifty_wrong_answers_within_a_day_lock_for_a_day() {
        let mut failures = Failures { count: 0, window_ends_at: at(0) };
        for n in 1..=MAX_FAILURES {
            failures = failures.fail(at(i64::from(n)));
            assert_eq!(failures.is_locked(at(i64::from(n))), n == MAX_FAILURES);
        }
        let end = i64::from(MAX_FAILURES) + 24 * 3600;
        assert!(failures.is_locked(at(end - 1)) && !failures.is_locked(at(end)));
        assert_eq!(failures.fail(at(end)).count, 1);
        let first = Failures { count: 0, window_ends_at: at(0) }.fail(at(0));
        assert_eq!(first.fail(at(24 * 3600)).count, 1, "wrong codes of the day before do not count");
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".{0,80}") {
            let _ = (TotpCode::parse(&text), RecoveryCode::parse(&text));
        }

        #[test]
        fn a_changed_secret_is_rejected(at in 0_usize..56, bit in 0_u8..8) {
            let (entropy, tenant, user) = (SeededEntropy::new(1), "acme".parse().unwrap(), UserId::generate());
            let mut sealed = keys("a").seal(&rfc_secret(), (&tenant, user), &entropy).unwrap();
            prop_assert_eq!(sealed.len(), 56);
            sealed[at] ^= 1 << bit;
            prop_assert!(keys("a").open(&sealed, (&tenant, user)).is_none());
        }
    }
}
