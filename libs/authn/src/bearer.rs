//! The `Authorization` header (RFC 6750, section 2.1).

use contract::ProblemKind;
use hashing::{RawToken, TokenKind};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use service::Problem;

/// What a request shows as its credential.
pub enum Bearer {
    /// Nothing.
    Missing,
    /// Something that cannot be a credential of ours; it is refused before any look-up.
    Malformed,
    /// A well-formed credential.
    Token(RawToken),
}

/// Reads the bearer credential, if it is one of these kinds.
pub fn bearer(headers: &HeaderMap, kinds: &[TokenKind]) -> Bearer {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Bearer::Missing;
    };
    if values.next().is_some() {
        return Bearer::Malformed;
    }
    let token = value.to_str().ok().and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    match token.and_then(|token| RawToken::parse_any(kinds, token).ok()) {
        Some(token) => Bearer::Token(token),
        None => Bearer::Malformed,
    }
}

impl Bearer {
    /// The credential.
    ///
    /// # Errors
    /// 401 `unauthenticated` or `credential_invalid`.
    pub fn required(self) -> Result<RawToken, Problem> {
        match self {
            Self::Token(token) => Ok(token),
            Self::Missing => Err(ProblemKind::Unauthenticated.into()),
            Self::Malformed => Err(ProblemKind::CredentialInvalid.into()),
        }
    }
}
