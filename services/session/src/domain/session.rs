//! A session's life: made under a standing, used, and over when its time is.

use std::net::IpAddr;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use contract::session::SessionMethod;
use tenancy::TenantId;

use super::standing::Standing;

/// A session that is to be made.
#[derive(Clone, Debug)]
pub(crate) struct NewSession {
    pub(crate) tenant_id: TenantId,
    pub(crate) standing: Standing,
    pub(crate) method: SessionMethod,
    /// Where its user's client is.
    pub(crate) ip: Option<IpAddr>,
    /// What that client calls itself.
    pub(crate) user_agent: Option<String>,
}

/// How long sessions live, by how they were made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetimes {
    pub(crate) password_idle: Duration,
    pub(crate) password_max: Duration,
    pub(crate) device_idle: Duration,
    pub(crate) device_max: Duration,
}

/// When a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// How long it may be idle.
    pub(crate) idle: TimeDelta,
    /// When it ends if it is not used from now on.
    pub(crate) idle_expires_at: DateTime<Utc>,
    /// When it ends in any case.
    pub(crate) expires_at: DateTime<Utc>,
}

impl Lifetimes {
    /// The end of a session that is made now.
    pub(crate) fn expiry(&self, method: SessionMethod, now: DateTime<Utc>) -> Expiry {
        let (idle, max) = match method {
            SessionMethod::Password => (self.password_idle, self.password_max),
            SessionMethod::Device => (self.device_idle, self.device_max),
        };
        // Bounded by the configuration to 30 days, which fits.
        let delta = |duration| TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX);
        let expires_at = now + delta(max);
        Expiry { idle: delta(idle), idle_expires_at: expires_at.min(now + delta(idle)), expires_at }
    }
}

/// A use is noted when the last noted one is this long ago: one write a minute, however busy the session is.
const NOTE_USE_AFTER: TimeDelta = TimeDelta::minutes(1);

/// Whether a use that happens now is to be noted: the first one is.
pub(crate) fn is_use_worth_noting(last_seen_at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> bool {
    last_seen_at.is_none_or(|seen| now - seen >= NOTE_USE_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIMES: Lifetimes = Lifetimes {
        password_idle: Duration::from_hours(1),
        password_max: Duration::from_hours(12),
        device_idle: Duration::from_hours(48),
        device_max: Duration::from_hours(24),
    };

    #[test]
    fn a_session_ends_idle_or_absolutely_whichever_comes_first() {
        let now = DateTime::UNIX_EPOCH;
        let password = LIFETIMES.expiry(SessionMethod::Password, now);
        assert_eq!(password.idle_expires_at, now + TimeDelta::hours(1));
        assert_eq!(password.expires_at, now + TimeDelta::hours(12));
        let device = LIFETIMES.expiry(SessionMethod::Device, now);
        assert_eq!(device.idle_expires_at, device.expires_at);
    }

    #[test]
    fn a_use_is_noted_once_a_minute() {
        let seen = DateTime::UNIX_EPOCH;
        assert!(!is_use_worth_noting(Some(seen), seen + TimeDelta::seconds(59)));
        assert!(is_use_worth_noting(Some(seen), seen + TimeDelta::seconds(60)));
        // A clock that was set back notes nothing until it has caught up.
        assert!(!is_use_worth_noting(Some(seen), seen - TimeDelta::hours(1)));
        assert!(is_use_worth_noting(None, seen));
    }
}
