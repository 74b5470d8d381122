//! Credentials and single-use tokens.

#![no_main]

use hashing::{RawToken, SeededEntropy, TokenKind};
use libfuzzer_sys::fuzz_target;

// A text, and a byte that replaces one of a valid token.
fuzz_target!(|input: (&str, u64, u8, u8)| {
    let (text, seed, place, byte) = input;
    check(text);
    let kind = TokenKind::ALL[seed as usize % TokenKind::ALL.len()];
    let token = RawToken::generate(kind, &SeededEntropy::new(seed));
    check(token.expose());
    let mut changed = token.expose().as_bytes().to_vec();
    let place = usize::from(place) % changed.len();
    changed[place] = byte;
    if let Ok(changed) = str::from_utf8(&changed) {
        check(changed);
        assert!(
            changed == token.expose() || RawToken::parse(kind, changed).is_err(),
            "the checksum finds a changed byte"
        );
    }
});

fn check(text: &str) {
    let parsed = TokenKind::ALL.map(|kind| RawToken::parse(kind, text).ok());
    let count = parsed.iter().flatten().count();
    assert!(count <= 1, "a token has one kind");
    assert_eq!(RawToken::parse_any(&TokenKind::ALL, text).is_ok(), count == 1);
    for token in parsed.iter().flatten() {
        assert_eq!(token.expose(), text);
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
    }
}
