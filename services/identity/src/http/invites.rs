//! `/users/invites`.

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use contract::Page;
use contract::identity::{Invite, InviteFilter, ResendInvite};
use http::StatusCode;
use http::header::CACHE_CONTROL;
use service::Problem;
use service::http::JsonBody;
use service::http::page::Paging;
use service::http::path::Id;
use tenancy::InviteId;

use super::callers::{InviteReader, Inviter};
use crate::app::App;

/// `GET`: an administrator, a key with `users:read`, the operator.
pub(super) async fn list(
    InviteReader(scope): InviteReader,
    State(app): State<App>,
    paging: Paging<InviteId>,
    Query(filter): Query<InviteFilter>,
) -> Result<Json<Page<Invite>>, Problem> {
    Ok(Json(app.invites(&scope, filter.status, &paging).await?))
}

/// `POST …/{invite_id}/resend`: as invite.
pub(super) async fn resend(
    inviter: Inviter,
    State(app): State<App>,
    Id(invite_id): Id<InviteId>,
    JsonBody(ResendInvite { delivery }): JsonBody<ResendInvite>,
) -> Result<Response, Problem> {
    inviter.may_choose(delivery)?;
    let Inviter { scope, highest_role, actor, .. } = inviter;
    let invite = app.resend_invite(&scope, actor, highest_role, invite_id, delivery).await?;
    Ok((StatusCode::OK, [(CACHE_CONTROL, "no-store")], Json(invite)).into_response())
}

/// `DELETE …/{invite_id}`: as invite.
pub(super) async fn revoke(
    inviter: Inviter,
    State(app): State<App>,
    Id(invite_id): Id<InviteId>,
) -> Result<StatusCode, Problem> {
    let Inviter { scope, highest_role, actor, .. } = inviter;
    app.revoke_invite(&scope, actor, highest_role, invite_id).await?;
    Ok(StatusCode::NO_CONTENT)
}
