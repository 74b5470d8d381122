//! Times in the past, as options take them: absolute, or as a duration before now.

use chrono::{DateTime, TimeDelta, Utc};

use crate::framework::arguments::duration_of;
use crate::framework::output::now;

/// Parses an RFC 3339 time, or a duration before now such as `15m`, `24h` or `7d`.
pub(crate) fn parse_since(text: &str) -> Result<DateTime<Utc>, String> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Ok(time.to_utc());
    }
    let duration = duration_of(text).ok().and_then(|duration| TimeDelta::from_std(duration).ok());
    duration.and_then(|duration| now().checked_sub_signed(duration)).ok_or_else(|| {
        "expected a time such as 2026-01-31T12:00:00Z, or a duration such as 15m, 24h or 7d".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_absolute_or_relative_to_now() {
        let absolute = "2026-01-31T13:00:00+01:00";
        assert_eq!(parse_since(absolute).unwrap().to_rfc3339(), "2026-01-31T12:00:00+00:00");
        let before = now() - parse_since("7d").unwrap();
        assert!((before - TimeDelta::days(7)).num_seconds().abs() < 60, "{before}");
        for invalid in
            ["", "yesterday", "7", "-1h", "2026-01-31", "99999999999999y", "18446744073709551614.9s1.1s"]
        {
            assert!(parse_since(invalid).is_err(), "{invalid}");
        }
    }
}
