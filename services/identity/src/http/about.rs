//! `/openapi.json` and `/version`.

use std::sync::LazyLock;

use axum::Json;
use axum::response::{IntoResponse, Response};
use contract::identity::Version;
use data_encoding::HEXLOWER;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, StatusCode};
use sha1::{Digest as _, Sha1};

/// Written by `make gen`; the crate `openapi` tests that it matches the route table.
const DOCUMENT: &str = include_str!("../../../../catalog/openapi.json");
/// Digest of the document: the same in every process of a build.
static TAG: LazyLock<String> =
    LazyLock::new(|| format!("\"{}\"", HEXLOWER.encode(&Sha1::digest(DOCUMENT.as_bytes()))));

/// `GET /openapi.json`: public.
pub(super) async fn openapi(headers: HeaderMap) -> Response {
    let caching = [(ETAG, TAG.as_str()), (CACHE_CONTROL, "no-cache")];
    if matches(&headers, &TAG) {
        return (StatusCode::NOT_MODIFIED, caching).into_response();
    }
    (caching, [(CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

/// Returns whether `If-None-Match` contains the tag (RFC 9110, section 13.1.2). Compressing proxies make the tag weak.
fn matches(headers: &HeaderMap, tag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|value| matches!(value.trim(), "*") || value.trim().trim_start_matches("W/") == tag)
}

/// `GET /version`: public.
pub(super) async fn version() -> Json<Version> {
    Json(Version { version: env!("CARGO_PKG_VERSION").to_owned() })
}
