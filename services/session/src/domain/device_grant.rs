//! A device grant's life (RFC 8628): pending until a person approves or denies it, approved until it is redeemed once; what
//! is neither in time is expired.

use chrono::{DateTime, TimeDelta, Utc};
use contract::device::{Decision, DeviceError};

/// How long a device's codes are of use.
pub(crate) const LIFETIME: TimeDelta = TimeDelta::minutes(10);
/// Seconds that a device has to wait between two questions, at first.
pub(crate) const INTERVAL: u32 = 5;
/// A person who approves has shown their password within this time: a session that a device was given cannot beget another.
const FRESH: TimeDelta = TimeDelta::minutes(10);
/// So many characters of what a device calls itself are shown.
const LONGEST_NAME: usize = 64;

/// A grant, with what there is in its state. `T` is what an approval leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceGrant<T> {
    /// Nobody has decided.
    Pending,
    /// Somebody has let the device in, which has not asked since.
    Approved(T),
    /// Somebody has denied it.
    Denied,
    /// The device has its session.
    Redeemed,
    /// Its time was over before it was redeemed or denied.
    Expired,
}

/// The grant waits for no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the grant is decided or over")]
pub(crate) struct NotPending;

impl<T> DeviceGrant<T> {
    /// The grant as it is at a time.
    pub(crate) fn at(self, now: DateTime<Utc>, expires_at: DateTime<Utc>) -> Self {
        match self {
            Self::Pending | Self::Approved(_) if now >= expires_at => Self::Expired,
            other => other,
        }
    }

    /// A person decides.
    pub(crate) fn decide(self, decision: Decision, approval: T) -> Result<Self, NotPending> {
        match (self, decision) {
            (Self::Pending, Decision::Approve) => Ok(Self::Approved(approval)),
            (Self::Pending, Decision::Deny) => Ok(Self::Denied),
            _ => Err(NotPending),
        }
    }

    /// The device asks, perhaps earlier than it may: what it gets, or why it gets nothing. Being early matters only while
    /// nobody has decided.
    pub(crate) fn redeem(self, early: bool) -> Result<T, DeviceError> {
        match self {
            Self::Pending if early => Err(DeviceError::SlowDown),
            Self::Pending => Err(DeviceError::AuthorizationPending),
            Self::Approved(approval) => Ok(approval),
            Self::Denied => Err(DeviceError::AccessDenied),
            Self::Redeemed => Err(DeviceError::InvalidGrant),
            Self::Expired => Err(DeviceError::ExpiredToken),
        }
    }
}

/// Whether a password was shown recently enough to let a device in.
pub(crate) fn is_fresh(logged_in_at: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    now - logged_in_at <= FRESH
}

/// What a device calls itself, fit to be shown: on one line, and not long.
pub(crate) fn shown_name(name: &str) -> Option<String> {
    let name: String = name.trim().chars().filter(|c| !c.is_control()).take(LONGEST_NAME).collect();
    Some(name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_cut_and_loses_what_would_break_its_line() {
        assert_eq!(shown_name(" a\n\u{1b}[2Jtv "), Some("a[2Jtv".to_owned()));
        assert_eq!(shown_name(" \u{7} "), None);
        assert_eq!(shown_name(&"ä".repeat(100)).unwrap().chars().count(), LONGEST_NAME);
    }

    #[test]
    fn a_login_is_fresh_for_ten_minutes() {
        let then = DateTime::UNIX_EPOCH;
        assert!(is_fresh(then, then + TimeDelta::minutes(10)));
        assert!(!is_fresh(then, then + TimeDelta::minutes(10) + TimeDelta::microseconds(1)));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Wait(i64),
        Decide(Decision),
        Ask { early: bool },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0_i64..400).prop_map(Step::Wait),
            prop_oneof![Just(Decision::Approve), Just(Decision::Deny)].prop_map(Step::Decide),
            any::<bool>().prop_map(|early| Step::Ask { early }),
        ];
        prop::collection::vec(step, 0..30)
    }

    proptest! {
        #[test]
        fn a_grant_is_decided_once_redeemed_once_and_never_late(steps in steps()) {
            let start = DateTime::UNIX_EPOCH;
            let (mut now, expires_at) = (start, start + LIFETIME);
            let mut grant = DeviceGrant::Pending;
            let (mut decisions, mut sessions) = (Vec::new(), 0);
            for (at, step) in steps.into_iter().enumerate() {
                let before = grant.at(now, expires_at);
                match step {
                    Step::Wait(seconds) => now += TimeDelta::seconds(seconds),
                    Step::Decide(decision) => {
                        if let Ok(decided) = before.decide(decision, at) {
                            prop_assert!(now < expires_at);
                            decisions.push((decision, at));
                            grant = decided;
                        } else {
                            prop_assert_ne!(before, DeviceGrant::Pending);
                        }
                    }
                    Step::Ask { early } => match before.redeem(early) {
                        Ok(approval) => {
                            prop_assert_eq!(&decisions, &[(Decision::Approve, approval)]);
                            prop_assert!(now < expires_at);
                            sessions += 1;
                            grant = DeviceGrant::Redeemed;
                        }
                        Err(DeviceError::AuthorizationPending | DeviceError::SlowDown) => {
                            prop_assert!(decisions.is_empty() && now < expires_at);
                        }
                        Err(DeviceError::AccessDenied) => prop_assert_eq!(decisions[0].0, Decision::Deny),
                        Err(DeviceError::InvalidGrant) => prop_assert_eq!(sessions, 1),
                        Err(DeviceError::ExpiredToken) => prop_assert!(now >= expires_at && sessions == 0),
                        Err(other) => prop_assert!(false, "{other:?}"),
                    },
                }
            }
            prop_assert!(decisions.len() <= 1 && sessions <= 1);
        }
    }
}
