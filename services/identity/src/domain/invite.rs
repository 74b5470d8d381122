//! Invites: `pending` → `accepted`, `expired` or `revoked`.

use chrono::{DateTime, Utc};
use contract::Role;
use contract::identity::InviteStatus;
use hashing::TokenDigest;
use tenancy::{InviteId, UserId};

use super::email::EmailKey;

/// Tokens of a pending invite: one in the hands of the person, and those of the last attempts to send a mail, of which an attempt
/// without a reply of the mail server may have arrived.
const MAX_TOKENS: usize = 32;

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
    /// When the mail server accepted the mail of the last term.
    pub(crate) mailed_at: Option<DateTime<Utc>>,
    pub(crate) state: InviteState,
}

/// The state of an invite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InviteState {
    /// The tokens that can be used, oldest first: that of a response or of the last accepted mail, and those of later attempts to
    /// send a mail.
    Pending(Vec<TokenDigest>),
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
        match &self.state {
            InviteState::Pending(tokens)
                if tokens.iter().any(|own| own.matches(digest)) && now < self.expires_at =>
            {
                Some(Self { state: InviteState::Accepted { at: now }, ..self })
            }
            _ => None,
        }
    }

    /// Starts a new term with a new token, which replaces the previous ones, or without one: the previous ones stay valid until
    /// the mail server has accepted a mail of the new term. `None` if the invite is not pending.
    pub(crate) fn resend(
        self,
        token: Option<TokenDigest>,
        expires_at: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Option<Self> {
        let current = self.at(now);
        let InviteState::Pending(tokens) = current.state else { return None };
        let tokens = token.map_or(tokens, |token| vec![token]);
        Some(Self { state: InviteState::Pending(tokens), expires_at, mailed_at: None, ..current })
    }

    /// Adds the token that is about to be mailed for a term; `None` if the invite is not pending or has another term.
    pub(crate) fn mail(self, token: TokenDigest, term: DateTime<Utc>, now: DateTime<Utc>) -> Option<Self> {
        let current = self.at(now);
        let InviteState::Pending(mut tokens) = current.state else { return None };
        if tokens.len() == MAX_TOKENS {
            // The first one stays: the person has it.
            tokens.remove(1);
        }
        tokens.push(token);
        (current.expires_at == term).then_some(Self { state: InviteState::Pending(tokens), ..current })
    }

    /// The mail server has accepted the mail of a token: older tokens are invalid. `None` if this token is invalid already.
    pub(crate) fn mailed(self, token: &TokenDigest, term: DateTime<Utc>, now: DateTime<Utc>) -> Option<Self> {
        let InviteState::Pending(mut tokens) = self.state else { return None };
        let position = tokens.iter().position(|own| own.matches(token))?;
        tokens.drain(..position);
        let mailed_at = if self.expires_at == term { Some(now) } else { self.mailed_at };
        Some(Self { state: InviteState::Pending(tokens), mailed_at, ..self })
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
            mailed_at: None,
            state,
        }
    }

    fn digest(text: &str) -> TokenDigest {
        TokenDigest::from_text(text)
    }

    #[test]
    fn the_token_is_accepted_until_the_invite_expires() {
        let pending = invite(InviteState::Pending(vec![digest("token")]));
        let accepted = pending.clone().accept(&digest("token"), at(99)).unwrap();
        assert_eq!(accepted.state, InviteState::Accepted { at: at(99) });
        assert!(pending.clone().accept(&digest("token"), at(100)).is_none());
        assert!(pending.clone().accept(&digest("other"), at(1)).is_none());
        assert_eq!(pending.at(at(100)).state, InviteState::Expired { at: at(100) });
    }

    #[test]
    fn a_revoked_invite_cannot_be_accepted() {
        let revoked = invite(InviteState::Pending(vec![digest("token")])).revoke(at(1));
        assert_eq!(revoked.state, InviteState::Revoked { at: at(1) });
        assert!(revoked.accept(&digest("token"), at(2)).is_none());
    }

    #[test]
    fn a_late_mail_does_not_replace_the_token_of_a_resent_invite() {
        let resent =
            invite(InviteState::Pending(vec![])).resend(Some(digest("new")), at(200), at(1)).unwrap();
        assert!(resent.clone().mail(digest("late"), at(100), at(2)).is_none());
        let mailed = resent.mail(digest("mailed"), at(200), at(2)).unwrap();
        for token in ["new", "mailed"] {
            assert!(mailed.clone().accept(&digest(token), at(3)).is_some(), "{token}");
        }
        let accepted = mailed.mailed(&digest("mailed"), at(200), at(3)).unwrap();
        assert_eq!(accepted.mailed_at, Some(at(3)));
        assert!(accepted.clone().accept(&digest("new"), at(4)).is_none());
        assert!(accepted.accept(&digest("mailed"), at(4)).is_some());
    }

    #[test]
    fn the_token_of_the_person_stays_valid_during_any_number_of_attempts_to_send_the_next_one() {
        let mut invite = invite(InviteState::Pending(vec![digest("old")]));
        invite = invite.resend(None, at(200), at(1)).unwrap();
        for attempt in 0..100 {
            invite = invite.mail(digest(&attempt.to_string()), at(200), at(2)).unwrap();
        }
        for (token, is_valid) in [("old", true), ("0", false), ("69", true), ("99", true)] {
            assert_eq!(invite.clone().accept(&digest(token), at(3)).is_some(), is_valid, "{token}");
        }
        // A mail that was accepted although its attempt had no reply.
        let invite = invite.mailed(&digest("98"), at(200), at(3)).unwrap();
        assert_eq!(invite.state, InviteState::Pending(vec![digest("98"), digest("99")]));
        assert_eq!(invite.clone().mailed(&digest("97"), at(200), at(4)), None);
        // The mail of the former term does not count as that of a new one.
        let resent = invite.resend(None, at(300), at(4)).unwrap();
        assert_eq!(resent.mailed_at, None);
        assert_eq!(resent.mailed(&digest("99"), at(200), at(5)).unwrap().mailed_at, None);
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
            let (mut invite, mut seconds) = (invite(InviteState::Pending(vec![])), 0);
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
