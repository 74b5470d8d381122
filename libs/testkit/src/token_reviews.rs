//! The TokenReview API of a Kubernetes API server, with tokens that a test issues.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use chrono::{DateTime, Utc};
use data_encoding::BASE64URL_NOPAD;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::net::TcpListener;
use uuid::Uuid;

/// A server that reviews tokens. It stops with the runtime of the test.
pub struct TokenReviews {
    /// The origin of the server.
    pub url: String,
    own_token: NamedTempFile,
    api: Arc<Api>,
}

struct Api {
    /// The user of each valid token.
    tokens: Mutex<HashMap<String, Value>>,
    reviews: AtomicUsize,
    status: AtomicU16,
    holds_rejections: AtomicBool,
}

/// Returns a new token with the form of a JSON Web Token. No API server knows it yet.
pub fn service_account_token(expires_at: DateTime<Utc>) -> String {
    let part = |value: Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let claims = json!({"exp": expires_at.timestamp(), "jti": Uuid::now_v7()});
    format!("{}.{}.c2lnbmF0dXJl", part(json!({"alg": "RS256"})), part(claims))
}

impl TokenReviews {
    /// Starts the server.
    pub async fn start() -> Self {
        // Fails when the process has installed the same provider before. Clients of the server need one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("the address of the listener"));
        let own_token = NamedTempFile::new().expect("a temporary file");
        let (tokens, reviews) = (Mutex::default(), AtomicUsize::new(0));
        let api = Arc::new(Api {
            tokens,
            reviews,
            status: AtomicU16::new(201),
            holds_rejections: AtomicBool::new(false),
        });
        let router = axum::Router::new()
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(review))
            .with_state(Arc::clone(&api));
        #[expect(clippy::disallowed_methods, reason = "ends with the runtime of the test")]
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, own_token, api }
    }

    /// The file with the token of the service that sends reviews.
    pub fn token_file(&self) -> &Path {
        self.own_token.path()
    }

    /// Makes a token valid for a user and an audience. A token that belongs to a pod has its name.
    pub fn issue(&self, token: &str, username: &str, audience: &str, pod: Option<&str>) {
        let extra = pod.map(|pod| json!({"authentication.kubernetes.io/pod-name": [pod]}));
        let user = json!({"audience": audience, "user": {"username": username, "extra": extra.unwrap_or(json!({}))}});
        self.api.tokens.lock().insert(token.to_owned(), user);
    }

    /// Makes a token invalid.
    pub fn revoke(&self, token: &str) {
        self.api.tokens.lock().remove(token);
    }

    /// The number of reviews.
    pub fn reviews(&self) -> usize {
        self.api.reviews.load(Ordering::Relaxed)
    }

    /// Never responds to later reviews of tokens that are not valid.
    pub fn hold_rejections(&self) {
        self.api.holds_rejections.store(true, Ordering::Relaxed);
    }

    /// Sets the status of later responses. The status of a review is 201.
    pub fn respond_with(&self, status: u16) {
        self.api.status.store(status, Ordering::Relaxed);
    }
}

async fn review(State(api): State<Arc<Api>>, Json(review): Json<Value>) -> (StatusCode, Json<Value>) {
    api.reviews.fetch_add(1, Ordering::Relaxed);
    let user = review["spec"]["token"].as_str().and_then(|token| api.tokens.lock().get(token).cloned());
    if user.is_none() && api.holds_rejections.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
    let asked = &review["spec"]["audiences"][0];
    let status = match user {
        Some(user) if user["audience"] == *asked => {
            json!({"authenticated": true, "audiences": [asked], "user": user["user"]})
        }
        _ => json!({"authenticated": false, "error": "invalid bearer token"}),
    };
    let code = StatusCode::from_u16(api.status.load(Ordering::Relaxed)).expect("a status");
    (code, Json(json!({"kind": "TokenReview", "status": status})))
}
