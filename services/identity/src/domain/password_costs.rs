//! The Argon2 parameters of the stored passwords. After a change of the settings, passwords keep their parameters until the next
//! login. The time of a failed login would then reveal that an account does not exist, if it were always that of the settings.

use hashing::Argon2Settings;

use super::account::AccountKey;

/// The parameters of stored passwords, each with the number of passwords. Empty before they are counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct PasswordCosts(Vec<(Argon2Settings, u64)>);

impl PasswordCosts {
    /// Sorts the counts by cost. The order is significant, see [`Self::for_missing`].
    pub(crate) fn new(mut counts: Vec<(Argon2Settings, u64)>) -> Self {
        counts.sort_by_key(|(it, _)| (it.memory_cost, it.time_cost, it.parallelism));
        Self(counts)
    }

    /// Returns the parameters for an account without a password: always the same ones for an account, and each set for as large a
    /// part of these accounts as of the stored passwords. `None` if no password is stored.
    ///
    /// If passwords change from one set to the next in the order, so do these accounts, each at most once.
    pub(crate) fn for_missing(&self, account: &AccountKey) -> Option<Argon2Settings> {
        // The key is an HMAC, so its first bytes are a fraction of 2^64 that a client cannot calculate.
        let [first, ..] = account.current.as_chunks().0 else { return None };
        let fraction = u128::from(u64::from_be_bytes(*first));
        let total: u64 = self.0.iter().map(|(_, count)| count).sum();
        let mut place = (fraction * u128::from(total)) >> u64::BITS;
        for (settings, count) in &self.0 {
            match place.checked_sub(u128::from(*count)) {
                Some(rest) => place = rest,
                None => return Some(*settings),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(memory_cost: u32) -> Argon2Settings {
        Argon2Settings { memory_cost, ..Argon2Settings::default() }
    }

    fn account(fraction: u64) -> AccountKey {
        let mut current = [0; 32];
        current[..8].copy_from_slice(&fraction.to_be_bytes());
        AccountKey { current, previous: None }
    }

    /// The memory of the parameters of 1,000 accounts with evenly distributed keys.
    fn costs(counts: &[(u32, u64)]) -> Vec<Option<u32>> {
        let counts = counts.iter().map(|(memory, count)| (settings(*memory), *count)).collect();
        let costs = PasswordCosts::new(counts);
        let accounts = (0..1000).map(|n| account(u64::MAX / 1000 * n));
        accounts.map(|account| costs.for_missing(&account).map(|it| it.memory_cost)).collect()
    }

    #[test]
    fn accounts_without_a_password_have_the_parameters_of_the_stored_passwords_in_proportion() {
        let costs = costs(&[(128, 10), (64, 30)]);
        let of = |memory| costs.iter().filter(|it| **it == Some(memory)).count();
        assert!((749..=751).contains(&of(64)), "{}", of(64));
        assert_eq!(of(64) + of(128), 1000);
    }

    #[test]
    fn an_account_changes_its_parameters_at_most_once_while_passwords_change_theirs() {
        let mut before = costs(&[(64, 40), (128, 0)]);
        for changed in 1..=40 {
            let after = costs(&[(64, 40 - changed), (128, changed)]);
            let is_forward = |(before, after): (&Option<u32>, &Option<u32>)| before <= after;
            assert!(before.iter().zip(&after).all(is_forward));
            before = after;
        }
        assert!(before.iter().all(|it| *it == Some(128)));
    }

    #[test]
    fn without_a_stored_password_there_are_no_parameters() {
        assert!(costs(&[]).iter().all(Option::is_none));
    }
}
