//! User codes: what a person reads on one device and types into another (RFC 8628, section 6.1).

use hashing::Entropy;

/// No vowels, so that no code is a word; no letter that is easily taken for another or for a digit.
const ALPHABET: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const LENGTH: usize = 8;
/// The largest multiple of the alphabet's size that a byte can be below: what lies above would favour some letters.
const UNBIASED: u8 = 240;

/// Eight letters: 20^8 codes, of which ten an hour may be guessed and each lives ten minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UserCode([u8; LENGTH]);

/// The text is no user code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a user code")]
pub(crate) struct InvalidUserCode;

impl UserCode {
    /// Makes a fresh code.
    pub(crate) fn generate(entropy: &dyn Entropy) -> Self {
        Self(std::array::from_fn(|_| {
            loop {
                let mut byte = [0];
                entropy.fill(&mut byte);
                if byte[0] < UNBIASED {
                    return ALPHABET[usize::from(byte[0]) % ALPHABET.len()];
                }
            }
        }))
    }

    /// The letters alone, as they are stored.
    pub(crate) fn letters(self) -> String {
        self.0.iter().copied().map(char::from).collect()
    }
}

impl std::str::FromStr for UserCode {
    type Err = InvalidUserCode;

    /// Takes what somebody typed: case and whatever is neither letter nor digit do not matter.
    fn from_str(typed: &str) -> Result<Self, InvalidUserCode> {
        let letters = typed.chars().filter(|c| c.is_alphanumeric()).map(|c| {
            let letter = u8::try_from(c.to_ascii_uppercase()).ok();
            letter.filter(|letter| ALPHABET.contains(letter)).ok_or(InvalidUserCode)
        });
        // One more than fits is enough to see that it is too long.
        let letters: Vec<u8> = letters.take(LENGTH + 1).collect::<Result<_, _>>()?;
        letters.try_into().map(Self).map_err(|_| InvalidUserCode)
    }
}

impl std::fmt::Display for UserCode {
    /// `XXXX-XXXX`, as people see it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let letters = self.letters();
        let (first, second) = letters.split_at(LENGTH / 2);
        write!(f, "{first}-{second}")
    }
}

#[cfg(test)]
mod tests {
    use hashing::SeededEntropy;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_typed_differently_is_the_same_code_and_what_lacks_or_adds_a_letter_is_none() {
        let code: UserCode = "BCDFGHJK".parse().unwrap();
        assert_eq!((code.to_string().as_str(), code.letters().as_str()), ("BCDF-GHJK", "BCDFGHJK"));
        for same in ["bcdf-ghjk", " BCDF GHJK ", "b.c.d.f.g.h.j.k", "BCDF\u{2013}ghjk"] {
            assert_eq!(same.parse(), Ok(code), "{same}");
        }
        for other in ["", "BCDF-GHJ", "BCDF-GHJKL", "ACDF-GHJK", "BCDF-GHJ1", "BCDF-GHJ\u{212a}", "ßCDFGHJK"]
        {
            assert_eq!(other.parse::<UserCode>(), Err(InvalidUserCode), "{other}");
        }
    }

    #[test]
    fn every_letter_is_as_likely_as_any_other() {
        struct Bytes(std::sync::atomic::AtomicU8);
        impl Entropy for Bytes {
            fn fill(&self, buffer: &mut [u8]) {
                buffer.fill_with(|| self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
            }
        }
        // Thirty codes take every byte that is taken once, and jump over the rest.
        let bytes = Bytes(0.into());
        let letters: String = (0..30).map(|_| UserCode::generate(&bytes).letters()).collect();
        for letter in ALPHABET {
            assert_eq!(letters.matches(char::from(*letter)).count(), 12);
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(seed: u64) {
            let code = UserCode::generate(&SeededEntropy::new(seed));
            prop_assert_eq!(code.to_string().parse(), Ok(code));
            prop_assert_eq!(code.letters().to_lowercase().parse(), Ok(code));
        }

        #[test]
        fn reading_never_panics(text in ".{0,40}") {
            let _ = text.parse::<UserCode>();
        }
    }
}
