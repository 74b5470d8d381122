//! `/users`, without invites.

use authn::{AnyUser, RecentAdmin};
use axum::Json;
use axum::extract::State;
use contract::identity::{PatchUser, User, UserExport, UserFilter};
use contract::{Page, ProblemKind};
use http::StatusCode;
use service::Problem;
use service::http::Filtered;
use service::http::Id;
use service::http::JsonBody;
use tenancy::UserId;

use super::callers::{UserManager, UserReader, UsersReader};
use crate::app::App;

/// `GET /users/{user_id}`: the user, an administrator, an API key with `users:read`, or the platform administrator.
pub(super) async fn read(
    UserReader { tenant_id, only }: UserReader,
    State(app): State<App>,
    Id(user_id): Id<UserId>,
) -> Result<Json<User>, Problem> {
    // A member cannot find out which other users exist.
    if only.is_some_and(|own| own != user_id) {
        return Err(ProblemKind::NotFound.into());
    }
    Ok(Json(app.find_user(&tenant_id, user_id).await?))
}

/// `GET /users/{user_id}/export`: the user, or an administrator.
pub(super) async fn export(
    AnyUser(caller): AnyUser,
    State(app): State<App>,
    Id(user_id): Id<UserId>,
) -> Result<Json<UserExport>, Problem> {
    let user_id = caller.require_self_or_admin(user_id)?;
    Ok(Json(app.export_user(caller.tenant_id(), user_id).await?))
}

/// `GET /users`: an administrator, an API key with `users:read`, or the platform administrator.
pub(super) async fn list(
    UsersReader(tenant_id): UsersReader,
    State(app): State<App>,
    Filtered { paging, filter }: Filtered<UserId, UserFilter>,
) -> Result<Json<Page<User>>, Problem> {
    Ok(Json(app.list_users(&tenant_id, filter.email.as_deref(), filter.status, &paging).await?))
}

/// `PATCH /users/{user_id}`: an administrator, or the platform administrator for the status only.
pub(super) async fn patch(
    manager: UserManager,
    State(app): State<App>,
    Id(user_id): Id<UserId>,
    JsonBody(request): JsonBody<PatchUser>,
) -> Result<Json<User>, Problem> {
    if request.role.is_some() {
        manager.require_role_change()?;
    }
    let UserManager { tenant_id, actor, recent_login } = manager;
    Ok(Json(app.patch_user(&tenant_id, actor, recent_login, user_id, &request).await?))
}

/// `DELETE /users/{user_id}`: an administrator with a recent login.
pub(super) async fn delete(
    RecentAdmin(admin): RecentAdmin,
    State(app): State<App>,
    Id(user_id): Id<UserId>,
) -> Result<StatusCode, Problem> {
    app.delete_user(&admin, user_id).await?;
    Ok(StatusCode::NO_CONTENT)
}
