//! Injected randomness, so that tests are repeatable. Only this module uses a random generator.

use std::sync::{Mutex, PoisonError};

use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng, TryRng};

/// A source of random bytes.
pub trait Entropy: Send + Sync {
    /// Fills the buffer.
    fn fill(&self, buffer: &mut [u8]);
}

/// The operating system's generator, for production.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        if let Err(error) = SysRng.try_fill_bytes(buffer) {
            // The kernel's generator cannot fail after it was seeded at boot. Without it, tokens would be predictable.
            panic!("system random generator failed: {error}");
        }
    }
}

/// A generator with a fixed seed, for tests.
pub struct SeededEntropy(Mutex<StdRng>);

impl SeededEntropy {
    /// Creates a generator. Equal seeds yield equal bytes.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(buffer);
    }
}
