//! The requirements of RFC 8628 on an authorization server, by section. The requirements on a client are tested in the CLI.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use chrono::TimeDelta;
use contract::device::{Decision, DeviceError, DeviceErrorResponse, GRANT_TYPE};
use hashing::{Entropy, RawToken, SystemEntropy, TokenKind};
use http::{Request, Response, StatusCode};
use serde_json::{Value, json};

use crate::context::{Context, subject, tenant};
use crate::device_login::{decide, inspect, poll, post, start};

fn json_of(response: &Response<Vec<u8>>) -> Value {
    serde_json::from_slice(response.body()).unwrap()
}

/// Asserts that a response is an error of RFC 6749, section 5.2.
#[track_caller]
fn expect_error(response: &Response<Vec<u8>>, error: DeviceError) {
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(response.headers()["content-type"], "application/json");
    expect_not_stored(response);
    let body: DeviceErrorResponse = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(body.error, error);
    assert!(!body.error_description.is_empty());
}

#[track_caller]
fn expect_not_stored(response: &Response<Vec<u8>>) {
    assert_eq!(response.headers()["cache-control"], "no-store");
    assert_eq!(response.headers()["pragma"], "no-cache");
}

async fn request_token(context: &Context, form: &str) -> Response<Vec<u8>> {
    post(context, "token", form).await
}

#[tokio::test]
async fn section_3_1_device_requests_codes_by_post_with_a_form() {
    let context = Context::start().await;
    assert_eq!(post(&context, "code", "client_id=1406020730&scope=example").await.status(), StatusCode::OK);
    let get = Request::get("/api/v1/auth/device/code").header("x-tenant-id", "acme").body("".into());
    assert_eq!(context.send(get.unwrap()).await.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn section_3_1_parameters_without_a_value_are_treated_as_omitted() {
    let context = Context::start().await;
    let codes = json_of(&post(&context, "code", "client_name=&client_id=tv&scope=").await);
    let user = context.issue(&subject(), &tenant()).await.unwrap();
    let request = inspect(&context, &user, codes["user_code"].as_str().unwrap()).await.unwrap();
    assert_eq!(request.client_name.as_deref(), Some("tv"));
    for form in ["grant_type=&device_code=x", &format!("grant_type={GRANT_TYPE}&device_code=")] {
        expect_error(&request_token(&context, form).await, DeviceError::InvalidRequest);
    }
}

#[tokio::test]
async fn section_3_1_unknown_parameters_are_ignored() {
    let context = Context::start().await;
    assert_eq!(post(&context, "code", "colour=blue&colour=red").await.status(), StatusCode::OK);
    let codes = start(&context).await;
    let form = format!(
        "grant_type={GRANT_TYPE}&colour=blue&device_code={}&client_id=tv",
        codes.device_code.expose()
    );
    expect_error(&request_token(&context, &form).await, DeviceError::AuthorizationPending);
}

#[tokio::test]
async fn section_3_1_rejects_repeated_parameters() {
    let context = Context::start().await;
    for form in ["client_id=a&client_id=a", "client_name=a&client_name="] {
        expect_error(&post(&context, "code", form).await, DeviceError::InvalidRequest);
    }
    let twice = format!("grant_type={GRANT_TYPE}&grant_type={GRANT_TYPE}&device_code=x");
    expect_error(&request_token(&context, &twice).await, DeviceError::InvalidRequest);
}

#[tokio::test]
async fn section_3_1_errors_have_the_form_of_the_token_endpoint() {
    let context = Context::start().await;
    for (tenant, media_type, body) in [
        ("", "application/x-www-form-urlencoded", ""),
        ("Not a tenant", "application/x-www-form-urlencoded", ""),
        ("acme", "text/plain", "client_id=tv"),
        ("acme", "application/json", "{"),
        ("acme", "application/json", "[]"),
        ("acme", "application/json", r#"{"client_id": 1}"#),
    ] {
        let mut request = Request::post("/api/v1/auth/device/code").header("content-type", media_type);
        if !tenant.is_empty() {
            request = request.header("x-tenant-id", tenant);
        }
        expect_error(&context.send(request.body(body.into()).unwrap()).await, DeviceError::InvalidRequest);
    }
}

#[tokio::test]
async fn section_3_2_response_contains_both_codes_and_the_verification_uri() {
    let context = Context::start().await;
    let response = post(&context, "code", "").await;
    assert_eq!(
        (response.status(), &response.headers()["content-type"]),
        (StatusCode::OK, &"application/json".parse().unwrap())
    );
    expect_not_stored(&response);
    let codes = json_of(&response);
    assert!(RawToken::parse(TokenKind::DeviceCode, codes["device_code"].as_str().unwrap()).is_ok());
    let (user_code, uri) =
        (codes["user_code"].as_str().unwrap(), codes["verification_uri"].as_str().unwrap());
    assert!(uri.ends_with("/device") && !uri.contains(user_code), "{uri}");
    assert_eq!(codes["verification_uri_complete"], format!("{uri}#user_code={user_code}&tenant=acme"));
    assert_eq!((&codes["expires_in"], &codes["interval"]), (&json!(600), &json!(5)));
}

#[tokio::test]
async fn section_3_2_codes_are_unique() {
    let context = Context::start().await;
    let mut seen = BTreeSet::new();
    for _ in 0..20 {
        let codes = start(&context).await;
        assert!(seen.insert(codes.user_code) && seen.insert(codes.device_code.expose().to_owned()));
    }
}

/// Random bytes, but two user codes of the letter B, and then only codes of the letter C.
#[derive(Default)]
struct FewUserCodes(AtomicU8);

impl Entropy for FewUserCodes {
    fn fill(&self, buffer: &mut [u8]) {
        match buffer {
            [letter] => *letter = (self.0.fetch_add(1, Ordering::Relaxed) / 16).min(1),
            _ => SystemEntropy.fill(buffer),
        }
    }
}

#[tokio::test]
async fn section_3_2_another_code_is_generated_if_one_is_in_use_and_503_after_eight() {
    let context = Context::start_with(Arc::new(FewUserCodes::default())).await;
    assert_eq!(start(&context).await.user_code, "BBBB-BBBB");
    assert_eq!(start(&context).await.user_code, "CCCC-CCCC");
    let response = post(&context, "code", "client_name=Television").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(json_of(&response)["error"], "temporarily_unavailable");
    assert_eq!(response.headers()["retry-after"], "1");
}

#[tokio::test]
async fn section_3_4_grant_type_and_device_code_are_required() {
    let context = Context::start().await;
    let code = start(&context).await.device_code;
    let code = code.expose();
    for (form, error) in [
        (format!("device_code={code}"), DeviceError::InvalidRequest),
        (format!("grant_type={GRANT_TYPE}"), DeviceError::InvalidRequest),
        (format!("grant_type=password&device_code={code}"), DeviceError::UnsupportedGrantType),
        (format!("grant_type=device_code&device_code={code}"), DeviceError::UnsupportedGrantType),
    ] {
        expect_error(&request_token(&context, &form).await, error);
    }
}

#[tokio::test]
async fn section_3_4_a_client_id_is_not_bound_to_the_codes_because_clients_are_not_registered() {
    let context = Context::start().await;
    let codes = json_of(&post(&context, "code", "client_id=tv").await);
    let device_code = codes["device_code"].as_str().unwrap();
    for client_id in ["tv", "other"] {
        let form = format!("grant_type={GRANT_TYPE}&device_code={device_code}&client_id={client_id}");
        expect_error(&request_token(&context, &form).await, DeviceError::AuthorizationPending);
    }
}

#[tokio::test]
async fn section_3_4_unknown_device_code_is_an_invalid_grant() {
    let context = Context::start().await;
    let unknown = RawToken::generate(TokenKind::DeviceCode, &SystemEntropy);
    for code in ["nonsense", unknown.expose()] {
        let form = format!("grant_type={GRANT_TYPE}&device_code={code}");
        expect_error(&request_token(&context, &form).await, DeviceError::InvalidGrant);
    }
}

#[tokio::test]
async fn section_3_5_approved_device_gets_the_token_response_of_rfc_6749_once() {
    let context = Context::start().await;
    let codes = start(&context).await;
    let user = context.issue(&subject(), &tenant()).await.unwrap();
    decide(&context, &user, &codes.user_code, Decision::Approve).await;
    let poll = async || {
        let body = json!({"grant_type": GRANT_TYPE, "device_code": codes.device_code, "client_id": null});
        let request = Request::post("/api/v1/auth/device/token").header("content-type", "application/json");
        context.send(request.body(body.to_string().into()).unwrap()).await
    };
    let response = poll().await;
    assert_eq!(
        (response.status(), &response.headers()["content-type"]),
        (StatusCode::OK, &"application/json".parse().unwrap())
    );
    expect_not_stored(&response);
    let session = json_of(&response);
    let token = session["access_token"].as_str().unwrap();
    assert_eq!((&session["token_type"], &session["session_id"]), (&json!("Bearer"), &json!(token)));
    assert!(session["expires_in"].is_u64() && session["scope"] == "events:write", "{session}");
    assert!(context.is_active(&RawToken::parse(TokenKind::Session, token).unwrap()).await);
    expect_error(&poll().await, DeviceError::InvalidGrant);
}

#[tokio::test]
async fn section_3_5_early_poll_lengthens_the_interval_permanently_by_five_seconds() {
    let context = Context::start().await;
    let codes = start(&context).await;
    for (wait, error) in [
        (0, DeviceError::AuthorizationPending),
        (5, DeviceError::AuthorizationPending),
        (4, DeviceError::SlowDown),
        (9, DeviceError::SlowDown),
        (15, DeviceError::AuthorizationPending),
        (14, DeviceError::SlowDown),
        (20, DeviceError::AuthorizationPending),
        (20, DeviceError::AuthorizationPending),
    ] {
        context.clock.advance(TimeDelta::seconds(wait));
        assert_eq!(poll(&context, &codes).await.unwrap_err(), error, "after {wait} s");
    }
}

/// Clients that try both ways to authenticate, such as golang.org/x/oauth2 by default, send each poll twice.
#[tokio::test]
async fn section_3_5_second_poll_within_a_second_gets_the_response_of_the_first_one() {
    let context = Context::start().await;
    let codes = start(&context).await;
    for (wait, error) in [
        (0, DeviceError::AuthorizationPending),
        (0, DeviceError::AuthorizationPending),
        (5, DeviceError::AuthorizationPending),
        (0, DeviceError::AuthorizationPending),
        (0, DeviceError::SlowDown),
        (0, DeviceError::SlowDown),
        (15, DeviceError::AuthorizationPending),
    ] {
        context.clock.advance(TimeDelta::seconds(wait));
        assert_eq!(poll(&context, &codes).await.unwrap_err(), error, "after {wait} s");
    }
}

#[tokio::test]
async fn section_3_1_the_tenant_is_a_header_or_a_field() {
    let context = Context::start().await;
    let send = async |header: Option<&str>, form: &str| {
        let mut request = Request::post("/api/v1/auth/device/code")
            .header("content-type", "application/x-www-form-urlencoded");
        if let Some(header) = header {
            request = request.header("x-tenant-id", header);
        }
        context.send(request.body(form.to_owned().into()).unwrap()).await
    };
    for (header, form) in
        [(None, "tenant_id=acme"), (Some("acme"), "tenant_id=acme"), (Some("acme"), "tenant_id=")]
    {
        let codes = json_of(&send(header, form).await);
        assert!(codes["verification_uri_complete"].as_str().unwrap().ends_with("&tenant=acme"), "{codes}");
    }
    for (header, form) in [
        (None, ""),
        (None, "tenant_id=A+b"),
        (Some("acme"), "tenant_id=other"),
        (Some("A b"), "tenant_id=acme"),
    ] {
        expect_error(&send(header, form).await, DeviceError::InvalidRequest);
    }
}

#[tokio::test]
async fn section_3_5_denied_and_expired_grants_have_different_errors() {
    let context = Context::start().await;
    let (denied, expired) = (start(&context).await, start(&context).await);
    let user = context.issue(&subject(), &tenant()).await.unwrap();
    decide(&context, &user, &denied.user_code, Decision::Deny).await;
    context.clock.advance(TimeDelta::minutes(10));
    assert_eq!(poll(&context, &denied).await.unwrap_err(), DeviceError::AccessDenied);
    assert_eq!(poll(&context, &expired).await.unwrap_err(), DeviceError::ExpiredToken);
}

#[tokio::test]
async fn section_5_1_guessing_user_codes_is_limited() {
    let context = Context::start().await;
    let user = context.issue(&subject(), &tenant()).await.unwrap();
    for _ in 0..10 {
        assert_eq!(inspect(&context, &user, "BBBB-BBBB").await.unwrap_err().0, StatusCode::NOT_FOUND);
    }
    let code = start(&context).await.user_code;
    assert_eq!(inspect(&context, &user, &code).await.unwrap_err().0, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn section_5_4_user_inspects_the_device_before_deciding() {
    let context = Context::start().await;
    let codes = start(&context).await;
    let user = context.issue(&subject(), &tenant()).await.unwrap();
    let request = inspect(&context, &user, &codes.user_code).await.unwrap();
    assert_eq!(request.client_name.as_deref(), Some("Television"));
    // An inspection does not decide.
    assert_eq!(poll(&context, &codes).await.unwrap_err(), DeviceError::AuthorizationPending);
}

#[tokio::test]
async fn section_6_1_case_and_punctuation_of_a_user_code_do_not_matter() {
    let context = Context::start().await;
    let codes = start(&context).await;
    let user = context.issue(&subject(), &tenant()).await.unwrap();
    let letters = codes.user_code.replace('-', "");
    assert!(letters.len() == 8 && letters.bytes().all(|letter| b"BCDFGHJKLMNPQRSTVWXZ".contains(&letter)));
    for input in [letters.to_lowercase(), format!(" {}. ", codes.user_code), letters] {
        assert!(inspect(&context, &user, &input).await.is_ok(), "{input}");
    }
}
