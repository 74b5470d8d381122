//! `/problems/{code}`: where the `type` of every problem leads. What went wrong, and what to do.

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use contract::ProblemKind;
use service::Problem;

use super::pages::page;

/// `GET …/{code}`: anybody.
pub(super) async fn read(Path(code): Path<String>) -> Result<Response, Problem> {
    let kind = ProblemKind::from_code(&code).ok_or(ProblemKind::NotFound)?;
    Ok(page("text/html; charset=utf-8", html(kind)).into_response())
}

/// Nothing in it comes from a request: the words are the table's own.
fn html(kind: ProblemKind) -> String {
    let (code, status, title, remedy) = (kind.code(), kind.status(), kind.title(), kind.remedy());
    let passing = if kind.is_retryable() {
        "<p>It passes by itself: the same request can succeed later.</p>"
    } else {
        ""
    };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title>\
         <link rel=\"stylesheet\" href=\"../pages/style.css\"></head>\
         <body><main><h1>{title}</h1><p><code>{code}</code>, answered with status {status}</p><p>{remedy}</p>{passing}</main></body></html>\n",
        remedy = remedy.replace('&', "&amp;").replace('<', "&lt;"),
    )
}
