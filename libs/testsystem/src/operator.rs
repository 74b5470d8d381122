//! The system with access for the Kubernetes operator and for the service accounts of producers.

use chrono::TimeDelta;
use contract::managed::X_OPERATOR_ID;
use service::Clock as _;
use service::clock::SystemClock;
use testkit::{Client, TokenReviews, service_account_token};

use crate::TestSystem;

/// The service account of the operator.
const OPERATOR: &str = "svc/operator";

/// Id of the operator of the first cluster.
pub const BLUE: &str = "018f2e6e-7c1d-7000-8000-00000000000b/svc/svc";
/// Id of the operator of a second cluster.
pub const GREEN: &str = "018f2e6e-7c1d-7000-8000-00000000000e/svc/svc";

/// A running system that accepts service account tokens.
pub struct SystemWithOperator {
    /// The system.
    pub system: TestSystem,
    /// The API server that reviews the tokens.
    pub reviews: TokenReviews,
}

impl SystemWithOperator {
    /// Starts the system and the API server.
    pub async fn start() -> anyhow::Result<Self> {
        let reviews = TokenReviews::start().await;
        let token_file = reviews.token_file().to_string_lossy().into_owned();
        let system = TestSystem::start_with(&[
            ("SVC_OPERATOR", OPERATOR),
            ("SVC_WORKLOAD_IDENTITY", "on"),
            ("SVC_KUBERNETES_URL", &reviews.url),
            ("SVC_KUBERNETES_TOKEN_FILE", &token_file),
        ])
        .await?;
        Ok(Self { system, reviews })
    }

    /// Returns a new token of a service account, which a pod has.
    pub fn token(&self, service_account: &str, audience: &str) -> String {
        let token = service_account_token(SystemClock.now() + TimeDelta::hours(1));
        let username = format!("system:serviceaccount:{}", service_account.replace('/', ":"));
        self.reviews.issue(&token, &username, audience, Some("pod-1"));
        token
    }

    /// A client of the internal API of identity, without credentials.
    pub fn identity(&self) -> Client {
        Client::at(&self.system.internal_urls.identity)
    }

    /// A client of the internal API of session, without credentials.
    pub fn session(&self) -> Client {
        Client::at(&self.system.internal_urls.session)
    }

    /// A client of the internal API of ingest, without credentials.
    pub fn ingest(&self) -> Client {
        Client::at(&self.system.internal_urls.ingest)
    }

    /// An operator at the internal API of ingest.
    pub fn at_ingest(&self, operator: &str) -> Client {
        self.ingest().bearer(&self.token(OPERATOR, "svc-ingest")).header(X_OPERATOR_ID.as_str(), operator)
    }

    /// The operator of the first cluster at the internal API of identity.
    pub fn operator_at_identity(&self) -> Client {
        self.at_identity(BLUE)
    }

    /// An operator at the internal API of identity.
    pub fn at_identity(&self, operator: &str) -> Client {
        self.identity().bearer(&self.token(OPERATOR, "svc-identity")).header(X_OPERATOR_ID.as_str(), operator)
    }

    /// The operator of the first cluster at the internal API of session.
    pub fn operator_at_session(&self) -> Client {
        self.at_session(BLUE)
    }

    /// An operator at the internal API of session.
    pub fn at_session(&self, operator: &str) -> Client {
        self.session().bearer(&self.token(OPERATOR, "svc-session")).header(X_OPERATOR_ID.as_str(), operator)
    }
}
