//! Verification of Kubernetes service account tokens: the API server reviews a token (TokenReview, `authentication.k8s.io/v1`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use contract::managed::ServiceAccount;
use data_encoding::BASE64URL_NOPAD;
use hashing::TokenDigest;
use moka::sync::Cache;
use reqwest::{Certificate, Client};
use serde::Deserialize;
use service::Clock;
use service::config::{Variable, parse_http_url};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;
use url::Url;

use crate::{CredentialVerifier, Introspection, Unavailable};

/// Longer texts are not sent to the API server.
const MAX_TOKEN_BYTES: usize = 8192;
/// How long a valid token is accepted without another review, at most until it expires.
const VALID_FOR: Duration = Duration::from_mins(1);
/// How long a rejected token is rejected without another review.
const REJECTED_FOR: Duration = Duration::from_secs(10);
/// Maximum number of cached results.
const MAX_ENTRIES: u64 = 16_384;
/// Time limit of a review.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(3);
/// Reviews at the same time. Guessed tokens must not load the API server.
const MAX_REVIEWS: usize = 16;
/// Reviews at the same time of tokens that are not known to be valid. Guessed tokens leave the others to valid tokens.
const MAX_NEW_REVIEWS: usize = 12;
/// How long a token is known after its last valid review.
const KNOWN_FOR: Duration = Duration::from_hours(1);
/// Prefix of the user name of a service account.
const USER_PREFIX: &str = "system:serviceaccount:";
/// A token of a pod is reviewed with the name of the pod. Other tokens can outlive every pod.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";

service::variables! {
    /// Access to the Kubernetes API server.
    #[derive(Clone, Debug)]
    pub struct KubernetesApi {
        /// URL of the Kubernetes API server that reviews service account tokens.
        pub url: Url = Variable::new("SVC_KUBERNETES_URL", "URL")
            .default("https://kubernetes.default.svc")
            .required_with(parse_http_url),
        /// CA certificates of the Kubernetes API server, as PEM.
        pub ca_file: PathBuf = Variable::new("SVC_KUBERNETES_CA_FILE", "file")
            .default("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
            .required(),
        /// Token of the service's own service account, which may create TokenReviews.
        pub token_file: PathBuf = Variable::new("SVC_KUBERNETES_TOKEN_FILE", "file")
            .default("/var/run/secrets/kubernetes.io/serviceaccount/token")
            .required(),
    }
}

/// Returns whether a bearer credential has the form of a service account token: a JSON Web Token of at most 8 KiB. It is not verified.
pub(crate) fn is_service_account_token(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.starts_with("eyJ")
        && text.len() <= MAX_TOKEN_BYTES
        && text.bytes().all(is_allowed)
        && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// The digest under which session finds the producer of a service account. No bearer credential has this digest, because a header
/// cannot contain a line break.
pub fn service_account_digest(account: &ServiceAccount) -> TokenDigest {
    TokenDigest::from_text(&format!("service account\n{}\n{}", account.namespace, account.name))
}

/// Reviews service account tokens. Clones share the cached results.
#[derive(Clone)]
pub struct TokenReviewer(Arc<Inner>);

struct Inner {
    http: Client,
    url: Url,
    token_file: PathBuf,
    audience: &'static str,
    clock: Arc<dyn Clock>,
    reviews: Cache<TokenDigest, Arc<OnceCell<Review>>>,
    permits: Semaphore,
    new_permits: Semaphore,
    /// Tokens that were valid. Guessed ones are never in it, so they cannot displace them.
    known: Cache<TokenDigest, ()>,
}

/// The result of a review.
struct Review {
    account: Option<ServiceAccount>,
    ends_at: Instant,
}

impl TokenReviewer {
    /// Returns a reviewer of tokens with this audience.
    ///
    /// # Errors
    /// The CA certificates cannot be read.
    pub fn new(
        api: &KubernetesApi,
        audience: &'static str,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let certificates = if api.url.scheme() == "http" {
            Vec::new()
        } else {
            let file = api.ca_file.display();
            let pem = std::fs::read(&api.ca_file)
                .map_err(|error| format!("SVC_KUBERNETES_CA_FILE={file}: {error}"))?;
            Certificate::from_pem_bundle(&pem)?
        };
        let http =
            Client::builder().no_proxy().timeout(REVIEW_TIMEOUT).tls_certs_only(certificates).build()?;
        Ok(Self(Arc::new(Inner {
            http,
            url: api.url.join("/apis/authentication.k8s.io/v1/tokenreviews")?,
            token_file: api.token_file.clone(),
            audience,
            clock,
            reviews: Cache::builder().max_capacity(MAX_ENTRIES).time_to_live(VALID_FOR).build(),
            permits: Semaphore::new(MAX_REVIEWS),
            new_permits: Semaphore::new(MAX_NEW_REVIEWS),
            known: Cache::builder().max_capacity(MAX_ENTRIES).time_to_idle(KNOWN_FOR).build(),
        })))
    }

    /// Returns the service account of a token that belongs to a pod; `None` if the token is not valid for the audience. A result is
    /// kept for 60 s, at most until the token expires; a rejection for 10 s. Concurrent calls share a review. Reviews of tokens that
    /// were not valid in the last hour never take all permits.
    ///
    /// # Errors
    /// The API server did not review the token.
    pub async fn review(&self, token: &str) -> Result<Option<ServiceAccount>, Unavailable> {
        if !is_service_account_token(token) {
            return Ok(None);
        }
        let is_over =
            |cell: &Arc<OnceCell<Review>>| cell.get().is_some_and(|review| review.ends_at <= Instant::now());
        let digest = TokenDigest::from_text(token);
        let cell = self.0.reviews.entry(digest).or_insert_with_if(Arc::default, is_over).into_value();
        let review = cell.get_or_try_init(|| self.0.review(token, digest)).await;
        Ok(review.map_err(Unavailable::because)?.account.clone())
    }
}

/// The API server did not review a token.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error("failed to read the token of the service: {0}")]
    OwnToken(#[from] std::io::Error),
    #[error("TokenReview failed")]
    Request(#[from] reqwest::Error),
    #[error("too many TokenReviews at the same time")]
    Overloaded,
}

impl Inner {
    async fn review(&self, token: &str, digest: TokenDigest) -> Result<Review, ReviewError> {
        let started_at = Instant::now();
        let permits = async {
            let is_known = self.known.get(&digest).is_some();
            let new = if is_known { None } else { Some(self.new_permits.acquire().await) };
            (new, self.permits.acquire().await)
        };
        let permits = tokio::time::timeout(REVIEW_TIMEOUT, permits).await;
        let _permits = permits.map_err(|_| ReviewError::Overloaded)?;
        let own_token = tokio::fs::read_to_string(&self.token_file).await?;
        let body = serde_json::json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": token, "audiences": [self.audience] },
        });
        let request = self.http.post(self.url.clone()).bearer_auth(own_token.trim()).json(&body);
        let reviewed: TokenReview = request.send().await?.error_for_status()?.json().await?;
        let account = reviewed.status.service_account(self.audience);
        let valid_for = if account.is_some() {
            self.known.insert(digest, ());
            VALID_FOR.min(remaining(token, self.clock.now()))
        } else {
            self.known.invalidate(&digest);
            REJECTED_FOR
        };
        Ok(Review { account, ends_at: started_at + valid_for })
    }
}

/// The time until the expiry that a reviewed token contains. Without one, the token is reviewed again at its next use.
fn remaining(token: &str, now: DateTime<Utc>) -> Duration {
    #[derive(Deserialize)]
    struct Claims {
        exp: i64,
    }
    let claims = token.split('.').nth(1).and_then(|part| BASE64URL_NOPAD.decode(part.as_bytes()).ok());
    let claims: Option<Claims> = claims.and_then(|json| serde_json::from_slice(&json).ok());
    let expires_at = claims.and_then(|claims| DateTime::from_timestamp(claims.exp, 0));
    expires_at.and_then(|at| (at - now).to_std().ok()).unwrap_or_default()
}

#[derive(Deserialize)]
struct TokenReview {
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: bool,
    audiences: Vec<String>,
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    extra: std::collections::HashMap<String, Vec<String>>,
}

impl Status {
    /// The service account, if the token is valid for the audience and belongs to a pod. An API server without support of audiences
    /// returns none.
    fn service_account(&self, audience: &str) -> Option<ServiceAccount> {
        let is_valid = self.authenticated
            && self.audiences.iter().any(|of| of == audience)
            && self.user.extra.get(POD_NAME).is_some_and(|names| !names.is_empty());
        if !is_valid {
            return None;
        }
        let (namespace, name) = self.user.username.strip_prefix(USER_PREFIX)?.split_once(':')?;
        format!("{namespace}/{name}").parse().ok()
    }
}

/// Verifies service account tokens by review, and all credentials by introspection.
pub struct WorkloadVerifier<V> {
    verifier: V,
    reviewer: TokenReviewer,
}

impl<V: CredentialVerifier> WorkloadVerifier<V> {
    /// Returns a verifier that introspects the reviewed service accounts.
    pub fn new(verifier: V, reviewer: TokenReviewer) -> Self {
        Self { verifier, reviewer }
    }
}

#[async_trait::async_trait]
impl<V: CredentialVerifier> CredentialVerifier for WorkloadVerifier<V> {
    async fn introspect(&self, digest: TokenDigest) -> Result<Introspection, Unavailable> {
        self.verifier.introspect(digest).await
    }

    async fn review(&self, token: &str) -> Result<Option<TokenDigest>, Unavailable> {
        Ok(self.reviewer.review(token).await?.as_ref().map(service_account_digest))
    }
}

#[cfg(test)]
mod tests;
