//! The form of the values of known fields.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

use chrono::{DateTime, Datelike as _, Timelike as _, Utc};

use crate::fields::{EVENT_TYPES, MAX_EVENT_ID_BYTES, MAX_SOURCE_ID_BYTES, Rule, TextRule, is_event_type};

/// Code and message of an error.
pub(super) type RuleError = (&'static str, Cow<'static, str>);

/// The message for a number of an event type that is not in the table.
pub(super) const UNKNOWN_EVENT_TYPE: &str =
    "no event type of the Unified Data Model has this number; send the name of the type";

const EXPECTED_TIME: &str = "expected an RFC 3339 time such as 2026-01-31T12:00:00Z, with at most 9 digits of a second and in \
    the years 0001 to 9999, or an object with seconds, nanos or both";
const EXPECTED_DURATION: &str = "expected seconds such as 1.5s, with at most 9 digits after the point, or an object with seconds, \
    nanos or both";

/// Maximum absolute value of a duration in seconds: 10,000 years, as in protobuf.
const MAX_DURATION_SECONDS: u64 = 315_576_000_000;
const NANOS_PER_SECOND: u32 = 1_000_000_000;

impl Rule {
    /// Returns what a value of another type should have been.
    pub(super) fn expectation(self) -> Cow<'static, str> {
        match self {
            Self::Any => "expected any value",
            Self::Object(_) | Self::OpenObject => "expected an object",
            Self::Text(rule) => rule.expectation(),
            Self::Integer(integer) => {
                let range = integer.range();
                return format!("expected an integer from {} to {}", range.start(), range.end()).into();
            }
            Self::Number => "expected a number",
            Self::Boolean => "expected true or false",
            Self::Enumeration => "expected the name or the number of a value",
        }
        .into()
    }
}

impl TextRule {
    const fn expectation(self) -> &'static str {
        match self {
            Self::EventTime | Self::Time => EXPECTED_TIME,
            Self::Duration => EXPECTED_DURATION,
            Self::EventType => "expected the name or the number of an event type",
            _ => "expected a string",
        }
    }

    /// Checks a string.
    pub(super) fn check(self, text: &str) -> Result<(), RuleError> {
        let max = match self {
            Self::SourceId => MAX_SOURCE_ID_BYTES,
            Self::EventId => MAX_EVENT_ID_BYTES,
            _ => usize::MAX,
        };
        if text.len() > max {
            return Err(("too_long", format!("at most {max} bytes").into()));
        }
        let (is_valid, expected) = match self {
            Self::Any | Self::MetadataId => return Ok(()),
            Self::SourceId => (is_source_id(text), "1 to 256 bytes, not blank, no control characters"),
            Self::EventId => {
                (is_event_id(text), "1 to 128 of A-Z, a-z, 0-9, '.', '_', ':', '/', '+', '=' and '-'")
            }
            Self::EventType => (is_event_type(text), "1 to 64 of A-Z, 0-9 and '_', starting with a letter"),
            Self::EventTime | Self::Time => (timestamp(text).is_some(), EXPECTED_TIME),
            Self::Duration => (is_duration(text), EXPECTED_DURATION),
            Self::IpAddress => (is_ip_address(text), "expected an IPv4 or IPv6 address"),
            Self::MacAddress => (
                is_mac_address(text),
                "expected an EUI-48 or EUI-64 such as 00:1b:44:11:3a:b7 or 001b.4411.3ab7",
            ),
            Self::Bytes => (is_base64(text), "expected base64 such as AAE= or AAE"),
        };
        if is_valid { Ok(()) } else { Err(("invalid_value", expected.into())) }
    }
}

/// Returns whether the text is a valid `source_id`: 1 to 256 bytes, not blank, no control characters.
pub fn is_source_id(text: &str) -> bool {
    text.len() <= MAX_SOURCE_ID_BYTES && !text.trim().is_empty() && !text.chars().any(char::is_control)
}

/// Returns whether the text is a valid `event_id`: 1 to 128 of `A-Z`, `a-z`, `0-9` and `._:/+=-`.
pub(crate) fn is_event_id(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/+=-".contains(&byte);
    (1..=MAX_EVENT_ID_BYTES).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// Returns the name of the event type with this number.
pub(crate) fn event_type(number: i128) -> Option<&'static str> {
    let number = i32::try_from(number).ok()?;
    let index = EVENT_TYPES.binary_search_by_key(&number, |(number, _)| *number).ok()?;
    EVENT_TYPES.get(index).map(|(_, name)| *name)
}

/// Parses a time as RFC 3339 defines it, with at most 9 digits of a second. `chrono` also accepts a blank in place of `T`, a minus sign
/// outside of ASCII, more digits, and a leap second in every minute. Years have four digits in UTC too, and year 0000 has no
/// representation in common date types. A leap second becomes the last nanosecond before it, because most date types have none.
pub(crate) fn timestamp(text: &str) -> Option<DateTime<Utc>> {
    let is_strict = text.is_ascii() && matches!(text.as_bytes().get(10), Some(b'T' | b't'));
    let digits =
        text.split_once('.').map_or(0, |(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
    let time = DateTime::parse_from_rfc3339(text).ok().filter(|_| is_strict && digits <= 9)?.to_utc();
    let time = if time.nanosecond() < NANOS_PER_SECOND {
        time
    } else {
        let is_last_minute = (time.hour(), time.minute()) == (23, 59);
        time.with_nanosecond(NANOS_PER_SECOND - 1).filter(|_| is_last_minute)?
    };
    (1..=9999).contains(&time.year()).then_some(time)
}

/// Returns the time of an instant.
pub(crate) fn instant(seconds: i128, nanos: i128) -> Option<DateTime<Utc>> {
    let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < NANOS_PER_SECOND)?;
    let time = DateTime::from_timestamp(i64::try_from(seconds).ok()?, nanos)?;
    (1..=9999).contains(&time.year()).then_some(time)
}

/// Returns whether an instant is a duration: both numbers have the same sign.
pub(super) fn is_instant_of_duration(seconds: i128, nanos: i128) -> bool {
    let has_one_sign = seconds.signum() * nanos.signum() >= 0;
    has_one_sign
        && seconds.unsigned_abs() <= MAX_DURATION_SECONDS.into()
        && nanos.unsigned_abs() < NANOS_PER_SECOND.into()
}

/// Returns whether the text is a duration in the JSON of protobuf: seconds with at most 9 digits after the point, and `s`.
fn is_duration(text: &str) -> bool {
    let Some(number) = text.strip_suffix('s') else { return false };
    let number = number.strip_prefix('-').unwrap_or(number);
    let (seconds, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number =
        |text: &str, max| (1..=max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number(seconds, 12)
        && is_number(fraction, 9)
        && seconds.parse::<u64>().is_ok_and(|n| n <= MAX_DURATION_SECONDS)
}

/// Returns whether the text is an IPv4 address, or an IPv6 address with or without a zone (RFC 4007).
fn is_ip_address(text: &str) -> bool {
    let Some((address, zone)) = text.split_once('%') else { return text.parse::<IpAddr>().is_ok() };
    let is_zone =
        (1..=64).contains(&zone.len()) && zone.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'%');
    is_zone && address.parse::<Ipv6Addr>().is_ok()
}

/// Returns whether the text is an EUI-48 or EUI-64: groups of two or four hexadecimal digits between one kind of separators.
fn is_mac_address(text: &str) -> bool {
    let Some(separator) = text.chars().find(|letter| matches!(letter, ':' | '-' | '.')) else { return false };
    let (mut groups, mut digits) = (text.split(separator), 0);
    let length = text.find(separator).unwrap_or_default();
    let is_group = |group: &str| {
        digits += group.len();
        group.len() == length && group.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    groups.all(is_group) && matches!(length, 2 | 4) && matches!(digits, 12 | 16)
}

/// Returns whether the text is base64 in one of the alphabets of RFC 4648, with or without padding.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=').as_bytes();
    let padding = text.len() - digits.len();
    let has_alphabet =
        |other: [u8; 2]| digits.iter().all(|digit| digit.is_ascii_alphanumeric() || other.contains(digit));
    let has_length = digits.len() % 4 != 1 && (padding == 0 || padding <= 2 && text.len().is_multiple_of(4));
    has_length && (has_alphabet(*b"+/") || has_alphabet(*b"-_"))
}

/// Returns the integer that a decimal string means: digits, or digits with a fraction of zeros.
pub(crate) fn integer(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (digits, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_integer = (1..=20).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && !fraction.is_empty()
        && fraction.bytes().all(|byte| byte == b'0');
    let number: i128 = digits.parse().ok().filter(|_| is_integer)?;
    Some(if text.starts_with('-') { -number } else { number })
}

/// Returns the integer that a number means. As in JSON Schema, `80.0` is an integer. A number of at most -2^63 can be rounded from one
/// below the range of 64 bits, as one of at least 2^64. The parser reads the digits of integers within this range as integers.
pub(crate) fn integral(number: f64) -> Option<i128> {
    const MIN: f64 = -9_223_372_036_854_775_808.0;
    #[expect(clippy::cast_possible_truncation, reason = "the number is an integer, and the cast saturates")]
    (number.fract() == 0.0 && number > MIN).then_some(number as i128)
}

/// Returns whether the text is a number in the JSON of protobuf. The parser of floats also accepts a point without digits on one side.
pub(super) fn is_number(text: &str) -> bool {
    let is_digit = |letter: char| letter.is_ascii_digit();
    let has_digits =
        |(before, after): (&str, &str)| before.ends_with(is_digit) && after.starts_with(is_digit);
    let is_decimal = text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    matches!(text, "NaN" | "Infinity" | "-Infinity")
        || is_decimal && text.split_once('.').is_none_or(has_digits) && text.parse().is_ok_and(f64::is_finite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_a_string_has_digits_on_both_sides_of_its_point() {
        for text in ["1", "-1.5", "0.0", "1e5", "1.5E-3", "-2.0e+7", "NaN", "Infinity", "-Infinity"] {
            assert!(is_number(text), "{text}");
        }
        for text in [
            "", "-", "1.", "-1.", "1.e5", "-.5", ".5", "+1", "1.5.2", "1e", "1,5", "1e999", "inf", "nan",
            "0x1",
        ] {
            assert!(!is_number(text), "{text}");
        }
    }
}
