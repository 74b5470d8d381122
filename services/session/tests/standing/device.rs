//! What a device and a person do in a device login.

use contract::device::{
    Decision, DeviceCodes, DeviceError, DeviceErrorResponse, DeviceRequest, DeviceSession, GRANT_TYPE,
};
use hashing::{RawToken, TokenKind};
use http::{Method, Request, Response, StatusCode};
use serde_json::json;

use crate::context::Context;

const FORM: &str = "application/x-www-form-urlencoded";

/// Posts a form to a route for devices.
pub(crate) async fn post(context: &Context, route: &str, form: &str) -> Response<Vec<u8>> {
    let request = Request::post(format!("/api/v1/auth/device/{route}"))
        .header("content-type", FORM)
        .header("x-tenant-id", "acme")
        .body(form.to_owned().into());
    context.send(request.unwrap()).await
}

/// Asks for codes.
pub(crate) async fn start(context: &Context) -> DeviceCodes {
    let answer = post(context, "code", "client_name=Television").await;
    assert_eq!(answer.status(), StatusCode::OK);
    serde_json::from_slice(answer.body()).unwrap()
}

/// Asks for the session.
pub(crate) async fn poll(context: &Context, codes: &DeviceCodes) -> Result<DeviceSession, DeviceError> {
    let form = format!("grant_type={GRANT_TYPE}&device_code={}", codes.device_code.expose());
    let answer = post(context, "token", &form).await;
    if answer.status() == StatusCode::OK {
        return Ok(serde_json::from_slice(answer.body()).unwrap());
    }
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    Err(serde_json::from_slice::<DeviceErrorResponse>(answer.body()).unwrap().error)
}

/// The token of a session that a device got.
pub(crate) fn token_of(session: &DeviceSession) -> RawToken {
    RawToken::parse(TokenKind::Session, session.access_token.expose()).unwrap()
}

/// A person decides; 204 when it counts.
pub(crate) async fn decide(
    context: &Context,
    person: &RawToken,
    user_code: &str,
    decision: Decision,
) -> (StatusCode, Vec<u8>) {
    let body = json!({"user_code": user_code, "decision": decision}).to_string();
    context.ask(Method::POST, "/api/v1/auth/device/decide", person, body).await
}

/// A person looks at what asks.
pub(crate) async fn inspect(
    context: &Context,
    person: &RawToken,
    user_code: &str,
) -> Result<DeviceRequest, (StatusCode, String)> {
    let body = json!({"user_code": user_code}).to_string();
    let (status, body) = context.ask(Method::POST, "/api/v1/auth/device/inspect", person, body).await;
    if status == StatusCode::OK {
        return Ok(serde_json::from_slice(&body).unwrap());
    }
    Err((status, serde_json::from_slice::<contract::Problem>(&body).unwrap().code))
}
