//! Hashes of secrets: Argon2id for passwords, SHA-256 for generated tokens.
//!
//! A password has little entropy and needs a slow hash in a bounded pool. A token has 256 random bits, so a fast digest
//! is enough. Raw secrets have no `Debug`, `Display` or `Serialize`, and stored digests are different types.

mod argon;
mod kernel;
mod memory;
mod metrics;
mod pool;
mod queue;
mod token;

pub use argon::{Argon2Settings, PasswordDigest, SettingsError, StoredPassword};
pub use kernel::HashKernel;
pub use pool::{HashPool, Overloaded, PoolSize};
pub use queue::{Lane, Requester};
pub use token::{Entropy, InvalidToken, RawToken, SeededEntropy, SystemEntropy, TokenDigest, TokenKind};

use zeroize::Zeroizing;

/// A raw password, zeroed on drop.
pub struct Password(Zeroizing<String>);

impl Password {
    /// Wraps the raw text.
    pub fn new(raw: impl Into<String>) -> Self {
        Self(Zeroizing::new(raw.into()))
    }

    /// Returns the raw text. Each call is a place where a password could leak.
    pub fn expose(&self) -> &str {
        &self.0
    }
}
