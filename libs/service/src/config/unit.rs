//! Durations and sizes are written with their unit: `30min`, `512KiB`.

use std::time::Duration;

/// Reads a length of time: a whole number and one of `ms s min h d`.
///
/// # Errors
/// What the text lacks.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("the unit must be one of ms, s, min, h, d".to_owned()),
    };
    number.checked_mul(milliseconds).map(Duration::from_millis).ok_or_else(too_large)
}

/// Reads a size in bytes: a whole number and one of `B KiB MiB GiB`.
///
/// # Errors
/// What the text lacks.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let shift = match unit {
        "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return Err("the unit must be one of B, KiB, MiB, GiB".to_owned()),
    };
    number.checked_mul(1 << shift).ok_or_else(too_large)
}

fn split(text: &str) -> Result<(u64, &str), String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number = number.parse().map_err(|_| "a whole number and a unit are needed".to_owned())?;
    Ok((number, unit.trim()))
}

fn too_large() -> String {
    "the value is too large".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_need_a_number_and_a_known_unit() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("72 h"), Ok(Duration::from_hours(72)));
        assert_eq!(parse_bytes("2MiB"), Ok(2 << 20));
        for bad in ["", "5", "s", "-1s", "1.5h", "1y", "99999999999999999999s", "18446744073709551615d"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert!(parse_bytes("1MB").is_err());
    }
}
