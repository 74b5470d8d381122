//! Secrets at rest: Argon2id for what people choose, SHA-256 for what we choose.
//!
//! A password has little entropy and gets a slow hash in a bounded pool; a token has 256 bits and gets a fast digest.
//! Raw secrets have no `Debug`, `Display` or `Serialize`, and what is stored of them is always another type.

mod argon;
mod entropy;
mod pool;
mod token;

pub use argon::{Argon2Settings, PasswordDigest, SettingsError};
pub use entropy::{Entropy, SeededEntropy, SystemEntropy};
pub use pool::{HashPool, Overloaded, PoolSize, Verdict};
pub use token::{InvalidToken, RawToken, TokenDigest, TokenKind};

use zeroize::Zeroizing;

/// A password as the person typed it, wiped from memory when dropped.
pub struct Password(Zeroizing<String>);

impl Password {
    /// Takes over the raw text.
    pub fn new(raw: impl Into<String>) -> Self {
        Self(Zeroizing::new(raw.into()))
    }

    /// The raw text. Each call is a place where a password could leak.
    pub fn expose(&self) -> &str {
        &self.0
    }
}
