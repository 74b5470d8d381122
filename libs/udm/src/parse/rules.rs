//! The form of the values of known fields.

use std::net::IpAddr;

use chrono::{DateTime, Datelike as _, Utc};

use crate::fields::{MAX_EVENT_ID_BYTES, MAX_SOURCE_ID_BYTES, MAX_TYPE_BYTES, Rule, TextRule};

impl Rule {
    /// Returns what a value of another type should have been.
    pub(super) const fn expectation(self) -> &'static str {
        match self {
            Self::Any => "expected any value",
            Self::Object(_) | Self::OpenObject => "expected an object",
            Self::List { .. } => "expected a list",
            Self::Text(_) => "expected a string",
            Self::Port => "expected an integer from 0 to 65535",
        }
    }
}

impl TextRule {
    /// Checks a string. Returns the code and the message of the error.
    pub(super) fn check(self, text: &str) -> Result<(), (&'static str, String)> {
        let max = match self {
            Self::Within(max) => max,
            Self::SourceId => MAX_SOURCE_ID_BYTES,
            Self::EventId => MAX_EVENT_ID_BYTES,
            _ => usize::MAX,
        };
        if text.len() > max {
            return Err(("too_long", format!("at most {max} bytes")));
        }
        let (is_valid, expected) = match self {
            Self::Any | Self::Within(_) => return Ok(()),
            Self::SourceId => (is_source_id(text), "1 to 256 bytes, not blank, no control characters"),
            Self::EventId => (is_event_id(text), "1 to 128 of A-Z, a-z, 0-9, '.', '_', ':' and '-'"),
            Self::EventType => (is_event_type(text), "1 to 64 of A-Z, 0-9 and '_', starting with a letter"),
            Self::Timestamp => (
                timestamp(text).is_some(),
                "expected an RFC 3339 time such as 2026-01-31T12:00:00Z, years 0001 to 9999",
            ),
            Self::Address => (text.parse::<IpAddr>().is_ok(), "expected an IPv4 or IPv6 address"),
            Self::Mac => (is_mac(text.as_bytes()), "expected six octets such as 00:1b:44:11:3a:b7"),
        };
        if is_valid { Ok(()) } else { Err(("invalid_value", expected.to_owned())) }
    }
}

/// Returns whether the text is a valid `source_id`: 1 to 256 bytes, not blank, no control characters.
pub fn is_source_id(text: &str) -> bool {
    text.len() <= MAX_SOURCE_ID_BYTES && !text.trim().is_empty() && !text.chars().any(char::is_control)
}

fn is_event_id(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-');
    !text.is_empty() && text.bytes().all(is_allowed)
}

fn is_event_type(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    text.len() <= MAX_TYPE_BYTES
        && text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.bytes().all(is_allowed)
}

/// Parses a time as RFC 3339 defines it. `chrono` also accepts a blank in place of `T` and a minus sign outside of ASCII. Years
/// have four digits in UTC too, and year 0000 has no representation in common date types.
pub(super) fn timestamp(text: &str) -> Option<DateTime<Utc>> {
    let is_strict = text.is_ascii() && matches!(text.as_bytes().get(10), Some(b'T' | b't'));
    let time = DateTime::parse_from_rfc3339(text).ok().filter(|_| is_strict)?.to_utc();
    (1..=9999).contains(&time.year()).then_some(time)
}

fn is_mac(text: &[u8]) -> bool {
    text.len() == 17
        && text.iter().enumerate().all(|(index, byte)| match index % 3 {
            2 => matches!(byte, b':' | b'-'),
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Returns the port that a number means. As in JSON Schema, `80.0` is an integer.
pub(crate) fn port(number: f64) -> Option<u16> {
    let is_port = (0.0..=f64::from(u16::MAX)).contains(&number) && number.fract() == 0.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the number is in the range")]
    is_port.then_some(number as u16)
}
