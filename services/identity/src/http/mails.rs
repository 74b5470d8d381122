//! `/mails`.

use authn::PlatformAdmin;
use axum::Json;
use axum::extract::State;
use contract::Page;
use contract::identity::UndeliveredMail;
use service::Problem;
use service::http::Paging;
use tenancy::OutboxId;

use crate::app::App;

/// `GET /mails`: the platform administrator.
pub(super) async fn list(
    _: PlatformAdmin,
    State(app): State<App>,
    paging: Paging<OutboxId>,
) -> Result<Json<Page<UndeliveredMail>>, Problem> {
    Ok(Json(app.list_mails(&paging).await?))
}
