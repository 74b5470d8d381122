//! Argon2id (RFC 9106) with settings that can change over the years: each digest carries its own, as a PHC string.

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{ARGON2ID_IDENT, Algorithm, Argon2, Block, Params, Version};
use subtle::ConstantTimeEq as _;

use crate::{Entropy, Password};

/// A stored digest that asks for more than this is refused: it is damaged, or meant to exhaust the machine.
const MAX_MEMORY_KIB: u32 = 512 * 1024;
const MAX_TIME: u32 = 10;
const MAX_LANES: u32 = 16;

/// How new passwords are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argon2Settings {
    /// Iterations.
    pub time_cost: u32,
    /// Memory in KiB.
    pub memory_cost: u32,
    /// Lanes.
    pub parallelism: u32,
    /// Bytes of output.
    pub hash_len: usize,
    /// Bytes of salt.
    pub salt_len: usize,
}

impl Default for Argon2Settings {
    fn default() -> Self {
        Self { time_cost: 3, memory_cost: 64 * 1024, parallelism: 4, hash_len: 32, salt_len: 16 }
    }
}

/// Settings that cannot be used, or would be unsafe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Iterations out of bounds.
    #[error("the time cost must be 1 to {MAX_TIME}")]
    Time,
    /// Memory out of bounds.
    #[error("the memory cost must be 8 KiB for each lane to {MAX_MEMORY_KIB} KiB")]
    Memory,
    /// Lanes out of bounds.
    #[error("the parallelism must be 1 to {MAX_LANES}")]
    Parallelism,
    /// Output out of bounds.
    #[error("the hash length must be 16 to 64 bytes")]
    HashLength,
    /// Salt out of bounds.
    #[error("the salt length must be 8 to 48 bytes")]
    SaltLength,
}

impl Argon2Settings {
    /// Checks every bound.
    ///
    /// # Errors
    /// The first bound that does not hold.
    pub fn validate(&self) -> Result<(), SettingsError> {
        if !(1..=MAX_TIME).contains(&self.time_cost) {
            return Err(SettingsError::Time);
        }
        if !(1..=MAX_LANES).contains(&self.parallelism) {
            return Err(SettingsError::Parallelism);
        }
        if !(8 * self.parallelism..=MAX_MEMORY_KIB).contains(&self.memory_cost) {
            return Err(SettingsError::Memory);
        }
        if !(16..=64).contains(&self.hash_len) {
            return Err(SettingsError::HashLength);
        }
        if !(8..=48).contains(&self.salt_len) {
            return Err(SettingsError::SaltLength);
        }
        Ok(())
    }

    /// Bytes of memory that one hash needs.
    pub const fn memory_bytes(&self) -> usize {
        self.memory_cost as usize * 1024
    }

    fn params(&self) -> Option<Params> {
        Params::new(self.memory_cost, self.time_cost, self.parallelism, Some(self.hash_len)).ok()
    }
}

/// A password as it is stored: a PHC string.
#[derive(Clone, PartialEq, Eq, sqlx::Type)]
#[sqlx(transparent)]
pub struct PasswordDigest(String);

impl PasswordDigest {
    /// Takes over a stored PHC string; it is looked at when it is verified.
    pub fn from_stored(phc: String) -> Self {
        Self(phc)
    }

    /// The PHC string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it was made with other settings than these, so that a login should replace it.
    pub fn is_outdated(&self, today: &Argon2Settings) -> bool {
        let same = PasswordHash::new(&self.0).ok().and_then(|phc| {
            let params = Params::try_from(&phc).ok()?;
            Some(
                params.t_cost() == today.time_cost
                    && params.m_cost() == today.memory_cost
                    && params.p_cost() == today.parallelism
                    && phc.hash?.len() == today.hash_len
                    && phc.salt?.len() == today.salt_len,
            )
        });
        same != Some(true)
    }
}

impl std::fmt::Debug for PasswordDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[withheld]")
    }
}

/// The working memory of one hash at a time, made once and used again: allocating it anew costs a third of the time.
#[derive(Default)]
pub(crate) struct Arena(Vec<Block>);

impl Arena {
    /// Gives back what a digest with larger settings than today's needed.
    pub(crate) fn shrink_to(&mut self, settings: &Argon2Settings) {
        let blocks = settings.memory_cost as usize;
        if self.0.len() > blocks {
            self.0.truncate(blocks);
            self.0.shrink_to(blocks);
        }
    }

    fn compute(&mut self, params: Params, password: &Password, salt: &[u8], out: &mut [u8]) -> Option<()> {
        let blocks = params.block_count();
        if self.0.len() < blocks {
            self.0.resize(blocks, Block::new());
        }
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into_with_memory(password.expose().as_bytes(), salt, out, &mut self.0[..blocks])
            .ok()
    }

    /// Makes a new digest. `None` only for settings that do not validate.
    pub(crate) fn hash(
        &mut self,
        settings: &Argon2Settings,
        entropy: &dyn Entropy,
        password: &Password,
    ) -> Option<PasswordDigest> {
        let params = settings.params()?;
        let mut salt = [0; 48];
        let salt = &mut salt[..settings.salt_len];
        entropy.fill(salt);
        let mut out = [0; 64];
        let out = &mut out[..settings.hash_len];
        self.compute(params.clone(), password, salt, out)?;
        let phc = PasswordHash {
            algorithm: ARGON2ID_IDENT,
            version: Some(Version::V0x13.into()),
            params: ParamsString::try_from(&params).ok()?,
            salt: Some(Salt::new(salt).ok()?),
            hash: Some(Output::new(out).ok()?),
        };
        Some(PasswordDigest(phc.to_string()))
    }

    /// Compares in constant time. A digest that cannot be read, or whose settings are out of bounds, never matches;
    /// it costs one hash with today's settings all the same.
    pub(crate) fn verify(
        &mut self,
        settings: &Argon2Settings,
        password: &Password,
        stored: &PasswordDigest,
    ) -> bool {
        let Some((params, salt, expected)) = readable(stored) else {
            self.dummy(settings, password);
            return false;
        };
        let mut out = [0; 64];
        let out = &mut out[..expected.len()];
        self.compute(params, password, salt.as_ref(), out).is_some()
            && bool::from(out.ct_eq(expected.as_bytes()))
    }

    /// Costs what a verification with today's settings costs.
    pub(crate) fn dummy(&mut self, settings: &Argon2Settings, password: &Password) {
        let Some(params) = settings.params() else { return };
        let mut out = [0; 64];
        self.compute(params, password, &[0; 48][..settings.salt_len], &mut out[..settings.hash_len]);
        std::hint::black_box(&out);
    }
}

fn readable(stored: &PasswordDigest) -> Option<(Params, Salt, Output)> {
    let phc = PasswordHash::new(&stored.0).ok()?;
    let params = Params::try_from(&phc).ok()?;
    let bounded =
        params.m_cost() <= MAX_MEMORY_KIB && params.t_cost() <= MAX_TIME && params.p_cost() <= MAX_LANES;
    let argon2id = phc.algorithm == ARGON2ID_IDENT && phc.version == Some(Version::V0x13.into());
    (bounded && argon2id).then_some((params, phc.salt?, phc.hash?))
}

#[cfg(test)]
mod tests {
    use argon2::password_hash::PasswordVerifier as _;

    use super::*;
    use crate::SeededEntropy;

    const CHEAP: Argon2Settings =
        Argon2Settings { time_cost: 1, memory_cost: 64, parallelism: 2, hash_len: 24, salt_len: 12 };

    #[test]
    fn a_digest_is_a_phc_string_that_other_implementations_verify() {
        let digest =
            Arena::default().hash(&CHEAP, &SeededEntropy::new(1), &Password::new("correct horse")).unwrap();
        assert!(digest.as_str().starts_with("$argon2id$v=19$m=64,t=1,p=2$"), "{}", digest.as_str());
        let phc = PasswordHash::new(digest.as_str()).unwrap();
        assert!(Argon2::default().verify_password(b"correct horse", &phc).is_ok());
    }

    #[test]
    fn only_the_right_password_verifies_whatever_the_settings_were() {
        let mut arena = Arena::default();
        let digest = arena.hash(&CHEAP, &SeededEntropy::new(1), &Password::new("correct horse")).unwrap();
        let dearer = Argon2Settings { memory_cost: 128, time_cost: 2, ..CHEAP };
        assert!(arena.verify(&dearer, &Password::new("correct horse"), &digest));
        assert!(!arena.verify(&dearer, &Password::new("wrong horse"), &digest));
        assert!(digest.is_outdated(&dearer) && !digest.is_outdated(&CHEAP));
        assert!(digest.is_outdated(&Argon2Settings { salt_len: 16, ..CHEAP }));
    }

    #[test]
    fn a_damaged_or_greedy_digest_never_matches() {
        let mut arena = Arena::default();
        let good = arena.hash(&CHEAP, &SeededEntropy::new(1), &Password::new("correct horse")).unwrap();
        for stored in [
            String::new(),
            "no digest".into(),
            good.as_str().replace("m=64", "m=1048576"),
            good.as_str().replace("t=1", "t=11"),
            good.as_str().replace("argon2id", "argon2i"),
        ] {
            let stored = PasswordDigest::from_stored(stored);
            assert!(!arena.verify(&CHEAP, &Password::new("correct horse"), &stored), "{}", stored.as_str());
        }
    }

    #[test]
    fn an_arena_gives_back_what_larger_settings_needed() {
        let mut arena = Arena::default();
        let large = Argon2Settings { memory_cost: 256, ..CHEAP };
        arena.hash(&large, &SeededEntropy::new(1), &Password::new("correct horse")).unwrap();
        arena.shrink_to(&CHEAP);
        assert!(arena.0.capacity() <= 64);
    }

    #[test]
    fn unusable_settings_are_named() {
        assert_eq!(Argon2Settings::default().validate(), Ok(()));
        assert_eq!(Argon2Settings { time_cost: 0, ..CHEAP }.validate(), Err(SettingsError::Time));
        assert_eq!(Argon2Settings { memory_cost: 15, ..CHEAP }.validate(), Err(SettingsError::Memory));
        assert_eq!(Argon2Settings { parallelism: 17, ..CHEAP }.validate(), Err(SettingsError::Parallelism));
        assert_eq!(Argon2Settings { hash_len: 65, ..CHEAP }.validate(), Err(SettingsError::HashLength));
        assert_eq!(Argon2Settings { salt_len: 7, ..CHEAP }.validate(), Err(SettingsError::SaltLength));
    }
}
