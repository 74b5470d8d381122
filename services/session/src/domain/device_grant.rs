//! Device grants (RFC 8628): pending until a user approves or denies, approved until redeemed once. A pending or approved
//! grant expires.

use chrono::{DateTime, TimeDelta, Utc};
use contract::device::{Decision, DeviceError};

/// The lifetime of the codes of a grant.
pub(crate) const LIFETIME: TimeDelta = TimeDelta::minutes(10);
/// The initial minimum time between two polls.
pub(crate) const INTERVAL_SECONDS: u32 = 5;
/// The increase of this time after an early poll (RFC 8628, section 3.5).
pub(crate) const SLOW_DOWN_SECONDS: u32 = 5;
/// The maximum length of a displayed client name; the rest is cut off.
const MAX_NAME_CHARS: usize = 64;

/// The state of a grant. `T` is the data of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceGrant<T> {
    /// No user has decided.
    Pending,
    /// A user approved; the device has not redeemed the grant yet.
    Approved(T),
    /// A user denied.
    Denied,
    /// The device has received its session.
    Redeemed,
    /// The lifetime passed before the grant was denied or redeemed.
    Expired,
}

impl<T> DeviceGrant<T> {
    /// Returns the state at a time: a pending or approved grant expires.
    pub(crate) fn at(self, now: DateTime<Utc>, expires_at: DateTime<Utc>) -> Self {
        match self {
            Self::Pending | Self::Approved(_) if now >= expires_at => Self::Expired,
            other => other,
        }
    }

    /// Approves or denies a pending grant; `None` if it is not pending.
    pub(crate) fn decide(self, decision: Decision, approval: T) -> Option<Self> {
        match (self, decision) {
            (Self::Pending, Decision::Approve) => Some(Self::Approved(approval)),
            (Self::Pending, Decision::Deny) => Some(Self::Denied),
            _ => None,
        }
    }

    /// Returns the approval, or the error for the device. An early poll matters only while the grant is pending.
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

/// The client name for display: at most 64 characters. `None` if nothing is left.
pub(crate) fn display_name(name: &str) -> Option<String> {
    contract::names::cleaned(name, MAX_NAME_CHARS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_early_poll_is_asked_to_slow_down_while_the_grant_is_pending() {
        let redeem = |grant: DeviceGrant<()>, early| grant.redeem(early);
        assert_eq!(redeem(DeviceGrant::Pending, true), Err(DeviceError::SlowDown));
        assert_eq!(redeem(DeviceGrant::Pending, false), Err(DeviceError::AuthorizationPending));
        assert_eq!(redeem(DeviceGrant::Approved(()), true), Ok(()));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Wait(i64),
        Decide(Decision),
        Poll { early: bool },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0_i64..400).prop_map(Step::Wait),
            prop_oneof![Just(Decision::Approve), Just(Decision::Deny)].prop_map(Step::Decide),
            any::<bool>().prop_map(|early| Step::Poll { early }),
        ];
        prop::collection::vec(step, 0..30)
    }

    proptest! {
        #[test]
        fn grant_is_decided_and_redeemed_at_most_once_before_it_expires(steps in steps()) {
            let start = DateTime::UNIX_EPOCH;
            let (mut now, expires_at) = (start, start + LIFETIME);
            let mut grant = DeviceGrant::Pending;
            let (mut decisions, mut sessions) = (Vec::new(), 0);
            for (at, step) in steps.into_iter().enumerate() {
                let before = grant.at(now, expires_at);
                match step {
                    Step::Wait(seconds) => now += TimeDelta::seconds(seconds),
                    Step::Decide(decision) => {
                        if let Some(decided) = before.decide(decision, at) {
                            prop_assert!(now < expires_at);
                            decisions.push((decision, at));
                            grant = decided;
                        } else {
                            prop_assert_ne!(before, DeviceGrant::Pending);
                        }
                    }
                    Step::Poll { early } => match before.redeem(early) {
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
