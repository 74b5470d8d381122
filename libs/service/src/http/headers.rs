//! Extractors for `X-Tenant-ID`, `X-User-ID` and `X-Session-ID`.

use std::str::FromStr;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::HeaderName;
use http::request::Parts;
use tenancy::{TenantId, UserId, X_SESSION_ID, X_TENANT_ID, X_USER_ID};

use super::problem::Problem;

/// A request header is missing or malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The route requires the header.
    #[error("the header {0} is required")]
    Missing(HeaderName),
    /// The header occurs more than once, or its value is malformed.
    #[error("the header {0} is malformed: {1}")]
    Invalid(HeaderName, String),
}

impl IntoResponse for HeaderError {
    fn into_response(self) -> Response {
        Problem::from(self).into_response()
    }
}

/// The tenant id in `X-Tenant-ID`.
#[derive(Clone, Debug)]
pub struct TenantHeader(pub TenantId);

/// The user id in `X-User-ID`.
#[derive(Clone, Copy, Debug)]
pub struct UserHeader(pub UserId);

/// The unparsed value of `X-Session-ID`. It is a credential, so the type does not implement `Debug`.
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

    /// Accepts every value: a malformed token gets the same response as an unknown one.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let value = parts.headers.get(X_SESSION_ID).ok_or(HeaderError::Missing(X_SESSION_ID))?;
        Ok(Self(String::from_utf8_lossy(value.as_bytes()).into_owned()))
    }
}

/// Parses a header that may occur at most once.
fn single<T>(
    parts: &Parts,
    name: &HeaderName,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, HeaderError> {
    let mut values = parts.headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let invalid = |reason: String| HeaderError::Invalid(name.clone(), reason);
    if values.next().is_some() {
        return Err(invalid("send it only once".to_owned()));
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
    async fn rejects_missing_malformed_and_repeated_headers() {
        assert_eq!(tenant(&["acme"]).await.unwrap().as_str(), "acme");
        assert_eq!(tenant(&[]).await, Err(HeaderError::Missing(X_TENANT_ID)));
        assert!(matches!(tenant(&["Not a label"]).await, Err(HeaderError::Invalid(..))));
        assert!(matches!(tenant(&["acme", "other"]).await, Err(HeaderError::Invalid(..))));
    }
}
