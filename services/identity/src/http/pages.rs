//! `/pages`, `/docs` and `/problems`: static pages for browsers. Tokens are in the fragment of the URL, which browsers do
//! not send, so they reach neither servers nor logs. Also `/openapi.json` and `/version`.

use std::sync::LazyLock;

use axum::Json;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use contract::ProblemKind;
use contract::identity::Version;
use data_encoding::HEXLOWER;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    REFERRER_POLICY,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use service::Problem;
use sha1::{Digest as _, Sha1};

/// Pages load scripts and styles from this service only. `data:` images are the icons of Swagger UI.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Written by `make gen`; the crate `openapi` tests that it matches the route table.
const DOCUMENT: &str = include_str!("../../../../catalog/openapi.json");
/// Digest of the document: the same in every process of a build.
static TAG: LazyLock<String> =
    LazyLock::new(|| format!("\"{}\"", HEXLOWER.encode(&Sha1::digest(DOCUMENT.as_bytes()))));

/// `GET /pages/{name}`: public.
pub(super) async fn page(Path(name): Path<String>) -> Result<Response, Problem> {
    Ok(match name.as_str() {
        "accept-invite" => file(HTML, include_str!("pages/accept-invite.html")),
        "reset-password" => file(HTML, include_str!("pages/reset-password.html")),
        "device" => file(HTML, include_str!("pages/device.html")),
        "style.css" => file(CSS, include_str!("pages/style.css")),
        "page.js" => file(SCRIPT, include_str!("pages/page.js")),
        "device.js" => file(SCRIPT, include_str!("pages/device.js")),
        "token-form.js" => file(SCRIPT, include_str!("pages/token-form.js")),
        "docs.js" => file(SCRIPT, include_str!("pages/docs.js")),
        "swagger-ui.css" => gzip(CSS, include_bytes!("../../swagger-ui/swagger-ui.css.gz")),
        "swagger-ui.js" => gzip(SCRIPT, include_bytes!("../../swagger-ui/swagger-ui.js.gz")),
        _ => return Err(ProblemKind::NotFound.into()),
    })
}

/// `GET /docs`: public. Renders `/openapi.json` with Swagger UI.
pub(super) async fn docs() -> Response {
    file(HTML, include_str!("pages/docs.html"))
}

/// `GET /problems/{code}`: public.
pub(super) async fn problem(Path(code): Path<String>) -> Result<Response, Problem> {
    let kind = ProblemKind::from_code(&code).ok_or(ProblemKind::NotFound)?;
    Ok(file(HTML, problem_page(kind)))
}

fn file(content_type: &'static str, content: impl IntoResponse) -> Response {
    let headers = [
        (CONTENT_TYPE, content_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, content).into_response()
}

/// Serves a compressed file as it is: every browser accepts gzip.
fn gzip(content_type: &'static str, content: &'static [u8]) -> Response {
    let mut response = file(content_type, content);
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response
}

/// The page contains texts of the problem table only, nothing from the request.
fn problem_page(kind: ProblemKind) -> String {
    let (code, status, title, remedy) = (kind.code(), kind.status(), kind.title(), kind.remedy());
    let temporary = if kind.is_retryable() {
        "<p>This problem is temporary: the same request can succeed later.</p>"
    } else {
        ""
    };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title>\
         <link rel=\"stylesheet\" href=\"../pages/style.css\"></head>\
         <body><main><h1>{title}</h1><p><code>{code}</code>, status {status}</p><p>{remedy}</p>{temporary}</main></body></html>\n",
        remedy = remedy.replace('&', "&amp;").replace('<', "&lt;"),
    )
}

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
