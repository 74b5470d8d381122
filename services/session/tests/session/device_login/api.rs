//! `/auth/device` in the whole system.

use contract::Role;
use contract::device::{DeviceCodes, DeviceRequest, DeviceSession, GRANT_TYPE};
use contract::session::{Session, SessionMethod, Whoami};
use hashing::{RawToken, SystemEntropy, TokenKind};
use serde_json::json;
use testkit::wait_until;
use testsystem::{TestSystem, TestUser};

#[tokio::test]
async fn device_session_works_with_every_service_until_the_user_revokes_it() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let device = system.client().header("X-Tenant-ID", "acme").header("User-Agent", "television/1");
    let codes: DeviceCodes =
        device.post("/auth/device/code", &json!({"client_name": "Television"})).await.expect(200);
    assert_eq!(codes.verification_uri, format!("{}/device", system.base_url));

    let code = json!({"user_code": codes.user_code});
    let request: DeviceRequest = ada.client.post("/auth/device/inspect", &code).await.expect(200);
    assert_eq!(
        (request.client_name.as_deref(), request.ip.as_deref()),
        (Some("Television"), Some("127.0.0.1"))
    );
    let approve = json!({"user_code": codes.user_code, "decision": "approve"});
    ada.client.post("/auth/device/decide", &approve).await.expect_empty(204);
    let poll = json!({"grant_type": GRANT_TYPE, "device_code": codes.device_code});
    let session: DeviceSession = device.post("/auth/device/token", &poll).await.expect(200);
    let dump = system.dump_database().await;
    assert!(!dump.contains(session.access_token.expose()) && !dump.contains(codes.device_code.expose()));

    let client = system.client().bearer(session.access_token.expose());
    let whoami: Whoami = client.get("/auth/session").await.expect(200);
    assert_eq!((whoami.user_id, whoami.method), (Some(ada.user.user_id), Some(SessionMethod::Device)));
    client.post("/events", &json!({"source_id": "tv"})).await.expect::<serde_json::Value>(202);
    let listed = ada.client.clone().header("X-User-ID", &ada.user.user_id.to_string());
    let listed: contract::Page<Session> = listed.get("/auth/sessions").await.expect(200);
    let listed = listed.items.into_iter().find(|session| session.method == SessionMethod::Device).unwrap();
    assert_eq!(
        (listed.client_name.as_deref(), listed.user_agent.as_deref()),
        (Some("Television"), Some("television/1"))
    );
    ada.client.delete(&format!("/auth/sessions/{}", listed.id)).await.expect_empty(204);
    client.get("/auth/session").await.expect_problem(401, "credential_invalid");
}

#[tokio::test]
async fn inspect_and_decide_require_a_session_and_a_valid_body() {
    let system = TestSystem::start().await.unwrap();
    let admin = system.create_tenant("acme").await;
    for route in ["inspect", "decide"] {
        let path = format!("/auth/device/{route}");
        system.client().post(&path, &json!({})).await.expect_problem(401, "unauthenticated");
        admin.client.post(&path, &json!({})).await.expect_problem(422, "validation_failed");
        admin.client.post_bytes(&path, "text/plain", "x").await.expect_problem(415, "media_type");
    }
    for (route, unknown) in [
        ("inspect", json!({"user_code": "BCDF-GHJK"})),
        ("decide", json!({"user_code": "BCDF-GHJK", "decision": "deny"})),
    ] {
        let path = format!("/auth/device/{route}");
        admin.client.post(&path, &unknown).await.expect_problem(404, "not_found");
    }
    let invalid = json!({"user_code": "BCDF-GHJK", "decision": "perhaps"});
    admin.client.post("/auth/device/decide", &invalid).await.expect_problem(422, "validation_failed");
}

#[tokio::test]
async fn unknown_tenant_gets_the_same_responses_as_an_existing_one() {
    let system = TestSystem::start().await.unwrap();
    let _acme = system.create_tenant("acme").await;
    for tenant in ["acme", "nowhere"] {
        let device = system.client().header("X-Tenant-ID", tenant);
        let codes: DeviceCodes = device.post_bytes("/auth/device/code", "", "").await.expect(200);
        let poll = json!({"grant_type": GRANT_TYPE, "device_code": codes.device_code});
        let response = device.post("/auth/device/token", &poll).await;
        assert_eq!((response.status, &response.json()["error"]), (400, &json!("authorization_pending")));
    }
}

#[tokio::test]
async fn rejects_large_body_before_reading_it() {
    let system = TestSystem::start().await.unwrap();
    let device = system.client().header("X-Tenant-ID", "acme");
    let large = format!("client_name={}", "x".repeat(9000));
    let media_type = "application/x-www-form-urlencoded";
    let response = device.post_bytes("/auth/device/code", media_type, large).await;
    assert_eq!((response.status, &response.json()["error"]), (400, &json!("invalid_request")));
    assert_eq!(response.json()["code"], "body_too_large");
}

/// RFC 8628, section 3.5: a client ends its login after any error but `authorization_pending` and `slow_down`.
#[tokio::test]
async fn polls_never_suffer_from_other_requests_of_the_address() {
    let limits = [("SVC_LIMIT_DEVICE", "1/h"), ("SVC_LIMIT_DEFAULT", "1/h")];
    let system = TestSystem::start_with(&limits).await.unwrap();
    let device = system.client().header("X-Tenant-ID", "acme");
    let codes: DeviceCodes = device.post("/auth/device/code", &json!({})).await.expect(200);
    let poll = async |code: &str| {
        device.post("/auth/device/token", &json!({"grant_type": GRANT_TYPE, "device_code": code})).await
    };
    let limited = device.post("/auth/device/code", &json!({})).await;
    assert_eq!((limited.status, &limited.json()["error"]), (429, &json!("temporarily_unavailable")));
    assert!(limited.headers.contains_key("retry-after"), "{limited}");
    wait_until("the address is limited", async || {
        (device.get("/auth/session").await.status == 429).then_some(())
    })
    .await;
    for _ in 0..20 {
        let unknown = RawToken::generate(TokenKind::DeviceCode, &SystemEntropy);
        assert_eq!(poll(unknown.expose()).await.json()["error"], "invalid_grant");
    }
    for error in ["authorization_pending", "authorization_pending", "slow_down", "slow_down"] {
        let response = poll(codes.device_code.expose()).await;
        assert_eq!((response.status, &response.json()["error"]), (400, &json!(error)));
    }
}

#[tokio::test]
async fn a_failed_poll_and_a_wrong_method_have_the_form_of_the_standard() {
    let system = TestSystem::start().await.unwrap();
    let device = system.client().header("X-Tenant-ID", "acme");
    let codes: DeviceCodes = device.post("/auth/device/code", &json!({})).await.expect(200);
    let poll = json!({"grant_type": GRANT_TYPE, "device_code": codes.device_code});
    let mut locking = system.database.superuser().await.unwrap();
    sqlx::raw_sql("begin; lock table session.device_grants").execute(&mut locking).await.unwrap();
    let failed = device.post("/auth/device/token", &poll).await;
    assert_eq!((failed.status, &failed.json()["error"]), (400, &json!("slow_down")), "{failed}");
    assert!(failed.headers.contains_key("retry-after"), "{failed}");
    let get = device.get("/auth/device/token").await;
    assert_eq!((get.status, &get.json()["error"]), (405, &json!("invalid_request")));
    assert_eq!(get.headers["content-type"], "application/json");
}

#[tokio::test]
async fn address_can_enter_ten_wrong_codes_for_any_user() {
    let system = TestSystem::start_with(&[("SVC_LIMIT_DEVICE", "100/h")]).await.unwrap();
    let admin = system.create_tenant("acme").await;
    let ada = system.add_user(&admin, "ada@acme.example", Role::Member).await;
    let device = system.client().header("X-Tenant-ID", "acme");
    let codes: DeviceCodes = device.post("/auth/device/code", &json!({})).await.expect(200);
    let enter = async |person: &TestUser, code: &str| {
        person.client.post("/auth/device/inspect", &json!({"user_code": code})).await
    };
    for _ in 0..5 {
        for person in [&admin, &ada] {
            enter(person, "BBBB-BBBB").await.expect_problem(404, "not_found");
            // A correct code does not count.
            if person.user.user_id == admin.user.user_id {
                assert_eq!(enter(person, &codes.user_code).await.status, 200);
            }
        }
    }
    enter(&ada, &codes.user_code).await.expect_problem(429, "rate_limited");
}
