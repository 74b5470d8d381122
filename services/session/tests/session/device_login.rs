//! Device login: the requests of a device and of the user who decides.

mod api;
mod grants;
mod model;
mod rfc8628;

use contract::device::{
    Decision, DeviceCodes, DeviceError, DeviceErrorResponse, DeviceRequest, DeviceSession, GRANT_TYPE,
};
use hashing::{RawToken, TokenKind};
use http::{Method, Request, Response, StatusCode};
use serde_json::json;

use crate::context::Context;

const FORM: &str = "application/x-www-form-urlencoded";

/// Posts a form to a device route.
pub(crate) async fn post(context: &Context, route: &str, form: &str) -> Response<Vec<u8>> {
    let request = Request::post(format!("/api/v1/auth/device/{route}"))
        .header("content-type", FORM)
        .header("x-tenant-id", "acme")
        .body(form.to_owned().into());
    context.send(request.unwrap()).await
}

/// Requests codes.
pub(crate) async fn start(context: &Context) -> DeviceCodes {
    let response = post(context, "code", "client_name=Television").await;
    assert_eq!(response.status(), StatusCode::OK);
    serde_json::from_slice(response.body()).unwrap()
}

/// Polls for the session.
pub(crate) async fn poll(context: &Context, codes: &DeviceCodes) -> Result<DeviceSession, DeviceError> {
    let form = format!("grant_type={GRANT_TYPE}&device_code={}", codes.device_code.expose());
    let response = post(context, "token", &form).await;
    if response.status() == StatusCode::OK {
        return Ok(serde_json::from_slice(response.body()).unwrap());
    }
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    Err(serde_json::from_slice::<DeviceErrorResponse>(response.body()).unwrap().error)
}

/// The token of a session from device login.
pub(crate) fn token_of(session: &DeviceSession) -> RawToken {
    RawToken::parse(TokenKind::Session, session.access_token.expose()).unwrap()
}

/// Decides a grant as a user; 204 on success.
pub(crate) async fn decide(
    context: &Context,
    user: &RawToken,
    user_code: &str,
    decision: Decision,
) -> (StatusCode, Vec<u8>) {
    let body = json!({"user_code": user_code, "decision": decision}).to_string();
    context.request(Method::POST, "/api/v1/auth/device/decide", user, body).await
}

/// Inspects a grant as a user.
pub(crate) async fn inspect(
    context: &Context,
    user: &RawToken,
    user_code: &str,
) -> Result<DeviceRequest, (StatusCode, String)> {
    let body = json!({"user_code": user_code}).to_string();
    let (status, body) = context.request(Method::POST, "/api/v1/auth/device/inspect", user, body).await;
    if status == StatusCode::OK {
        return Ok(serde_json::from_slice(&body).unwrap());
    }
    Err((status, serde_json::from_slice::<contract::Problem>(&body).unwrap().code))
}
