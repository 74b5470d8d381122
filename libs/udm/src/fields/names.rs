//! The two spellings of a name in the JSON of protobuf, and names that differ from both of them only in case, `_` and `-`.

use std::borrow::Cow;

use serde::Deserialize;

use super::{Field, Object};

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
    pub(crate) const fn from_original(original: &str) -> Self {
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
}

/// Returns the second spelling of a name of any length.
pub(crate) fn json_name(original: &str) -> String {
    let mut words = original.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.filter(|word| !word.is_empty()).fold(first, |name, word| {
        let (letter, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        name + &letter.to_ascii_uppercase() + rest
    })
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

/// Weights of the bytes of a name in its hash: 0 for separators, and the same for both cases of a letter.
const WEIGHTS: [u32; 256] = {
    let mut weights = [0; 256];
    let mut byte = 0_u8;
    while byte < u8::MAX {
        if byte != b'_' && byte != b'-' {
            let letter = byte.to_ascii_lowercase() as u32;
            weights[byte as usize] = (letter * letter * letter).wrapping_mul(0x9e37_79b1);
        }
        byte += 1;
    }
    weights
};

/// Returns the hash of a name, which is the same for names that differ only in case, `_` and `-` of ASCII.
#[inline]
pub(super) const fn hash(name: &str) -> u32 {
    let (name, mut hash, mut index) = (name.as_bytes(), 0_u32, 0);
    while index < name.len() {
        hash = hash.wrapping_add(WEIGHTS[name[index] as usize]);
        index += 1;
    }
    hash
}

/// The slot at which the search for a hash begins, in a table of a power of two.
const fn first_slot(hash: u32, slots: usize) -> usize {
    (hash >> 15) as usize & (slots - 1)
}

/// Returns a hash table with open addressing: the number of each field plus 1, and 0 for a free slot. At least half are free.
#[expect(clippy::cast_possible_truncation, reason = "the number of a field is checked")]
pub(super) const fn slots<const N: usize>(names: &[&str]) -> [u8; N] {
    let (mut slots, mut number) = ([0; N], 0);
    while number < names.len() {
        let mut slot = first_slot(hash(names[number]), N);
        while slots[slot] != 0 {
            slot = (slot + 1) & (N - 1);
        }
        number += 1;
        assert!(number <= u8::MAX as usize, "an object has at most 255 fields");
        slots[slot] = number as u8;
    }
    slots
}

/// Finds the field of an object that a name means.
#[inline]
pub(crate) fn find(object: &'static Object, name: &str) -> Meaning {
    let (hash, slots) = (hash(name), object.slots);
    let mut slot = first_slot(hash, slots.len());
    while let Some(number) = usize::from(slots[slot]).checked_sub(1) {
        let field = &object.fields[number];
        if field.hash == hash {
            if field.name == name {
                return Meaning::Known(field, Spelling::Original);
            }
            if field.json_name == name {
                return Meaning::Known(field, Spelling::Json);
            }
            if is_same_name(field.name, name) {
                return Meaning::Misspelled(field);
            }
        }
        slot = (slot + 1) & (slots.len() - 1);
    }
    if name.is_ascii() { Meaning::Unknown } else { find_folded(object, name) }
}

/// Finds the field of a name with letters that are not ASCII, which the hash does not include.
#[cold]
fn find_folded(object: &'static Object, name: &str) -> Meaning {
    let field = object.fields.iter().find(|field| is_same_name(field.name, name));
    field.map_or(Meaning::Unknown, Meaning::Misspelled)
}

/// Returns whether two names differ at most in case and separators.
pub(crate) fn is_same_name(one: &str, other: &str) -> bool {
    folded(one).eq(folded(other))
}

/// Returns the letters of a name without case and separators. Parsers that ignore case could take two names with the same letters
/// for one: Go folds the case of Unicode, where `ſ` equals `s` and the Kelvin sign equals `k`.
fn folded(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(|c| !matches!(c, '_' | '-')).map(|c| match c {
        'ſ' => 's',
        '\u{212a}' => 'k',
        _ => c.to_ascii_lowercase(),
    })
}
