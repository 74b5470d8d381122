//! Password resets: `pending` → `used`, `expired` or `replaced`.

use chrono::{DateTime, Utc};
use hashing::TokenDigest;
use tenancy::{OutboxId, ResetId, UserId};

/// A password reset of a user: one attempt to send its mail, with its own token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    pub(crate) id: ResetId,
    /// The outbox message of the request.
    pub(crate) mail_id: OutboxId,
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

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    const START: DateTime<Utc> = DateTime::UNIX_EPOCH;

    fn at(seconds: i64) -> DateTime<Utc> {
        START + TimeDelta::seconds(seconds)
    }

    fn reset(created: i64, expires: i64) -> Reset {
        Reset {
            id: ResetId::generate(),
            mail_id: OutboxId::generate(),
            user_id: UserId::generate(),
            created_at: at(created),
            digest: TokenDigest::from_text("token"),
            expires_at: at(expires),
            state: ResetState::Pending,
        }
    }

    #[test]
    fn the_token_is_used_once_until_the_reset_expires() {
        let digest = TokenDigest::from_text("token");
        let used = reset(0, 100).confirm(&digest, at(99)).unwrap();
        assert_eq!(used.state, ResetState::Used { at: at(99) });
        assert!(used.confirm(&digest, at(99)).is_none());
        assert!(reset(0, 100).confirm(&digest, at(100)).is_none());
        assert!(reset(0, 100).confirm(&TokenDigest::from_text("other"), at(1)).is_none());
    }
}
