//! `/audit`.

use authn::AnyCaller;
use axum::extract::State;
use axum::response::Response;
use contract::ProblemKind;
use contract::audit::AuditQuery;
use http::StatusCode;
use service::Problem;
use service::http::Filtered;

use super::{json, response};
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
    let AuditQuery { after, since, kind, mut user_id, key_id, tenant_id } = filter;
    let mut member = None;
    let tenant = match caller {
        AnyCaller::PlatformAdmin => tenant_id,
        AnyCaller::Caller(caller) => {
            if !caller.is_admin() {
                let own_id = caller.require_user()?;
                user_id = Some(caller.require_self_or_admin(user_id.unwrap_or(own_id))?);
                member = user_id;
            }
            let own = caller.tenant_id();
            if tenant_id.is_some_and(|tenant_id| tenant_id != *own) {
                return Err(ProblemKind::TenantMismatch.into());
            }
            Some(own.clone())
        }
    };
    let request = AuditRequest { tenant, kind, user_id, key_id, member, after, since };
    let (page, place) = app.list_audit(request, &paging).await?;
    Ok(response(StatusCode::OK, json(&page)?, place))
}
