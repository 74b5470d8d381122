//! The client of session's internal API.

use std::sync::Arc;

use contract::internal::{
    INTROSPECT, ISSUE_SESSION, Introspect, Introspected, IssueSession, SubjectRecord, TenantRecord,
    subject_path, tenant_path,
};
use contract::session::IssuedSession;
use hashing::TokenDigest;
use http::StatusCode;
use serde::Serialize;
use service::config::Variable;
use service::telemetry::outgoing_headers;
use url::Url;

use crate::batcher::PATIENCE;
use crate::{CredentialVerifier, Introspection, Introspector, Unavailable};

/// Where session's internal API is.
pub const SESSION_URL: Variable = Variable {
    name: "SVC_SESSION_URL",
    form: "URL",
    default: Some("http://session:8081"),
    secret: false,
    meaning: "The internal API of the session service.",
};

/// Asks session. Clones share their connections.
#[derive(Clone)]
pub struct SessionClient {
    http: reqwest::Client,
    origin: Url,
    service_token: Arc<str>,
}

/// A session was not issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The standing that the login saw is over: the password was changed, the user disabled or the tenant suspended
    /// meanwhile.
    #[error("the login came too late")]
    Overtaken,
    /// Session cannot answer now.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl SessionClient {
    /// A client of the API at this origin.
    ///
    /// # Errors
    /// The HTTP client cannot be made.
    pub fn new(origin: Url, service_token: &str) -> Result<Self, reqwest::Error> {
        // Mostly plain HTTP inside the cluster, never through a proxy.
        let mut http = reqwest::Client::builder().no_proxy().timeout(PATIENCE).connect_timeout(PATIENCE);
        if origin.scheme() == "http" {
            // The machine's certificates would be read and parsed for nothing, at every start.
            http = http.tls_certs_only([]);
        }
        let http = http.build()?;
        Ok(Self { http, origin, service_token: service_token.into() })
    }

    /// Issues a session for a person who has just proven themselves.
    ///
    /// # Errors
    /// See [`IssueError`].
    pub async fn issue(&self, request: &IssueSession) -> Result<IssuedSession, IssueError> {
        let response = self.post(ISSUE_SESSION, request).await?;
        if response.status() == StatusCode::CONFLICT {
            return Err(IssueError::Overtaken);
        }
        let response = response.error_for_status().map_err(unavailable)?;
        Ok(response.json().await.map_err(unavailable)?)
    }

    /// Tells session a user's standing. Safe to repeat.
    ///
    /// # Errors
    /// Session cannot take it now.
    pub async fn put_subject(&self, record: &SubjectRecord) -> Result<(), Unavailable> {
        self.put(&subject_path(record.user_id), record).await
    }

    /// Tells session a tenant's standing. Safe to repeat.
    ///
    /// # Errors
    /// Session cannot take it now.
    pub async fn put_tenant(&self, record: &TenantRecord) -> Result<(), Unavailable> {
        self.put(&tenant_path(&record.tenant_id), record).await
    }

    async fn put(&self, path: &str, body: &impl Serialize) -> Result<(), Unavailable> {
        let url = self.origin.join(path).map_err(Unavailable::because)?;
        let request =
            self.http.put(url).headers(outgoing_headers()).bearer_auth(&self.service_token).json(body);
        request.send().await.and_then(reqwest::Response::error_for_status).map_err(unavailable)?;
        Ok(())
    }

    async fn post(&self, path: &str, body: &impl Serialize) -> Result<reqwest::Response, Unavailable> {
        let url = self.origin.join(path).map_err(Unavailable::because)?;
        let request =
            self.http.post(url).headers(outgoing_headers()).bearer_auth(&self.service_token).json(body);
        request.send().await.map_err(unavailable)
    }
}

#[async_trait::async_trait]
impl Introspector for SessionClient {
    async fn look_up(&self, digests: &[TokenDigest]) -> Result<Vec<Introspection>, Unavailable> {
        let question = Introspect { digests: digests.iter().map(|digest| digest.to_hex()).collect() };
        let response = self.post(INTROSPECT, &question).await?.error_for_status().map_err(unavailable)?;
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
