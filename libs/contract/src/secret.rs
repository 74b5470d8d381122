//! A password or a raw token on its way over the wire.

use serde::{Deserialize, Serialize};

/// A credential in a request or an answer. It can be serialised, because that is what it is for here, but neither
/// shown nor logged: `Debug` withholds it, and there is no `Display`.
#[derive(Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
#[schemars(description = "A password or a raw token.")]
pub struct Secret(#[schemars(extend("format" = "password"))] String);

impl Secret {
    /// Wraps the raw text.
    pub fn new(raw: impl Into<String>) -> Self {
        Self(raw.into())
    }

    /// The raw text. Each call is a place where a credential could leak.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[withheld]")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}
