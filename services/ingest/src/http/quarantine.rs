//! `/events/quarantine`: an administrator of the tenant, or the platform administrator for one tenant or all.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use contract::consumers::{DeadLetterSequences, HandledDeadLetters, TenantQuery};
use http::StatusCode;
use service::Problem;
use service::http::{Filtered, Id, JsonBody};
use tenancy::TenantId;

use super::{AnyAdmin, json, limited, response};
use crate::app::{App, Numbers, Stream};

/// `GET /events/quarantine`.
pub(super) async fn list(
    State(app): State<App>,
    AnyAdmin(tenant, _): AnyAdmin,
    Filtered { paging, filter }: Filtered<u64, TenantQuery>,
) -> Result<Response, Problem> {
    let (admitted, numbers) = (app.audit.admit(tenant.as_ref())?, numbers(&app, tenant.as_ref()));
    let tenant_id = limited(tenant, filter.tenant_id)?;
    let page = app.list_quarantined(tenant_id.as_ref(), &paging, &numbers).await?;
    Ok(response(StatusCode::OK, json(&page)?, admitted))
}

/// `GET /events/quarantine/{sequence}`.
pub(super) async fn get(
    State(app): State<App>,
    AnyAdmin(tenant, _): AnyAdmin,
    Id(sequence): Id<u64>,
) -> Result<Response, Problem> {
    let (admitted, numbers) = (app.audit.admit(tenant.as_ref())?, numbers(&app, tenant.as_ref()));
    let letter = app.get_quarantined(tenant.as_ref(), sequence, &numbers).await?;
    Ok(response(StatusCode::OK, json(&letter)?, admitted))
}

/// `POST /events/quarantine/delete`.
pub(super) async fn delete(
    State(app): State<App>,
    AnyAdmin(tenant, actor): AnyAdmin,
    JsonBody(request): JsonBody<DeadLetterSequences>,
) -> Result<Json<HandledDeadLetters>, Problem> {
    let (_admitted, numbers) = (app.audit.admit(tenant.as_ref())?, numbers(&app, tenant.as_ref()));
    let tenant_id = limited(tenant, request.tenant_id)?;
    Ok(Json(app.delete_quarantined(tenant_id.as_ref(), actor, &request.sequences, &numbers).await?))
}

/// Returns the numbers of items as the caller sees them: those of the stream count the items of all tenants.
fn numbers(app: &App, tenant: Option<&TenantId>) -> Numbers {
    tenant.map_or(Numbers::PLAIN, |_| app.positions.key(Stream::Quarantine, tenant).numbers())
}
