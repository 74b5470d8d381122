//! The internal API: session reports API keys.

use axum::extract::State;
use contract::ProblemKind;
use contract::internal::ApiKeyNotice;
use http::StatusCode;
use service::Problem;
use service::http::{Id, InternalJson};
use tenancy::KeyId;

use crate::app::App;

/// `PUT /internal/v1/api-key-notices/{key_id}`: 204, also if the notice was sent before.
pub(super) async fn put_api_key_notice(
    State(app): State<App>,
    Id(key_id): Id<KeyId>,
    InternalJson(notice): InternalJson<ApiKeyNotice>,
) -> Result<StatusCode, Problem> {
    if notice.key_id != key_id {
        return Err(ProblemKind::ValidationFailed.into());
    }
    app.announce_api_key(&notice).await?;
    Ok(StatusCode::NO_CONTENT)
}
