//! What follows from failed attempts at a password, and what they are counted by.

use chrono::TimeDelta;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tenancy::{TenantId, UserId};

use super::email::EmailKey;

/// Failures in a row, from anywhere, after which no password is taken until it is set anew, or an administrator says so.
pub(crate) const LOCKOUT_THRESHOLD: i32 = 100;

/// Attempts at one account from one address that may be under way at once.
pub(crate) const MOST_AT_ONCE: i32 = 8;

/// How long an attempt is believed to be under way; then its process is gone, or whoever asked.
pub(crate) const ATTEMPT_TIMEOUT: TimeDelta = TimeDelta::seconds(30);

/// How long after a success an account cannot be locked where it came from.
pub(crate) const TRUSTED_SOURCE_WINDOW: TimeDelta = TimeDelta::days(30);

/// Seconds to wait after so many failures at one account from one address within a day: four are free, then the wait
/// doubles up to a minute; from the fiftieth on it is a quarter of an hour.
pub(crate) const WAITS: [i32; 50] = waits();

const fn waits() -> [i32; 50] {
    let mut waits = [0; 50];
    let mut failures = 1;
    while failures <= 50 {
        waits[failures - 1] = match failures {
            0..=4 => 0,
            5..=10 => 1 << (failures - 5),
            11..=49 => 60,
            _ => 15 * 60,
        };
        failures += 1;
    }
    waits
}

/// A secret of fewer characters could be guessed.
const LEAST_CHARACTERS: usize = 32;

/// What accounts are named under where attempts are counted, so that the names say nothing.
#[derive(Clone)]
pub(crate) struct LimiterKey(Hmac<Sha256>);

/// The text is too weak a key.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("must be {LEAST_CHARACTERS} or more characters")]
pub(crate) struct WeakKey;

impl LimiterKey {
    /// Reads a key.
    pub(crate) fn new(text: &str) -> Result<Self, WeakKey> {
        if text.chars().count() < LEAST_CHARACTERS {
            return Err(WeakKey);
        }
        Hmac::new_from_slice(text.as_bytes()).map(Self).map_err(|_| WeakKey)
    }

    fn name(&self, whom: &AccountRef<'_>) -> [u8; 32] {
        let (tenant_id, kind, name) = match whom {
            AccountRef::Email(tenant_id, email) => (tenant_id, "email", email.as_str().to_owned()),
            AccountRef::User(tenant_id, user_id) => (tenant_id, "user", user_id.to_string()),
        };
        // Neither a tenant's id nor the kind can hold a zero.
        let text = format!("{}\0{kind}\0{name}", tenant_id.as_str());
        self.0.clone().chain_update(text).finalize().into_bytes().into()
    }
}

/// Whose password is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AccountRef<'a> {
    Email(&'a TenantId, &'a EmailKey),
    /// Somebody whose address is not known, who therefore does not exist.
    User(&'a TenantId, UserId),
}

/// The key, and the one before it while it is being rotated.
#[derive(Clone)]
pub(crate) struct LimiterKeys {
    pub(crate) current: LimiterKey,
    pub(crate) previous: Option<LimiterKey>,
}

/// What an account is counted by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccountKey {
    pub(crate) current: [u8; 32],
    /// What it was counted by before the key was rotated.
    pub(crate) previous: Option<[u8; 32]>,
}

impl LimiterKeys {
    pub(crate) fn account(&self, whom: &AccountRef<'_>) -> AccountKey {
        let previous = self.previous.as_ref().map(|key| key.name(whom));
        AccountKey { current: self.current.name(whom), previous }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn waits_double_up_to_a_minute_and_end_at_a_quarter_of_an_hour() {
        assert_eq!(WAITS[..12], [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(WAITS[48..], [60, 900]);
        assert!(WAITS.is_sorted());
    }

    fn keys(current: &str, previous: Option<&str>) -> LimiterKeys {
        let key = |text: &str| LimiterKey::new(&text.repeat(32)).unwrap();
        LimiterKeys { current: key(current), previous: previous.map(key) }
    }

    #[test]
    fn a_short_key_is_refused() {
        assert!(LimiterKey::new(&"k".repeat(31)).is_err());
    }

    proptest! {
        #[test]
        fn an_account_keeps_its_name_through_a_rotation(email in "[a-z]{1,9}@[a-z]{1,9}") {
            let (tenant, email) = ("acme".parse().unwrap(), EmailKey::from_stored(email));
            let whom = AccountRef::Email(&tenant, &email);
            let (before, after) = (keys("a", None).account(&whom), keys("b", Some("a")).account(&whom));
            prop_assert_eq!(after.previous, Some(before.current));
            prop_assert_ne!(after.current, before.current);
        }

        #[test]
        fn different_accounts_have_different_names(
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
