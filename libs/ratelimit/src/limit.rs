//! A limit: its name, its rate and the variable that sets it.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use service::config::{Setting, Variable};

/// Limit of logins and password changes.
pub const LOGIN: Variable =
    variable("SVC_LIMIT_LOGIN", "30/min", "Rate limit of logins and password changes per client address.");
/// Limit of password reset requests.
pub const RESET: Variable = variable(
    "SVC_LIMIT_RESET",
    "5/h",
    "Rate limit of password reset requests per account and client address. A client address can request twelve times as many \
        for all accounts.",
);
/// Limit of invites.
pub const INVITE: Variable =
    variable("SVC_LIMIT_INVITE", "500/h", "Rate limit of invites and resent invites per tenant.");
/// Limit of unknown invite and reset tokens, and of requests with a valid one.
pub const TOKEN: Variable = variable(
    "SVC_LIMIT_TOKEN",
    "10/min",
    "Rate limit of unknown tokens of invites and password resets per client address, and of requests with one valid token.",
);
/// Limit of device logins.
pub const DEVICE: Variable = variable(
    "SVC_LIMIT_DEVICE",
    "10/min",
    "Rate limit of device code requests per client address. `off` also disables the \
        limit of wrong user codes (ten at once, then one per minute).",
);
/// Limit of requests to ingest without a valid credential.
pub const CREDENTIAL: Variable = variable(
    "SVC_LIMIT_CREDENTIAL",
    "60/min",
    "Rate limit of requests to ingest with a missing or invalid credential, per client address and replica.",
);
/// Limit of event streams that are opened.
pub const EVENT_STREAM: Variable = variable(
    "SVC_LIMIT_EVENT_STREAM",
    "60/min",
    "Rate limit of opened event streams (`GET /events/stream`) per tenant and replica of ingest.",
);
/// Limit of requests for which the broker reads many messages or consumers.
pub const AUDIT: Variable = variable(
    "SVC_LIMIT_AUDIT",
    "120/min",
    "Rate limit of lists of audit events and quarantined items (`GET /audit`, `GET /events/quarantine`), of deletions of quarantined \
     items, and of requests for consumers (`GET /consumers`, `GET /consumers/{consumer_name}`) per tenant and replica of ingest.",
);
/// Limit of all other routes.
pub const DEFAULT: Variable = variable(
    "SVC_LIMIT_DEFAULT",
    "120/min",
    "Rate limit of all other routes per client address and replica, separately for identity and session.",
);

const fn variable(name: &'static str, default: &'static str, meaning: &'static str) -> Variable {
    Variable::new(name, "count, 1 to 10000, per s, min or h, as in `30/min`, or `off`")
        .default(default)
        .meaning(meaning)
}

/// A named rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Name in the table and in metrics.
    pub name: &'static str,
    /// Allowed rate; `None` disables the limit.
    pub rate: Option<Rate>,
}

impl Limit {
    /// Declares the setting of the limit `name` with one of the variables above.
    pub fn setting(variable: Variable, name: &'static str) -> Setting<Self> {
        variable.required_with(move |text| match text {
            "off" => Ok(Self { name, rate: None }),
            text => text.parse().map(|rate| Self { name, rate: Some(rate) }),
        })
    }
}

/// Postgres stores time in microseconds. Up to this count, rounding the interval changes the rate by less than 1 %.
const MAX_COUNT: u32 = 10_000;

/// A rate with a burst: `<count>/<s|min|h>` allows a burst of the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    burst: NonZeroU32,
    interval: Duration,
}

/// The text is not a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be <count>/<s|min|h> with a count of 1 to {MAX_COUNT}, or off")]
pub struct InvalidRate;

impl Rate {
    /// Allows `burst` requests at once, then one request per `interval`.
    pub const fn new(burst: NonZeroU32, interval: Duration) -> Self {
        Self { burst, interval }
    }

    /// Allows `count` requests at once, then as many per hour at an even rate.
    pub const fn per_hour(count: NonZeroU32) -> Self {
        let hour = Duration::from_hours(1);
        match hour.checked_div(count.get()) {
            Some(interval) => Self::new(count, interval),
            // The divisor is not zero.
            None => Self::new(count, hour),
        }
    }

    /// Returns the time between two requests at an even rate (the emission interval of GCRA).
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns how much earlier than at an even rate requests can arrive (the burst tolerance of GCRA).
    pub fn burst_tolerance(&self) -> Duration {
        self.interval * self.burst.get()
    }

    /// Returns the longest lead of a subject that counts. Twice the burst tolerance, because the clocks of replicas differ. A longer
    /// lead comes from a clock that was ahead.
    pub(crate) fn max_lead(&self) -> Duration {
        2 * self.burst_tolerance()
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
        // The standard parser also accepts a sign.
        let digits = count.bytes().all(|byte| byte.is_ascii_digit());
        let count = count.parse::<u32>().ok().filter(|count| digits && (1..=MAX_COUNT).contains(count));
        let burst = count.and_then(NonZeroU32::new).ok_or(InvalidRate)?;
        let interval = Duration::from_micros(seconds * 1_000_000 / u64::from(burst.get()));
        Ok(Self { burst, interval })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "burst of {}, then one per {:?}", self.burst, self.interval)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_a_count_and_a_unit() {
        let rate: Rate = "30/min".parse().unwrap();
        assert_eq!(rate.to_string(), "burst of 30, then one per 2s");
        assert_eq!(
            (rate.interval(), rate.burst_tolerance()),
            (Duration::from_secs(2), Duration::from_mins(1))
        );
        for bad in ["", "30", "/min", "30/", "0/s", "-1/s", "+1/s", "1.5/s", "1/d", "1 /s", "10001/s", "1/s "]
        {
            assert_eq!(bad.parse::<Rate>(), Err(InvalidRate), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn burst_tolerance_is_the_period_of_the_rate(count in 1..=MAX_COUNT, unit in 0..3_usize) {
            let (unit, period) = [("s", 1), ("min", 60), ("h", 3600)][unit];
            let rate: Rate = format!("{count}/{unit}").parse().unwrap();
            prop_assert!(rate.burst_tolerance() <= Duration::from_secs(period));
            let rounding = Duration::from_micros(count.into());
            prop_assert!(rate.burst_tolerance() + rounding > Duration::from_secs(period));
        }

        #[test]
        fn parsing_never_panics(text in "\\PC{0,20}") {
            let _ = text.parse::<Rate>();
        }
    }
}
