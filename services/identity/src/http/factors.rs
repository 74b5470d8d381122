//! `/auth/second-factor`, `/auth/passkey`, `/auth/factors` and `/users/{user_id}/factors`.

use authn::{AnyUser, Caller};
use axum::Json;
use axum::extract::{FromRequestParts, State};
use contract::factors::{
    AddPasskey, AddedPasskey, ConfirmTotp, Factor, Factors, NewTotp, PasskeyLogin, PasskeyLoginOptions,
    PasskeyOptions, RecoveryCodes, RenamePasskey, StartSetup, UseFactor,
};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use service::Problem;
use service::http::{ClientAddress, Id, JsonBody, TenantHeader};
use tenancy::{FactorId, TenantId, UserId};

use super::auth_password::{LimitedJson, LoginResponse, client};
use super::callers::UserManager;
use crate::app::App;

/// `POST /auth/second-factor` and `POST /pages/sessions/second-factor`: a caller with the challenge and a code or a passkey.
pub(super) async fn use_factor<R: LoginResponse>(
    TenantHeader(tenant_id): TenantHeader,
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    headers: HeaderMap,
    LimitedJson(request): LimitedJson<UseFactor>,
) -> Result<R, Problem> {
    let client = client(address, &headers, R::METHOD);
    Ok(R::new(&app, app.use_factor(&tenant_id, &request, client).await?))
}

/// `POST /auth/passkey/options`: anyone.
pub(super) async fn start_passkey_login(
    State(app): State<App>,
) -> Result<Json<PasskeyLoginOptions>, Problem> {
    Ok(Json(app.start_passkey_login()?))
}

/// `POST /auth/passkey/login` and `POST /pages/sessions/passkey`: a caller with a passkey, which determines the tenant.
pub(super) async fn log_in_with_passkey<R: LoginResponse>(
    tenant: Option<TenantHeader>,
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    headers: HeaderMap,
    LimitedJson(request): LimitedJson<PasskeyLogin>,
) -> Result<R, Problem> {
    let client = client(address, &headers, R::METHOD);
    let tenant_id = tenant.map(|TenantHeader(tenant_id)| tenant_id);
    Ok(R::new(&app, app.log_in_with_passkey(tenant_id.as_ref(), &request.assertion, client).await?))
}

/// `POST /auth/second-factor/totp`: a caller with a challenge for the set-up.
pub(super) async fn set_up_totp_at_login(
    TenantHeader(tenant_id): TenantHeader,
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    LimitedJson(request): LimitedJson<StartSetup>,
) -> Result<(StatusCode, Json<NewTotp>), Problem> {
    let app = app.set_up_totp_at_login(&tenant_id, &request.challenge, address).await?;
    Ok((StatusCode::CREATED, Json(app)))
}

/// `POST /auth/second-factor/passkey`: a caller with a challenge for the set-up.
pub(super) async fn set_up_passkey_at_login(
    TenantHeader(tenant_id): TenantHeader,
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    LimitedJson(request): LimitedJson<StartSetup>,
) -> Result<Json<PasskeyOptions>, Problem> {
    Ok(Json(app.set_up_passkey_at_login(&tenant_id, &request.challenge, address).await?))
}

/// `GET /auth/factors`: the session of any user.
pub(super) async fn list(AnyUser(caller): AnyUser, State(app): State<App>) -> Result<Json<Factors>, Problem> {
    let user_id = caller.require_user()?;
    Ok(Json(app.list_factors(caller.tenant_id(), user_id).await?))
}

/// `POST /auth/factors/totp`.
pub(super) async fn set_up_totp(
    RecentUser { tenant_id, user_id, .. }: RecentUser,
    State(app): State<App>,
) -> Result<(StatusCode, Json<NewTotp>), Problem> {
    Ok((StatusCode::CREATED, Json(app.set_up_totp(&tenant_id, user_id).await?)))
}

/// `POST /auth/factors/totp/confirm`.
pub(super) async fn confirm_totp(
    RecentUser { tenant_id, user_id, used_factor }: RecentUser,
    State(app): State<App>,
    JsonBody(request): JsonBody<ConfirmTotp>,
) -> Result<Json<RecoveryCodes>, Problem> {
    Ok(Json(app.confirm_totp(&tenant_id, user_id, used_factor, request.code.expose()).await?))
}

/// `POST /auth/factors/passkeys/options`.
pub(super) async fn start_passkey(
    RecentUser { tenant_id, user_id, .. }: RecentUser,
    State(app): State<App>,
) -> Result<(StatusCode, Json<PasskeyOptions>), Problem> {
    Ok((StatusCode::CREATED, Json(app.start_passkey(&tenant_id, user_id).await?)))
}

/// `POST /auth/factors/passkeys`.
pub(super) async fn add_passkey(
    RecentUser { tenant_id, user_id, used_factor }: RecentUser,
    State(app): State<App>,
    JsonBody(request): JsonBody<AddPasskey>,
) -> Result<(StatusCode, Json<AddedPasskey>), Problem> {
    Ok((StatusCode::CREATED, Json(app.add_passkey(&tenant_id, user_id, used_factor, &request).await?)))
}

/// `PATCH /auth/factors/{factor_id}`.
pub(super) async fn rename_passkey(
    RecentUser { tenant_id, user_id, used_factor }: RecentUser,
    State(app): State<App>,
    Id(factor_id): Id<FactorId>,
    JsonBody(request): JsonBody<RenamePasskey>,
) -> Result<Json<Factor>, Problem> {
    Ok(Json(app.rename_passkey(&tenant_id, user_id, used_factor, factor_id, &request.name).await?))
}

/// `POST /auth/factors/recovery-codes`.
pub(super) async fn replace_recovery_codes(
    RecentUser { tenant_id, user_id, used_factor }: RecentUser,
    State(app): State<App>,
) -> Result<(StatusCode, Json<RecoveryCodes>), Problem> {
    Ok((StatusCode::CREATED, Json(app.replace_recovery_codes(&tenant_id, user_id, used_factor).await?)))
}

/// `DELETE /auth/factors/{factor_id}`.
pub(super) async fn remove(
    RecentUser { tenant_id, user_id, used_factor }: RecentUser,
    State(app): State<App>,
    Id(factor_id): Id<FactorId>,
) -> Result<StatusCode, Problem> {
    app.remove_factor(&tenant_id, user_id, used_factor, factor_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /users/{user_id}/factors`: an administrator with a recent login, or the platform administrator.
pub(super) async fn reset(
    UserManager { tenant_id, actor, recent_login }: UserManager,
    State(app): State<App>,
    id: Result<Id<UserId>, Problem>,
) -> Result<StatusCode, Problem> {
    recent_login?;
    let Id(user_id) = id?;
    app.reset_factors(&tenant_id, actor, user_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A user with a recent login, see [`Caller::require_recent_login`]. Whether the user has a factor can be known a few seconds late there,
/// so an action on an existing factor also requires `used_factor`.
pub(super) struct RecentUser {
    tenant_id: TenantId,
    user_id: UserId,
    used_factor: bool,
}

impl FromRequestParts<App> for RecentUser {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let user_id = caller.require_user()?;
        caller.require_recent_login(app.clock.now())?;
        Ok(Self { tenant_id: caller.tenant_id().clone(), user_id, used_factor: caller.used_factor() })
    }
}
