//! Cells of tables: text, ids and times. People see times relative to now; programs see them in RFC 3339.

use std::fmt::Display;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

use super::escape;

/// A value in a table.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    /// Text, which may be cut if the terminal is too narrow.
    Text(String),
    /// Text of which the start must be shown, such as an e-mail address.
    Name(String),
    /// An IP address. One of IPv6 may be cut.
    Address(String),
    /// Text that is never cut, such as the name of an event, or an id that commands accept.
    Word(String),
    /// The id of a related object, which may be shortened to a prefix that is unique in its column.
    Id(String),
    Time(DateTime<Utc>),
}

/// Cell with text, with control characters escaped.
pub(crate) fn text(value: impl Display) -> Cell {
    Cell::Text(escape(&value.to_string()))
}

/// Cell with text that is cut to 20 columns at least.
pub(crate) fn name(value: impl Display) -> Cell {
    Cell::Name(escape(&value.to_string()))
}

/// Cell with an IP address, which is cut to 15 columns at least.
pub(crate) fn address(value: impl Display) -> Cell {
    Cell::Address(escape(&value.to_string()))
}

/// Cell with text that is never cut.
pub(crate) fn word(value: impl Display) -> Cell {
    Cell::Word(escape(&value.to_string()))
}

/// Cell with the id of a related object.
pub(crate) fn id(value: impl Display) -> Cell {
    Cell::Id(escape(&value.to_string()))
}

/// Cell with a time.
pub(crate) fn time(time: &DateTime<Utc>) -> Cell {
    Cell::Time(*time)
}

/// Cell of a column that has no value in some rows.
pub(crate) fn optional(cell: Option<Cell>) -> Cell {
    cell.unwrap_or_else(|| Cell::Text(String::new()))
}

/// Formats a time in UTC, to the second.
pub(crate) fn timestamp(time: &DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Current time.
#[expect(clippy::disallowed_methods, reason = "the client reads the wall clock only here")]
pub(crate) fn now() -> DateTime<Utc> {
    Utc::now()
}

/// Formats a time relative to `now`, such as `5 min ago` or `in 3 h`. A time more than a year away is a date.
pub(crate) fn relative(time: &DateTime<Utc>, now: DateTime<Utc>) -> String {
    let difference = *time - now;
    let amount = duration(difference.abs());
    if difference.abs() >= TimeDelta::days(366) {
        time.format("%Y-%m-%d").to_string()
    } else if difference > TimeDelta::zero() {
        format!("in {amount}")
    } else {
        format!("{amount} ago")
    }
}

/// Formats a duration in its largest unit, such as `5 min`.
pub(crate) fn duration(duration: TimeDelta) -> String {
    if duration < TimeDelta::minutes(1) {
        format!("{} s", duration.num_seconds())
    } else if duration < TimeDelta::hours(1) {
        format!("{} min", duration.num_minutes())
    } else if duration < TimeDelta::hours(96) {
        format!("{} h", duration.num_hours())
    } else {
        format!("{} d", duration.num_days())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_times_have_one_unit() {
        let now = DateTime::from_timestamp(1_770_000_000, 0).unwrap();
        for (seconds, expected) in [
            (0, "0 s ago"),
            (-59, "59 s ago"),
            (-60, "1 min ago"),
            (-3_599, "59 min ago"),
            (3_600, "in 1 h"),
            (96 * 3_600 - 1, "in 95 h"),
            (96 * 3_600, "in 4 d"),
            (-365 * 86_400, "365 d ago"),
            (-366 * 86_400, "2025-02-01"),
        ] {
            assert_eq!(relative(&(now + TimeDelta::seconds(seconds)), now), expected, "{seconds}");
        }
    }
}
