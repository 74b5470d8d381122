//! Input of events: one event, a list, or NDJSON. NDJSON is read line by line with bounded memory.
//!
//! Events without `event_id` get ids. The ids of a file are deterministic, so that sending it twice is harmless.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek};
use std::path::Path;

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::{CliError, ErrorKind, Result};

/// Maximum length of a line: four times that of an event, to allow for white space.
const MAX_LINE_BYTES: usize = 1024 * 1024;
/// Maximum length of a single event on several lines.
const MAX_EVENT_BYTES: usize = 1024 * 1024;
/// Maximum length of a list, which is read into memory. NDJSON has no limit.
const MAX_LIST_BYTES: usize = 256 * 1024 * 1024;

/// An opened file, or standard input.
pub(super) struct InputSource {
    pub(super) reader: Box<dyn BufRead + Send>,
    /// Ids for events without `event_id`.
    pub(super) ids: EventIds,
}

impl InputSource {
    /// Opens a file, or standard input for `-`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self { reader: Box::new(BufReader::new(io::stdin())), ids: EventIds::Random });
        }
        Self::open_file(path)
            .map_err(|error| ErrorKind::InputUnreadable.with_message(format!("{}: {error}", path.display())))
    }

    fn open_file(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        let ids = if metadata.is_file() {
            let ids = EventIds::from_file(&file)?;
            file.rewind()?;
            ids
        } else {
            // A pipe or a device can be read only once.
            EventIds::Random
        };
        Ok(Self { reader: Box::new(BufReader::with_capacity(256 * 1024, file)), ids })
    }
}

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
    /// Text of the line, possibly truncated.
    pub(super) text: String,
}

/// Iterator over the items of a source.
pub(super) enum EventReader {
    /// NDJSON.
    Lines(Lines),
    /// One event, or a list.
    Document(std::iter::Enumerate<std::vec::IntoIter<Box<RawValue>>>),
}

impl EventReader {
    /// Detects the format from the first bytes.
    pub(super) fn new(mut reader: Box<dyn BufRead + Send>) -> Result<Self> {
        let mut lines = 0;
        match first_byte(&mut reader, &mut lines).map_err(|error| unreadable(&error))? {
            Some(b'[') => read_list(reader),
            _ => read_event_or_lines(reader, lines),
        }
    }
}

impl Iterator for EventReader {
    type Item = io::Result<InputItem>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Lines(lines) => lines.next(),
            Self::Document(items) => {
                items.next().map(|(index, json)| Ok(InputItem { line: index as u64 + 1, json: Ok(json) }))
            }
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

fn read_list(reader: Box<dyn BufRead + Send>) -> Result<EventReader> {
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
    Ok(EventReader::Document(items.into_iter().enumerate()))
}

/// Reads one event on several lines if the first line is an incomplete JSON value, and NDJSON otherwise.
fn read_event_or_lines(mut reader: Box<dyn BufRead + Send>, skipped: u64) -> Result<EventReader> {
    let mut head = Vec::new();
    let mut limited = reader.by_ref().take(MAX_EVENT_BYTES as u64);
    limited.read_until(b'\n', &mut head).map_err(|error| unreadable(&error))?;
    if is_incomplete_json(&head) {
        limited.read_to_end(&mut head).map_err(|error| unreadable(&error))?;
        let at_end = reader.fill_buf().map_err(|error| unreadable(&error))?.is_empty();
        if let (true, Ok(event)) = (at_end, serde_json::from_slice(&head)) {
            return Ok(EventReader::Document(vec![event].into_iter().enumerate()));
        }
    }
    Ok(EventReader::Lines(Lines { reader: Box::new(Cursor::new(head).chain(reader)), line: skipped }))
}

fn is_incomplete_json(text: &[u8]) -> bool {
    matches!(serde_json::from_slice::<serde::de::IgnoredAny>(text), Err(error) if error.is_eof())
}

/// Non-blank lines of a source.
pub(super) struct Lines {
    reader: Box<dyn BufRead + Send>,
    line: u64,
}

impl Iterator for Lines {
    type Item = io::Result<InputItem>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut text = Vec::new();
            match self.reader.by_ref().take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut text) {
                Ok(0) => return None,
                Ok(_) => self.line += 1,
                Err(error) => return Some(Err(error)),
            }
            if text.len() == MAX_LINE_BYTES && !text.ends_with(b"\n") {
                return Some(self.skip_long_line(&text));
            }
            if !text.trim_ascii().is_empty() {
                return Some(Ok(InputItem { line: self.line, json: parse(&text) }));
            }
        }
    }
}

impl Lines {
    fn skip_long_line(&mut self, prefix: &[u8]) -> io::Result<InputItem> {
        self.reader.skip_until(b'\n')?;
        let invalid = InvalidJson {
            code: contract::ProblemKind::EventTooLarge.code(),
            message: format!("the line is longer than {} KiB", MAX_LINE_BYTES >> 10),
            text: String::from_utf8_lossy(&prefix[..256]).into_owned(),
        };
        Ok(InputItem { line: self.line, json: Err(invalid) })
    }
}

fn parse(text: &[u8]) -> std::result::Result<Box<RawValue>, InvalidJson> {
    serde_json::from_slice(text).map_err(|error| InvalidJson {
        code: contract::ProblemKind::MalformedJson.code(),
        // The text of serde's error describes the parser.
        message: if error.is_eof() { "the line is not complete JSON" } else { "the line is not JSON" }
            .to_owned(),
        text: String::from_utf8_lossy(text.trim_ascii()).into_owned(),
    })
}

fn unreadable(error: &io::Error) -> CliError {
    ErrorKind::InputUnreadable.with_message(error.to_string())
}

/// Namespace of ids derived from a file and a line: UUIDv5 of `svc.events.line` in the DNS namespace of RFC 9562.
const NAMESPACE: Uuid = Uuid::from_u128(0x94b4_da3d_c139_5ff3_921b_6f8a_b463_b7c4);

/// Source of event ids.
#[derive(Clone, Copy, Debug)]
pub(super) enum EventIds {
    /// Derived from the SHA-256 of a file and the line.
    Deterministic([u8; 32]),
    /// Different in each run.
    Random,
}

impl EventIds {
    /// Reads the file to its end. The ids do not depend on its name.
    pub(super) fn from_file(file: &File) -> io::Result<Self> {
        let mut digest = Sha256::new();
        let mut reader = BufReader::with_capacity(256 * 1024, file);
        let mut chunk = vec![0; 256 * 1024];
        loop {
            match reader.read(&mut chunk)? {
                0 => return Ok(Self::Deterministic(digest.finalize().into())),
                read => digest.update(&chunk[..read]),
            }
        }
    }

    /// Id of the event on this line.
    pub(super) fn for_line(&self, line: u64) -> String {
        match self {
            Self::Deterministic(digest) => {
                let name = [digest.as_slice(), b":", line.to_string().as_bytes()].concat();
                Uuid::new_v5(&NAMESPACE, &name).to_string()
            }
            Self::Random => transport::new_event_id(),
        }
    }
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

    #[test]
    fn namespace_is_derived_as_documented() {
        assert_eq!(NAMESPACE, Uuid::new_v5(&Uuid::NAMESPACE_DNS, b"svc.events.line"));
    }

    #[test]
    fn deterministic_ids_are_stable_and_differ_by_file_and_line() {
        let ids = EventIds::Deterministic([7; 32]);
        assert_eq!(ids.for_line(1), "fa68c564-af40-50ca-861e-e639e7b1b384");
        assert_ne!(ids.for_line(1), ids.for_line(11));
        assert_ne!(ids.for_line(1), EventIds::Deterministic([8; 32]).for_line(1));
        assert_ne!(EventIds::Random.for_line(1), EventIds::Random.for_line(1));
    }
}
