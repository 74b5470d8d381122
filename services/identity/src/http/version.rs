//! `/version`: which build answers.

use axum::Json;
use contract::identity::Version;

/// `GET`: anybody.
pub(super) async fn read() -> Json<Version> {
    Json(Version { version: env!("CARGO_PKG_VERSION").to_owned() })
}
