//! Randomness is injected, so that tests can be repeated; this is its one home.

use std::sync::{Mutex, PoisonError};

use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng, TryRng};

/// A source of random bytes.
pub trait Entropy: Send + Sync {
    /// Fills the buffer.
    fn fill(&self, buffer: &mut [u8]);
}

/// The operating system's generator; what every process runs with.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        if let Err(error) = SysRng.try_fill_bytes(buffer) {
            // The kernel's generator cannot fail once it was seeded at boot; going on without it would hand out
            // guessable tokens.
            panic!("the system's random generator failed: {error}");
        }
    }
}

/// A generator with a known seed, for tests.
pub struct SeededEntropy(Mutex<StdRng>);

impl SeededEntropy {
    /// The same seed gives the same bytes.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(buffer);
    }
}
