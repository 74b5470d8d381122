//! Argon2id (RFC 9106). Each digest is a PHC string that contains its parameters, so the settings can change.

use std::sync::Arc;

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{ARGON2ID_IDENT, Block, Params, Version};
use argon2id::Memory;
use subtle::ConstantTimeEq as _;

use crate::kernel::Kernel;
use crate::memory::MemoryBudget;
use crate::{Entropy, Password};

/// A stored digest with larger parameters is rejected: it is corrupt, or an attempt to exhaust the machine.
const MAX_MEMORY_KIB: u32 = 512 * 1024;
const MAX_TIME: u32 = 10;
const MAX_LANES: u32 = 16;

/// Parameters of new hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argon2Settings {
    /// Iterations.
    pub time_cost: u32,
    /// Memory in KiB.
    pub memory_cost: u32,
    /// Lanes.
    pub parallelism: u32,
    /// Output length in bytes.
    pub hash_len: usize,
    /// Salt length in bytes.
    pub salt_len: usize,
}

impl Default for Argon2Settings {
    fn default() -> Self {
        Self { time_cost: 3, memory_cost: 64 * 1024, parallelism: 4, hash_len: 32, salt_len: 16 }
    }
}

/// Invalid or unsafe settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(String);

impl Argon2Settings {
    /// Checks all bounds.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let memory = 8 * u64::from(self.parallelism)..=u64::from(MAX_MEMORY_KIB);
        let bounds = [
            ((1..=MAX_TIME).contains(&self.time_cost), format!("time cost must be 1 to {MAX_TIME}")),
            ((1..=MAX_LANES).contains(&self.parallelism), format!("parallelism must be 1 to {MAX_LANES}")),
            (
                memory.contains(&u64::from(self.memory_cost)),
                format!("memory cost must be 8 KiB per lane to {MAX_MEMORY_KIB} KiB"),
            ),
            ((16..=64).contains(&self.hash_len), "hash length must be 16 to 64 bytes".to_owned()),
            ((8..=48).contains(&self.salt_len), "salt length must be 8 to 48 bytes".to_owned()),
        ];
        bounds
            .into_iter()
            .try_for_each(|(is_met, text)| if is_met { Ok(()) } else { Err(SettingsError(text)) })
    }

    /// Parses the parameters of a PHC string, for example `m=65536,t=3,p=4`. The lengths are the default ones. `None` if they are invalid.
    pub fn from_phc(parameters: &str) -> Option<Self> {
        let params = Params::try_from(&parameters.parse::<ParamsString>().ok()?).ok()?;
        let settings = Self {
            time_cost: params.t_cost(),
            memory_cost: params.m_cost(),
            parallelism: params.p_cost(),
            ..Self::default()
        };
        settings.validate().ok()?;
        Some(settings)
    }

    /// Returns the memory of one hash in bytes.
    pub const fn memory_bytes(&self) -> usize {
        self.memory_cost as usize * 1024
    }

    fn params(&self) -> Option<Params> {
        Params::new(self.memory_cost, self.time_cost, self.parallelism, Some(self.hash_len)).ok()
    }
}

/// Stored digest of a password: a PHC string.
#[derive(Clone, PartialEq, Eq, sqlx::Type)]
#[sqlx(transparent)]
pub struct PasswordDigest(String);

impl PasswordDigest {
    /// Wraps a stored PHC string. [`HashPool::verify`](crate::HashPool::verify) parses it.
    pub fn from_stored(phc: String) -> Self {
        Self(phc)
    }

    /// Returns the PHC string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the parameters differ from the current settings, so that a login should rehash the password.
    pub fn is_outdated(&self, settings: &Argon2Settings) -> bool {
        parse(self).is_none_or(|(params, salt, hash)| {
            params.t_cost() != settings.time_cost
                || params.m_cost() != settings.memory_cost
                || params.p_cost() != settings.parallelism
                || hash.len() != settings.hash_len
                || salt.len() != settings.salt_len
        })
    }
}

/// What a password is compared with.
#[derive(Clone, Debug)]
pub enum StoredPassword {
    /// The digest of an account.
    Digest(PasswordDigest),
    /// No digest. The comparison costs a hash with these parameters, and never matches.
    Missing(Argon2Settings),
}

impl std::fmt::Debug for PasswordDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Computes one hash at a time in memory that it reuses. Allocation for each hash would take a third of its time.
pub(crate) struct Arena {
    kernel: Arc<Kernel>,
    memory: Option<Memory>,
    /// The memory of all arenas.
    budget: Arc<MemoryBudget>,
}

impl Arena {
    pub(crate) fn new(kernel: Arc<Kernel>, budget: Arc<MemoryBudget>) -> Self {
        Self { kernel, memory: None, budget }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.memory.is_none()
    }

    /// Returns the memory to the operating system.
    pub(crate) fn release(&mut self) {
        if let Some(memory) = self.memory.take() {
            let bytes = memory.len() * Block::SIZE;
            drop(memory);
            self.budget.release(bytes);
        }
    }

    /// Returns whether another worker waits for memory.
    pub(crate) fn is_awaited(&self) -> bool {
        self.budget.is_awaited()
    }

    /// Releases memory that is larger than the current settings need. A digest with larger parameters used it.
    pub(crate) fn release_above(&mut self, settings: &Argon2Settings) {
        if self.memory.as_ref().is_some_and(|memory| memory.len() > settings.memory_cost as usize) {
            self.release();
        }
    }

    /// Returns whether the parameters are valid, or `None` if the budget or the system has not enough memory.
    fn compute(&mut self, params: &Params, password: &Password, salt: &[u8], out: &mut [u8]) -> Option<bool> {
        let blocks = params.block_count();
        if self.memory.as_ref().is_none_or(|memory| memory.len() < blocks) {
            self.release();
            self.memory = Some(self.reserve(blocks)?);
        }
        let memory = self.memory.as_mut()?.blocks();
        Some(self.kernel.hash_into(params, password.expose().as_bytes(), salt, out, memory).is_ok())
    }

    fn reserve(&self, blocks: usize) -> Option<Memory> {
        let bytes = blocks * Block::SIZE;
        if !self.budget.reserve(bytes) {
            tracing::error!(
                mebibytes = bytes >> 20,
                "a stored password needs more than half of the memory limit; raise the limit, or reset the password"
            );
            return None;
        }
        Memory::new(blocks)
            .inspect_err(|error| {
                self.budget.release(bytes);
                tracing::error!(%error, "failed to reserve memory of password hash");
            })
            .ok()
    }

    /// Creates a digest. Returns `None` only for invalid settings, and if the system has no memory.
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
        self.compute(&params, password, salt, out)?.then_some(())?;
        let phc = PasswordHash {
            algorithm: ARGON2ID_IDENT,
            version: Some(Version::V0x13.into()),
            params: ParamsString::try_from(&params).ok()?,
            salt: Some(Salt::new(salt).ok()?),
            hash: Some(Output::new(out).ok()?),
        };
        Some(PasswordDigest(phc.to_string()))
    }

    /// Compares in constant time. A digest that is malformed or out of range never matches, and costs one hash with the
    /// current settings. Returns `None` if the budget or the system has not enough memory.
    pub(crate) fn verify(
        &mut self,
        settings: &Argon2Settings,
        password: &Password,
        stored: &PasswordDigest,
    ) -> Option<bool> {
        let Some((params, salt, expected)) = parse(stored) else {
            return self.dummy(settings, password);
        };
        let mut out = [0; 64];
        let out = &mut out[..expected.len()];
        let is_valid = self.compute(&params, password, salt.as_ref(), out)?;
        Some(is_valid && bool::from(out.ct_eq(expected.as_bytes())))
    }

    /// Takes as long as a verification of a digest with these settings, and never matches.
    pub(crate) fn dummy(&mut self, settings: &Argon2Settings, password: &Password) -> Option<bool> {
        let mut out = [0; 64];
        let salt = &[0; 48][..settings.salt_len];
        self.compute(&settings.params()?, password, salt, &mut out[..settings.hash_len])?;
        std::hint::black_box(&out);
        Some(false)
    }
}

fn parse(stored: &PasswordDigest) -> Option<(Params, Salt, Output)> {
    let phc = PasswordHash::new(&stored.0).ok()?;
    let params = Params::try_from(&phc).ok()?;
    let bounded =
        params.m_cost() <= MAX_MEMORY_KIB && params.t_cost() <= MAX_TIME && params.p_cost() <= MAX_LANES;
    let argon2id = phc.algorithm == ARGON2ID_IDENT && phc.version == Some(Version::V0x13.into());
    (bounded && argon2id).then_some((params, phc.salt?, phc.hash?))
}

#[cfg(test)]
mod tests {
    use argon2::Argon2;
    use argon2::password_hash::PasswordVerifier as _;
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;
    use crate::{HashKernel, SeededEntropy};

    const CHEAP: Argon2Settings =
        Argon2Settings { time_cost: 1, memory_cost: 64, parallelism: 2, hash_len: 24, salt_len: 12 };

    fn arena() -> Arena {
        let budget = MemoryBudget::new(usize::MAX, Arc::default(), Gauge::default());
        Arena::new(Arc::new(Kernel::new(HashKernel::Auto)), Arc::new(budget))
    }

    fn used(arena: &Arena) -> usize {
        arena.memory.as_ref().map_or(0, |memory| memory.len() * Block::SIZE)
    }

    #[test]
    fn a_digest_is_a_standard_phc_string() {
        let digest = arena().hash(&CHEAP, &SeededEntropy::new(1), &Password::new("correct horse")).unwrap();
        assert!(digest.as_str().starts_with("$argon2id$v=19$m=64,t=1,p=2$"), "{}", digest.as_str());
        let phc = PasswordHash::new(digest.as_str()).unwrap();
        assert!(Argon2::default().verify_password(b"correct horse", &phc).is_ok());
    }

    #[test]
    fn verifies_digests_with_other_settings() {
        let mut arena = arena();
        let digest = arena.hash(&CHEAP, &SeededEntropy::new(1), &Password::new("correct horse")).unwrap();
        let costlier = Argon2Settings { memory_cost: 128, time_cost: 2, ..CHEAP };
        assert_eq!(arena.verify(&costlier, &Password::new("correct horse"), &digest), Some(true));
        assert_eq!(arena.verify(&costlier, &Password::new("wrong horse"), &digest), Some(false));
        assert!(digest.is_outdated(&costlier) && !digest.is_outdated(&CHEAP));
        assert!(digest.is_outdated(&Argon2Settings { salt_len: 16, ..CHEAP }));
    }

    #[test]
    fn a_malformed_or_out_of_range_digest_never_matches() {
        let mut arena = arena();
        let good = arena.hash(&CHEAP, &SeededEntropy::new(1), &Password::new("correct horse")).unwrap();
        for stored in [
            String::new(),
            "no digest".into(),
            good.as_str().replace("m=64", "m=1048576"),
            good.as_str().replace("t=1", "t=11"),
            good.as_str().replace("p=2", "p=17"),
            good.as_str().replace("argon2id", "argon2i"),
        ] {
            let stored = PasswordDigest::from_stored(stored);
            assert!(parse(&stored).is_none(), "{}", stored.as_str());
            let matches = arena.verify(&CHEAP, &Password::new("correct horse"), &stored);
            assert_eq!(matches, Some(false), "{}", stored.as_str());
        }
    }

    #[test]
    fn a_missing_digest_costs_a_hash_and_never_matches() {
        let mut arena = arena();
        assert_eq!(arena.dummy(&CHEAP, &Password::new("correct horse")), Some(false));
        assert_eq!(used(&arena), 64 * 1024);
    }

    #[test]
    fn a_printed_digest_is_redacted() {
        let digest = PasswordDigest::from_stored("$argon2id$".to_owned());
        assert_eq!(format!("{digest:?}"), "[redacted]");
    }

    #[test]
    fn an_arena_releases_the_memory_of_larger_settings() {
        let mut arena = arena();
        let large = Argon2Settings { memory_cost: 256, ..CHEAP };
        for (settings, kibibytes) in [(CHEAP, 64), (large, 256)] {
            arena.hash(&settings, &SeededEntropy::new(1), &Password::new("correct horse")).unwrap();
            assert_eq!(used(&arena), kibibytes * 1024);
        }
        arena.release_above(&large);
        assert!(!arena.is_empty());
        arena.release_above(&CHEAP);
        assert!(arena.is_empty());
    }

    #[test]
    fn parses_the_parameters_of_a_phc_string() {
        let digest = arena().hash(&CHEAP, &SeededEntropy::new(1), &Password::new("correct horse")).unwrap();
        let parameters = digest.as_str().split('$').nth(3).unwrap();
        let Argon2Settings { time_cost, memory_cost, parallelism, .. } = CHEAP;
        let expected = Argon2Settings { time_cost, memory_cost, parallelism, ..Argon2Settings::default() };
        assert_eq!(Argon2Settings::from_phc(parameters), Some(expected));
        for invalid in ["salt", "m=64,t=11,p=2", "m=64,t=x,p=2"] {
            assert_eq!(Argon2Settings::from_phc(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn reports_the_parameter_that_is_out_of_range() {
        assert_eq!(Argon2Settings::default().validate(), Ok(()));
        for (settings, names) in [
            (Argon2Settings { time_cost: 0, ..CHEAP }, "time cost"),
            (Argon2Settings { memory_cost: 15, ..CHEAP }, "memory cost"),
            (Argon2Settings { parallelism: 17, ..CHEAP }, "parallelism"),
            (Argon2Settings { hash_len: 65, ..CHEAP }, "hash length"),
            (Argon2Settings { salt_len: 7, ..CHEAP }, "salt length"),
        ] {
            assert!(settings.validate().unwrap_err().to_string().starts_with(names), "{names}");
        }
    }
}
