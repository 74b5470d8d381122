//! Extractors for the three naming headers. A rejection is a bare 400 that carries its [`HeaderError`] as a response
//! extension; the `service` library turns that into the problem document that the caller sees.

use std::str::FromStr;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderName, StatusCode};

use crate::{TenantId, UserId};

/// Names the tenant that a call is about.
pub const X_TENANT_ID: HeaderName = HeaderName::from_static("x-tenant-id");
/// Names the user that a call is about.
pub const X_USER_ID: HeaderName = HeaderName::from_static("x-user-id");
/// Carries the raw session token that is to be revoked.
pub const X_SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");

/// Why a naming header was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The route needs the header, and it was not sent.
    #[error("the header {0} is required")]
    Missing(HeaderName),
    /// The header was sent twice, or its value has the wrong form.
    #[error("the header {0} is malformed: {1}")]
    Invalid(HeaderName, String),
}

impl IntoResponse for HeaderError {
    fn into_response(self) -> Response {
        let mut response = StatusCode::BAD_REQUEST.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// `X-Tenant-ID`, parsed.
#[derive(Clone, Debug)]
pub struct TenantHeader(pub TenantId);

/// `X-User-ID`, parsed.
#[derive(Clone, Copy, Debug)]
pub struct UserHeader(pub UserId);

/// `X-Session-ID` as it was sent. It holds a credential: it has no `Debug`, and only the session service reads it.
pub struct SessionHeader(pub String);

macro_rules! extractor {
    ($name:ident, $header:expr, $parse:expr) => {
        impl<S: Sync> FromRequestParts<S> for $name {
            type Rejection = HeaderError;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
                single(parts, &$header, $parse)?.map(Self).ok_or(HeaderError::Missing($header))
            }
        }

        impl<S: Sync> OptionalFromRequestParts<S> for $name {
            type Rejection = HeaderError;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
                Ok(single(parts, &$header, $parse)?.map(Self))
            }
        }
    };
}

extractor!(TenantHeader, X_TENANT_ID, |s| TenantId::from_str(s).map_err(|e| e.to_string()));
extractor!(UserHeader, X_USER_ID, |s| UserId::from_str(s).map_err(|_| "a user id is a UUID".to_owned()));
impl<S: Sync> FromRequestParts<S> for SessionHeader {
    type Rejection = HeaderError;

    /// Any value will do: what is no token of ours is answered like one that never was.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let value = parts.headers.get(X_SESSION_ID).ok_or(HeaderError::Missing(X_SESSION_ID))?;
        Ok(Self(String::from_utf8_lossy(value.as_bytes()).into_owned()))
    }
}

/// Reads a header that may stand once at most.
fn single<T>(
    parts: &Parts,
    name: &HeaderName,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, HeaderError> {
    let mut values = parts.headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let invalid = |why: String| HeaderError::Invalid(name.clone(), why);
    if values.next().is_some() {
        return Err(invalid("it may be sent once".to_owned()));
    }
    let text = value.to_str().map_err(|_| invalid("it must be visible ASCII".to_owned()))?;
    parse(text).map(Some).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    async fn tenant(headers: &[&str]) -> Result<TenantId, HeaderError> {
        let mut request = Request::builder();
        for value in headers {
            request = request.header(X_TENANT_ID, *value);
        }
        let mut parts = request.body(()).unwrap().into_parts().0;
        <TenantHeader as FromRequestParts<()>>::from_request_parts(&mut parts, &()).await.map(|h| h.0)
    }

    #[tokio::test]
    async fn a_header_is_read_once_and_in_its_form() {
        assert_eq!(tenant(&["acme"]).await.unwrap().as_str(), "acme");
        assert_eq!(tenant(&[]).await, Err(HeaderError::Missing(X_TENANT_ID)));
        assert!(matches!(tenant(&["Not a label"]).await, Err(HeaderError::Invalid(..))));
        assert!(matches!(tenant(&["acme", "other"]).await, Err(HeaderError::Invalid(..))));
    }
}
