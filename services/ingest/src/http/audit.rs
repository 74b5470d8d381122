//! `/audit`.

use authn::AnyCaller;
use axum::extract::State;
use axum::response::Response;
use contract::audit::AuditQuery;
use http::StatusCode;
use service::Problem;
use service::http::Filtered;

use super::{json, limited, response};
use crate::app::{App, AuditRequest};

/// `GET /audit`: an administrator of the tenant, the platform administrator, or a member for the own events.
pub(super) async fn list(
    State(app): State<App>,
    query: Result<Filtered<String, AuditQuery>, Problem>,
    caller: AnyCaller,
) -> Result<Response, Problem> {
    // A program gets 403 whatever its query is.
    if let AnyCaller::Caller(caller) = &caller {
        caller.require_user()?;
    }
    let Filtered { paging, filter } = query?;
    let AuditQuery { after, since, kind, user_id, key_id, tenant_id } = filter;
    let (own, member) = match &caller {
        AnyCaller::PlatformAdmin => (None, None),
        AnyCaller::Caller(caller) if caller.is_admin() => (Some(caller.tenant_id().clone()), None),
        AnyCaller::Caller(caller) => {
            let user_id = user_id.map_or_else(|| caller.require_user(), Ok)?;
            (Some(caller.tenant_id().clone()), Some(caller.require_self_or_admin(user_id)?))
        }
    };
    let admitted = app.audit.admit(own.as_ref())?;
    let (tenant, user_id) = (limited(own, tenant_id)?, member.or(user_id));
    let request = AuditRequest { tenant, kind, user_id, key_id, member, after, since };
    let page = app.list_audit(request, &paging).await?;
    Ok(response(StatusCode::OK, json(&page)?, admitted))
}
