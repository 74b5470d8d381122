//! `/auth/device`: device login (RFC 8628).

use authn::Caller;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use contract::device::{
    DecideDevice, DeviceError, DeviceRequest, GRANT_TYPE, InspectDevice, PollDevice, StartDevice,
};
use contract::session::MAX_USER_AGENT;
use http::header::USER_AGENT;
use http::{HeaderMap, StatusCode};
use service::Problem;
use service::http::{ClientAddress, HeaderError, JsonBody, TenantHeader};

use super::oauth::{NO_STORE, OAuthBody, OAuthError, invalid_request};
use crate::app::App;
use crate::app::device_grants::{Device, RedeemError};

/// `POST /auth/device/code`: any device that names a tenant.
pub(super) async fn start(
    tenant: Result<TenantHeader, HeaderError>,
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    OAuthBody(request): OAuthBody<StartDevice>,
) -> Result<Response, OAuthError> {
    let TenantHeader(tenant_id) = tenant?;
    let codes = app.start_device_grant(&tenant_id, &request, address).await?;
    Ok((NO_STORE, Json(codes)).into_response())
}

/// `POST /auth/device/token`: the device code is the proof.
pub(super) async fn redeem(
    State(app): State<App>,
    ClientAddress(ip): ClientAddress,
    headers: HeaderMap,
    OAuthBody(request): OAuthBody<PollDevice>,
) -> Result<Response, OAuthError> {
    match request.grant_type.as_deref().unwrap_or_default() {
        "" => return Err(invalid_request("grant_type is missing.")),
        GRANT_TYPE => {}
        _ => return Err(DeviceError::UnsupportedGrantType.into()),
    }
    let device_code = request.device_code.filter(|code| !code.expose().is_empty());
    let device_code = device_code.ok_or_else(|| invalid_request("device_code is missing."))?;
    let user_agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
    let device =
        Device { ip, user_agent: user_agent.map(|text| text.chars().take(MAX_USER_AGENT).collect()) };
    let session = app.redeem_device_grant(device_code.expose(), device).await?;
    Ok((NO_STORE, Json(session)).into_response())
}

/// `POST /auth/device/inspect`: the session of any user.
pub(super) async fn inspect(
    caller: Caller,
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    JsonBody(request): JsonBody<InspectDevice>,
) -> Result<Json<DeviceRequest>, Problem> {
    Ok(Json(app.inspect_device_grant(&caller, &request, address).await?))
}

/// `POST /auth/device/decide`: the session of any user. Approval requires a recent password login.
pub(super) async fn decide(
    caller: Caller,
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    JsonBody(request): JsonBody<DecideDevice>,
) -> Result<StatusCode, Problem> {
    app.decide_device_grant(&caller, &request, address).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl From<RedeemError> for OAuthError {
    fn from(error: RedeemError) -> Self {
        match error {
            RedeemError::Device(error) => error.into(),
            RedeemError::Problem(problem) => Self::Problem(problem),
        }
    }
}
