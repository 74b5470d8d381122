//! Input of events: JSON objects one after another, on one line (NDJSON) or several, lists, wrapped events, and rejects of an earlier
//! delivery. Memory is bounded by the largest list or wrapper.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead};
use std::sync::Arc;

use data_encoding::BASE64;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Deserializer;
use serde_json::value::RawValue;
use udm::{Document, WrappedEvent, find_source_id, unwrap_events, with_text};

use super::encoding::decoded;
use super::item::{InputItem, InvalidJson, MAX_EVENT_BYTES, MAX_PREFIX_BYTES, Place};
use super::ranges::ItemRanges;
use super::rejects::Reject;
use super::remarks::Remarks;
use crate::framework::error::{CliError, ErrorKind, Result};

/// Maximum length of a list or a wrapper, which is read into memory. The number of objects one after another has no limit.
const MAX_LIST_BYTES: usize = if cfg!(test) { 8 } else { 256 } * 1024 * 1024;
/// What to do about an input that is a single value and not JSON.
const DAMAGED: &str = "Correct the input at this position, or get it again if it is not complete.";
/// Separates the values of a JSON text sequence (RFC 7464).
const RECORD_SEPARATOR: u8 = 0x1e;

/// Iterator over the events of a source.
pub(super) struct EventReader {
    reader: Box<dyn BufRead + Send>,
    /// Source of events that have none.
    source_id: Option<String>,
    /// Bytes that were read; those before `start` are used.
    buffer: Vec<u8>,
    start: usize,
    at_end: bool,
    /// Number of lines before `start`, and of bytes on its line.
    lines: u64,
    columns: usize,
    /// Line on which the last value ended.
    last_line: u64,
    /// Number of returned and skipped events.
    count: u64,
    /// Events of the last value.
    queue: VecDeque<Entry>,
    /// Numbers of events that are not returned.
    skipped: ItemRanges,
    remarks: Arc<Mutex<Remarks>>,
}

/// An event without its number.
struct Entry {
    line: u64,
    is_line: bool,
    json: std::result::Result<Box<RawValue>, InvalidJson>,
}

impl EventReader {
    /// Recognizes the encoding. Events without a source get `source_id`, if there is one.
    pub(super) fn new(reader: Box<dyn BufRead + Send>, source_id: Option<String>) -> Result<Self> {
        let (buffer, start, at_end, lines, columns, last_line, count, queue, skipped, remarks) =
            Default::default();
        let reader = decoded(reader)?;
        Ok(Self {
            reader,
            source_id,
            buffer,
            start,
            at_end,
            lines,
            columns,
            last_line,
            count,
            queue,
            skipped,
            remarks,
        })
    }

    /// Skips the events with these numbers, whatever they contain.
    pub(super) fn skipping(self, skipped: ItemRanges) -> Self {
        Self { skipped, ..self }
    }

    /// Where the reader adds its remarks.
    pub(super) fn with_remarks(self, remarks: Arc<Mutex<Remarks>>) -> Self {
        Self { remarks, ..self }
    }

    fn next_item(&mut self) -> Result<Option<InputItem>> {
        loop {
            if let Some(Entry { line, is_line, json }) = self.queue.pop_front() {
                self.count += 1;
                if !self.skipped.contains(self.count) {
                    let place = Place { number: self.count, line, is_line };
                    let source_id = self.source_id.as_deref();
                    let json = json.map(|json| with_missing(json, find_source_id, "source_id", source_id));
                    return Ok(Some(InputItem { place, json }));
                }
            } else if !self.read_next()? {
                return Ok(None);
            }
        }
    }

    /// Reads the next value, or the next line if that is not JSON. Returns false at the end.
    fn read_next(&mut self) -> Result<bool> {
        let Some(first) = self.skip_blank().map_err(|error| unreadable(&error))? else { return Ok(false) };
        let (line, columns) = (self.lines + 1, self.columns);
        let is_line = line > self.last_line;
        let is_value = matches!(first, b'{' | b'[');
        let mut error = None;
        if is_value {
            match self.read_value().map_err(|error| unreadable(&error))? {
                Ok(json) => {
                    self.consume(json.get().len());
                    self.last_line = self.lines + 1;
                    self.add(json, line, is_line);
                    return Ok(true);
                }
                Err(list) if self.count == 0 && (first == b'[' || self.is_too_long()) => {
                    return Err(self.invalid_list(&list));
                }
                Err(value) => error = Some(value),
            }
        }
        let (bytes, truncated) = self.take_lines(is_value).map_err(|error| unreadable(&error))?;
        let json = match error {
            Some(error) if truncated => {
                let mut invalid =
                    InvalidJson::not_json(&bytes[..MAX_PREFIX_BYTES], &error, line - 1, columns);
                let rest = self.skip_blank().map_err(|error| unreadable(&error))?;
                if rest.is_none() && self.count == 0 {
                    let message = format!("the input is {}", invalid.message);
                    return Err(ErrorKind::InputInvalid.with_message(message).with_remediation(DAMAGED));
                }
                invalid.truncated = true;
                let (text, limit) = (&invalid.message, MAX_EVENT_BYTES >> 10);
                invalid.message =
                    format!("{text}; longer than {limit} KiB, so the rest is not kept with the rejects");
                Err(invalid)
            }
            None if truncated => Err(InvalidJson::long_line(&bytes)),
            _ => serde_json::from_slice(bytes.trim_ascii_end()).map_err(|error| {
                let mut invalid = InvalidJson::not_json(&bytes, &error, line - 1, columns);
                // The first line of CSV has the names of the columns.
                if self.count == 0 && !is_value && bytes.iter().any(|byte| b",;\t".contains(byte)) {
                    invalid.message += "; CSV is not read, so export the events as JSON";
                }
                invalid
            }),
        };
        self.queue.push_back(Entry { line, is_line, json });
        Ok(true)
    }

    /// Whether the value at `start`, which is not complete, is longer than the maximum.
    fn is_too_long(&self) -> bool {
        self.buffer.len() - self.start > MAX_LIST_BYTES
    }

    /// The error of a list that is not JSON, or of a value that is too long. None of its events is used.
    fn invalid_list(&self, error: &serde_json::Error) -> CliError {
        if self.is_too_long() {
            let message =
                format!("a list or an object in the input is larger than {} MiB", MAX_LIST_BYTES >> 20);
            let events = match self.buffer[self.start] {
                b'[' => "jq -c '.[]' FILE",
                _ => "jq -c '.events[]' FILE, where `events` is the member with the events",
            };
            return ErrorKind::InputInvalid.with_message(message).with_remediation(format!(
                "Send the events as NDJSON (one event per line), which has no size limit: {events}"
            ));
        }
        let InvalidJson { message, .. } = InvalidJson::not_json(b"", error, self.lines, self.columns);
        ErrorKind::InputInvalid
            .with_message(format!("the list of events is {message}"))
            .with_remediation(DAMAGED)
    }

    /// Adds the events of a value: those of a list, of a wrapper or of a reject, or the value itself.
    fn add(&mut self, json: Box<RawValue>, line: u64, is_line: bool) {
        if let Some(reject) = Reject::parse(json.get().as_bytes()) {
            return self.add_reject(reject, line, is_line);
        }
        let found = contents(json.get(), &mut self.remarks.lock());
        let events = match found {
            Contents::Events(events) => events,
            Contents::Event(wrapped) => {
                let json = match wrapped {
                    _ if json.get().len() <= MAX_EVENT_BYTES => Ok(json),
                    Some(pointer) => Err(InvalidJson::wrapped(json, &pointer)),
                    None => {
                        let pointer = event_in_member(json.get());
                        Err(InvalidJson::too_large(json, pointer.as_deref()))
                    }
                };
                return self.queue.push_back(Entry { line, is_line, json });
            }
            Contents::NoEvent => {
                let json = Err(InvalidJson::no_event(json.get()));
                return self.queue.push_back(Entry { line, is_line, json });
            }
        };
        let is_line = is_line && events.len() == 1 && !json.get().starts_with('[');
        let (mut line, mut counted) = (line, 0);
        for WrappedEvent { event, source_id, event_id, is_event, .. } in events {
            let start = event.get().as_ptr().addr() - json.get().as_ptr().addr();
            line += json.get()[counted..start].matches('\n').count() as u64;
            counted = start;
            if !is_event {
                let json = Err(InvalidJson::no_event(event.get()));
                self.queue.push_back(Entry { line, is_line, json });
                continue;
            }
            // A line of `svc events tail` has both next to its event.
            let (source_id, event_id) = (string(source_id), string(event_id));
            let event = with_missing(event.to_owned(), find_source_id, "source_id", source_id.as_deref());
            let event = with_missing(event, find_event_id, "event_id", event_id.as_deref());
            self.add(event, line, is_line);
        }
    }

    /// Adds the event of a reject, or its corrected text.
    fn add_reject(&mut self, reject: Reject, line: u64, is_line: bool) {
        let truncated = reject.truncated;
        let json = match (reject.event, reject.bytes) {
            (Some(event), _) => Ok(event),
            (None, bytes) => {
                let bytes = bytes.and_then(|bytes| BASE64.decode(bytes.as_bytes()).ok());
                let bytes = bytes.unwrap_or_else(|| reject.text.unwrap_or_default().into_bytes());
                serde_json::from_slice::<Box<RawValue>>(&bytes).map_err(|error| InvalidJson {
                    truncated,
                    ..InvalidJson::not_json(&bytes, &error, line - 1, 0)
                })
            }
        };
        match json {
            Ok(json) => self.add(json, line, is_line),
            json => self.queue.push_back(Entry { line, is_line, json }),
        }
    }

    /// Skips white space, and returns the next byte without using it.
    fn skip_blank(&mut self) -> io::Result<Option<u8>> {
        loop {
            let rest = &self.buffer[self.start..];
            let is_blank = |byte: &&u8| byte.is_ascii_whitespace() || **byte == RECORD_SEPARATOR;
            let blank = rest.iter().take_while(is_blank).count();
            let next = rest.get(blank).copied();
            self.consume(blank);
            if next.is_some() || self.at_end {
                return Ok(next);
            }
            self.read_more()?;
        }
    }

    /// Reads the value at `start`, without using it. It ends at the end of its line, or before another value.
    fn read_value(&mut self) -> io::Result<serde_json::Result<Box<RawValue>>> {
        let mut tried = 0;
        let json = loop {
            let text = &self.buffer[self.start..];
            // The time for a long value that arrives in many parts is not quadratic.
            if self.at_end || tried < MAX_EVENT_BYTES || text.len() >= tried + tried / 4 {
                tried = text.len();
                match Box::<RawValue>::deserialize(&mut Deserializer::from_slice(text)) {
                    Ok(json) => break json,
                    Err(error) if error.is_eof() && !self.at_end && tried <= MAX_LIST_BYTES => {}
                    Err(error) => return Ok(Err(error)),
                }
            }
            self.read_more()?;
        };
        let mut end = json.get().len();
        loop {
            match self.buffer.get(self.start + end) {
                Some(b' ' | b'\t' | b'\r') => end += 1,
                None if !self.at_end => self.read_more()?,
                None | Some(b'\n' | b'{' | b'[' | &RECORD_SEPARATOR) => return Ok(Ok(json)),
                Some(_) => {
                    let text = &self.buffer[self.start..];
                    return Ok(serde_json::from_slice::<IgnoredAny>(text).map(|_| json));
                }
            }
        }
    }

    /// Takes the rest of the line, with the lines that continue a value: indented ones and closing brackets. Returns whether they are
    /// cut.
    fn take_lines(&mut self, is_value: bool) -> io::Result<(Vec<u8>, bool)> {
        let (mut bytes, mut truncated) = (Vec::new(), false);
        loop {
            let rest = &self.buffer[self.start..];
            let end = rest.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(rest.len(), |end| end + 1);
            let kept = length.min(MAX_EVENT_BYTES - bytes.len());
            bytes.extend_from_slice(&rest[..kept]);
            truncated |= kept < length;
            self.consume(length);
            if self.start == self.buffer.len() && !self.at_end && (end.is_none() || is_value) {
                self.read_more()?;
            }
            let next = self.buffer.get(self.start);
            let continues = is_value && matches!(next, Some(b' ' | b'\t' | b'\r' | b'\n' | b'}' | b']'));
            if next.is_none() || end.is_some() && !continues {
                return Ok((bytes, truncated));
            }
        }
    }

    /// Uses this number of bytes.
    fn consume(&mut self, length: usize) {
        let used = &self.buffer[self.start..][..length];
        let breaks = used.split(|byte| *byte == b'\n').count() - 1;
        match used.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => self.columns = length - last - 1,
            None => self.columns += length,
        }
        self.lines += breaks as u64;
        self.start += length;
    }

    /// Reads once. Sets `at_end` if there is no more.
    fn read_more(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.start);
        self.start = 0;
        if self.buffer.len() < MAX_EVENT_BYTES {
            self.buffer.shrink_to(MAX_EVENT_BYTES);
        }
        let chunk = loop {
            match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                chunk => break chunk?,
            }
        };
        self.at_end = chunk.is_empty();
        self.buffer.extend_from_slice(chunk);
        let length = chunk.len();
        self.reader.consume(length);
        Ok(())
    }
}

impl Iterator for EventReader {
    type Item = Result<InputItem>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_item().transpose()
    }
}

/// What a JSON value contains.
enum Contents<'a> {
    /// It is an event itself, if only because the service decides. With the pointer of the first event in it, if it has other members too.
    Event(Option<String>),
    NoEvent,
    /// Those of a list or a wrapper, in their order.
    Events(Vec<WrappedEvent<'a>>),
}

fn contents<'a>(json: &'a str, remarks: &mut Remarks) -> Contents<'a> {
    if json.starts_with('[') {
        let items: Vec<&RawValue> = serde_json::from_str(json).unwrap_or_default();
        // An object without a field of an event is one only if the list has no documents with events.
        let is_wrapper = |item: &&RawValue| {
            matches!(unwrap_events(item.get()), Document::Wrapper(..) | Document::Mixed(_))
        };
        let has_wrapper = items.iter().any(is_wrapper);
        let items = items.into_iter().map(|event| WrappedEvent {
            pointer: String::new(),
            event,
            source_id: None,
            event_id: None,
            is_event: !(has_wrapper && matches!(unwrap_events(event.get()), Document::Other)),
        });
        return Contents::Events(items.collect());
    }
    match unwrap_events(json) {
        Document::Event => Contents::Event(None),
        Document::Other => {
            remarks.add_unknown();
            Contents::Event(None)
        }
        // The service rejects an object with events and other members, so that none is lost.
        Document::Mixed(events) => {
            let first = events.into_iter().find(|event| event.is_event);
            Contents::Event(first.map(|event| event.pointer))
        }
        Document::NoEvent => Contents::NoEvent,
        Document::Wrapper(events, others) => {
            remarks.add_ignored(others);
            Contents::Events(events)
        }
    }
}

/// Pointer of the first event in a member of an event: a document with events is one event if it also has a field of an event.
fn event_in_member(event: &str) -> Option<String> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(event).ok()?;
    members.into_iter().find_map(|(name, value)| {
        let document = format!("{{{}:{value}}}", serde_json::to_string(&name).ok()?);
        let (Document::Wrapper(events, _) | Document::Mixed(events)) = unwrap_events(&document) else {
            return None;
        };
        events.into_iter().find(|event| event.is_event).map(|event| event.pointer)
    })
}

/// Finds a field of an event.
type Find = fn(&str) -> serde_json::Result<Option<&RawValue>>;

/// Returns the event with this value of a field, unless the field has a value. The service reports an event that is invalid.
fn with_missing(json: Box<RawValue>, find: Find, name: &str, value: Option<&str>) -> Box<RawValue> {
    let Some(value) = value else { return json };
    let added = match find(json.get()) {
        Ok(null) if null.is_none_or(|null| null.get() == "null") => {
            with_text(json.get(), name, null, value).ok()
        }
        _ => None,
    };
    added.unwrap_or(json)
}

fn find_event_id(json: &str) -> serde_json::Result<Option<&RawValue>> {
    Ok(udm::find_event_id(json)?.event_id)
}

fn string(text: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(text?.get()).ok()
}

fn unreadable(error: &io::Error) -> CliError {
    let is_content = matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof);
    let kind = if is_content { ErrorKind::InputInvalid } else { ErrorKind::InputUnreadable };
    kind.with_message(error.to_string())
}

/// Numbers and JSON of the events of an input, or the bytes that are not JSON; `None` if the input cannot be read.
#[cfg(fuzzing)]
pub fn fuzzed(input: &[u8]) -> Option<Vec<(u64, std::result::Result<String, Vec<u8>>)>> {
    let items = EventReader::new(Box::new(io::Cursor::new(input.to_vec())), None).ok()?;
    let items = items.map(|item| {
        let item = item.ok()?;
        let json = item.json.map(|json| json.get().to_owned()).map_err(|invalid| invalid.bytes);
        Some((item.place.number, json))
    });
    items.collect()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    fn reader(text: &[u8]) -> Result<EventReader> {
        EventReader::new(Box::new(Cursor::new(text.to_vec())), None)
    }

    /// Place and JSON, or place and error, of each item.
    fn items(text: &[u8]) -> Result<Vec<(String, String)>> {
        let items = reader(text)?.map(|item| {
            let InputItem { place, json } = item?;
            let text = json.map_or_else(|invalid| invalid.message, |json| json.get().to_owned());
            Ok((place.to_string(), text))
        });
        items.collect()
    }

    fn assert_items(text: &[u8], expected: &[(&str, &str)]) {
        let read = items(text).unwrap();
        let read: Vec<_> = read.iter().map(|(place, text)| (place.as_str(), text.as_str())).collect();
        assert_eq!(read, expected, "{}", String::from_utf8_lossy(text));
    }

    #[test]
    fn keeps_bytes_and_line_numbers() {
        let expected = [("line 2", "{\"a\": 1.50}"), ("line 4", "{\"b\":2}"), ("line 5", "{\"c\":3}")];
        assert_items(b"\xef\xbb\xbf\n{\"a\": 1.50}\r\n\n  {\"b\":2}\n{\"c\":3}", &expected);
    }

    #[test]
    fn invalid_line_does_not_affect_others_and_its_error_names_the_column() {
        assert_items(
            b"{\"a\":1}\n  {\"b\":\nnonsense\n{\"c\":\"\xff\"}\n{\"d\":4}\n{\"e\":5},\n{\"f\":\n{\"g\":7}\n",
            &[
                ("line 1", "{\"a\":1}"),
                ("line 2", "not complete JSON: it ends inside of a value at column 7"),
                (
                    "line 3",
                    "not JSON: expected a value (NaN, Infinity, None and single quotes are not JSON) at column 2",
                ),
                (
                    "line 4",
                    "not JSON: text that is not UTF-8 at column 7; convert it first: iconv -f WINDOWS-1252 -t UTF-8 FILE",
                ),
                ("line 5", "{\"d\":4}"),
                ("line 6", "not JSON: characters after the end of the value at column 8"),
                ("line 7", "not complete JSON: it ends inside of a value at column 5"),
                ("line 8", "{\"g\":7}"),
            ],
        );
    }

    #[test]
    fn objects_follow_one_another_on_one_line_or_several() {
        assert_items(
            b"{\n  \"a\": 1\n}\n{\n  \"b\": 2\n}\n{\"c\":3}{\"d\":4} {\"e\":\n5}\n\x1e{\"f\":6}\n",
            &[
                ("line 1", "{\n  \"a\": 1\n}"),
                ("line 4", "{\n  \"b\": 2\n}"),
                ("line 7", "{\"c\":3}"),
                ("item 4", "{\"d\":4}"),
                ("item 5", "{\"e\":\n5}"),
                ("line 9", "{\"f\":6}"),
            ],
        );
    }

    #[test]
    fn an_error_in_an_object_on_several_lines_is_one_error_with_its_line() {
        assert_items(
            b"{\n  \"a\": 1\n  \"b\": 2\n}\n{\"c\":3}\n{\n  \"d\": [\n    1,\n",
            &[
                ("line 1", "not JSON: expected `,` or `}` at line 3 column 3"),
                ("line 5", "{\"c\":3}"),
                ("line 6", "not complete JSON: it ends inside of a value at line 8 column 6"),
            ],
        );
        let rest: Vec<_> = reader(b"{\n 1\n}\n{\"a\":1}").unwrap().map(|item| item.unwrap()).collect();
        assert_eq!(rest[0].json.as_ref().unwrap_err().bytes, b"{\n 1\n}");
        assert_eq!(rest.len(), 2);
    }

    #[test]
    fn reads_items_of_a_list() {
        assert_items(
            b" [ {\"a\" : 1},\n{\"b\":2} ]\n{\"c\":3}",
            &[("item 1", "{\"a\" : 1}"), ("item 2", "{\"b\":2}"), ("line 3", "{\"c\":3}")],
        );
        assert_items(b"[]", &[]);
        let error = items(b"[{\"a\":1},\n{},,]").unwrap_err();
        assert_eq!(
            (&*error.code, &*error.message),
            (
                "input_invalid",
                "the list of events is not JSON: expected a value (NaN, Infinity, None and single quotes are not JSON) at line 2 column 4"
            )
        );
    }

    #[test]
    fn an_event_that_is_too_long_is_kept_and_only_text_that_is_not_json_is_cut() {
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(3 * MAX_EVENT_BYTES));
        let cut = &long[..2 * MAX_EVENT_BYTES];
        for (text, code, truncated, message) in [
            (&*long, "event_too_large", false, "the event has 3073 KiB, and an event has at most 256 KiB"),
            (cut, "malformed_json", true, "longer than 1024 KiB, so the rest is not kept with the rejects"),
            (&long[5..], "event_too_large", true, "the rest is not kept with the rejects"),
        ] {
            let items: Vec<_> = reader(&[text, "\n{\"b\":2}"].concat().into_bytes())
                .unwrap()
                .map(|item| item.unwrap())
                .collect();
            let invalid = items[0].json.as_ref().unwrap_err();
            assert_eq!((invalid.code, invalid.truncated), (code, truncated), "{}", invalid.message);
            assert!(invalid.message.ends_with(message), "{}", invalid.message);
            let length = if truncated { MAX_PREFIX_BYTES } else { text.len() };
            assert!(invalid.bytes == text.as_bytes()[..length], "{} bytes", invalid.bytes.len());
            assert_eq!(items[1].json.as_ref().unwrap().get(), "{\"b\":2}");
        }
    }

    #[test]
    fn a_value_that_is_too_long_to_be_read_is_named_and_does_not_stay_in_memory() {
        let long = "x".repeat(3 * MAX_LIST_BYTES);
        let reader = |text: String| {
            let parts = io::BufReader::with_capacity(256 * 1024, Cursor::new(text.into_bytes()));
            EventReader::new(Box::new(parts), None).unwrap()
        };
        for (text, remedy) in [
            (format!("{{\"a\":\"{long}\"}}"), "jq -c '.events[]' FILE"),
            (format!("[\"{long}\"]"), "jq -c '.[]' FILE"),
        ] {
            let error = reader(text).next().unwrap().unwrap_err();
            assert_eq!(error.message, "a list or an object in the input is larger than 8 MiB");
            assert!(error.remediation.contains(remedy), "{}", error.remediation);
        }
        let mut events = reader(format!("{{\"a\":1}}\n{{\"a\":\"{long}\"}}\n{{\"b\":2}}"));
        let read: Vec<_> = events.by_ref().map(|item| item.unwrap().json).collect();
        let message = &read[1].as_ref().unwrap_err().message;
        assert!(
            message.ends_with("longer than 1024 KiB, so the rest is not kept with the rejects"),
            "{message}"
        );
        assert_eq!(read[2].as_ref().unwrap().get(), "{\"b\":2}");
        assert!(events.buffer.capacity() <= 2 * MAX_EVENT_BYTES, "{} bytes", events.buffer.capacity());
    }

    #[test]
    fn a_long_document_that_is_one_event_because_of_a_field_is_kept_with_the_place_of_its_events() {
        let events = format!(
            r#"[{}{{"metadata":{{}}}}]"#,
            r#"{"metadata":{"event_type":"USER_LOGIN"}},"#.repeat(30_000)
        );
        let text = format!(r#"{{"customer_id":"c","principal":{{"ip":"10.0.0.1"}},"events":{events}}}"#);
        let read: Vec<_> = reader(text.as_bytes()).unwrap().map(|item| item.unwrap()).collect();
        let invalid = read[0].json.as_ref().unwrap_err();
        assert!(invalid.message.contains("such as the value at /events/0,"), "{}", invalid.message);
        assert!(read.len() == 1 && invalid.bytes == text.as_bytes(), "{} bytes", invalid.bytes.len());
    }

    #[test]
    fn the_error_of_a_long_object_with_an_event_and_other_members_is_that_of_a_short_one() {
        let document = |bytes| {
            format!(r#"{{"source_id":"fw","host":"{}","event":{{"network":{{}}}}}}"#, "x".repeat(bytes))
        };
        let (short, long) = (document(1), document(MAX_EVENT_BYTES));
        assert_items(short.as_bytes(), &[("line 1", &*short)]);
        let Err(udm::ParseError::Invalid { errors, .. }) = udm::parse(short.as_bytes()) else {
            panic!("valid: {short}")
        };
        let message = errors[0].message.replace(" at this pointer,", " at /event,");
        assert_items(long.as_bytes(), &[("line 1", &*message)]);
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
            reject(r#""bytes":"eyJ4IjogMX0=""#),
            reject(r#""bytes":"Iv8i/w==""#),
            r#"{"source_id":"fw"}"#.to_owned(),
        ];
        let expected = [
            ("line 1", r#"{"n":1.50e+2,"b" : 2}"#),
            ("line 2", r#"{"corrected": 1}"#),
            (
                "line 3",
                "not JSON: expected a value (NaN, Infinity, None and single quotes are not JSON) at column 1",
            ),
            ("line 4", r#"{"x": 1}"#),
            (
                "line 5",
                "not JSON: text that is not UTF-8 at column 2; convert it first: iconv -f WINDOWS-1252 -t UTF-8 FILE",
            ),
            ("line 6", r#"{"source_id":"fw"}"#),
        ];
        assert_items(text.join("\n").as_bytes(), &expected);
        let item = reader(text[4].as_bytes()).unwrap().next().unwrap().unwrap();
        assert_eq!(item.json.unwrap_err().bytes, b"\"\xff\"\xff");
    }

    #[test]
    fn wrapped_events_are_unwrapped_with_the_source_and_id_next_to_them() {
        let event = r#"{"metadata": {"eventType":"USER_LOGIN"}}"#;
        assert_items(
            format!(
                "{}\n{}\n{}\n",
                format_args!(
                    r#"{{"events":[{{"udm":{event}}},{{"udm":{event}}}],"moreDataAvailable":true}}"#
                ),
                format_args!(
                    r#"{{"event_id":"e","server_event_id":"u","source_id":"s","event_type":"T","received_at":"t","event":{event}}}"#
                ),
                format_args!(r#"[{{"udm":{event}}}]"#),
            )
            .as_bytes(),
            &[
                ("item 1", event),
                ("item 2", event),
                ("line 2", r#"{"event_id":"e","source_id":"s","metadata": {"eventType":"USER_LOGIN"}}"#),
                ("item 4", event),
            ],
        );
    }

    #[test]
    fn an_object_with_other_members_is_sent_as_it_is_so_that_the_service_decides() {
        for line in [
            r#"{"source_id":"edr","event_id":"2","principal":{},"event":{"target":{"hostname":"c2"}}}"#,
            r#"{"source_id":"edr","principal":{},"detections":[{"security_result":[{}]},{"network":{}}]}"#,
            r#"{"source_id":"edr","event_id":"1","host":"web-1","event":{"network":{}}}"#,
            r#"{"host":"web-1","udm":{"metadata":{}}}"#,
            r#"{"host":"web-1","event":{"network":{}}}"#,
            r#"{"host":"web-1","events":[]}"#,
        ] {
            assert_items(line.as_bytes(), &[("line 1", line)]);
            assert_items(format!("[{line}]").as_bytes(), &[("item 1", line)]);
        }
    }

    #[test]
    fn documents_without_events_give_none_and_objects_that_are_no_events_are_rejected() {
        let event = r#"{"metadata": {"eventType":"USER_LOGIN"}}"#;
        let none = "not an event: it has none of the fields of an event";
        assert_items(br#"{"events":[],"moreDataAvailable":false} {"detections":[]}"#, &[]);
        assert_items(b"{}\n{\"error\":{\"code\":403}}", &[("line 1", none), ("line 2", none)]);
        assert_items(b"{\"a\":1}", &[("line 1", "{\"a\":1}")]);
        assert_items(b"[{\"a\":1}]", &[("item 1", "{\"a\":1}")]);
        assert_items(
            format!(
                r#"[{{"progress":1}},{{"events":[{{"udm":{event}}},{{"name":"x"}}]}},{{"a":1}},{{"complete":true}}]"#
            )
            .as_bytes(),
            &[("item 1", event), ("item 2", none), ("item 3", none)],
        );
        let named = format!(r#"{{"events":[{{"sourceId":"o","eventId":"7","udm":{event}}}]}}"#);
        let sent = r#"{"event_id":"7","source_id":"o","metadata": {"eventType":"USER_LOGIN"}}"#;
        assert_items(named.as_bytes(), &[("line 1", sent)]);
    }

    #[test]
    fn a_document_of_many_events_that_is_not_complete_is_one_error_of_the_input() {
        let event = r#"{"udm":{"metadata":{"eventType":"USER_LOGIN"}}},"#;
        let document = format!(r#"{{"events":[{}"#, event.repeat(30_000));
        let error = items(document.as_bytes()).unwrap_err();
        assert_eq!(error.code, "input_invalid");
        assert!(
            error.message.starts_with("the input is not complete JSON: it ends inside of "),
            "{}",
            error.message
        );
        let read = items(format!("{event}\n{document}").replace("}},\n", "}}\n").as_bytes()).unwrap();
        assert!(read[1].1.ends_with("not kept with the rejects"), "{read:.500?}");
    }

    #[test]
    fn only_events_without_a_source_get_the_given_one() {
        for (text, expected) in [
            (r#"{ "a":1.50}"#, r#"{"source_id":"fw \"1\"", "a":1.50}"#),
            (r#"{"sourceId": null,"a":1}"#, r#"{"sourceId": "fw \"1\"","a":1}"#),
            (r#"{"sourceId":"x"}"#, r#"{"sourceId":"x"}"#),
            (r#"{"source_id":""}"#, r#"{"source_id":""}"#),
            (r#"{"Source-ID":"x"}"#, r#"{"Source-ID":"x"}"#),
            (r#"{"udm":{"metadata":{}}}"#, r#"{"source_id":"fw \"1\"","metadata":{}}"#),
            (r#"{"source_id":"x","udm":{"metadata":{}}}"#, r#"{"source_id":"x","metadata":{}}"#),
        ] {
            let source = Box::new(Cursor::new(text.as_bytes()));
            let mut events = EventReader::new(source, Some("fw \"1\"".to_owned())).unwrap();
            assert_eq!(events.next().unwrap().unwrap().json.unwrap().get(), expected);
        }
    }

    #[test]
    fn skips_events_without_changing_the_numbers_of_others() {
        let mut skipped = ItemRanges::default();
        skipped.insert(2, 3);
        for text in [&b"{\"a\":1}\nnonsense\n\n{\"b\":2}{\"c\":4}\n"[..], b"[{\"a\":1}, 2, 3, {\"b\":4}]"] {
            let events = reader(text).unwrap().skipping(skipped.clone());
            let numbers: Vec<_> = events.map(|item| item.unwrap().place.number).collect();
            assert_eq!(numbers, [1, 4]);
        }
    }

    #[test]
    fn empty_source_has_no_items() {
        assert_items(b"", &[]);
        assert_items(b" \n\n", &[]);
    }

    /// Returns a few bytes at a time.
    struct Slow(Cursor<Vec<u8>>);

    impl io::Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = buffer.len().min(3);
            io::Read::read(&mut self.0, &mut buffer[..length])
        }
    }

    /// JSON of objects with members of events, of wrappers and of no known document. Each `#` becomes a number.
    fn document() -> impl Strategy<Value = String> {
        let leaf = prop::sample::select(vec!["\"value#\"", "null", "[]", "{}"]).prop_map(str::to_owned);
        leaf.prop_recursive(4, 24, 4, |inner| {
            let names = "udm|event|events|idm|detections|metadata|principal|additional|host";
            let members = prop::collection::btree_map(names, inner.clone(), 1..4);
            let members = members.prop_map(|members| {
                let members: Vec<_> =
                    members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
                format!("{{{}}}", members.join(","))
            });
            let items = prop::collection::vec(inner, 1..3).prop_map(|items| format!("[{}]", items.join(",")));
            prop_oneof![4 => members, 1 => items]
        })
    }

    proptest! {
        #[test]
        fn every_value_of_a_line_without_an_event_type_is_in_an_event_or_in_a_reject(document in document()) {
            let parts: Vec<_> = document.split('#').collect();
            let line: String =
                parts.iter().enumerate().flat_map(|(n, part)| [(*part).to_owned(), format!("{n}-")]).collect();
            let line = line.strip_suffix(&format!("{}-", parts.len() - 1)).unwrap();
            prop_assume!(line.starts_with(['{', '[']));
            let read = reader(line.as_bytes()).unwrap().map(|item| match item.unwrap().json {
                Ok(json) => json.get().to_owned(),
                Err(invalid) => String::from_utf8(invalid.bytes).unwrap(),
            });
            let read: String = read.collect();
            for n in 0..parts.len() - 1 {
                prop_assert!(read.contains(&format!("value{n}-")), "value{} of {} is not in {}", n, line, read);
            }
        }

        #[test]
        fn numbers_increase_and_nothing_depends_on_the_size_of_reads(
            text in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(&b"{}[]\":, \n1a"[..])], 0..300),
        ) {
            let of = |reader: Box<dyn BufRead + Send>| {
                let items = EventReader::new(reader, None)?.map(|item| {
                    let InputItem { place, json } = item?;
                    Ok((place.number, place.line, json.map_or_else(|invalid| invalid.message, |json| json.get().to_owned())))
                });
                items.collect::<Result<Vec<_>>>()
            };
            let all = of(Box::new(Cursor::new(text.clone())));
            let slow = of(Box::new(io::BufReader::with_capacity(4, Slow(Cursor::new(text)))));
            match (all, slow) {
                (Ok(all), Ok(slow)) => {
                    prop_assert_eq!(&all, &slow);
                    prop_assert!(all.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0 && pair[0].1 <= pair[1].1));
                }
                (all, slow) => prop_assert_eq!(all.is_err(), slow.is_err()),
            }
        }

        #[test]
        fn returns_every_object_once_whatever_is_between(
            values in prop::collection::vec(("\\{\"k\":\"[a-z]{0,8}\"\\}", "[ \n\r\t]{0,3}"), 1..20),
        ) {
            let text: String = values.iter().flat_map(|(value, between)| [value.as_str(), between]).collect();
            let read: Vec<_> = items(text.as_bytes()).unwrap().into_iter().map(|(_, json)| json).collect();
            prop_assert_eq!(read, values.into_iter().map(|(value, _)| value).collect::<Vec<_>>());
        }
    }
}
