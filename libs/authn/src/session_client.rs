//! Client of the internal API of the session service.

use std::sync::Arc;

use contract::internal::{
    EXPORT_SUBJECT, ExportSubject, INTROSPECT, ISSUE_SESSION, Introspect, Introspected, IssueSession,
    RECORD_CHANGE, RecordChange, SubjectExport, SubjectRecord, TenantRecord, subject_path, tenant_path,
};
use contract::session::IssuedSession;
use hashing::TokenDigest;
use http::{Method, StatusCode};
use url::Url;

use crate::internal_client::{InternalClient, unavailable};
use crate::{Introspection, Introspector, ServiceSecret, Unavailable};

/// Client of the session service. Clones share the connections.
#[derive(Clone)]
pub struct SessionClient(InternalClient);

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
    pub fn new(origin: Url, secret: &ServiceSecret) -> Result<Self, reqwest::Error> {
        InternalClient::new(origin, secret).map(Self)
    }

    /// Issues a session for an authenticated user.
    ///
    /// # Errors
    /// See [`IssueError`].
    pub async fn issue(&self, request: &IssueSession) -> Result<IssuedSession, IssueError> {
        let response = self.0.send(Method::POST, ISSUE_SESSION, request).await?;
        if response.status() == StatusCode::CONFLICT {
            return Err(IssueError::Outdated);
        }
        let response = response.error_for_status().map_err(unavailable)?;
        Ok(response.json().await.map_err(unavailable)?)
    }

    /// Returns the stored data about a user.
    ///
    /// # Errors
    /// The session service is not available.
    pub async fn export(&self, request: &ExportSubject) -> Result<SubjectExport, Unavailable> {
        let response = self.0.send(Method::POST, EXPORT_SUBJECT, request).await?;
        response.error_for_status().map_err(unavailable)?.json().await.map_err(unavailable)
    }

    /// Records a change in ingest as an audit event.
    ///
    /// # Errors
    /// The session service is not available: the event may be recorded.
    pub async fn record_change(&self, change: &RecordChange) -> Result<(), Unavailable> {
        self.0.send(Method::POST, RECORD_CHANGE, change).await?.error_for_status().map_err(unavailable)?;
        Ok(())
    }

    /// Pushes the account status of a user. Idempotent.
    ///
    /// # Errors
    /// The session service is not available.
    pub async fn put_subject(&self, record: &SubjectRecord) -> Result<(), Unavailable> {
        self.0.put(&subject_path(record.user_id), record).await
    }

    /// Pushes the account status of a tenant. Idempotent.
    ///
    /// # Errors
    /// The session service is not available.
    pub async fn put_tenant(&self, record: &TenantRecord) -> Result<(), Unavailable> {
        self.0.put(&tenant_path(&record.tenant_id), record).await
    }
}

#[async_trait::async_trait]
impl Introspector for SessionClient {
    async fn look_up(&self, digests: &[TokenDigest]) -> Result<Vec<Introspection>, Unavailable> {
        let request = Introspect { digests: digests.iter().map(|digest| digest.to_hex()).collect() };
        let response = self.0.send(Method::POST, INTROSPECT, &request).await?;
        let response = response.error_for_status().map_err(unavailable)?;
        let Introspected { subjects } = response.json().await.map_err(unavailable)?;
        Ok(subjects.into_iter().map(|subject| subject.map(Arc::new)).collect())
    }
}
