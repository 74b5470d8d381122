//! `/version`: which build answers.

use axum::Json;
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Version {
    version: &'static str,
}

/// `GET`: anybody.
pub(super) async fn read() -> Json<Version> {
    Json(Version { version: env!("CARGO_PKG_VERSION") })
}
