//! `/users`.

use authn::Caller;
use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use contract::identity::{AcceptInvite, AcceptedInvite, InviteUser, PatchUser, User, UserFilter};
use contract::{Page, ProblemKind, Scope};
use http::StatusCode;
use http::header::CACHE_CONTROL;
use service::Problem;
use service::http::JsonBody;
use service::http::page::Paging;
use service::http::path::Id;
use tenancy::UserId;

use super::callers::{Inviter, UserManager};
use super::limited_json::LimitedJson;
use crate::app::App;
use crate::app::invite_user::Invitation;

/// `POST …/invite`: an administrator, a key with `users:write`, the operator.
pub(super) async fn invite(
    inviter: Inviter,
    State(app): State<App>,
    JsonBody(request): JsonBody<InviteUser>,
) -> Result<Response, Problem> {
    inviter.may_give(request.role)?;
    inviter.may_choose(request.delivery)?;
    let email = request.email.parse().map_err(|error: crate::domain::email::InvalidEmail| {
        Problem::new(ProblemKind::ValidationFailed).field("/email", "invalid", error.to_string())
    })?;
    let invitation = Invitation { email, role: request.role, delivery: request.delivery };
    let invite = app.invite_user(&inviter.scope, inviter.actor, &invitation).await?;
    Ok((StatusCode::CREATED, [(CACHE_CONTROL, "no-store")], Json(invite)).into_response())
}

/// `POST …/accept-invite`: whoever holds the token.
pub(super) async fn accept_invite(
    State(app): State<App>,
    LimitedJson(request): LimitedJson<AcceptInvite>,
) -> Result<(StatusCode, Json<AcceptedInvite>), Problem> {
    let accepted = app.accept_invite(request.token.expose(), request.password.expose()).await?;
    Ok((StatusCode::CREATED, Json(accepted)))
}

/// `GET …/{user_id}`: the user, an administrator, a key with `users:read`.
pub(super) async fn read(
    caller: Caller,
    State(app): State<App>,
    Id(user_id): Id<UserId>,
) -> Result<Json<User>, Problem> {
    match caller.user_id() {
        Some(own) if own == user_id => {}
        // To a member, somebody else is like nobody.
        Some(_) if !caller.is_admin() => return Err(ProblemKind::NotFound.into()),
        _ => caller.require(Scope::UsersRead)?,
    }
    Ok(Json(app.user(&caller.scope(), user_id).await?))
}

/// `GET`: an administrator, a key with `users:read`.
pub(super) async fn list(
    caller: Caller,
    State(app): State<App>,
    paging: Paging<UserId>,
    Query(filter): Query<UserFilter>,
) -> Result<Json<Page<User>>, Problem> {
    caller.require(Scope::UsersRead)?;
    Ok(Json(app.users(&caller.scope(), filter.email.as_deref(), filter.status, &paging).await?))
}

/// `PATCH …/{user_id}`: an administrator; the operator for the status alone.
pub(super) async fn patch(
    UserManager { scope, may_change_role, actor }: UserManager,
    State(app): State<App>,
    Id(user_id): Id<UserId>,
    JsonBody(request): JsonBody<PatchUser>,
) -> Result<Json<User>, Problem> {
    if request.role.is_some() && !may_change_role {
        return Err(ProblemKind::Forbidden.into());
    }
    Ok(Json(app.patch_user(&scope, actor, user_id, &request).await?))
}
