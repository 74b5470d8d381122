//! Items of an input: their places, and the errors of those that are not JSON.

use std::fmt;

use contract::ProblemKind;
use serde_json::value::RawValue;

/// A longer event is not sent. The service accepts less, and names its limit.
pub(super) const MAX_EVENT_BYTES: usize = 1024 * 1024;
/// Kept bytes of text that is too long and not JSON.
pub(super) const MAX_PREFIX_BYTES: usize = 256;

/// Where an event is in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of the event or invalid line in the input, from 1.
    pub(super) number: u64,
    /// Line on which it starts, from 1.
    pub(super) line: u64,
    /// Whether the line identifies it: it is the first event on its line, and not in a list.
    pub(super) is_line: bool,
}

impl Place {
    pub(super) const START: Self = Self { number: 1, line: 1, is_line: true };

    /// The number, if the line does not identify the event.
    pub(super) fn item(self) -> Option<u64> {
        (!self.is_line).then_some(self.number)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&described(self.line, self.item()))
    }
}

/// `line 7` or `item 7`.
pub(super) fn described(line: u64, item: Option<u64>) -> String {
    item.map_or_else(|| format!("line {line}"), |item| format!("item {item}"))
}

/// An event, or the text in its place.
#[derive(Debug)]
pub(super) struct InputItem {
    pub(super) place: Place,
    pub(super) json: std::result::Result<Box<RawValue>, InvalidJson>,
}

/// Lines that are not JSON, and objects that are no event or too long.
#[derive(Debug)]
pub(super) struct InvalidJson {
    /// Error code of the API.
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) bytes: Vec<u8>,
    /// Whether `bytes` is an object that is kept as an event.
    pub(super) is_event: bool,
    /// Whether `bytes` is only the start.
    pub(super) truncated: bool,
}

impl InvalidJson {
    /// An event that is too long. With the pointer of the first event in a member of it, if there is one.
    pub(super) fn too_large(json: Box<RawValue>, pointer: Option<&str>) -> Self {
        let (size, limit) = (json.get().len().div_ceil(1024), udm::MAX_EVENT_BYTES >> 10);
        let message = match pointer {
            None => format!("the event has {size} KiB, and an event has at most {limit} KiB"),
            Some(pointer) => format!(
                "the object has {size} KiB (an event: at most {limit} KiB) and is one event, because other members are fields of an \
                event; send only the events in it, such as the value at {pointer}, with a source_id"
            ),
        };
        Self {
            code: ProblemKind::EventTooLarge.code(),
            message,
            is_event: json.get().starts_with('{'),
            bytes: String::from(Box::<str>::from(json)).into_bytes(),
            truncated: false,
        }
    }

    /// A document that is longer than an event, with other members than the event at this pointer.
    pub(super) fn wrapped(json: Box<RawValue>, pointer: &str) -> Self {
        let message = format!(
            "the event is inside of another object; send only the value at {pointer}, with a source_id"
        );
        Self { code: ProblemKind::ValidationFailed.code(), message, ..Self::too_large(json, None) }
    }

    /// The start of a line that is not an object, and too long.
    pub(super) fn long_line(start: &[u8]) -> Self {
        Self {
            code: ProblemKind::EventTooLarge.code(),
            message: format!(
                "not an object, and longer than {} KiB; the rest is not kept with the rejects",
                MAX_EVENT_BYTES >> 10
            ),
            bytes: start[..MAX_PREFIX_BYTES].to_vec(),
            is_event: false,
            truncated: true,
        }
    }

    /// JSON that is no event.
    pub(super) fn no_event(json: &str) -> Self {
        Self {
            code: ProblemKind::ValidationFailed.code(),
            message: "not an event: it has none of the fields of an event".to_owned(),
            bytes: json.as_bytes().to_vec(),
            is_event: false,
            truncated: false,
        }
    }

    /// `error` is that of a parser that started after this number of lines, and of bytes of the next one.
    pub(super) fn not_json(bytes: &[u8], error: &serde_json::Error, lines: u64, columns: usize) -> Self {
        let text = udm::json_error(error);
        let convert = match text.as_str() {
            udm::NOT_UTF_8 => "; convert it first: iconv -f WINDOWS-1252 -t UTF-8 FILE",
            _ => "",
        };
        let what = if error.is_eof() { "not complete JSON" } else { "not JSON" };
        let at = match error.line() as u64 {
            0 | 1 => format!("column {}", columns + error.column()),
            line => format!("line {} column {}", lines + line, error.column()),
        };
        Self {
            code: ProblemKind::MalformedJson.code(),
            message: format!("{what}: {text} at {at}{convert}"),
            bytes: bytes.trim_ascii().to_vec(),
            is_event: false,
            truncated: false,
        }
    }
}
