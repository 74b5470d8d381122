//! `/users/invite`, `/users/invites` and `/users/accept-invite`.

use axum::Json;
use axum::extract::State;
use contract::Page;
use contract::identity::{
    AcceptInvite, AcceptedInvite, InspectInvite, InspectedInvite, Invite, InviteFilter, InviteUser,
    ResendInvite,
};
use http::StatusCode;
use service::Problem;
use service::http::Filtered;
use service::http::JsonBody;
use service::http::{ClientAddress, Id};
use tenancy::InviteId;

use super::callers::{Inviter, UsersReader};
use crate::app::invites::Invitation;
use crate::app::{App, invalid};
use crate::domain::email::InvalidEmail;

/// `POST /users/invite`.
pub(super) async fn invite(
    inviter: Inviter,
    State(app): State<App>,
    JsonBody(request): JsonBody<InviteUser>,
) -> Result<(StatusCode, Json<Invite>), Problem> {
    inviter.rights.require_grant(request.role)?;
    inviter.rights.require_delivery(request.delivery)?;
    let email = request.email.parse();
    let email = email.map_err(|error: InvalidEmail| invalid("/email", error.to_string()))?;
    let invitation = Invitation { email, role: request.role, delivery: request.delivery };
    let invite = app.invite_user(&inviter.tenant_id, inviter.actor, &invitation).await?;
    Ok((StatusCode::CREATED, Json(invite)))
}

/// `POST /users/accept-invite/inspect`: a caller with the invite token.
pub(super) async fn inspect(
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    JsonBody(request): JsonBody<InspectInvite>,
) -> Result<Json<InspectedInvite>, Problem> {
    Ok(Json(app.inspect_invite(request.token.expose(), address).await?))
}

/// `POST /users/accept-invite`: a caller with the invite token.
pub(super) async fn accept(
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    JsonBody(request): JsonBody<AcceptInvite>,
) -> Result<(StatusCode, Json<AcceptedInvite>), Problem> {
    let (token, password) = (request.token.expose(), request.password.expose());
    let accepted = app.accept_invite(token, password, address).await?;
    Ok((StatusCode::CREATED, Json(accepted)))
}

/// `GET /users/invites`.
pub(super) async fn list(
    UsersReader(tenant_id): UsersReader,
    State(app): State<App>,
    Filtered { paging, filter }: Filtered<InviteId, InviteFilter>,
) -> Result<Json<Page<Invite>>, Problem> {
    Ok(Json(app.list_invites(&tenant_id, filter.status, &paging).await?))
}

/// `POST /users/invites/{invite_id}/resend`.
pub(super) async fn resend(
    inviter: Inviter,
    State(app): State<App>,
    Id(invite_id): Id<InviteId>,
    JsonBody(ResendInvite { delivery }): JsonBody<ResendInvite>,
) -> Result<Json<Invite>, Problem> {
    inviter.rights.require_delivery(delivery)?;
    let Inviter { tenant_id, rights, actor, .. } = inviter;
    Ok(Json(app.resend_invite(&tenant_id, actor, rights, invite_id, delivery).await?))
}

/// `DELETE /users/invites/{invite_id}`.
pub(super) async fn revoke(
    inviter: Inviter,
    State(app): State<App>,
    Id(invite_id): Id<InviteId>,
) -> Result<StatusCode, Problem> {
    let Inviter { tenant_id, rights, actor, .. } = inviter;
    app.revoke_invite(&tenant_id, actor, rights, invite_id).await?;
    Ok(StatusCode::NO_CONTENT)
}
