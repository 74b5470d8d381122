//! The `Authorization` header (RFC 6750, section 2.1).

use contract::ProblemKind;
use hashing::{RawToken, TokenKind};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use service::Problem;

/// The bearer credential of a request.
pub enum Bearer {
    /// No `Authorization` header.
    Missing,
    /// Not a well-formed credential. It is rejected without a lookup.
    Malformed,
    /// A well-formed credential.
    Token(RawToken),
}

/// Reads the bearer credential. A credential of another kind is malformed.
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
    /// Returns the credential.
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
