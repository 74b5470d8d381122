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
    let numbers = numbers(&app, tenant.as_ref());
    if let Some(tenant_id) = &tenant {
        app.audit.count_request(tenant_id)?;
    }
    let tenant_id = limited(tenant, filter.tenant_id)?;
    let (page, reservation) = app.list_quarantined(tenant_id.as_ref(), &paging, &numbers).await?;
    Ok(response(StatusCode::OK, json(&page)?, reservation))
}

/// `GET /events/quarantine/{sequence}`.
pub(super) async fn get(
    State(app): State<App>,
    AnyAdmin(tenant, _): AnyAdmin,
    Id(sequence): Id<u64>,
) -> Result<Response, Problem> {
    let numbers = numbers(&app, tenant.as_ref());
    let (letter, reservation) = app.get_quarantined(tenant.as_ref(), sequence, &numbers).await?;
    Ok(response(StatusCode::OK, json(&letter)?, reservation))
}

/// `POST /events/quarantine/delete`.
pub(super) async fn delete(
    State(app): State<App>,
    AnyAdmin(tenant, actor): AnyAdmin,
    JsonBody(request): JsonBody<DeadLetterSequences>,
) -> Result<Json<HandledDeadLetters>, Problem> {
    // Each request can write an audit event.
    if let Some(tenant_id) = &tenant {
        app.audit.count_request(tenant_id)?;
    }
    let numbers = numbers(&app, tenant.as_ref());
    let tenant_id = limited(tenant, request.tenant_id)?;
    Ok(Json(app.delete_quarantined(tenant_id.as_ref(), actor, &request.sequences, &numbers).await?))
}

/// Returns the numbers of items as the caller sees them: those of the stream count the items of all tenants.
fn numbers(app: &App, tenant: Option<&TenantId>) -> Numbers {
    tenant.map_or(Numbers::PLAIN, |_| app.positions.key(Stream::Quarantine, tenant).numbers())
}
