//! `/auth/device`: device login for any client of RFC 8628. The routes of the device have bodies as forms or JSON, and errors
//! as in RFC 6749, section 5.2.

use authn::AnyUser;
use axum::Json;
use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Response};
use contract::device::{
    DecideDevice, DeviceError, DeviceErrorResponse, DeviceRequest, GRANT_TYPE, InspectDevice, PollDevice,
    StartDevice,
};
use http::header::{CACHE_CONTROL, PRAGMA};
use http::{HeaderMap, HeaderName, StatusCode};
use serde::de::DeserializeOwned;
use service::Problem;
use service::http::{ClientAddress, HeaderError, JsonBody, TenantHeader, body, user_agent};
use tenancy::TenantId;

use crate::app::App;
use crate::app::device_grants::{Device, OAuthError};

const MAX_BODY_BYTES: usize = 8192;
const FORM: &str = "application/x-www-form-urlencoded";

/// Required on responses about credentials (RFC 6749, section 5.1).
const NO_STORE: [(HeaderName, &str); 2] = [(CACHE_CONTROL, "no-store"), (PRAGMA, "no-cache")];

/// `POST /auth/device/code`: any device that names a tenant.
pub(super) async fn start(
    header: Result<TenantHeader, HeaderError>,
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    OAuthBody(request): OAuthBody<StartDevice>,
) -> Result<Response, OAuthError> {
    let tenant_id = tenant(header, request.tenant_id.as_deref())?;
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
    let device = Device { ip, user_agent: user_agent(&headers) };
    let session = app.redeem_device_grant(device_code.expose(), device).await?;
    Ok((NO_STORE, Json(session)).into_response())
}

/// `POST /auth/device/inspect`: the session of any user.
pub(super) async fn inspect(
    AnyUser(caller): AnyUser,
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    JsonBody(request): JsonBody<InspectDevice>,
) -> Result<Json<DeviceRequest>, Problem> {
    Ok(Json(app.inspect_device_grant(&caller, &request, address).await?))
}

/// `POST /auth/device/decide`: the session of any user. Approval requires a recent password login.
pub(super) async fn decide(
    AnyUser(caller): AnyUser,
    State(app): State<App>,
    ClientAddress(address): ClientAddress,
    JsonBody(request): JsonBody<DecideDevice>,
) -> Result<StatusCode, Problem> {
    app.decide_device_grant(&caller, &request, address).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The tenant of the header or of the field.
fn tenant(header: Result<TenantHeader, HeaderError>, field: Option<&str>) -> Result<TenantId, OAuthError> {
    let field = field.filter(|text| !text.is_empty());
    let field = field.map(str::parse::<TenantId>).transpose();
    let field = field.map_err(|error| invalid_request(format!("tenant_id: {error}.")))?;
    match (header, field) {
        (Ok(TenantHeader(header)), Some(field)) if header != field => {
            Err(invalid_request("X-Tenant-ID and tenant_id name different tenants."))
        }
        (Ok(TenantHeader(tenant_id)), _) | (Err(HeaderError::Missing(_)), Some(tenant_id)) => Ok(tenant_id),
        (Err(HeaderError::Missing(_)), None) => {
            Err(invalid_request("Send the header X-Tenant-ID, or the field tenant_id."))
        }
        (Err(error), _) => Err(error.into()),
    }
}

/// A form, or the same fields as JSON. An empty body is an empty form. Repeated parameters are rejected, unknown ones are
/// ignored (RFC 8628, section 3.1).
pub(super) struct OAuthBody<T>(T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for OAuthBody<T> {
    type Rejection = OAuthError;

    async fn from_request(request: Request, _: &S) -> Result<Self, OAuthError> {
        let is_json = body::is_json(request.headers());
        let is_form = body::media_type(request.headers())
            .is_none_or(|media_type| media_type.eq_ignore_ascii_case(FORM));
        if !is_json && !is_form {
            return Err(invalid_request(format!("Send Content-Type: {FORM} or application/json.")));
        }
        let bytes = body::read(request, MAX_BODY_BYTES).await?;
        // The errors of the parsers are not returned, because they could quote a secret.
        let parsed =
            if is_json { body::parse(&bytes).ok() } else { serde_urlencoded::from_bytes(&bytes).ok() };
        parsed.map(Self).ok_or_else(|| DeviceError::InvalidRequest.into())
    }
}

/// The error `invalid_request` with a description.
fn invalid_request(description: impl Into<String>) -> OAuthError {
    OAuthError::Device(DeviceErrorResponse {
        error: DeviceError::InvalidRequest,
        error_description: description.into(),
    })
}

impl From<HeaderError> for OAuthError {
    fn from(error: HeaderError) -> Self {
        invalid_request(error.to_string())
    }
}

impl IntoResponse for OAuthError {
    fn into_response(self) -> Response {
        match self {
            Self::Device(error) => (StatusCode::BAD_REQUEST, NO_STORE, Json(error)).into_response(),
            Self::Problem(problem) => problem.into_response(),
        }
    }
}
