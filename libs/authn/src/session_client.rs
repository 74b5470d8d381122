//! Client of the internal API of the session service.

use std::sync::Arc;

use contract::internal::{
    INTROSPECT, ISSUE_SESSION, Introspect, Introspected, IssueSession, SubjectRecord, TenantRecord,
    subject_path, tenant_path,
};
use contract::session::IssuedSession;
use hashing::TokenDigest;
use http::{Method, StatusCode};
use reqwest::Response;
use serde::Serialize;
use service::config::Variable;
use service::telemetry::outgoing_headers;
use url::Url;

use crate::batcher::LOOKUP_TIMEOUT;
use crate::{CredentialVerifier, Introspection, Introspector, Unavailable};

/// Address of the internal API of the session service.
pub const SESSION_URL: Variable = Variable {
    name: "SVC_SESSION_URL",
    form: "URL",
    default: Some("http://session:8081"),
    secret: false,
    meaning: "URL of the internal API of session.",
};

/// Client of the session service. Clones share the connections.
#[derive(Clone)]
pub struct SessionClient {
    http: reqwest::Client,
    origin: Url,
    service_token: Arc<str>,
}

/// A session was not issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The account status that the login read is outdated: the password was changed, the user disabled or the tenant
    /// suspended meanwhile.
    #[error("the account changed during the login")]
    Outdated,
    /// The session service is not available.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl SessionClient {
    /// Returns a client of the API at this origin.
    ///
    /// # Errors
    /// The HTTP client cannot be created.
    pub fn new(origin: Url, service_token: &str) -> Result<Self, reqwest::Error> {
        // Internal traffic never uses a proxy of the environment.
        let mut http =
            reqwest::Client::builder().no_proxy().timeout(LOOKUP_TIMEOUT).connect_timeout(LOOKUP_TIMEOUT);
        if origin.scheme() == "http" {
            // Plain HTTP needs no certificates. Otherwise every start would read and parse those of the machine.
            http = http.tls_certs_only([]);
        }
        let http = http.build()?;
        Ok(Self { http, origin, service_token: service_token.into() })
    }

    /// Issues a session for an authenticated user.
    ///
    /// # Errors
    /// See [`IssueError`].
    pub async fn issue(&self, request: &IssueSession) -> Result<IssuedSession, IssueError> {
        let response = self.send(Method::POST, ISSUE_SESSION, request).await?;
        if response.status() == StatusCode::CONFLICT {
            return Err(IssueError::Outdated);
        }
        let response = response.error_for_status().map_err(unavailable)?;
        Ok(response.json().await.map_err(unavailable)?)
    }

    /// Pushes the account status of a user. Idempotent.
    ///
    /// # Errors
    /// The session service is not available.
    pub async fn put_subject(&self, record: &SubjectRecord) -> Result<(), Unavailable> {
        self.put(&subject_path(record.user_id), record).await
    }

    /// Pushes the account status of a tenant. Idempotent.
    ///
    /// # Errors
    /// The session service is not available.
    pub async fn put_tenant(&self, record: &TenantRecord) -> Result<(), Unavailable> {
        self.put(&tenant_path(&record.tenant_id), record).await
    }

    async fn put(&self, path: &str, body: &impl Serialize) -> Result<(), Unavailable> {
        self.send(Method::PUT, path, body).await?.error_for_status().map_err(unavailable)?;
        Ok(())
    }

    async fn send(&self, method: Method, path: &str, body: &impl Serialize) -> Result<Response, Unavailable> {
        let url = self.origin.join(path).map_err(Unavailable::because)?;
        let request = self.http.request(method, url).headers(outgoing_headers());
        request.bearer_auth(&self.service_token).json(body).send().await.map_err(unavailable)
    }
}

#[async_trait::async_trait]
impl Introspector for SessionClient {
    async fn look_up(&self, digests: &[TokenDigest]) -> Result<Vec<Introspection>, Unavailable> {
        let request = Introspect { digests: digests.iter().map(|digest| digest.to_hex()).collect() };
        let response =
            self.send(Method::POST, INTROSPECT, &request).await?.error_for_status().map_err(unavailable)?;
        let Introspected { subjects } = response.json().await.map_err(unavailable)?;
        Ok(subjects.into_iter().map(|subject| subject.map(Arc::new)).collect())
    }
}

#[async_trait::async_trait]
impl CredentialVerifier for SessionClient {
    async fn introspect(&self, digest: TokenDigest) -> Result<Introspection, Unavailable> {
        Ok(self.look_up(&[digest]).await?.pop().flatten())
    }
}

fn unavailable(error: reqwest::Error) -> Unavailable {
    Unavailable::because(error)
}
