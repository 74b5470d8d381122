//! `svc-identity trial` with the real binary: the first tenant on the whole system, and the Secret at an API server of the test.

use std::process::Output;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use data_encoding::BASE64URL_NOPAD;
use parking_lot::Mutex;
use serde_json::{Value, json};
use testsystem::TestSystem;
use tokio::process::Command;

const PASSWORD: &str = "0123456789abcdef0123456789abcdef";

async fn trial(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc-identity"));
    command.arg("trial").args(arguments).env_clear().envs(environment.iter().copied());
    command.output().await.unwrap()
}

#[tokio::test]
async fn the_first_tenant_is_created_once_and_its_administrator_can_log_in() {
    let system = TestSystem::start().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, PASSWORD).unwrap();
    let arguments = ["tenant", "--url", &system.base_url, "--password-file", file.to_str().unwrap()];
    for _ in 0..2 {
        let output = trial(&arguments, &[("SVC_PLATFORM_TOKEN", &system.platform_token)]).await;
        assert!(output.status.success(), "{output:?}");
    }
    let login = system.client().request(reqwest::Method::POST, "/auth/password/login");
    let login = login
        .header("X-Tenant-Id", "demo")
        .json(&json!({ "email": "admin@demo.example", "password": PASSWORD }));
    system.client().send(login).await.expect::<Value>(200);
}

#[tokio::test]
async fn an_interrupted_creation_continues() {
    let system = TestSystem::start().await.unwrap();
    let create = system.platform_admin().request(reqwest::Method::POST, "/tenants");
    let tenant = json!({
        "tenant_id": "demo", "display_name": "Demo", "admin_email": "admin@demo.example", "delivery": "response",
    });
    system.platform_admin().send(create.json(&tenant)).await.expect::<Value>(201);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, PASSWORD).unwrap();
    let arguments = ["tenant", "--url", &system.base_url, "--password-file", file.to_str().unwrap()];
    let output = trial(&arguments, &[("SVC_PLATFORM_TOKEN", &system.platform_token)]).await;
    assert!(output.status.success(), "{output:?}");
    let users = system.platform_admin().request(reqwest::Method::GET, "/users").header("X-Tenant-Id", "demo");
    let users: Value = system.platform_admin().send(users).await.expect(200);
    assert_eq!(users["items"][0]["status"], "active", "{users}");
}

/// Requests that an API server received: namespace, bearer, and Secret.
type Received = Arc<Mutex<Vec<(String, String, Value)>>>;

/// Stores the first Secret. Others with its name exist already.
async fn create_secret(
    State(received): State<Received>,
    Path(namespace): Path<String>,
    headers: HeaderMap,
    Json(secret): Json<Value>,
) -> StatusCode {
    let mut received = received.lock();
    let bearer = headers["authorization"].to_str().unwrap().to_owned();
    received.push((namespace, bearer, secret));
    if received.len() == 1 { StatusCode::CREATED } else { StatusCode::CONFLICT }
}

#[tokio::test]
async fn the_secret_is_created_once_and_owned_by_the_service_account() {
    let received = Received::default();
    let api = axum::Router::new()
        .route("/api/v1/namespaces/{namespace}/secrets", post(create_secret))
        .with_state(Arc::clone(&received));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let account = tempfile::tempdir().unwrap();
    let claims = json!({ "kubernetes.io": { "namespace": "there", "serviceaccount": { "name": "trial", "uid": "u-1" } } });
    let token = format!("h.{}.s", BASE64URL_NOPAD.encode(claims.to_string().as_bytes()));
    std::fs::write(account.path().join("token"), &token).unwrap();
    let directory = account.path().to_str().unwrap();
    let arguments = [
        "secret",
        "svc-trial",
        "--postgres=pg:5432",
        "--nats=nats:4222",
        "--api-server",
        &url,
        "--service-account",
        directory,
    ];
    let [first, second] = tokio::select! {
        result = axum::serve(listener, api) => panic!("the server ended: {result:?}"),
        outputs = async { [trial(&arguments, &[]).await, trial(&arguments, &[]).await] } => outputs,
    };
    let output = |output: Output| String::from_utf8(output.stdout).unwrap();
    assert_eq!(output(first), "created the Secret svc-trial\n");
    assert_eq!(output(second), "the Secret svc-trial exists already\n");
    let received = received.lock();
    let (namespace, bearer, secret) = &received[0];
    assert_eq!((namespace.as_str(), bearer), ("there", &format!("Bearer {token}")));
    let owner = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "name": "trial", "uid": "u-1" });
    assert_eq!(secret["metadata"], json!({ "name": "svc-trial", "ownerReferences": [owner] }));
    assert!(secret["stringData"]["secrets-platformToken"].as_str().unwrap().starts_with("svc_pt_"));
}
