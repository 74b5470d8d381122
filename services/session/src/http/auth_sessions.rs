//! `/auth/sessions`: a user's sessions.

use authn::Caller;
use axum::Json;
use axum::extract::{Query, State};
use contract::Page;
use contract::session::{RevokeSessions, Session};
use http::StatusCode;
use service::Problem;
use service::http::page::Paging;
use service::http::path::Id;
use service::http::{SessionHeader, UserHeader};
use tenancy::SessionId;

use crate::app::App;

/// `GET`: the user's own, or for an administrator those of anybody in the tenant.
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    UserHeader(user_id): UserHeader,
    paging: Paging<SessionId>,
) -> Result<Json<Page<Session>>, Problem> {
    Ok(Json(app.list_sessions(&caller, user_id, &paging).await?))
}

/// `POST …/logout`: whoever holds the raw token may end the session.
pub(super) async fn logout(
    State(app): State<App>,
    SessionHeader(raw): SessionHeader,
) -> Result<StatusCode, Problem> {
    app.log_out(&raw).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE …/{session_id}`: its owner or an administrator.
pub(super) async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Id(session_id): Id<SessionId>,
) -> Result<StatusCode, Problem> {
    app.revoke_session(&caller, session_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE`: all sessions of the user that the header names.
pub(super) async fn revoke_all(
    State(app): State<App>,
    caller: Caller,
    UserHeader(user_id): UserHeader,
    Query(RevokeSessions { keep_current }): Query<RevokeSessions>,
) -> Result<StatusCode, Problem> {
    app.revoke_all_sessions(&caller, user_id, keep_current).await?;
    Ok(StatusCode::NO_CONTENT)
}
