//! How much is allowed: `<count>/<s|min|h>`, with a burst of the count.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

/// Postgres keeps time in microseconds; up to this count, rounding to one makes less than a hundredth of a difference.
const MOST: u32 = 10_000;

/// So many at once, and then one in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    burst: NonZeroU32,
    interval: Duration,
}

/// The text is no rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be <count>/<s|min|h> with a count of 1 to {MOST}, or off")]
pub struct InvalidRate;

impl Rate {
    /// `burst` at once, then one every `interval`.
    pub const fn new(burst: NonZeroU32, interval: Duration) -> Self {
        Self { burst, interval }
    }

    /// The time that one request takes up at an even pace.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// How far ahead of an even pace somebody may be.
    pub fn ahead(&self) -> Duration {
        self.interval * self.burst.get()
    }
}

impl FromStr for Rate {
    type Err = InvalidRate;

    fn from_str(text: &str) -> Result<Self, InvalidRate> {
        let (count, unit) = text.split_once('/').ok_or(InvalidRate)?;
        let seconds = match unit {
            "s" => 1,
            "min" => 60,
            "h" => 3600,
            _ => return Err(InvalidRate),
        };
        // A number alone: the standard parser takes a sign too.
        let digits = count.bytes().all(|byte| byte.is_ascii_digit());
        let count = count.parse::<u32>().ok().filter(|count| digits && (1..=MOST).contains(count));
        let burst = count.and_then(NonZeroU32::new).ok_or(InvalidRate)?;
        let interval = Duration::from_micros(seconds * 1_000_000 / u64::from(burst.get()));
        Ok(Self { burst, interval })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at once, then one every {:?}", self.burst, self.interval)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_rate_has_a_count_and_a_unit() {
        let rate: Rate = "30/min".parse().unwrap();
        assert_eq!((rate.interval(), rate.ahead()), (Duration::from_secs(2), Duration::from_mins(1)));
        for bad in ["", "30", "/min", "30/", "0/s", "-1/s", "+1/s", "1.5/s", "1/d", "1 /s", "10001/s", "1/s "]
        {
            assert_eq!(bad.parse::<Rate>(), Err(InvalidRate), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_burst_of_the_count_fits_into_its_period(count in 1..=MOST, unit in 0..3_usize) {
            let (unit, period) = [("s", 1), ("min", 60), ("h", 3600)][unit];
            let rate: Rate = format!("{count}/{unit}").parse().unwrap();
            prop_assert!(rate.ahead() <= Duration::from_secs(period));
            prop_assert!(rate.ahead() + Duration::from_micros(count.into()) > Duration::from_secs(period));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,20}") {
            let _ = text.parse::<Rate>();
        }
    }
}
