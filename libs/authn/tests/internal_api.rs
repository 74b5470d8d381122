//! The service token of the internal API: which requests a service accepts, and which token its clients send.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails at once")]

use std::sync::Arc;

use authn::{
    InternalClient, Introspector as _, IssueError, KubernetesApi, OperatorSettings, SERVICE_TOKEN,
    ServiceSecret, SessionClient, internal_only, operator_only,
};
use axum::extract::{Request, State};
use axum::middleware::from_fn_with_state;
use axum::routing::put;
use axum::{Extension, Json, Router};
use chrono::{DateTime, TimeDelta};
use contract::identity::{Quota, SecondFactorPolicy};
use contract::internal::{
    ExportSubject, IngestChange, IssueSession, RecordChange, SubjectRecord, TenantRecord,
};
use contract::managed::{OperatorId, X_OPERATOR_ID};
use contract::session::{AuthMethod, SessionMethod};
use contract::{Role, TenantStatus, UserStatus};
use hashing::TokenDigest;
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use serde_json::json;
use service::clock::ManualClock;
use service::config::{Environment, Variables as _};
use tenancy::{Actor, UserId};
use testkit::{TokenReviews, service_account_token};
use tokio::net::TcpListener;

const TOKEN: &str = "service-token-of-at-least-32-characters";
const PREVIOUS: &str = "previous-token-of-at-least-32-characters";
const OTHER: &str = "another-token-of-at-least-32-characters";

fn secret(value: &str) -> ServiceSecret {
    ServiceSecret::load(&Environment::from_pairs([(SERVICE_TOKEN.name, value)])).unwrap()
}

/// Starts a server and returns its origin.
#[expect(clippy::disallowed_methods, reason = "the task ends with the runtime of the test")]
async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    origin
}

/// A service with this secret.
async fn internal_api(secret: ServiceSecret) -> String {
    let routes = Router::new().route("/objects/1", put(async || StatusCode::NO_CONTENT));
    serve(routes.layer(from_fn_with_state(secret, internal_only))).await
}

async fn put_with(origin: &str, header: Option<&str>) -> u16 {
    put_as(origin, header, Some("018f2e6e-7c1d-7000-8000-000000000002/svc-system/svc")).await
}

async fn put_as(origin: &str, header: Option<&str>, operator: Option<&str>) -> u16 {
    let mut request = testkit::client::plain_http().put(format!("{origin}/objects/1"));
    if let Some(value) = header {
        request = request.header(AUTHORIZATION, value);
    }
    if let Some(id) = operator {
        request = request.header(X_OPERATOR_ID, id);
    }
    request.send().await.unwrap().status().as_u16()
}

#[test]
fn a_secret_has_32_or_more_characters() {
    let valid = "ä".repeat(32);
    assert!(ServiceSecret::new(&valid).is_ok());
    assert!(ServiceSecret::new(&"ä".repeat(31)).is_err());
    assert!(ServiceSecret::new(&"ä".repeat(33)).is_ok());
    assert!(ServiceSecret::load(&Environment::from_pairs([(SERVICE_TOKEN.name, "short")])).is_err());
    assert!(ServiceSecret::load(&Environment::default()).is_err(), "it is required");
    assert_eq!(ServiceSecret::variables(), [SERVICE_TOKEN]);
}

#[tokio::test]
async fn the_internal_api_accepts_the_current_and_the_previous_token() {
    let origin = internal_api(secret(&format!("{TOKEN}\n{PREVIOUS}"))).await;
    for (header, status) in [
        (Some(format!("Bearer {TOKEN}")), 204),
        (Some(format!("Bearer {PREVIOUS}")), 204),
        (Some(format!("Bearer {OTHER}")), 401),
        (Some(TOKEN.to_owned()), 401),
        (None, 401),
    ] {
        assert_eq!(put_with(&origin, header.as_deref()).await, status, "{header:?}");
    }
}

#[tokio::test]
async fn a_client_sends_the_previous_token_only_to_a_service_that_rejects_the_current_one() {
    // Installs the provider of TLS.
    let _ = testkit::client::plain_http();
    let (rotating, object) = (secret(&format!("{TOKEN}\n{PREVIOUS}")), json!({}));
    for (value, accepted) in [(TOKEN, true), (PREVIOUS, true), (OTHER, false)] {
        let origin = internal_api(secret(value)).await;
        let client = InternalClient::new(origin.parse().unwrap(), &rotating).unwrap();
        assert_eq!(client.put("/objects/1", &object).await.is_ok(), accepted, "{value}");
        assert!(client.put("/objects/unknown", &object).await.is_err(), "{value}");
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let fails = async |State(seen): State<Arc<Mutex<Vec<String>>>>, headers: HeaderMap| {
        seen.lock().push(headers[AUTHORIZATION].to_str().unwrap().to_owned());
        StatusCode::SERVICE_UNAVAILABLE
    };
    let origin = serve(Router::new().route("/objects/1", put(fails)).with_state(seen.clone())).await;
    let client = InternalClient::new(origin.parse().unwrap(), &rotating).unwrap();
    assert!(client.put("/objects/1", &object).await.is_err());
    assert_eq!(*seen.lock(), [format!("Bearer {TOKEN}")]);
}

#[tokio::test]
async fn routes_of_the_operator_accept_only_tokens_of_its_service_account() {
    let api = TokenReviews::start().await;
    let settings =
        |pairs: &[(&str, &str)]| OperatorSettings::load(&Environment::from_pairs(pairs.iter().copied()));
    let access = |settings: OperatorSettings| {
        settings.access("svc-identity", Arc::new(ManualClock::at(DateTime::UNIX_EPOCH))).unwrap()
    };
    assert!(access(settings(&[]).unwrap()).is_none());
    assert!(settings(&[("SVC_OPERATOR", "no-namespace")]).is_err());
    assert!(OperatorSettings::variables().iter().any(|variable| variable.name == "SVC_OPERATOR"));
    assert!(OperatorSettings::variables().len() > KubernetesApi::variables().len());

    let token_file = api.token_file();
    let access = access(
        settings(&[
            ("SVC_OPERATOR", "svc-system/svc-operator"),
            ("SVC_KUBERNETES_URL", &api.url),
            ("SVC_KUBERNETES_TOKEN_FILE", token_file.to_str().unwrap()),
        ])
        .unwrap(),
    )
    .unwrap();
    let routes = Router::new()
        .route("/objects/1", put(async |Extension(_): Extension<OperatorId>| StatusCode::NO_CONTENT));
    let origin = serve(routes.layer(from_fn_with_state(access, operator_only))).await;
    let issue = |account: &str| {
        let token = service_account_token(DateTime::UNIX_EPOCH + TimeDelta::hours(1));
        api.issue(&token, &format!("system:serviceaccount:{account}"), "svc-identity", Some("pod"));
        format!("Bearer {token}")
    };
    let (operator, other) = (issue("svc-system:svc-operator"), issue("svc-system:other"));
    let unknown = format!("Bearer {}", service_account_token(DateTime::UNIX_EPOCH + TimeDelta::hours(1)));
    let key = format!("Bearer svc_ak_{}", "a".repeat(43));
    for (header, status) in
        [(Some(&operator), 204), (Some(&other), 403), (Some(&unknown), 401), (Some(&key), 401), (None, 401)]
    {
        assert_eq!(put_with(&origin, header.map(String::as_str)).await, status, "{header:?}");
    }
    for id in [None, Some("svc-system/svc"), Some("018f2e6e/svc-system/svc")] {
        assert_eq!(put_as(&origin, Some(&operator), id).await, 422, "{id:?}");
    }
    api.respond_with(500);
    let new = issue("svc-system:svc-operator");
    assert_eq!(put_with(&origin, Some(&new)).await, 503);
}

/// The requests that a fake session service gets, as method and path.
type Requests = Arc<Mutex<Vec<String>>>;

/// A session service that returns this status and body to each request.
async fn session_service(status: u16, body: serde_json::Value) -> (SessionClient, Requests) {
    let _ = testkit::client::plain_http();
    let requests = Requests::default();
    let seen = requests.clone();
    let router = Router::new().fallback(async move |request: Request| {
        seen.lock().push(format!("{} {}", request.method(), request.uri().path()));
        (StatusCode::from_u16(status).unwrap(), Json(body))
    });
    let origin = serve(router).await.parse().unwrap();
    (SessionClient::new(origin, &secret(TOKEN)).unwrap(), requests)
}

fn subject(user_id: UserId) -> SubjectRecord {
    SubjectRecord {
        user_id,
        tenant_id: "acme".parse().unwrap(),
        role: Role::Member,
        status: UserStatus::Active,
        credential_version: 1,
        kept_session_id: None,
        api_key_version: 1,
        has_factor: false,
        is_deleted: false,
        version: 1,
    }
}

fn tenant() -> TenantRecord {
    TenantRecord {
        tenant_id: "acme".parse().unwrap(),
        status: TenantStatus::Active,
        session_version: 1,
        quota: Quota::default(),
        second_factor: SecondFactorPolicy::Optional,
        is_deleted: false,
        version: 1,
    }
}

#[tokio::test]
async fn a_session_is_issued_refused_or_not_available() {
    let user_id = UserId::generate();
    let request = IssueSession {
        subject: subject(user_id),
        tenant: tenant(),
        method: SessionMethod::Password,
        amr: vec![AuthMethod::Pwd],
        ip: None,
        user_agent: None,
    };
    let issued = json!({
        "session_id": "svc_st_x", "token_type": "Bearer", "user_id": user_id, "tenant_id": "acme", "role": "member",
        "expires_at": DateTime::UNIX_EPOCH, "idle_expires_at": DateTime::UNIX_EPOCH,
    });
    let (client, requests) = session_service(201, issued).await;
    assert_eq!(client.issue(&request).await.unwrap().user_id, user_id);
    assert_eq!(*requests.lock(), ["POST /internal/v1/sessions"]);
    let (client, _) = session_service(409, json!({})).await;
    assert!(matches!(client.issue(&request).await, Err(IssueError::Outdated)));
    let (client, _) = session_service(500, json!({})).await;
    assert!(matches!(client.issue(&request).await, Err(IssueError::Unavailable(_))));
}

#[tokio::test]
async fn account_status_is_put_to_the_path_of_its_object() {
    let user_id = UserId::generate();
    let (client, requests) = session_service(200, json!({})).await;
    client.put_subject(&subject(user_id)).await.unwrap();
    client.put_tenant(&tenant()).await.unwrap();
    let expected =
        [format!("PUT /internal/v1/subjects/{user_id}"), "PUT /internal/v1/tenants/acme".to_owned()];
    assert_eq!(*requests.lock(), expected);
    let (client, _) = session_service(500, json!({})).await;
    assert!(client.put_subject(&subject(user_id)).await.is_err());
    assert!(client.put_tenant(&tenant()).await.is_err());
}

#[tokio::test]
async fn the_data_about_a_user_are_those_of_the_session_service() {
    let request = ExportSubject { tenant_id: "acme".parse().unwrap(), user_id: UserId::generate() };
    let key = json!({
        "id": UserId::generate(), "name": "collector", "scopes": ["events:write"], "source_ids": [],
        "created_by": UserId::generate(), "created_at": DateTime::UNIX_EPOCH, "expires_at": DateTime::UNIX_EPOCH,
    });
    let (client, _) = session_service(200, json!({ "sessions": [], "api_keys": [key] })).await;
    assert_eq!(client.export(&request).await.unwrap().api_keys[0].name, "collector");
    let (client, _) = session_service(500, json!({})).await;
    assert!(client.export(&request).await.is_err());
}

#[tokio::test]
async fn a_change_is_recorded_by_the_session_service_or_not() {
    let change = RecordChange {
        tenant_id: "acme".parse().unwrap(),
        actor: Actor::PlatformAdmin,
        change: IngestChange::ConsumerCreated,
        consumer: Some("siem".parse().unwrap()),
        ip: None,
    };
    let (client, requests) = session_service(204, json!(null)).await;
    client.record_change(&change).await.unwrap();
    assert_eq!(*requests.lock(), ["POST /internal/v1/changes"]);
    for status in [404, 503] {
        let (client, _) = session_service(status, json!({})).await;
        assert!(client.record_change(&change).await.is_err(), "{status}");
    }
}

#[tokio::test]
async fn a_credential_is_introspected_by_its_digest() {
    let owner = json!({
        "credential": {
            "kind": "service_account", "service_account": { "namespace": "apps", "name": "collector" }, "source_ids": ["a"],
        },
        "tenant_id": "acme", "quota": {}, "expires_at": DateTime::UNIX_EPOCH,
    });
    let (client, requests) = session_service(200, json!({ "subjects": [owner] })).await;
    let digest = TokenDigest::from_text("x");
    let subjects = client.look_up(&[digest]).await.unwrap();
    assert_eq!(subjects[0].as_ref().unwrap().tenant_id.as_str(), "acme");
    assert_eq!(subjects.len(), 1);
    assert_eq!(requests.lock()[0], "POST /internal/v1/introspect");
    let (client, _) = session_service(200, json!({ "subjects": [null] })).await;
    assert!(client.look_up(&[digest]).await.unwrap()[0].is_none());
    let (client, _) = session_service(503, json!({})).await;
    assert!(client.look_up(&[digest]).await.is_err());
}
