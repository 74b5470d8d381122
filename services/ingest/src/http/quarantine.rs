//! `/events/quarantine`: an administrator of the tenant, or the platform administrator for one tenant or all.

use authn::AnyCaller;
use axum::Json;
use axum::extract::State;
use contract::consumers::{DeadLetter, DeadLetterSequences, DeletedDeadLetters, QuarantineQuery};
use contract::{Page, ProblemKind};
use service::Problem;
use service::http::{Filtered, Id, JsonBody};
use tenancy::TenantId;

use crate::app::{App, Numbers, Stream};

/// `GET /events/quarantine`.
pub(super) async fn list(
    State(app): State<App>,
    caller: AnyCaller,
    Filtered { paging, filter }: Filtered<u64, QuarantineQuery>,
) -> Result<Json<Page<DeadLetter>>, Problem> {
    let numbers = numbers(&app, &caller);
    if let AnyCaller::Caller(caller) = &caller {
        app.audit.count_request(caller.tenant_id())?;
    }
    let tenant_id = tenant_of(caller, filter.tenant_id)?;
    Ok(Json(app.list_quarantined(tenant_id.as_ref(), &paging, &numbers).await?))
}

/// `GET /events/quarantine/{sequence}`.
pub(super) async fn get(
    State(app): State<App>,
    caller: AnyCaller,
    Id(sequence): Id<u64>,
) -> Result<Json<DeadLetter>, Problem> {
    let numbers = numbers(&app, &caller);
    let tenant_id = tenant_of(caller, None)?;
    Ok(Json(app.get_quarantined(tenant_id.as_ref(), sequence, &numbers).await?))
}

/// `POST /events/quarantine/delete`.
pub(super) async fn delete(
    State(app): State<App>,
    caller: AnyCaller,
    JsonBody(request): JsonBody<DeadLetterSequences>,
) -> Result<Json<DeletedDeadLetters>, Problem> {
    let numbers = numbers(&app, &caller);
    let tenant_id = tenant_of(caller, None)?;
    Ok(Json(app.delete_quarantined(tenant_id.as_ref(), &request.sequences, &numbers).await?))
}

/// Returns the numbers of items as the caller sees them: those of the stream count the items of all tenants.
fn numbers(app: &App, caller: &AnyCaller) -> Numbers {
    match caller {
        AnyCaller::PlatformAdmin => Numbers::PLAIN,
        AnyCaller::Caller(caller) => {
            app.positions.key(Stream::Quarantine, Some(caller.tenant_id())).numbers()
        }
    }
}

/// Returns the tenant of the items; `None` for those of all tenants.
fn tenant_of(caller: AnyCaller, requested: Option<TenantId>) -> Result<Option<TenantId>, ProblemKind> {
    match caller {
        AnyCaller::PlatformAdmin => Ok(requested),
        AnyCaller::Caller(caller) if !caller.is_admin() => Err(ProblemKind::Forbidden),
        AnyCaller::Caller(caller) => match requested {
            Some(tenant_id) if tenant_id != *caller.tenant_id() => Err(ProblemKind::TenantMismatch),
            _ => Ok(Some(caller.tenant_id().clone())),
        },
    }
}
