//! The two spellings of a name in the JSON of protobuf, and names that differ from both of them only in case, `_` and `-`.

use std::borrow::Cow;

use serde::Deserialize;

use super::Field;

/// Maximum length of a known name.
const MAX_NAME_BYTES: usize = 64;

/// The second spelling of a name: that of the JSON mapping of protobuf.
pub(crate) struct JsonName {
    bytes: [u8; MAX_NAME_BYTES],
    length: usize,
}

impl JsonName {
    /// Derives the name from the original one, as protobuf does (`ToJsonName` in `descriptor.cc`): removes each `_` and makes the
    /// following letter upper case.
    pub(crate) const fn of(original: &str) -> Self {
        let (original, mut name) = (original.as_bytes(), Self { bytes: [0; MAX_NAME_BYTES], length: 0 });
        let (mut index, mut is_upper) = (0, false);
        while index < original.len() {
            let byte = original[index];
            if byte != b'_' {
                name.bytes[name.length] = if is_upper { byte.to_ascii_uppercase() } else { byte };
                name.length += 1;
            }
            is_upper = byte == b'_';
            index += 1;
        }
        name
    }

    pub(crate) const fn as_str(&self) -> &str {
        match str::from_utf8(self.bytes.split_at(self.length).0) {
            Ok(name) => name,
            Err(_) => panic!("known names are ASCII"),
        }
    }

    /// Returns the first and the last letter in lower case.
    pub(crate) const fn ends(&self) -> [char; 2] {
        let last = self.bytes[self.length - 1].to_ascii_lowercase();
        [self.bytes[0] as char, last as char]
    }
}

/// A spelling of a known name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Spelling {
    /// `snake_case`.
    Original,
    /// `lowerCamelCase`. A name of one word has the spelling [`Original`](Self::Original) only.
    Json,
}

/// A name in JSON. It is copied only if it contains escape sequences.
#[derive(Deserialize)]
pub(crate) struct Name<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// What a name in an object means.
pub(crate) enum Meaning {
    Known(&'static Field, Spelling),
    /// Only the spelling differs from this known field.
    Misspelled(&'static Field),
    Unknown,
}

impl Field {
    /// Returns the name in a spelling.
    pub(crate) fn spelled(&self, spelling: Spelling) -> &'static str {
        match spelling {
            Spelling::Original => self.name,
            Spelling::Json => self.json_name,
        }
    }

    /// Returns whether the spellings differ.
    pub(crate) fn has_two_spellings(&self) -> bool {
        self.name != self.json_name
    }

    /// Returns the text for the sender of a misspelled name.
    pub(crate) fn correction(&self) -> String {
        if self.has_two_spellings() {
            format!("write this name as {} or {}", self.name, self.json_name)
        } else {
            format!("write this name as {}", self.name)
        }
    }
}

/// Finds the field of an object that a name means.
#[inline]
pub(crate) fn find(fields: &'static [Field], name: &str) -> Meaning {
    match fields.iter().find(|field| field.name == name) {
        Some(field) => Meaning::Known(field, Spelling::Original),
        None => find_other(fields, name),
    }
}

/// Finds the field of a name that is no original one. The first and the last letter exclude most fields.
fn find_other(fields: &'static [Field], name: &str) -> Meaning {
    let ends = ends(name);
    for field in fields.iter().filter(|field| field.ends == ends) {
        if field.json_name == name {
            return Meaning::Known(field, Spelling::Json);
        }
        if is_same_name(field.name, name) {
            return Meaning::Misspelled(field);
        }
    }
    Meaning::Unknown
}

/// Returns whether two names differ at most in case and separators.
pub(crate) fn is_same_name(one: &str, other: &str) -> bool {
    folded(one).eq(folded(other))
}

/// Returns the first and the last letter of a name without case and separators.
fn ends(name: &str) -> [char; 2] {
    match name.as_bytes() {
        [first, .., last] if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() => {
            [first, last].map(|letter| char::from(letter.to_ascii_lowercase()))
        }
        _ => {
            let mut letters = folded(name);
            let first = letters.next().unwrap_or_default();
            [first, letters.next_back().unwrap_or(first)]
        }
    }
}

/// Returns the letters of a name without case and separators. Parsers that ignore case could take two names with the same letters
/// for one: Go folds the case of Unicode, where `ſ` equals `s` and the Kelvin sign equals `k`.
fn folded(name: &str) -> impl DoubleEndedIterator<Item = char> {
    name.chars().filter(|c| !matches!(c, '_' | '-')).map(|c| match c {
        'ſ' => 's',
        '\u{212a}' => 'k',
        _ => c.to_ascii_lowercase(),
    })
}
