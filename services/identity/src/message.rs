//! The outbox messages of this service.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use contract::internal::ApiKeyNotice;
use database::outbox::{self, People};
use serde::{Deserialize, Serialize};
use tenancy::{InviteId, UserId};

/// A message that a use case sends through the outbox. It contains ids, never tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Message {
    /// Mails an invite. `expires_at` identifies the term, so that a late mail does not replace the token of a resent invite.
    MailInvite { invite_id: InviteId, user_id: UserId, expires_at: DateTime<Utc> },
    /// Mails a password reset, if there is an active account with this address. `ip` is the address of the client, for the audit.
    MailReset { email_key: String, requested_at: DateTime<Utc>, ip: Option<IpAddr> },
    /// Pushes the account status of a user to the session service.
    PushUserStatus { user_id: UserId },
    /// Pushes the account status of the tenant to the session service.
    PushTenantStatus,
    /// Mails a notice. Its kind is that of the notice.
    #[serde(untagged)]
    MailNotice(Notice),
}

/// A notice of a change. Each recipient has an own message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub(crate) enum Notice {
    /// The password of the recipient was changed.
    #[serde(rename = "mail_notice")]
    Password { user_id: UserId, changed_at: DateTime<Utc> },
    /// The second factor of the recipient was changed, used or locked.
    #[serde(rename = "mail_factor_notice")]
    Factor { user_id: UserId, change: FactorChange, changed_at: DateTime<Utc> },
    /// To an administrator, and to a user with another role: an account got rights, or a role was changed.
    #[serde(rename = "mail_admin_notice")]
    Admin { recipient: UserId, notice: AdminNotice },
    /// To an administrator: an API key was created.
    #[serde(rename = "mail_api_key_notice")]
    ApiKey { recipient: UserId, notice: ApiKeyNotice },
}

impl Notice {
    /// Returns the user who gets the mail.
    pub(crate) fn recipient(&self) -> UserId {
        match self {
            Self::Password { user_id: recipient, .. }
            | Self::Factor { user_id: recipient, .. }
            | Self::Admin { recipient, .. }
            | Self::ApiKey { recipient, .. } => *recipient,
        }
    }
}

impl outbox::Message for Message {
    fn erased_with(&self) -> People {
        match self {
            Self::MailInvite { user_id, .. } => People::users([*user_id]),
            Self::MailReset { email_key, .. } => People::address(email_key),
            Self::MailNotice(Notice::Admin { recipient, notice }) => {
                People::users([*recipient, notice.user_id])
            }
            Self::MailNotice(notice) => People::users([notice.recipient()]),
            // They report the erasure.
            Self::PushUserStatus { .. } | Self::PushTenantStatus => People::none(),
        }
    }

    /// A suspended tenant rejects the token of an invite. Resets and notices do not wait.
    fn waits_while_suspended(&self) -> bool {
        matches!(self, Self::MailInvite { .. })
    }
}

/// The content of a notice to the administrators of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AdminNotice {
    pub(crate) change: AdminChange,
    /// The account that the change is about.
    pub(crate) user_id: UserId,
    /// The user who made the change; `None` for the platform administrator.
    pub(crate) changed_by: Option<UserId>,
    pub(crate) changed_at: DateTime<Utc>,
}

/// A change that administrators of a tenant get a notice of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AdminChange {
    /// An administrator was invited.
    Invited,
    /// A user became an administrator.
    Promoted,
    /// An administrator became a member.
    Demoted,
    /// The second factors of a user were removed by another person.
    FactorsReset,
}

/// A change of the second factors of a user, who gets a notice of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FactorChange {
    TotpAdded,
    TotpRemoved,
    PasskeyAdded,
    PasskeyRemoved,
    RecoveryCodesReplaced,
    RecoveryCodeUsed,
    /// Another person removed the factors.
    Reset,
    /// Too many wrong codes.
    Locked,
}

impl FactorChange {
    /// All changes.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 8] = [
        Self::TotpAdded,
        Self::TotpRemoved,
        Self::PasskeyAdded,
        Self::PasskeyRemoved,
        Self::RecoveryCodesReplaced,
        Self::RecoveryCodeUsed,
        Self::Reset,
        Self::Locked,
    ];

    /// The name in audit events and in the keys of texts.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::TotpAdded => "totp_added",
            Self::TotpRemoved => "totp_removed",
            Self::PasskeyAdded => "passkey_added",
            Self::PasskeyRemoved => "passkey_removed",
            Self::RecoveryCodesReplaced => "recovery_codes_replaced",
            Self::RecoveryCodeUsed => "recovery_code_used",
            Self::Reset => "factors_reset",
            Self::Locked => "locked",
        }
    }
}

/// The kinds of mails that keep an account secure, the most urgent first. They have their own relay, because invites, which a
/// tenant can send in large numbers and to slow recipients, must not delay them.
pub(crate) const SECURITY_MAIL: &[&str] =
    &["mail_reset", "mail_notice", "mail_factor_notice", "mail_admin_notice", "mail_api_key_notice"];
/// The kinds of all other mails.
pub(crate) const INVITE_MAIL: &[&str] = &["mail_invite"];
/// The kinds of account status messages. They are retried without limit, because a disabled user would stay logged in.
pub(crate) const STATUS: &[&str] = &["push_user_status", "push_tenant_status"];

#[cfg(test)]
mod tests {
    use database::outbox::Message as _;
    use tenancy::KeyId;

    use super::*;

    #[test]
    fn every_message_has_a_relay_and_every_mail_is_erased_with_its_recipient() {
        let (invite_id, user_id, time) = (InviteId::generate(), UserId::generate(), DateTime::UNIX_EPOCH);
        let change = AdminChange::Invited;
        let admin_notice = AdminNotice { change, user_id, changed_by: None, changed_at: time };
        let key = ApiKeyNotice {
            key_id: KeyId::generate(),
            tenant_id: "acme".parse().unwrap(),
            name: "firewalls".to_owned(),
            scopes: Vec::new(),
            created_by: user_id,
            created_at: time,
            expires_at: time,
        };
        for (message, kinds) in [
            (Message::MailInvite { invite_id, user_id, expires_at: time }, INVITE_MAIL),
            (
                Message::MailReset {
                    email_key: "ada@example.com".to_owned(),
                    requested_at: time,
                    ip: Some([192, 0, 2, 1].into()),
                },
                SECURITY_MAIL,
            ),
            (Message::MailNotice(Notice::Password { user_id, changed_at: time }), SECURITY_MAIL),
            (Message::MailNotice(Notice::Admin { recipient: user_id, notice: admin_notice }), SECURITY_MAIL),
            (Message::MailNotice(Notice::ApiKey { recipient: user_id, notice: key }), SECURITY_MAIL),
            (
                Message::MailNotice(Notice::Factor {
                    user_id,
                    change: FactorChange::Locked,
                    changed_at: time,
                }),
                SECURITY_MAIL,
            ),
            (Message::PushUserStatus { user_id }, STATUS),
            (Message::PushTenantStatus, STATUS),
        ] {
            let value = serde_json::to_value(&message).unwrap();
            let kind = value["kind"].clone();
            assert_eq!(serde_json::from_value::<Message>(value).unwrap(), message);
            assert!(kinds.iter().any(|known| kind == *known), "{kind}");
            assert_eq!(message.erased_with() == People::none(), kinds == STATUS, "{kind}");
        }
    }
}
