//! How deep JSON is nested.

/// Whether lists and objects of this JSON stand more than `limit` deep in each other.
///
/// The bytes must be JSON; of anything else the answer means nothing.
pub(super) fn exceeds(json: &[u8], limit: usize) -> bool {
    let mut depth = 0_usize;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' if depth == limit => return true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    false
}

/// Moves past the end of the string that has just begun.
fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::exceeds;

    #[test]
    fn brackets_count_and_those_in_strings_do_not() {
        assert!(!exceeds(br#"{"a":[{}]}"#, 3));
        assert!(exceeds(br#"{"a":[{}]}"#, 2));
        assert!(!exceeds(br#"{"[[[{\"[[":"\\","b":"[\\\"["}"#, 1));
        assert!(!exceeds(b"[[],[],[],{}]", 2));
    }
}
