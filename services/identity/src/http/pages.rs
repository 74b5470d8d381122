//! `/pages`: what people without the command line see. Small, static, of this binary alone; the token stands in the
//! fragment of the address, which no server and no log ever sees.

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use contract::ProblemKind;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use service::Problem;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// `GET …/{name}`: anybody.
pub(super) async fn read(Path(name): Path<String>) -> Result<Response, Problem> {
    let (content_type, content) = match name.as_str() {
        "accept-invite" => (HTML, include_str!("pages/accept-invite.html")),
        "reset-password" => (HTML, include_str!("pages/reset-password.html")),
        "device" => (HTML, include_str!("pages/device.html")),
        "style.css" => (CSS, include_str!("pages/style.css")),
        "docs.css" => (CSS, include_str!("pages/docs.css")),
        "page.js" => (SCRIPT, include_str!("pages/page.js")),
        "device.js" => (SCRIPT, include_str!("pages/device.js")),
        "token-form.js" => (SCRIPT, include_str!("pages/token-form.js")),
        _ => return Err(ProblemKind::NotFound.into()),
    };
    Ok(page(content_type, content).into_response())
}

/// A page of ours, which may load nothing but what is ours too.
pub(super) fn page(content_type: &'static str, content: impl IntoResponse) -> impl IntoResponse {
    let headers = [
        (CONTENT_TYPE, content_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, content)
}
