//! Id of a request. Each response contains it, so that an error report can be found in the logs.

use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

/// Header of the id in requests and responses.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Id of the current request.
#[derive(Clone, Debug)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// Returns the id of the caller if it is 1 to 128 characters of `A-Za-z0-9._-`, otherwise a new one.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        Self(
            headers
                .get(X_REQUEST_ID)
                .filter(|value| is_request_id(value))
                .cloned()
                .unwrap_or_else(generated_request_id),
        )
    }

    /// Parses the id of an earlier request. Replaces an invalid id with a new one.
    pub(crate) fn named(text: &str) -> Self {
        Self(HeaderValue::from_str(text).ok().filter(is_request_id).unwrap_or_else(generated_request_id))
    }

    /// Returns the id as a header value.
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }
}

fn is_request_id(value: &HeaderValue) -> bool {
    (1..=128).contains(&value.len())
        && value.as_bytes().iter().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(b))
}

/// Returns 16 hexadecimal digits: the random half of a UUID. Each event is stored with the id of its request, so it is short.
fn generated_request_id() -> HeaderValue {
    let mut buffer = Uuid::encode_buffer();
    let text: &str = Uuid::now_v7().simple().encode_lower(&mut buffer);
    let random = text.get(16..).unwrap_or(text);
    HeaderValue::from_str(random).unwrap_or_else(|_| HeaderValue::from_static("-"))
}
