//! User codes: displayed by a device and entered by a user in a browser (RFC 8628, section 6.1).

use hashing::Entropy;

/// No vowels, so that no code is a word, and no letters that are easily confused with another letter or a digit.
const ALPHABET: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const LENGTH: usize = 8;
/// The largest multiple of the alphabet's size that fits a byte. Larger bytes are rejected, because they would favor some
/// letters.
const UNBIASED: u8 = 240;

/// Eight letters: 20^8 codes. A code is valid for ten minutes, and a user can enter ten wrong codes, then one per six minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UserCode([u8; LENGTH]);

/// The text is not a user code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a user code")]
pub(crate) struct InvalidUserCode;

impl UserCode {
    /// Generates a random code.
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

    /// The letters without the hyphen, as they are stored.
    pub(crate) fn letters(self) -> String {
        self.0.iter().copied().map(char::from).collect()
    }
}

impl std::str::FromStr for UserCode {
    type Err = InvalidUserCode;

    /// Parses user input. Ignores case and all characters that are neither letters nor digits.
    fn from_str(input: &str) -> Result<Self, InvalidUserCode> {
        let letters = input.chars().filter(|c| c.is_alphanumeric()).map(|c| {
            let letter = u8::try_from(c.to_ascii_uppercase()).ok();
            letter.filter(|letter| ALPHABET.contains(letter)).ok_or(InvalidUserCode)
        });
        // One letter more than fits is enough to detect input that is too long.
        let letters: Vec<u8> = letters.take(LENGTH + 1).collect::<Result<_, _>>()?;
        letters.try_into().map(Self).map_err(|_| InvalidUserCode)
    }
}

impl std::fmt::Display for UserCode {
    /// Formats the code as `XXXX-XXXX`.
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
    fn ignores_case_and_punctuation_and_rejects_other_lengths_and_letters() {
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
    fn letters_are_equally_likely() {
        struct Bytes(std::sync::atomic::AtomicU8);
        impl Entropy for Bytes {
            fn fill(&self, buffer: &mut [u8]) {
                buffer.fill_with(|| self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
            }
        }
        // Thirty codes use each accepted byte once. The rejected bytes come before the last codes.
        let bytes = Bytes(16.into());
        let letters: String = (0..30).map(|_| UserCode::generate(&bytes).letters()).collect();
        for letter in ALPHABET {
            assert_eq!(letters.matches(char::from(*letter)).count(), 12);
        }
    }

    proptest! {
        #[test]
        fn formatted_code_parses_to_the_same_code(seed: u64) {
            let code = UserCode::generate(&SeededEntropy::new(seed));
            prop_assert_eq!(code.to_string().parse(), Ok(code));
            prop_assert_eq!(code.letters().to_lowercase().parse(), Ok(code));
        }

        #[test]
        fn parsing_never_panics(text in ".{0,40}") {
            let _ = text.parse::<UserCode>();
        }
    }
}
