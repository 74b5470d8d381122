//! What a password may be. The rules hold where a password is set, never at login (NIST SP 800-63B-4, section 3.1.1.2).

mod lists;

use contract::ProblemKind;
use hashing::Password;
use tenancy::TenantId;
use unicode_normalization::UnicodeNormalization as _;

use super::email::EmailKey;

const MAX_CODE_POINTS: usize = 128;
const MAX_BYTES: usize = 512;
/// Nobody may build a password around the product's own name.
const PRODUCT: &str = "svc";

/// The rules of this installation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PasswordPolicy {
    /// The least number of code points.
    pub(crate) min_length: usize,
}

/// Why a password was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateLimitError {
    TooShort { least: usize },
    TooLong,
    Common,
    Breached,
    Context,
    Invalid,
}

impl RateLimitError {
    pub(crate) fn kind(self) -> ProblemKind {
        match self {
            Self::TooShort { .. } => ProblemKind::PasswordTooShort,
            Self::TooLong => ProblemKind::PasswordTooLong,
            Self::Common => ProblemKind::PasswordCommon,
            Self::Breached => ProblemKind::PasswordBreached,
            Self::Context => ProblemKind::PasswordContext,
            Self::Invalid => ProblemKind::PasswordInvalid,
        }
    }
}

/// A password as it is hashed: NFC, with every kind of space as U+0020, so that it does not depend on the keyboard. `None`
/// when it holds a control character, or is longer than any password.
pub(crate) fn prepare(raw: &str) -> Option<Password> {
    if raw.chars().any(char::is_control) {
        return None;
    }
    let prepared: String = raw.nfc().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    // Measured after normalisation, so that it does not depend on the keyboard either.
    (prepared.len() <= MAX_BYTES).then(|| Password::new(prepared))
}

impl PasswordPolicy {
    /// Prepares a new password, or says why it cannot be one.
    pub(crate) fn accept(
        self,
        raw: &str,
        email: &EmailKey,
        tenant: &TenantId,
    ) -> Result<Password, RateLimitError> {
        if raw.nfc().map(char::len_utf8).sum::<usize>() > MAX_BYTES {
            return Err(RateLimitError::TooLong);
        }
        let password = prepare(raw).ok_or(RateLimitError::Invalid)?;
        let length = password.expose().chars().count();
        // Outer spaces are kept, but they make nothing harder to guess.
        if password.expose().trim().chars().count() < self.min_length {
            return Err(RateLimitError::TooShort { least: self.min_length });
        }
        if length > MAX_CODE_POINTS {
            return Err(RateLimitError::TooLong);
        }
        let folded: String = password.expose().trim().to_lowercase().nfc().collect();
        if is_context(&folded, email, tenant) {
            return Err(RateLimitError::Context);
        }
        if lists::is_common(&folded) {
            return Err(RateLimitError::Common);
        }
        if lists::is_breached(&folded) {
            return Err(RateLimitError::Breached);
        }
        Ok(password)
    }
}

/// Whether it is the address, its local part, the tenant or the product, give or take what is no letter at the ends.
fn is_context(folded: &str, email: &EmailKey, tenant: &TenantId) -> bool {
    fn core(text: &str) -> &str {
        text.trim_matches(|c: char| !c.is_alphabetic())
    }
    [email.as_str(), email.local_part(), tenant.as_str(), PRODUCT]
        .iter()
        .any(|word| !core(word).is_empty() && core(word) == core(folded))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn accept(raw: &str) -> Result<String, RateLimitError> {
        let email = EmailKey::of_login("ada.lovelace@example.com");
        let policy = PasswordPolicy { min_length: 12 };
        policy.accept(raw, &email, &"acme".parse().unwrap()).map(|password| password.expose().to_owned())
    }

    #[test]
    fn each_refusal_has_its_reason() {
        for (raw, refusal) in [
            ("elevenchars", RateLimitError::TooShort { least: 12 }),
            ("            ", RateLimitError::TooShort { least: 12 }),
            ("  password  ", RateLimitError::TooShort { least: 12 }),
            (&*"é".repeat(11), RateLimitError::TooShort { least: 12 }),
            (&*"x7".repeat(65), RateLimitError::TooLong),
            (&*"🦀".repeat(129), RateLimitError::TooLong),
            ("correct horse\u{7}battery", RateLimitError::Invalid),
            ("Password123456", RateLimitError::Common),
            ("  1234567890123  ", RateLimitError::Common),
            ("Ada.Lovelace@Example.com", RateLimitError::Context),
            ("12ada.lovelace34", RateLimitError::Context),
            ("123456acme!!", RateLimitError::Context),
            ("!!!!!!!!!svc", RateLimitError::Context),
        ] {
            assert_eq!(accept(raw), Err(refusal), "{raw}");
        }
    }

    #[test]
    fn a_long_uncommon_password_in_any_script_is_taken() {
        for raw in [
            "correct-horse-battery-9",
            "пароль-длинный-и-свой",
            "🦀🦑🐙🐡🐠🐟🐬🐳🦈🐊🐅🐆",
            "acme rockets fly north",
        ] {
            assert_eq!(accept(raw).as_deref(), Ok(raw));
        }
    }

    #[test]
    fn a_password_does_not_depend_on_the_keyboard() {
        assert_eq!(accept("cafe\u{301} au lait\u{a0}noir").unwrap(), "caf\u{e9} au lait noir");
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_in_bounds_and_prepares_to_itself(raw in "\\PC{0,140}") {
            if let Ok(password) = accept(&raw) {
                prop_assert!((12..=128).contains(&password.chars().count()));
                let again = prepare(&password).unwrap();
                prop_assert_eq!(again.expose(), password);
            }
        }
    }
}
