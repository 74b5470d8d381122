//! `/openapi.json`: the API as makers of clients read it.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use data_encoding::HEXLOWER;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, StatusCode};
use sha1::{Digest as _, Sha1};

use crate::openapi::pretty_document;

static DOCUMENT: LazyLock<String> = LazyLock::new(pretty_document);
/// The name of these bytes: the same in every process of a build.
static NAME: LazyLock<String> =
    LazyLock::new(|| format!("\"{}\"", HEXLOWER.encode(&Sha1::digest(DOCUMENT.as_bytes()))));

/// `GET`: anybody. Whoever has it already is only told that it is still the same.
pub(super) async fn read(headers: HeaderMap) -> Response {
    let kept = [(ETAG, NAME.as_str()), (CACHE_CONTROL, "no-cache")];
    if names(&headers, &NAME) {
        return (StatusCode::NOT_MODIFIED, kept).into_response();
    }
    (kept, [(CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}

/// Whether the caller names what it has (RFC 9110, section 13.1.2), also weakly, as proxies that compress do.
fn names(headers: &HeaderMap, name: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|tag| matches!(tag.trim(), "*") || tag.trim().trim_start_matches("W/") == name)
}
