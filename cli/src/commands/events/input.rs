//! Events from a file or a stream: one event, a list, or a line each. Lines are read one by one, however many there are.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek};
use std::path::Path;

use serde_json::value::RawValue;

use super::ids::Ids;
use crate::error::{CliError, Fault, Result};

/// Longest line that is looked at: four times the largest event, so that padding does no harm.
const LONGEST_LINE: usize = 1024 * 1024;
/// Largest single event that may stretch over several lines.
const LARGEST_EVENT: usize = 1024 * 1024;
/// Largest list. A list is read whole; whoever has more sends lines.
const LARGEST_LIST: usize = 256 * 1024 * 1024;

/// Where events are read from.
pub(super) struct Source {
    /// What stands there.
    pub(super) reader: Box<dyn BufRead + Send>,
    /// Ids for events that bring none.
    pub(super) ids: Ids,
}

impl Source {
    /// Opens a file, or standard input for `-`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self { reader: Box::new(BufReader::new(io::stdin())), ids: Ids::Random });
        }
        Self::open_file(path)
            .map_err(|error| Fault::InputUnreadable.because(format!("{}: {error}", path.display())))
    }

    fn open_file(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        let ids = if metadata.is_file() {
            let ids = Ids::of_file(&file)?;
            file.rewind()?;
            ids
        } else {
            // A pipe or a device can be read once only.
            Ids::Random
        };
        Ok(Self { reader: Box::new(BufReader::with_capacity(256 * 1024, file)), ids })
    }
}

/// What stands where an event should.
#[derive(Debug)]
pub(super) struct Item {
    /// Its line, or its place in the list, from 1.
    pub(super) line: u64,
    /// JSON, or why it is none.
    pub(super) json: std::result::Result<Box<RawValue>, Flaw>,
}

/// Text that is no JSON.
#[derive(Debug)]
pub(super) struct Flaw {
    /// The API's code for it.
    pub(super) code: &'static str,
    /// What is wrong.
    pub(super) message: String,
    /// The text as far as it was looked at.
    pub(super) text: String,
}

/// The items of a source, one after the other.
pub(super) enum Items {
    /// A line each.
    Lines(Lines),
    /// Of one JSON document.
    Document(std::iter::Enumerate<std::vec::IntoIter<Box<RawValue>>>),
}

impl Items {
    /// Looks at the beginning, to see what the source holds.
    pub(super) fn of(mut reader: Box<dyn BufRead + Send>) -> Result<Self> {
        let mut lines = 0;
        match first_byte(&mut reader, &mut lines).map_err(|error| unreadable(&error))? {
            Some(b'[') => list(reader),
            _ => one_event_or_lines(reader, lines),
        }
    }
}

impl Iterator for Items {
    type Item = io::Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Lines(lines) => lines.next(),
            Self::Document(items) => {
                items.next().map(|(place, json)| Ok(Item { line: place as u64 + 1, json: Ok(json) }))
            }
        }
    }
}

/// Skips blanks and a byte order mark, counts the lines skipped, and shows what comes next.
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

fn list(reader: Box<dyn BufRead + Send>) -> Result<Items> {
    let mut text = Vec::new();
    reader.take(LARGEST_LIST as u64 + 1).read_to_end(&mut text).map_err(|error| unreadable(&error))?;
    if text.len() > LARGEST_LIST {
        return Err(Fault::InputInvalid
            .because(format!("a list is read whole, and this one is above {} MiB", LARGEST_LIST >> 20))
            .advising("Send the events as NDJSON, one a line: that has no limit."));
    }
    let items: Vec<Box<RawValue>> = serde_json::from_slice(&text)
        .map_err(|error| Fault::InputInvalid.because(format!("the list of events is not JSON: {error}")))?;
    Ok(Items::Document(items.into_iter().enumerate()))
}

/// A first line that only begins a JSON value may begin an event that is laid out over several lines.
fn one_event_or_lines(mut reader: Box<dyn BufRead + Send>, skipped: u64) -> Result<Items> {
    let mut head = Vec::new();
    let mut beginning = reader.by_ref().take(LARGEST_EVENT as u64);
    beginning.read_until(b'\n', &mut head).map_err(|error| unreadable(&error))?;
    if is_beginning(&head) {
        beginning.read_to_end(&mut head).map_err(|error| unreadable(&error))?;
        let exhausted = reader.fill_buf().map_err(|error| unreadable(&error))?.is_empty();
        if let (true, Ok(event)) = (exhausted, serde_json::from_slice(&head)) {
            return Ok(Items::Document(vec![event].into_iter().enumerate()));
        }
    }
    Ok(Items::Lines(Lines { reader: Box::new(Cursor::new(head).chain(reader)), line: skipped }))
}

fn is_beginning(text: &[u8]) -> bool {
    matches!(serde_json::from_slice::<serde::de::IgnoredAny>(text), Err(error) if error.is_eof())
}

/// The lines of a source that are not blank.
pub(super) struct Lines {
    reader: Box<dyn BufRead + Send>,
    line: u64,
}

impl Iterator for Lines {
    type Item = io::Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut text = Vec::new();
            match self.reader.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', &mut text) {
                Ok(0) => return None,
                Ok(_) => self.line += 1,
                Err(error) => return Some(Err(error)),
            }
            if text.len() == LONGEST_LINE && !text.ends_with(b"\n") {
                return Some(self.skip_long_line(&text));
            }
            if !text.trim_ascii().is_empty() {
                return Some(Ok(Item { line: self.line, json: parse(&text) }));
            }
        }
    }
}

impl Lines {
    fn skip_long_line(&mut self, beginning: &[u8]) -> io::Result<Item> {
        self.reader.skip_until(b'\n')?;
        let flaw = Flaw {
            code: contract::ProblemKind::EventTooLarge.code(),
            message: format!("the line is longer than {} KiB", LONGEST_LINE >> 10),
            text: String::from_utf8_lossy(&beginning[..256]).into_owned(),
        };
        Ok(Item { line: self.line, json: Err(flaw) })
    }
}

fn parse(text: &[u8]) -> std::result::Result<Box<RawValue>, Flaw> {
    serde_json::from_slice(text).map_err(|error| Flaw {
        code: contract::ProblemKind::MalformedJson.code(),
        message: without_place(&error),
        text: String::from_utf8_lossy(text.trim_ascii()).into_owned(),
    })
}

/// What is wrong, without the line and column of the text that was parsed: that is one line of many, and has its own number.
fn without_place(error: &serde_json::Error) -> String {
    let whole = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    whole.strip_suffix(&place).unwrap_or(&whole).to_owned()
}

fn unreadable(error: &io::Error) -> CliError {
    Fault::InputUnreadable.because(error.to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The items as line and JSON, or line and code.
    fn items(text: &[u8]) -> Result<Vec<(u64, String)>> {
        let items = Items::of(Box::new(Cursor::new(text.to_vec())))?;
        Ok(items
            .map(|item| item.unwrap())
            .map(|item| {
                (item.line, item.json.map_or_else(|flaw| flaw.code.to_owned(), |json| json.get().to_owned()))
            })
            .collect())
    }

    fn owned(items: &[(u64, &str)]) -> Vec<(u64, String)> {
        items.iter().map(|&(line, text)| (line, text.to_owned())).collect()
    }

    #[test]
    fn lines_keep_their_bytes_and_their_numbers() {
        let text = b"\xef\xbb\xbf\n{\"a\": 1.50}\r\n\n  {\"b\":2}\n{\"c\":3}";
        assert_eq!(items(text).unwrap(), owned(&[(2, "{\"a\": 1.50}"), (4, "{\"b\":2}"), (5, "{\"c\":3}")]));
    }

    #[test]
    fn a_line_that_is_no_json_spoils_no_other() {
        let text = b"{\"a\":1}\n{\"b\":\nnonsense\n{\"c\":\"\xff\"}\n{\"d\":4}\n";
        let malformed = "malformed_json";
        let expected = [(1, "{\"a\":1}"), (2, malformed), (3, malformed), (4, malformed), (5, "{\"d\":4}")];
        assert_eq!(items(text).unwrap(), owned(&expected));
        let cut_first = b"{\"a\":\n{\"b\":2}\n";
        assert_eq!(items(cut_first).unwrap(), owned(&[(1, malformed), (2, "{\"b\":2}")]));
    }

    #[test]
    fn a_fault_of_a_line_does_not_speak_of_other_lines() {
        let items = Items::of(Box::new(Cursor::new(b"{}\n{\"a\":1,\n".to_vec()))).unwrap();
        let flaws: Vec<_> = items.filter_map(|item| item.unwrap().json.err()).collect();
        assert_eq!(flaws[0].message, "EOF while parsing an object");
    }

    #[test]
    fn one_event_may_be_laid_out_over_lines() {
        assert_eq!(items(b"\n{\n  \"a\": 1\n}\n").unwrap(), owned(&[(1, "{\n  \"a\": 1\n}")]));
        assert_eq!(items(b"{\"a\":1}").unwrap(), owned(&[(1, "{\"a\":1}")]));
    }

    #[test]
    fn a_list_gives_its_items() {
        assert_eq!(
            items(b" [ {\"a\" : 1},\n{\"b\":2} ]\n").unwrap(),
            owned(&[(1, "{\"a\" : 1}"), (2, "{\"b\":2}")])
        );
        assert_eq!(items(b"[]").unwrap(), owned(&[]));
        assert_eq!(items(b"[{},").unwrap_err().code, "input_invalid");
    }

    #[test]
    fn a_line_beyond_measure_is_skipped_without_being_held() {
        let long = format!("{{\"a\":\"{}\"}}\n{{\"b\":2}}\n", "x".repeat(3 * LONGEST_LINE));
        assert_eq!(items(long.as_bytes()).unwrap(), owned(&[(1, "event_too_large"), (2, "{\"b\":2}")]));
    }

    #[test]
    fn an_empty_source_has_no_items() {
        assert_eq!(items(b"").unwrap(), owned(&[]));
        assert_eq!(items(b" \n\n").unwrap(), owned(&[]));
    }

    proptest! {
        #[test]
        fn reading_never_panics_and_lines_rise(text in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(items) = items(&text) {
                prop_assert!(items.windows(2).all(|pair| pair[0].0 < pair[1].0));
            }
        }

        #[test]
        fn every_line_of_json_comes_out_once(values in prop::collection::vec("\\{\"k\":\"[a-z]{0,8}\"\\}", 2..20)) {
            let read = items(values.join("\n").as_bytes()).unwrap();
            prop_assert_eq!(read.into_iter().map(|(_, json)| json).collect::<Vec<_>>(), values);
        }
    }
}
