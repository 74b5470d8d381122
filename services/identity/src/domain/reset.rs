//! Password resets: `pending` → `used`, `expired` or `replaced`.

use chrono::{DateTime, Utc};
use hashing::TokenDigest;
use tenancy::{ResetId, UserId};

/// A password reset of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    pub(crate) id: ResetId,
    pub(crate) user_id: UserId,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) digest: TokenDigest,
    pub(crate) expires_at: DateTime<Utc>,
    pub(crate) state: ResetState,
}

/// The state of a reset. A pending reset after its `expires_at` is expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResetState {
    Pending,
    Used { at: DateTime<Utc> },
    Replaced { at: DateTime<Utc> },
}

impl Reset {
    /// A new reset with the token that is about to be mailed.
    pub(crate) fn new(
        id: ResetId,
        user_id: UserId,
        digest: TokenDigest,
        expires_at: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Self {
        Self { id, user_id, created_at: now, digest, expires_at, state: ResetState::Pending }
    }

    /// Replaces the token when the mail is sent again, expired or not; `None` if the reset was used or replaced.
    pub(crate) fn renew(self, digest: TokenDigest, expires_at: DateTime<Utc>) -> Option<Self> {
        match self.state {
            ResetState::Pending => Some(Self { digest, expires_at, ..self }),
            ResetState::Used { .. } | ResetState::Replaced { .. } => None,
        }
    }

    /// Uses the token; `None` if the reset is not pending or has another token.
    pub(crate) fn confirm(self, digest: &TokenDigest, now: DateTime<Utc>) -> Option<Self> {
        if self.is_active(now) && self.digest.matches(digest) {
            Some(Self { state: ResetState::Used { at: now }, ..self })
        } else {
            None
        }
    }

    /// Whether the token can be used.
    pub(crate) fn is_active(&self, now: DateTime<Utc>) -> bool {
        self.state == ResetState::Pending && now < self.expires_at
    }
}

impl ResetState {
    /// When the reset left the state pending.
    pub(crate) fn settled_at(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Pending => None,
            Self::Used { at } | Self::Replaced { at } => Some(*at),
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::*;

    const START: DateTime<Utc> = DateTime::UNIX_EPOCH;

    fn at(seconds: i64) -> DateTime<Utc> {
        START + TimeDelta::seconds(seconds)
    }

    fn reset(created: i64, expires: i64) -> Reset {
        let digest = TokenDigest::of_text("token");
        Reset::new(ResetId::generate(), UserId::generate(), digest, at(expires), at(created))
    }

    #[test]
    fn the_token_is_used_once_until_the_reset_expires() {
        let digest = TokenDigest::of_text("token");
        let used = reset(0, 100).confirm(&digest, at(99)).unwrap();
        assert_eq!(used.state, ResetState::Used { at: at(99) });
        assert_eq!(used.state.settled_at(), Some(at(99)));
        assert!(used.clone().confirm(&digest, at(99)).is_none());
        assert!(used.renew(digest, at(200)).is_none());
        assert!(reset(0, 100).confirm(&digest, at(100)).is_none());
        assert!(reset(0, 100).confirm(&TokenDigest::of_text("other"), at(1)).is_none());
    }

    proptest! {
        #[test]
        fn a_renewed_token_is_the_only_valid_one(expires in 1_i64..100, renewed in 0_i64..200, confirmed in 0_i64..400) {
            let (old, new) = (TokenDigest::of_text("token"), TokenDigest::of_text("new"));
            let reset = reset(0, expires).renew(new, at(renewed + 100)).unwrap();
            prop_assert!(reset.clone().confirm(&old, at(confirmed)).is_none());
            prop_assert_eq!(reset.confirm(&new, at(confirmed)).is_some(), confirmed < renewed + 100);
        }
    }
}
