//! Every response names its request, so that a person with an error and a person with the logs can meet.

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

/// The header that carries the id, both ways.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of the request at hand.
#[derive(Clone, Debug)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// The caller's own id, where it is 1 to 128 of `A-Za-z0-9._-`; else a fresh one.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self(headers.get(X_REQUEST_ID).filter(|value| is_an_id(value)).cloned().unwrap_or_else(fresh))
    }

    /// The id of an earlier request; a fresh one where this is none.
    pub(crate) fn named(text: &str) -> Self {
        Self(HeaderValue::from_str(text).ok().filter(is_an_id).unwrap_or_else(fresh))
    }

    /// The id as a header value.
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

fn is_an_id(value: &HeaderValue) -> bool {
    (1..=128).contains(&value.len())
        && value.as_bytes().iter().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(b))
}

fn fresh() -> HeaderValue {
    let mut buffer = Uuid::encode_buffer();
    let text: &str = Uuid::now_v7().simple().encode_lower(&mut buffer);
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("-"))
}

impl<S: Sync> FromRequestParts<S> for RequestId {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get().cloned().unwrap_or_else(|| Self::of(&parts.headers)))
    }
}
