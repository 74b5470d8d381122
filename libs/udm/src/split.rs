//! Splits a batch into the raw bytes of its events, so that an invalid event does not affect the others.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Maximum number of events in a batch.
pub const MAX_BATCH_EVENTS: usize = 1_000;

/// The body is not a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// The body is not JSON.
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    /// The body is JSON, but not a list.
    #[error("the body must be a JSON list of events")]
    NotAList,
    /// More than [`MAX_BATCH_EVENTS`].
    #[error("a batch contains at most {MAX_BATCH_EVENTS} events; split it")]
    TooMany,
}

/// Returns the bytes of the items of a JSON list.
///
/// If one item is not JSON, the whole body is rejected, because the start of the next item is unknown.
pub fn split_list(body: &[u8]) -> Result<Vec<&[u8]>, SplitError> {
    let text = str::from_utf8(body).map_err(|error| SplitError::NotJson(error.to_string()))?;
    match serde_json::from_str::<Items>(text) {
        Ok(Items(items)) if items.len() > MAX_BATCH_EVENTS => Err(SplitError::TooMany),
        Ok(Items(items)) => Ok(items),
        Err(error) => Err(match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => SplitError::NotAList,
            Err(_) => SplitError::NotJson(error.to_string()),
        }),
    }
}

/// Returns the lines of an NDJSON body that are not blank. The content of the lines is not checked.
pub fn split_lines(body: &[u8]) -> Result<Vec<&[u8]>, SplitError> {
    let lines = body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let items: Vec<_> = lines.take(MAX_BATCH_EVENTS + 1).collect();
    if items.len() > MAX_BATCH_EVENTS { Err(SplitError::TooMany) } else { Ok(items) }
}

/// At most one item more than allowed. Further items are only checked for valid syntax.
struct Items<'a>(Vec<&'a [u8]>);

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ItemsVisitor)
    }
}

struct ItemsVisitor;

impl<'de> Visitor<'de> for ItemsVisitor {
    type Value = Items<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() <= MAX_BATCH_EVENTS {
            let Some(item) = list.next_element::<&RawValue>()? else {
                return Ok(Items(items));
            };
            items.push(item.get().as_bytes());
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Items(items))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn items_keep_their_bytes() {
        let items = split_list(br#" [ {"a" : 1.0} ,"x", null,[ 1 ], {"b":[2 , 3]}] "#).unwrap();
        let expected: [&[u8]; 5] = [br#"{"a" : 1.0}"#, br#""x""#, b"null", b"[ 1 ]", br#"{"b":[2 , 3]}"#];
        assert_eq!(items, expected);
        assert!(split_list(b"[]").unwrap().is_empty());
    }

    #[test]
    fn malformed_item_makes_the_body_malformed() {
        let broken: [&[u8]; 7] = [b"", b"[{},", b"[{} {}]", b"[{]", b"[{}]]", b"[\"\xff\"]", b"{\"a\":"];
        for body in broken {
            assert!(matches!(split_list(body), Err(SplitError::NotJson(_))), "{body:?}");
        }
    }

    #[test]
    fn other_json_is_distinguished_from_malformed_json() {
        for body in ["{}", "null", "1", "\"[]\""] {
            assert_eq!(split_list(body.as_bytes()), Err(SplitError::NotAList), "{body}");
        }
    }

    #[test]
    fn batch_has_at_most_1000_events() {
        let list = |n: usize| format!("[{}]", vec!["{}"; n].join(","));
        assert_eq!(split_list(list(1_000).as_bytes()).unwrap().len(), 1_000);
        assert_eq!(split_list(list(1_001).as_bytes()), Err(SplitError::TooMany));
        assert_eq!(split_lines("{}\n".repeat(1_000).as_bytes()).unwrap().len(), 1_000);
        assert_eq!(split_lines("{}\n".repeat(1_001).as_bytes()), Err(SplitError::TooMany));
        let malformed_after_the_limit = format!("[{}", "{},".repeat(1_500));
        assert!(matches!(split_list(malformed_after_the_limit.as_bytes()), Err(SplitError::NotJson(_))));
    }

    #[test]
    fn blank_lines_are_skipped_and_malformed_lines_are_kept() {
        let lines = split_lines(b"\r\n{\"a\":1}\r\n\n  \t\n{broken\n{\"b\":2}").unwrap();
        let expected: [&[u8]; 3] = [b"{\"a\":1}", b"{broken", b"{\"b\":2}"];
        assert_eq!(lines, expected);
    }

    proptest! {
        #[test]
        fn lists_split_into_their_items(
            items in prop::collection::vec(r#"(\{"k":"([a-z,\]\[{}]|\\"){0,9}"\}|-?[1-9][0-9]{0,5}|"[a-zäß]{0,6}")"#, 0..20),
            space in "[ \n\t]{0,2}",
        ) {
            let body = format!("{space}[{space}{}{space}]{space}", items.join(&format!("{space},{space}")));
            let split = split_list(body.as_bytes()).unwrap();
            prop_assert_eq!(split, items.iter().map(String::as_bytes).collect::<Vec<_>>());
        }

        #[test]
        fn splitting_never_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = split_list(&body);
            let _ = split_lines(&body);
        }
    }
}
