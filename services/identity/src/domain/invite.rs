//! Invites: `pending` → `accepted`, `expired` or `revoked`.

use chrono::{DateTime, Utc};
use contract::Role;
use contract::identity::InviteStatus;
use hashing::TokenDigest;
use tenancy::{InviteId, UserId};

use super::email::EmailKey;

/// An invite of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invite {
    pub(crate) id: InviteId,
    pub(crate) user_id: UserId,
    /// The address as typed.
    pub(crate) email: String,
    pub(crate) email_key: EmailKey,
    pub(crate) role: Role,
    pub(crate) created_at: DateTime<Utc>,
    /// The end of the last term.
    pub(crate) expires_at: DateTime<Utc>,
    pub(crate) state: InviteState,
}

/// The state of an invite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InviteState {
    /// `None`: the mail with the token is not sent yet.
    Pending(Option<TokenDigest>),
    Accepted {
        at: DateTime<Utc>,
    },
    Expired {
        at: DateTime<Utc>,
    },
    Revoked {
        at: DateTime<Utc>,
    },
}

impl Invite {
    /// The invite at a later time: a pending invite expires.
    pub(crate) fn at(self, now: DateTime<Utc>) -> Self {
        match self.state {
            InviteState::Pending(_) if self.expires_at <= now => {
                Self { state: InviteState::Expired { at: self.expires_at }, ..self }
            }
            _ => self,
        }
    }

    /// Accepts the invite with its token; `None` if it is not pending or has another token.
    pub(crate) fn accept(self, digest: &TokenDigest, now: DateTime<Utc>) -> Option<Self> {
        match self.state {
            InviteState::Pending(Some(own)) if own.matches(digest) && now < self.expires_at => {
                Some(Self { state: InviteState::Accepted { at: now }, ..self })
            }
            _ => None,
        }
    }

    /// Starts a new term with a new token, or without one until the mail is sent. The previous token is invalid. `None` if the
    /// invite is not pending.
    pub(crate) fn resend(
        self,
        digest: Option<TokenDigest>,
        expires_at: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Option<Self> {
        match self.at(now) {
            pending @ Self { state: InviteState::Pending(_), .. } => {
                Some(Self { state: InviteState::Pending(digest), expires_at, ..pending })
            }
            _ => None,
        }
    }

    /// Sets the token that is about to be mailed for a term; `None` if the invite is not pending or has another term.
    pub(crate) fn mail(self, digest: TokenDigest, term: DateTime<Utc>, now: DateTime<Utc>) -> Option<Self> {
        if self.expires_at == term { self.resend(Some(digest), term, now) } else { None }
    }

    /// Revokes a pending invite. Another state stays.
    pub(crate) fn revoke(self, now: DateTime<Utc>) -> Self {
        match self.at(now) {
            pending @ Self { state: InviteState::Pending(_), .. } => {
                Self { state: InviteState::Revoked { at: now }, ..pending }
            }
            settled => settled,
        }
    }
}

impl InviteState {
    pub(crate) fn status(&self) -> InviteStatus {
        match self {
            Self::Pending(_) => InviteStatus::Pending,
            Self::Accepted { .. } => InviteStatus::Accepted,
            Self::Expired { .. } => InviteStatus::Expired,
            Self::Revoked { .. } => InviteStatus::Revoked,
        }
    }

    /// When the invite left the state pending.
    pub(crate) fn settled_at(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Pending(_) => None,
            Self::Accepted { at } | Self::Expired { at } | Self::Revoked { at } => Some(*at),
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

    fn invite(state: InviteState) -> Invite {
        Invite {
            id: InviteId::generate(),
            user_id: UserId::generate(),
            email: "ada@example.com".to_owned(),
            email_key: EmailKey::from_typed("ada@example.com"),
            role: Role::Member,
            created_at: START,
            expires_at: at(100),
            state,
        }
    }

    fn digest(text: &str) -> TokenDigest {
        TokenDigest::of_text(text)
    }

    #[test]
    fn the_token_is_accepted_until_the_invite_expires() {
        let pending = invite(InviteState::Pending(Some(digest("token"))));
        let accepted = pending.clone().accept(&digest("token"), at(99)).unwrap();
        assert_eq!(accepted.state, InviteState::Accepted { at: at(99) });
        assert!(pending.clone().accept(&digest("token"), at(100)).is_none());
        assert!(pending.clone().accept(&digest("other"), at(1)).is_none());
        assert_eq!(pending.at(at(100)).state, InviteState::Expired { at: at(100) });
    }

    #[test]
    fn a_revoked_invite_cannot_be_accepted() {
        let revoked = invite(InviteState::Pending(Some(digest("token")))).revoke(at(1));
        assert_eq!(revoked.state, InviteState::Revoked { at: at(1) });
        assert!(revoked.accept(&digest("token"), at(2)).is_none());
    }

    #[test]
    fn a_late_mail_does_not_replace_the_token_of_a_resent_invite() {
        let resent = invite(InviteState::Pending(None)).resend(Some(digest("new")), at(200), at(1)).unwrap();
        assert!(resent.clone().mail(digest("late"), at(100), at(2)).is_none());
        let mailed = resent.mail(digest("mailed"), at(200), at(2)).unwrap();
        assert!(mailed.clone().accept(&digest("new"), at(3)).is_none());
        assert!(mailed.accept(&digest("mailed"), at(3)).is_some());
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Accept(u8),
        Resend(u8),
        Revoke,
    }

    fn steps() -> impl Strategy<Value = Vec<(Step, i64)>> {
        let step = prop_oneof![
            (0..3_u8).prop_map(Step::Accept),
            (0..3_u8).prop_map(Step::Resend),
            Just(Step::Revoke)
        ];
        prop::collection::vec((step, 0_i64..60), 0..12)
    }

    proptest! {
        #[test]
        fn a_settled_invite_never_changes(steps in steps()) {
            let (mut invite, mut seconds) = (invite(InviteState::Pending(None)), 0);
            for (step, wait) in steps {
                seconds += wait;
                let (now, before) = (at(seconds), invite.clone().at(at(seconds)));
                let after = match step {
                    Step::Accept(token) => invite.clone().accept(&digest(&token.to_string()), now),
                    Step::Resend(token) => {
                        invite.clone().resend(Some(digest(&token.to_string())), at(seconds + 100), now)
                    }
                    Step::Revoke => Some(invite.clone().revoke(now)),
                };
                let pending = matches!(before.state, InviteState::Pending(_));
                if let Some(after) = after {
                    prop_assert!(pending || after == before);
                    let accepted = matches!(after.state, InviteState::Accepted { .. });
                    prop_assert!(!accepted || (matches!(step, Step::Accept(_)) && now < after.expires_at) || !pending);
                    prop_assert_eq!(after.state.settled_at().is_none(), after.state.status() == InviteStatus::Pending);
                    invite = after;
                } else {
                    prop_assert!(!pending || matches!(step, Step::Accept(_)));
                }
            }
        }
    }
}
