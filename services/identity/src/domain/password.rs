//! The password policy. It applies where a password is set, never at login (NIST SP 800-63B-4, section 3.1.1.2).
//!
//! The built-in lists of common and breached passwords (see `data/README.md`) are sorted and searched in the read-only pages
//! of the binary: a lookup takes about twenty steps, allocates nothing, and only the accessed pages are resident. `build.rs`
//! verifies order and size, so there is no check at start.

use std::cmp::Ordering;

use contract::ProblemKind;
use hashing::Password;
use sha1::{Digest as _, Sha1};
use tenancy::TenantId;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::{is_combining_mark, is_public_assigned};

use super::email::{Email, EmailKey, is_ignorable};

const MAX_CODE_POINTS: usize = 128;
const MAX_BYTES: usize = 512;
/// The product's name, which a password must not consist of.
const PRODUCT: &str = "svc";
/// Invisible characters that some scripts need.
const JOINERS: [char; 2] = ['\u{200c}', '\u{200d}'];

/// One password per line, sorted by bytes, each line terminated.
static COMMON: &[u8] = include_bytes!("../../data/common-12plus.txt");
/// The first eight bytes of the SHA-1 digest of each password, sorted.
static BREACHED: &[u8] = include_bytes!("../../data/breached-12plus.sha1p64.bin");

/// Bytes per entry of [`BREACHED`].
const PREFIX: usize = 8;

/// The password policy of this installation or of a tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PasswordPolicy {
    /// Minimum number of code points.
    pub(crate) min_length: usize,
}

/// Normalizes a password for hashing: NFC, every white space becomes U+0020, so that it does not depend on the keyboard.
/// Returns `None` for a password with a control character or above the maximum size.
pub(crate) fn prepare(raw: &str) -> Option<Password> {
    if raw.chars().any(char::is_control) {
        return None;
    }
    let prepared: String = raw.nfc().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    // Measured after normalization, because NFC can change the size.
    (prepared.len() <= MAX_BYTES).then(|| Password::new(prepared))
}

/// Returns the plain spelling of full-width, circled and similar characters (NFKC), in which lists contain a password.
pub(crate) fn plain_spelling(text: &str) -> String {
    text.nfkc().collect()
}

impl PasswordPolicy {
    /// The policy of a tenant with an own minimum length, which does not lower that of the installation.
    pub(crate) fn for_tenant(self, own_min_length: u32) -> Self {
        Self { min_length: self.min_length.max(usize::try_from(own_min_length).unwrap_or(usize::MAX)) }
    }

    /// Checks and normalizes a new password.
    ///
    /// # Errors
    /// The problem of the password.
    pub(crate) fn accept(
        self,
        raw: &str,
        email: &EmailKey,
        tenant: &TenantId,
    ) -> Result<Password, ProblemKind> {
        if raw.nfc().map(char::len_utf8).sum::<usize>() > MAX_BYTES {
            return Err(ProblemKind::PasswordTooLong);
        }
        let password = prepare(raw).ok_or(ProblemKind::PasswordInvalid)?;
        if password.expose().chars().any(is_invisible) {
            return Err(ProblemKind::PasswordInvalid);
        }
        let length = password.expose().chars().count();
        // Leading and trailing spaces are kept but do not count, because they add no strength.
        let trimmed = password.expose().trim();
        if trimmed.chars().count() < self.min_length || !trimmed.chars().any(is_visible) {
            return Err(ProblemKind::PasswordTooShort);
        }
        if length > MAX_CODE_POINTS {
            return Err(ProblemKind::PasswordTooLong);
        }
        let spellings =
            [trimmed, &plain_spelling(trimmed)].map(|text| text.to_lowercase().nfc().collect::<String>());
        if spellings.iter().any(|folded| is_context(folded, email, tenant)) {
            return Err(ProblemKind::PasswordContext);
        }
        if spellings.iter().any(|folded| is_common(folded)) {
            return Err(ProblemKind::PasswordCommon);
        }
        if spellings.iter().any(|folded| is_breached(folded)) {
            return Err(ProblemKind::PasswordBreached);
        }
        Ok(password)
    }
}

/// Returns whether a new password must not have this character, because it is not seen (RFC 8265, section 4.2; RFC 8264, section 8). It
/// can be pasted with a password, and is not typed later.
fn is_invisible(c: char) -> bool {
    !is_public_assigned(c) || is_ignorable(c) && !JOINERS.contains(&c)
}

/// Returns whether a character is visible on its own. Others count too (NIST SP 800-63B-4, section 3.1.1.2), but not alone.
fn is_visible(c: char) -> bool {
    !is_combining_mark(c) && c != ' ' && !JOINERS.contains(&c)
}

/// Returns whether the password is the e-mail address in any spelling, its local part, the tenant or the product, ignoring
/// leading and trailing characters that are not letters.
fn is_context(folded: &str, email: &EmailKey, tenant: &TenantId) -> bool {
    fn core(text: &str) -> &str {
        text.trim_matches(|c: char| !c.is_alphabetic())
    }
    // The domain of an address has an ASCII form, a Unicode form and further spellings. The key is the same for all of them.
    let as_email =
        core(folded).parse::<Email>().map_or(String::new(), |email| email.key().as_str().to_owned());
    [email.as_str(), email.local_part(), tenant.as_str(), PRODUCT]
        .iter()
        .any(|word| !core(word).is_empty() && [core(folded), core(&as_email)].contains(&core(word)))
}

/// Returns whether the list of common passwords contains a password, given in lower case and trimmed.
fn is_common(folded: &str) -> bool {
    let (mut low, mut high) = (0, COMMON.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let start = COMMON[low..middle].iter().rposition(|b| *b == b'\n').map_or(low, |at| low + at + 1);
        let end = COMMON[middle..].iter().position(|b| *b == b'\n').map_or(high, |at| middle + at);
        match COMMON[start..end].cmp(folded.as_bytes()) {
            Ordering::Equal => return true,
            Ordering::Less => low = end + 1,
            Ordering::Greater => high = start,
        }
    }
    false
}

/// Returns whether the built-in breach set contains a password, given in lower case and trimmed.
fn is_breached(folded: &str) -> bool {
    let digest = Sha1::digest(folded.as_bytes());
    let (prefixes, _) = BREACHED.as_chunks::<PREFIX>();
    prefixes.binary_search_by(|prefix| prefix.as_slice().cmp(&digest[..PREFIX])).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn accept(raw: &str) -> Result<String, ProblemKind> {
        let email = EmailKey::from_typed("ada.lovelace@example.com");
        let policy = PasswordPolicy { min_length: 12 };
        policy.accept(raw, &email, &"acme".parse().unwrap()).map(|password| password.expose().to_owned())
    }

    #[test]
    fn each_rejection_names_its_reason() {
        for (raw, violation) in [
            ("elevenchars", ProblemKind::PasswordTooShort),
            ("            ", ProblemKind::PasswordTooShort),
            ("  password  ", ProblemKind::PasswordTooShort),
            (&*"é".repeat(11), ProblemKind::PasswordTooShort),
            (&*"x7".repeat(65), ProblemKind::PasswordTooLong),
            (&*"🦀".repeat(129), ProblemKind::PasswordTooLong),
            ("correct horse\u{7}battery", ProblemKind::PasswordInvalid),
            ("Password123456", ProblemKind::PasswordCommon),
            ("  1234567890123  ", ProblemKind::PasswordCommon),
            ("Ada.Lovelace@Example.com", ProblemKind::PasswordContext),
            ("12ada.lovelace34", ProblemKind::PasswordContext),
            ("123456acme!!", ProblemKind::PasswordContext),
            ("!!!!!!!!!svc", ProblemKind::PasswordContext),
            ("Ｐａｓｓｗｏｒｄ１２３４５６", ProblemKind::PasswordCommon),
            ("ⓟⓐⓢⓢⓦⓞⓡⓓ①②③④⑤⑥", ProblemKind::PasswordCommon),
            ("𝐏𝐚𝐬𝐬𝐰𝐨𝐫𝐝123456", ProblemKind::PasswordCommon),
            ("１２ａｄａ．ｌｏｖｅｌａｃｅ", ProblemKind::PasswordContext),
        ] {
            assert_eq!(accept(raw), Err(violation), "{raw}");
        }
    }

    #[test]
    fn rejects_invisible_characters_in_new_passwords_only() {
        for c in [
            '\u{ad}', '\u{200b}', '\u{202e}', '\u{2060}', '\u{3164}', '\u{fe0f}', '\u{feff}', '\u{ffff}',
            '\u{fdd0}', '\u{378}', '\u{e000}',
        ] {
            let pasted = format!("Correct-horse-77{c}");
            assert_eq!(accept(&pasted), Err(ProblemKind::PasswordInvalid), "{c:?}");
            assert_eq!(accept(&c.to_string().repeat(12)), Err(ProblemKind::PasswordInvalid), "{c:?}");
            assert!(prepare(&pasted).is_some(), "{c:?}");
        }
        for c in ["\u{301}", "\u{200d}"] {
            assert_eq!(accept(&c.repeat(12)), Err(ProblemKind::PasswordTooShort), "{c:?}");
        }
    }

    #[test]
    fn rejects_the_address_in_every_spelling_of_its_domain() {
        let email = EmailKey::from_typed("mem.ber@bücher.example");
        let policy = PasswordPolicy { min_length: 12 };
        for raw in [
            "mem.ber@xn--bcher-kva.example",
            "mem.ber@bücher.example",
            "Mem.Ber@BÜCHER.example",
            "mem.ber@bu\u{308}cher.example",
            "mem.ber@ｂücher.example",
            "mem.ber@bücher。example",
            "12mem.ber@bücher.example!!",
        ] {
            let result = policy.accept(raw, &email, &"acme".parse().unwrap()).map(drop);
            assert_eq!(result, Err(ProblemKind::PasswordContext), "{raw}");
        }
        assert!(policy.accept("mem.ber@bucher.example", &email, &"acme".parse().unwrap()).is_ok());
    }

    #[test]
    fn accepts_long_uncommon_passwords_in_any_script() {
        for raw in [
            "correct-horse-battery-9",
            "пароль-длинный-и-свой",
            "🦀🦑🐙🐡🐠🐟🐬🐳🦈🐊🐅🐆",
            "acme rockets fly north",
            "ｃｏｒｒｅｃｔ-horse-battery-⑨",
            "नमस्ते मेरी दुनिया",
            "گذرواژه\u{200c}ای بلند",
        ] {
            assert_eq!(accept(raw).as_deref(), Ok(raw));
        }
    }

    #[test]
    fn normalizes_characters_that_depend_on_the_keyboard() {
        assert_eq!(accept("cafe\u{301} au lait\u{a0}noir").unwrap(), "caf\u{e9} au lait noir");
    }

    #[test]
    fn accepts_128_characters_and_512_bytes() {
        for raw in ["x7".repeat(64), "🦀".repeat(128)] {
            assert_eq!(accept(&raw).as_deref(), Ok(&*raw));
        }
    }

    proptest! {
        #[test]
        fn accepted_passwords_are_within_bounds_and_already_normalized(raw in "\\PC{0,140}") {
            if let Ok(password) = accept(&raw) {
                prop_assert!((12..=128).contains(&password.chars().count()));
                let again = prepare(&password).unwrap();
                prop_assert_eq!(again.expose(), password);
            }
        }
    }

    #[test]
    fn finds_every_common_password_and_no_other() {
        for line in COMMON.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            let line = std::str::from_utf8(line).unwrap();
            assert!(is_common(line), "{line}");
        }
        for other in ["", "\n", "zzzzzzzzzzzzzzzzzzzzzzzz", "correct-horse-battery-9"] {
            assert!(!is_common(other), "{other}");
        }
    }

    #[test]
    fn finds_breached_passwords_and_no_other() {
        for breached in ["iloveyou1234", "qwertyuiop123", "123456789abcd"] {
            assert!(is_breached(breached), "{breached}");
        }
        for other in ["", "correct-horse-battery-9 unbreached"] {
            assert!(!is_breached(other), "{other}");
        }
    }
}
