//! The login of a consumer at the broker, and the number of its account. Both are in the metadata of the durable, so that the accounts of
//! the broker can be derived from the durables at any time.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use hashing::{Entropy, RawToken, TokenDigest, TokenKind};

use super::Durable;

/// Keys of the metadata.
const ACCOUNT: &str = "svc-account";
const HASH: &str = "svc-login";
const DIGEST: &str = "svc-login-digest";
/// The least cost of bcrypt: the password has 256 random bits, so a higher cost would only slow down connections.
const COST: u32 = 4;
/// The form of bcrypt that nats-server recognizes, and the characters of its salt and digest.
const FORM: &str = "$2a$";
const HASH_LEN: usize = 60;

/// The hash of a password, and the number of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Number of the account.
    pub account: u16,
    /// Password of the user in the configuration of the broker: a bcrypt hash.
    pub hash: String,
    /// Digest of the password, by which the operator recognizes the password in a Secret.
    pub digest: Option<TokenDigest>,
}

impl Login {
    /// Returns a login with a random password, and the password.
    pub(super) fn generate(account: u16, entropy: &dyn Entropy) -> (Self, RawToken) {
        let password = RawToken::generate(TokenKind::ConsumerLogin, entropy);
        let mut salt = [0; 16];
        entropy.fill(&mut salt);
        // Fails for an invalid cost only.
        let hash = bcrypt::hash_with_salt(password.expose(), COST, salt)
            .map(|parts| parts.format_for_version(bcrypt::Version::TwoA))
            .unwrap_or_default();
        (Self { account, hash, digest: Some(password.digest()) }, password)
    }

    /// Returns the login in the metadata of a durable. The values become a part of the configuration of the broker, so other forms than
    /// those of [`Login::generate`] do not count.
    pub(super) fn read(metadata: &HashMap<String, String>) -> Option<Self> {
        let (account, hash) = (metadata.get(ACCOUNT)?.parse().ok()?, metadata.get(HASH)?);
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"./$".contains(&byte);
        let is_hash = hash.len() == HASH_LEN && hash.starts_with(FORM) && hash.bytes().all(is_valid);
        let digest = metadata.get(DIGEST).and_then(|hex| TokenDigest::from_hex(hex));
        is_hash.then(|| Self { account, hash: hash.clone(), digest })
    }

    pub(super) fn write(&self, metadata: &mut HashMap<String, String>) {
        metadata.insert(ACCOUNT.to_owned(), self.account.to_string());
        metadata.insert(HASH.to_owned(), self.hash.clone());
        if let Some(digest) = self.digest {
            metadata.insert(DIGEST.to_owned(), digest.to_hex());
        }
    }

    /// Removes the login from the metadata of a durable.
    pub(super) fn remove(metadata: &mut HashMap<String, String>) {
        for key in [ACCOUNT, HASH, DIGEST] {
            metadata.remove(key);
        }
    }
}

/// Returns the durable of each account. Durables that were created at the same time can have the same number: the first one has the
/// account, and the others have the lowest free ones.
pub(super) fn by_account(durables: &[Durable]) -> BTreeMap<u16, &Durable> {
    let mut ordered: Vec<_> = durables.iter().filter(|durable| durable.login.is_some()).collect();
    ordered.sort_by_key(|durable| (durable.created_at, &durable.name));
    let (mut accounts, mut displaced) = (BTreeMap::new(), Vec::new());
    for durable in ordered {
        match durable.login.as_ref().map(|login| accounts.entry(login.account)) {
            Some(Entry::Vacant(account)) => {
                account.insert(durable);
            }
            _ => displaced.push(durable),
        }
    }
    let mut free = 0..=u16::MAX;
    for durable in displaced {
        if let Some(number) = free.find(|number| !accounts.contains_key(number)) {
            accounts.insert(number, durable);
        }
    }
    accounts
}

/// Returns the lowest number without a durable.
pub(super) fn free_account(durables: &[Durable]) -> Option<u16> {
    let taken = by_account(durables);
    (0..=u16::MAX).find(|number| !taken.contains_key(number))
}

#[cfg(test)]
mod tests {
    use hashing::SystemEntropy;

    use super::*;

    #[test]
    fn the_metadata_contain_a_hash_of_the_password_and_nothing_else_is_read() {
        let (login, password) = Login::generate(7, &SystemEntropy);
        assert!(bcrypt::verify(password.expose(), &login.hash).unwrap(), "{}", login.hash);
        let mut metadata = HashMap::new();
        login.write(&mut metadata);
        assert!(!format!("{metadata:?}").contains(password.expose()));
        assert_eq!(Login::read(&metadata).as_ref(), Some(&login));
        assert_eq!(login.digest, Some(password.digest()));
        let quote = login.hash.replace(&login.hash[20..21], "\"");
        for (key, value) in
            [(ACCOUNT, "x"), (ACCOUNT, "65536"), (HASH, ""), (HASH, "password"), (HASH, &quote)]
        {
            let mut invalid = metadata.clone();
            invalid.insert(key.to_owned(), value.to_owned());
            assert_eq!(Login::read(&invalid), None, "{key}={value}");
        }
    }
}
