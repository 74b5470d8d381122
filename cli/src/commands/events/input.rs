//! Input of events: one event, a list, or NDJSON, which is read line by line with bounded memory. Lines can be rejects of an earlier
//! delivery in place of events.

use std::io::{self, BufRead, Cursor, Read};

use serde_json::value::RawValue;

use super::lines::LineRanges;
use super::rejects::Reject;
use crate::framework::error::{CliError, ErrorKind, Result};

/// Maximum length of a line: four times that of an event, to allow for white space.
const MAX_LINE_BYTES: usize = 1024 * 1024;
/// Maximum length of a single event on several lines.
const MAX_EVENT_BYTES: usize = 1024 * 1024;
/// Maximum length of a list, which is read into memory. NDJSON has no limit.
const MAX_LIST_BYTES: usize = 256 * 1024 * 1024;

/// One line, or one item of a list.
#[derive(Debug)]
pub(super) struct InputItem {
    /// Line, or position in the list, from 1.
    pub(super) line: u64,
    pub(super) json: std::result::Result<Box<RawValue>, InvalidJson>,
}

/// A line that is not JSON, or too long.
#[derive(Debug)]
pub(super) struct InvalidJson {
    /// Error code of the API.
    pub(super) code: &'static str,
    pub(super) message: String,
    /// Text of the line.
    pub(super) text: String,
    /// Whether `text` is only the start of the line.
    pub(super) truncated: bool,
}

/// Iterator over the items of a source.
pub(super) struct EventReader {
    items: Items,
    /// Lines that are not read.
    skipped: LineRanges,
}

enum Items {
    /// NDJSON.
    Lines(Lines),
    /// One event, or a list.
    Document(std::iter::Enumerate<std::vec::IntoIter<Box<RawValue>>>),
}

impl EventReader {
    /// Detects the format from the first bytes.
    pub(super) fn new(mut reader: Box<dyn BufRead + Send>) -> Result<Self> {
        let mut lines = 0;
        let items = match first_byte(&mut reader, &mut lines).map_err(|error| unreadable(&error))? {
            Some(b'[') => read_list(reader)?,
            _ => read_event_or_lines(reader, lines)?,
        };
        Ok(Self { items, skipped: LineRanges::default() })
    }

    /// Skips these lines, whatever they contain.
    pub(super) fn skipping(self, skipped: LineRanges) -> Self {
        Self { skipped, ..self }
    }
}

impl Iterator for EventReader {
    type Item = io::Result<InputItem>;

    fn next(&mut self) -> Option<Self::Item> {
        let skipped = &self.skipped;
        match &mut self.items {
            Items::Lines(lines) => lines.next(skipped),
            Items::Document(items) => items
                .map(|(index, json)| InputItem { line: index as u64 + 1, json: Ok(json) })
                .find(|item| !skipped.contains(item.line))
                .map(Ok),
        }
    }
}

/// Skips white space and a byte order mark, counts the skipped lines, and returns the next byte without consuming it.
fn first_byte(reader: &mut Box<dyn BufRead + Send>, lines: &mut u64) -> io::Result<Option<u8>> {
    if reader.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
        reader.consume(3);
    }
    loop {
        let Some(&next) = reader.fill_buf()?.first() else {
            return Ok(None);
        };
        if !next.is_ascii_whitespace() {
            return Ok(Some(next));
        }
        *lines += u64::from(next == b'\n');
        reader.consume(1);
    }
}

fn read_list(reader: Box<dyn BufRead + Send>) -> Result<Items> {
    let mut text = Vec::new();
    reader.take(MAX_LIST_BYTES as u64 + 1).read_to_end(&mut text).map_err(|error| unreadable(&error))?;
    if text.len() > MAX_LIST_BYTES {
        return Err(ErrorKind::InputInvalid
            .with_message(format!("the list of events is larger than {} MiB", MAX_LIST_BYTES >> 20))
            .with_remediation("Send the events as NDJSON (one event per line), which has no size limit."));
    }
    let items: Vec<Box<RawValue>> = serde_json::from_slice(&text).map_err(|error| {
        ErrorKind::InputInvalid.with_message(format!("the list of events is not JSON: {error}"))
    })?;
    Ok(Items::Document(items.into_iter().enumerate()))
}

/// Reads one event on several lines if the first line is an incomplete JSON value, and NDJSON otherwise.
fn read_event_or_lines(mut reader: Box<dyn BufRead + Send>, skipped: u64) -> Result<Items> {
    let mut head = Vec::new();
    let mut limited = reader.by_ref().take(MAX_EVENT_BYTES as u64);
    limited.read_until(b'\n', &mut head).map_err(|error| unreadable(&error))?;
    if is_incomplete_json(&head) {
        limited.read_to_end(&mut head).map_err(|error| unreadable(&error))?;
        let at_end = reader.fill_buf().map_err(|error| unreadable(&error))?.is_empty();
        if let (true, Ok(event)) = (at_end, serde_json::from_slice(&head)) {
            return Ok(Items::Document(vec![event].into_iter().enumerate()));
        }
    }
    Ok(Items::Lines(Lines { reader: Box::new(Cursor::new(head).chain(reader)), line: skipped }))
}

fn is_incomplete_json(text: &[u8]) -> bool {
    matches!(serde_json::from_slice::<serde::de::IgnoredAny>(text), Err(error) if error.is_eof())
}

/// Non-blank lines of a source.
pub(super) struct Lines {
    reader: Box<dyn BufRead + Send>,
    line: u64,
}

impl Lines {
    fn next(&mut self, skipped: &LineRanges) -> Option<io::Result<InputItem>> {
        loop {
            let mut text = Vec::new();
            match self.reader.by_ref().take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut text) {
                Ok(0) => return None,
                Ok(_) => self.line += 1,
                Err(error) => return Some(Err(error)),
            }
            if text.len() == MAX_LINE_BYTES && !text.ends_with(b"\n") {
                match self.skip_long_line(&text) {
                    Ok(item) if skipped.contains(item.line) => continue,
                    item => return Some(item),
                }
            }
            if !skipped.contains(self.line) && !text.trim_ascii().is_empty() {
                return Some(Ok(InputItem { line: self.line, json: parse(&text) }));
            }
        }
    }

    fn skip_long_line(&mut self, prefix: &[u8]) -> io::Result<InputItem> {
        self.reader.skip_until(b'\n')?;
        let invalid = InvalidJson {
            code: contract::ProblemKind::EventTooLarge.code(),
            message: format!("the line is longer than {} KiB", MAX_LINE_BYTES >> 10),
            text: String::from_utf8_lossy(&prefix[..256]).into_owned(),
            truncated: true,
        };
        Ok(InputItem { line: self.line, json: Err(invalid) })
    }
}

/// Parses an event, or a reject that contains one.
fn parse(text: &[u8]) -> std::result::Result<Box<RawValue>, InvalidJson> {
    match Reject::parse(text) {
        None => parse_event(text),
        Some(Reject { event: Some(event), .. }) => Ok(event),
        Some(Reject { text, truncated, .. }) => {
            let text = text.unwrap_or_default();
            parse_event(text.as_bytes()).map_err(|invalid| InvalidJson { truncated, ..invalid })
        }
    }
}

fn parse_event(text: &[u8]) -> std::result::Result<Box<RawValue>, InvalidJson> {
    serde_json::from_slice(text).map_err(|error| InvalidJson {
        code: contract::ProblemKind::MalformedJson.code(),
        // The text of serde's error describes the parser.
        message: if error.is_eof() { "the line is not complete JSON" } else { "the line is not JSON" }
            .to_owned(),
        text: String::from_utf8_lossy(text.trim_ascii()).into_owned(),
        truncated: false,
    })
}

fn unreadable(error: &io::Error) -> CliError {
    ErrorKind::InputUnreadable.with_message(error.to_string())
}

/// Lines and JSON of the items of an input, or the texts that are not JSON; `None` if it is not NDJSON, an event or a list.
#[cfg(fuzzing)]
pub fn fuzzed(input: &[u8]) -> Option<Vec<(u64, std::result::Result<String, String>)>> {
    let items = EventReader::new(Box::new(Cursor::new(input.to_vec()))).ok()?;
    let items = items.map(|item| {
        let item = item.expect("memory is readable");
        (item.line, item.json.map(|json| json.get().to_owned()).map_err(|invalid| invalid.text))
    });
    Some(items.collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Line and JSON, or line and error code, of each item.
    fn items(text: &[u8]) -> Result<Vec<(u64, String)>> {
        let items = EventReader::new(Box::new(Cursor::new(text.to_vec())))?;
        Ok(items
            .map(|item| item.unwrap())
            .map(|item| {
                (
                    item.line,
                    item.json.map_or_else(|invalid| invalid.code.to_owned(), |json| json.get().to_owned()),
                )
            })
            .collect())
    }

    fn owned(items: &[(u64, &str)]) -> Vec<(u64, String)> {
        items.iter().map(|&(line, text)| (line, text.to_owned())).collect()
    }

    #[test]
    fn keeps_bytes_and_line_numbers() {
        let text = b"\xef\xbb\xbf\n{\"a\": 1.50}\r\n\n  {\"b\":2}\n{\"c\":3}";
        assert_eq!(items(text).unwrap(), owned(&[(2, "{\"a\": 1.50}"), (4, "{\"b\":2}"), (5, "{\"c\":3}")]));
    }

    #[test]
    fn invalid_line_does_not_affect_others() {
        let text = b"{\"a\":1}\n{\"b\":\nnonsense\n{\"c\":\"\xff\"}\n{\"d\":4}\n";
        let malformed = "malformed_json";
        let expected = [(1, "{\"a\":1}"), (2, malformed), (3, malformed), (4, malformed), (5, "{\"d\":4}")];
        assert_eq!(items(text).unwrap(), owned(&expected));
        let truncated_first = b"{\"a\":\n{\"b\":2}\n";
        assert_eq!(items(truncated_first).unwrap(), owned(&[(1, malformed), (2, "{\"b\":2}")]));
    }

    #[test]
    fn error_of_a_line_does_not_repeat_the_parser() {
        let items = EventReader::new(Box::new(Cursor::new(b"{}\n{\"a\":1,\n".to_vec()))).unwrap();
        let errors: Vec<_> = items.filter_map(|item| item.unwrap().json.err()).collect();
        assert_eq!(errors[0].message, "the line is not complete JSON");
    }

    #[test]
    fn reads_one_event_on_several_lines() {
        assert_eq!(items(b"\n{\n  \"a\": 1\n}\n").unwrap(), owned(&[(1, "{\n  \"a\": 1\n}")]));
        assert_eq!(items(b"{\"a\":1}").unwrap(), owned(&[(1, "{\"a\":1}")]));
    }

    #[test]
    fn reads_items_of_a_list() {
        assert_eq!(
            items(b" [ {\"a\" : 1},\n{\"b\":2} ]\n").unwrap(),
            owned(&[(1, "{\"a\" : 1}"), (2, "{\"b\":2}")])
        );
        assert_eq!(items(b"[]").unwrap(), owned(&[]));
        assert_eq!(items(b"[{},").unwrap_err().code, "input_invalid");
    }

    #[test]
    fn skips_a_line_that_is_too_long() {
        let long = format!("{{\"a\":\"{}\"}}\n{{\"b\":2}}\n", "x".repeat(3 * MAX_LINE_BYTES));
        assert_eq!(items(long.as_bytes()).unwrap(), owned(&[(1, "event_too_large"), (2, "{\"b\":2}")]));
    }

    #[test]
    fn rejects_are_read_in_place_of_events() {
        let reject = |part: &str| {
            format!(r#"{{"line":9,"event_id":null,"code":"c","message":"m","retryable":false,{part}}}"#)
        };
        let text = [
            reject(r#""event":{"n":1.50e+2,"b" : 2}"#),
            reject(r#""text":"{\"corrected\": 1}""#),
            reject(r#""text":"still wrong""#),
            r#"{"source_id":"fw"}"#.to_owned(),
        ];
        let expected = [
            (1, r#"{"n":1.50e+2,"b" : 2}"#),
            (2, r#"{"corrected": 1}"#),
            (3, "malformed_json"),
            (4, r#"{"source_id":"fw"}"#),
        ];
        assert_eq!(items(text.join("\n").as_bytes()).unwrap(), owned(&expected));
    }

    #[test]
    fn skips_lines_without_changing_the_numbers_of_others() {
        let mut skipped = LineRanges::default();
        skipped.insert(2, 3);
        for text in [&b"{\"a\":1}\nnonsense\n\n{\"b\":4}\n"[..], b"[{\"a\":1}, 2, 3, {\"b\":4}]"] {
            let reader = EventReader::new(Box::new(Cursor::new(text.to_vec()))).unwrap();
            let lines: Vec<_> = reader.skipping(skipped.clone()).map(|item| item.unwrap().line).collect();
            assert_eq!(lines, [1, 4]);
        }
    }

    #[test]
    fn empty_source_has_no_items() {
        assert_eq!(items(b"").unwrap(), owned(&[]));
        assert_eq!(items(b" \n\n").unwrap(), owned(&[]));
    }

    proptest! {
        #[test]
        fn line_numbers_increase_for_any_input(text in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(items) = items(&text) {
                prop_assert!(items.windows(2).all(|pair| pair[0].0 < pair[1].0));
            }
        }

        #[test]
        fn returns_every_line_of_json_once(values in prop::collection::vec("\\{\"k\":\"[a-z]{0,8}\"\\}", 2..20)) {
            let read = items(values.join("\n").as_bytes()).unwrap();
            prop_assert_eq!(read.into_iter().map(|(_, json)| json).collect::<Vec<_>>(), values);
        }
    }
}
