//! Splits a batch into the raw bytes of its events, so that an invalid event does not affect the others.

use std::{fmt, iter};

use serde::de::IgnoredAny;
use serde_json::Deserializer;
use serde_json::value::RawValue;

use crate::parse::{NOT_UTF_8, is_followed_by_object, json_error, located_error, not_json};

/// Maximum number of events in a batch. Shippers that limit only the bytes of a request send up to 2 MB at once.
pub const MAX_BATCH_EVENTS: usize = 10_000;

/// The body is not a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// The body is not JSON.
    #[error("the body is not JSON: {0}")]
    NotJson(String),
    /// The body is JSON, but not a list.
    #[error(
        "the body must be a JSON list of events; send lines as application/x-ndjson, and of a document with events only the list"
    )]
    NotAList,
    /// More than [`MAX_BATCH_EVENTS`].
    #[error("a batch contains at most {MAX_BATCH_EVENTS} events; split it")]
    TooMany,
}

/// Returns the bytes of the items of a JSON list. The iterator is lazy and ends after the first error.
///
/// If one item is not JSON, the whole body is rejected, because the start of the next item is unknown.
pub fn split_list(body: &[u8]) -> impl Iterator<Item = Result<&[u8], SplitError>> {
    let mut list = Some(List { body, rest: body, items: 0 });
    iter::from_fn(move || {
        let item = list.as_mut()?.next_item().transpose();
        if !matches!(item, Some(Ok(_))) {
            list = None;
        }
        item
    })
}

/// Returns the non-blank lines of an NDJSON body, without a check of their content and without byte order marks. If there are more than
/// [`MAX_BATCH_EVENTS`], the last result is [`SplitError::TooMany`].
pub fn split_lines(body: &[u8]) -> impl Iterator<Item = Result<&[u8], SplitError>> {
    let lines = body.split(|byte| *byte == b'\n').map(trimmed_line).filter(|line| !line.is_empty());
    let results = lines.enumerate().map(|(index, line)| check_count(index).map(|()| line));
    results.take(MAX_BATCH_EVENTS + 1)
}

/// The line of a file that follows another one can begin with the byte order mark of the file.
fn trimmed_line(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    line.strip_prefix(b"\xef\xbb\xbf").map_or(line, <[u8]>::trim_ascii_start)
}

fn check_count(earlier_items: usize) -> Result<(), SplitError> {
    if earlier_items < MAX_BATCH_EVENTS { Ok(()) } else { Err(SplitError::TooMany) }
}

/// A JSON list and the position of the next item.
struct List<'a> {
    body: &'a [u8],
    rest: &'a [u8],
    items: usize,
}

impl<'a> List<'a> {
    fn next_item(&mut self) -> Result<Option<&'a [u8]>, SplitError> {
        match (self.items, self.take_byte()) {
            (0, Some(b'[')) => {
                self.skip_space();
                if let [b']', rest @ ..] = self.rest {
                    self.rest = rest;
                    return self.end();
                }
            }
            (0, _) => return Err(self.not_a_list()),
            (1.., Some(b',')) => {}
            (1.., Some(b']')) => return self.end(),
            (items, _) => {
                let error = format!("expected `,` or `]` after the item with index {}", items - 1);
                return Err(self.not_json(error));
            }
        }
        let index = self.items;
        check_count(index)?;
        self.items += 1;
        self.skip_space();
        let mut values = Deserializer::from_slice(self.rest).into_iter::<&RawValue>();
        let item = match values.next() {
            Some(Ok(item)) => item.get().as_bytes(),
            Some(Err(error)) => {
                let item = format!("item with index {index}: ");
                // The first such byte of the body is in this item. After another error, it can be in a later one.
                if json_error(&error) == NOT_UTF_8 {
                    return Err(SplitError::NotJson(item + &not_json(self.body, error)));
                }
                return Err(self.not_json(format!("{item}{} of the item", located_error(&error))));
            }
            None => {
                return Err(self.not_json(format!("the body ends before the item with index {index}")));
            }
        };
        self.rest = &self.rest[values.byte_offset()..];
        Ok(Some(item))
    }

    fn end(&mut self) -> Result<Option<&'a [u8]>, SplitError> {
        match self.take_byte() {
            None => Ok(None),
            Some(_) => Err(self.not_json("there are characters after the list")),
        }
    }

    /// Returns the next byte that is not white space.
    fn take_byte(&mut self) -> Option<u8> {
        self.skip_space();
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    /// White space of JSON: RFC 8259, section 2.
    fn skip_space(&mut self) {
        while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn not_a_list(&self) -> SplitError {
        let text = match str::from_utf8(self.body) {
            Ok(text) => text,
            Err(error) => return self.not_json(error),
        };
        match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => SplitError::NotAList,
            Err(error) if is_followed_by_object(self.body) => self.not_json(format!(
                "{}; send several events as lines with Content-Type: application/x-ndjson",
                located_error(&error)
            )),
            Err(error) => self.not_json(located_error(&error)),
        }
    }

    fn not_json(&self, error: impl fmt::Display) -> SplitError {
        SplitError::NotJson(not_json(self.body, error))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list_items(body: &[u8]) -> Result<Vec<&[u8]>, SplitError> {
        split_list(body).collect()
    }

    fn line_items(body: &[u8]) -> Result<Vec<&[u8]>, SplitError> {
        split_lines(body).collect()
    }

    #[test]
    fn items_keep_their_bytes() {
        let items = list_items(br#" [ {"a" : 1.0} ,"x", null,[ 1 ], {"b":[2 , 3]}] "#).unwrap();
        let expected: [&[u8]; 5] = [br#"{"a" : 1.0}"#, br#""x""#, b"null", b"[ 1 ]", br#"{"b":[2 , 3]}"#];
        assert_eq!(items, expected);
        assert!(list_items(b"[]").unwrap().is_empty());
    }

    #[test]
    fn malformed_item_makes_the_body_malformed() {
        let broken: [&[u8]; 13] = [
            b"",
            b"[",
            b"[{},",
            b"[{},]",
            b"[{} {}]",
            b"[{]",
            b"[{}]]",
            b"[]1",
            b"[\x0c{}]",
            b"[\"\xff\"]",
            b"\"\xff\"",
            b"{\"a\":\"\xff\"}",
            b"{\"a\":",
        ];
        for body in broken {
            assert!(matches!(list_items(body), Err(SplitError::NotJson(_))), "{body:?}");
        }
    }

    #[test]
    fn error_names_the_malformed_item() {
        for (body, expected) in [
            (
                "[{}, {\"a\":}]",
                "item with index 1: expected a value (NaN, Infinity, None and single quotes are not JSON) at line 1 column 6 of the item",
            ),
            ("[{} {}]", "expected `,` or `]` after the item with index 0"),
            ("[{}, ", "the body ends before the item with index 1"),
            ("[{}] []", "there are characters after the list"),
            (
                "{\"a\":1}\n{\"a\":2}",
                "characters after the end of the value at line 2 column 1; send several events as lines with Content-Type: application/x-ndjson",
            ),
        ] {
            assert_eq!(list_items(body.as_bytes()), Err(SplitError::NotJson(expected.to_owned())), "{body}");
        }
    }

    #[test]
    fn error_names_the_first_byte_of_the_body_that_is_not_utf_8_and_its_item() {
        let utf_16: Vec<u8> = "[{}]".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (body, expected) in [
            (&b"[{\"a\":\"\xfc\"}]"[..], "item with index 0: it is not UTF-8 at byte 8; send UTF-8"),
            (b"[{}, {\"a\":\"\xfc\"}]", "item with index 1: it is not UTF-8 at byte 12; send UTF-8"),
            (b"[{\"a\":}, \"\xfc\"]", "it is not UTF-8 at byte 11; send UTF-8"),
            (&b"{\"a\":\"\xfc\"}"[..], "it is not UTF-8 at byte 7; send UTF-8"),
            (&utf_16[..], "it is not UTF-8 at byte 2, and looks like UTF-16; send UTF-8"),
            (&b"\xff\xfe["[..], "it is not UTF-8 at byte 1, and looks like UTF-16; send UTF-8"),
        ] {
            assert_eq!(list_items(body), Err(SplitError::NotJson(expected.to_owned())), "{body:?}");
        }
    }

    #[test]
    fn items_before_a_malformed_one_are_read() {
        let results: Vec<_> = split_list(b"[1, 2, ?, 4]").map(Result::ok).collect();
        assert_eq!(results, [Some(&b"1"[..]), Some(b"2"), None]);
    }

    #[test]
    fn other_json_is_distinguished_from_malformed_json() {
        for body in ["{}", "null", "1", "\"[]\""] {
            assert_eq!(list_items(body.as_bytes()), Err(SplitError::NotAList), "{body}");
        }
    }

    #[test]
    fn a_batch_has_a_maximum_number_of_events() {
        for (events, expected) in
            [(MAX_BATCH_EVENTS, Ok(MAX_BATCH_EVENTS)), (MAX_BATCH_EVENTS + 1, Err(SplitError::TooMany))]
        {
            let list = format!("[{}]", vec!["{}"; events].join(","));
            assert_eq!(list_items(list.as_bytes()).map(|items| items.len()), expected);
            assert_eq!(line_items("{}\n".repeat(events).as_bytes()).map(|items| items.len()), expected);
        }
    }

    #[test]
    fn blank_lines_are_skipped_and_malformed_lines_are_kept() {
        let lines = line_items(b"\r\n{\"a\":1}\r\n\n  \t\n{broken\n{\"b\":2}").unwrap();
        let expected: [&[u8]; 3] = [b"{\"a\":1}", b"{broken", b"{\"b\":2}"];
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_byte_order_marks_of_concatenated_files_are_removed() {
        let lines = line_items("\u{feff}{}\r\n\u{feff} {\"a\":\"\u{feff}\"}\n\u{feff}\n".as_bytes()).unwrap();
        assert_eq!(lines, [&b"{}"[..], "{\"a\":\"\u{feff}\"}".as_bytes()]);
    }

    proptest! {
        #[test]
        fn lists_split_into_their_items(
            items in prop::collection::vec(r#"(\{"k":"([a-z,\]\[{}]|\\"){0,9}"\}|-?[1-9][0-9]{0,5}|"[a-zäß]{0,6}")"#, 0..20),
            space in "[ \n\t]{0,2}",
        ) {
            let body = format!("{space}[{space}{}{space}]{space}", items.join(&format!("{space},{space}")));
            let split = list_items(body.as_bytes()).unwrap();
            prop_assert_eq!(split, items.iter().map(String::as_bytes).collect::<Vec<_>>());
        }

        #[test]
        fn a_body_is_a_list_exactly_if_serde_json_reads_it_as_one(
            tokens in prop::collection::vec(prop::sample::select(vec!["[", "]", ",", "{}", "1", "-", "null", " ", "\"a\"", "\\", "x"]), 0..8),
            in_brackets in any::<bool>(),
        ) {
            let tokens = tokens.concat();
            let body = if in_brackets { format!("[{tokens}]") } else { tokens };
            let expected = serde_json::from_str::<Vec<&RawValue>>(&body).ok();
            let expected = expected.map(|items| items.iter().map(|item| item.get().as_bytes()).collect::<Vec<_>>());
            prop_assert_eq!(list_items(body.as_bytes()).ok(), expected);
        }

        #[test]
        fn splitting_never_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = list_items(&body);
            let _ = line_items(&body);
        }
    }
}
