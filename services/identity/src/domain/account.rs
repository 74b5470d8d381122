//! The account that a login verifies, and its key in the login throttling tables: an HMAC, so that the tables do not reveal
//! which accounts exist.

use contract::internal::{SubjectRecord, TenantRecord};
use contract::{TenantStatus, UserStatus};
use data_encoding::HEXLOWER;
use hashing::PasswordDigest;
use hmac::{Hmac, KeyInit as _, Mac as _};
use service::config::Rotating;
use sha2::Sha256;
use tenancy::{TenantId, UserId};

use super::email::EmailKey;

/// A shorter secret could be guessed.
const MIN_CHARACTERS: usize = 32;

/// A user with the tenant.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) subject: SubjectRecord,
    pub(crate) tenant: TenantRecord,
    pub(crate) email: EmailKey,
    /// Whether the tenant permits logins with a passkey alone.
    pub(crate) passkey_login: bool,
    /// `None` until the invite is accepted.
    pub(crate) password_digest: Option<PasswordDigest>,
}

impl Account {
    /// Returns whether user and tenant are active.
    pub(crate) fn may_log_in(&self) -> bool {
        self.subject.status == UserStatus::Active && self.tenant.status == TenantStatus::Active
    }

    /// Returns whether the user must set up a second factor to log in.
    pub(crate) fn lacks_factor(&self) -> bool {
        !self.subject.has_factor && self.tenant.second_factor.requires(self.subject.role)
    }
}

/// The text is too short for a key.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("must be {MIN_CHARACTERS} or more characters")]
pub(super) struct InvalidKey;

/// Returns the HMAC with a configured key.
pub(super) fn mac_with_key(text: &str) -> Result<Hmac<Sha256>, InvalidKey> {
    if text.chars().count() < MIN_CHARACTERS {
        return Err(InvalidKey);
    }
    Hmac::new_from_slice(text.as_bytes()).map_err(|_| InvalidKey)
}

/// The secret of the HMAC.
#[derive(Clone)]
struct LimiterKey(Hmac<Sha256>);

impl LimiterKey {
    fn digest(&self, account: &AccountRef<'_>) -> [u8; 32] {
        let (tenant_id, kind, name) = match account {
            AccountRef::Email(tenant_id, email) => (tenant_id, "email", email.as_str().to_owned()),
            AccountRef::User(tenant_id, user_id) => (tenant_id, "user", user_id.to_string()),
        };
        // Neither the tenant id nor the kind can contain a zero byte.
        self.digest_of(&format!("{}\0{kind}\0{name}", tenant_id.as_str()))
    }

    /// The MAC of a challenge. The text of an account begins with a tenant id, and that of a recipient with another kind.
    fn mac_of_challenge(&self, message: &[u8]) -> Hmac<Sha256> {
        self.0.clone().chain_update("\0challenge\0").chain_update(message)
    }

    fn digest_of(&self, text: &str) -> [u8; 32] {
        self.0.clone().chain_update(text).finalize().into_bytes().into()
    }
}

/// The account that an attempt is for. It may not exist.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AccountRef<'a> {
    Email(&'a TenantId, &'a EmailKey),
    User(&'a TenantId, UserId),
}

/// The current key, and the previous one during a rotation.
#[derive(Clone)]
pub(crate) struct LimiterKeys(Rotating<LimiterKey>);

/// The key of an account in the throttling tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccountKey {
    pub(crate) current: [u8; 32],
    /// The key under the previous secret, during a rotation.
    pub(crate) previous: Option<[u8; 32]>,
}

impl AccountKey {
    /// Returns the keys under which the account can be stored.
    pub(crate) fn stored(&self) -> impl Iterator<Item = Vec<u8>> {
        [Some(self.current), self.previous].into_iter().flatten().map(Vec::from)
    }
}

impl AccountRef<'_> {
    pub(crate) fn tenant_id(&self) -> &TenantId {
        match self {
            Self::Email(tenant_id, _) | Self::User(tenant_id, _) => tenant_id,
        }
    }
}

impl LimiterKeys {
    /// Parses the current key, and the previous one in a second line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Rotating::parse(text, |key| mac_with_key(key).map(LimiterKey)).map(Self)
    }

    /// Returns the key of an account.
    pub(crate) fn account(&self, account: &AccountRef<'_>) -> AccountKey {
        let Rotating { current, previous } = &self.0;
        AccountKey {
            current: current.digest(account),
            previous: previous.as_ref().map(|key| key.digest(account)),
        }
    }

    /// Returns the key of an address, in one tenant or in all. It does not survive a rotation: the mails of the last hour then count
    /// from zero.
    pub(crate) fn recipient(&self, tenant_id: Option<&TenantId>, email: &EmailKey) -> String {
        self.recipient_key("recipient", tenant_id, email)
    }

    /// Returns the key of a mailbox, see [`EmailKey::without_tag`].
    pub(crate) fn mailbox(&self, tenant_id: Option<&TenantId>, mailbox: &EmailKey) -> String {
        self.recipient_key("mailbox", tenant_id, mailbox)
    }

    /// Returns the MAC of a challenge.
    pub(crate) fn sign_challenge(&self, message: &[u8]) -> [u8; 32] {
        self.0.current.mac_of_challenge(message).finalize().into_bytes().into()
    }

    /// Returns whether a MAC is that of a challenge, in constant time.
    pub(crate) fn has_signed_challenge(&self, message: &[u8], mac: &[u8]) -> bool {
        self.0.iter().any(|key| key.mac_of_challenge(message).verify_slice(mac).is_ok())
    }

    fn recipient_key(&self, kind: &str, tenant_id: Option<&TenantId>, email: &EmailKey) -> String {
        let tenant_id = tenant_id.map_or("", TenantId::as_str);
        // The key of an account begins with a tenant id.
        HEXLOWER.encode(&self.0.current.digest_of(&format!("\0{kind}\0{tenant_id}\0{}", email.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use contract::Role;
    use contract::identity::{Quota, SecondFactorPolicy};
    use proptest::prelude::*;

    use super::*;

    fn keys(current: &str, previous: Option<&str>) -> LimiterKeys {
        let lines = [Some(current), previous].into_iter().flatten().map(|text| text.repeat(32));
        LimiterKeys::parse(&lines.collect::<Vec<_>>().join("\n")).unwrap()
    }

    #[test]
    fn only_an_active_user_of_an_active_tenant_may_log_in() {
        let (tenant_id, user_id): (TenantId, _) = ("acme".parse().unwrap(), UserId::generate());
        let account = |user, tenant| {
            let subject = SubjectRecord {
                user_id,
                tenant_id: tenant_id.clone(),
                role: Role::Member,
                status: user,
                credential_version: 1,
                kept_session_id: None,
                api_key_version: 1,
                has_factor: false,
                is_deleted: false,
                version: 1,
            };
            let tenant = TenantRecord {
                tenant_id: tenant_id.clone(),
                status: tenant,
                session_version: 1,
                quota: Quota::default(),
                second_factor: SecondFactorPolicy::Optional,
                is_deleted: false,
                version: 1,
            };
            let email = EmailKey::from_stored("ada@acme.example".to_owned());
            let passkey_login = true;
            Account { subject, tenant, email, passkey_login, password_digest: None }.may_log_in()
        };
        assert!(account(UserStatus::Active, TenantStatus::Active));
        assert!(!account(UserStatus::Disabled, TenantStatus::Active));
        assert!(!account(UserStatus::Active, TenantStatus::Suspended));
    }

    #[test]
    fn mails_are_counted_by_kind_tenant_and_address() {
        let (keys, tenant_id) = (keys("a", None), "acme".parse().unwrap());
        let email = |text: &str| EmailKey::from_stored(text.to_owned());
        let [ada, grace] = ["ada@acme.example", "grace@acme.example"].map(email);
        let all = [
            keys.recipient(None, &ada),
            keys.recipient(None, &grace),
            keys.recipient(Some(&tenant_id), &ada),
            keys.mailbox(None, &ada),
        ];
        let different: HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(keys.recipient(None, &ada), all[0]);
    }

    #[test]
    fn rejects_a_short_key() {
        assert!(LimiterKeys::parse(&"k".repeat(31)).is_err());
    }

    proptest! {
        #[test]
        fn a_rotation_keeps_the_key_of_an_account(email in "[a-z]{1,9}@[a-z]{1,9}") {
            let (tenant, email) = ("acme".parse().unwrap(), EmailKey::from_stored(email));
            let account = AccountRef::Email(&tenant, &email);
            let (before, after) = (keys("a", None).account(&account), keys("b", Some("a")).account(&account));
            prop_assert_eq!(after.previous, Some(before.current));
            prop_assert_ne!(after.current, before.current);
        }

        #[test]
        fn different_accounts_have_different_keys(
            tenants in prop::array::uniform2("[a-z]{1,3}"),
            emails in prop::array::uniform2("[a-z]{1,3}"),
        ) {
            let [one, other] = [0, 1].map(|n| {
                let (tenant, email) = (tenants[n].parse().unwrap(), EmailKey::from_stored(emails[n].clone()));
                keys("a", None).account(&AccountRef::Email(&tenant, &email)).current
            });
            let same = tenants[0] == tenants[1] && emails[0] == emails[1];
            prop_assert_eq!(one == other, same);
        }
    }
}
