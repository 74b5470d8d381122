//! Clients of the internal APIs of identity, session and ingest.

use std::path::PathBuf;
use std::time::Duration;

use contract::managed::{
    CONSUMERS, Conflict, ConsumerReference, IssuedInvite, ManagedConsumer, ManagedProducer, ManagedTenant,
    OperatorId, Owner, PRODUCERS, StoredConsumer, StoredProducer, StoredTenant, TENANTS, WrittenConsumer,
    WrittenTenant, X_OPERATOR_ID, consumer_path, invite_path, login_path, producer_path, tenant_path,
};
use http::{Method, StatusCode};
use reqwest::Response;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenancy::TenantId;
use url::Url;
use uuid::Uuid;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Objects in one response of a list.
const PAGE: usize = 1000;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The write contradicts the stored state.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The service rejected a value of the resource. The text is for people.
    #[error("{0}")]
    Rejected(String),
    /// The service did not respond, or could not process the request now. That includes a token of the operator that it does not accept.
    #[error("{0}")]
    Unavailable(String),
}

/// Client of the internal API of identity, session or ingest. Clones share the connections.
#[derive(Clone)]
pub(crate) struct ServiceClient {
    http: reqwest::Client,
    url: Url,
    token_file: PathBuf,
    /// Id of the operator. The service rejects requests without it.
    operator: Option<OperatorId>,
}

impl ServiceClient {
    pub(crate) fn new(url: Url, token_file: PathBuf) -> Result<Self, reqwest::Error> {
        let mut http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT);
        if url.scheme() == "http" {
            http = http.tls_certs_only([]);
        }
        Ok(Self { http: http.build()?, url, token_file, operator: None })
    }

    /// The client of an operator.
    pub(crate) fn for_operator(self, operator: &OperatorId) -> Self {
        Self { operator: Some(operator.clone()), ..self }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Response, CallError> {
        let unavailable = |error: &dyn std::fmt::Display| CallError::Unavailable(error.to_string());
        // A small file in memory: a thread for the read would cost more than the read.
        let token = std::fs::read_to_string(&self.token_file);
        let token = token.map_err(|error| unavailable(&format!("{}: {error}", self.token_file.display())))?;
        let url = self.url.join(path).map_err(|error| unavailable(&error))?;
        let mut request = self.http.request(method, url).bearer_auth(token.trim());
        if let Some(operator) = &self.operator {
            request = request.header(X_OPERATOR_ID, operator.to_string());
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(|error| unavailable(&service::chain(&error)))?;
        match response.status() {
            status if status.is_success() => Ok(response),
            StatusCode::CONFLICT => Err(conflict(response).await),
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => {
                Err(CallError::Rejected(text(response).await))
            }
            _ => Err(CallError::Unavailable(text(response).await)),
        }
    }

    async fn read<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, CallError> {
        let response = self.send(method, path, body).await?;
        response.json().await.map_err(|error| CallError::Unavailable(service::chain(&error)))
    }

    /// Reads all pages of a list.
    async fn list_pages<T: DeserializeOwned>(
        &self,
        path: &str,
        key: impl Fn(&T) -> String,
    ) -> Result<Vec<T>, CallError> {
        let mut all: Vec<T> = Vec::new();
        loop {
            let page = match all.last() {
                None => path.to_owned(),
                Some(last) => format!("{path}?after={}", key(last)),
            };
            let items: Vec<T> = self.read(Method::GET, &page, NO_BODY).await?;
            let is_last = items.len() < PAGE;
            all.extend(items);
            if is_last {
                return Ok(all);
            }
        }
    }
}

const NO_BODY: Option<&()> = None;

/// The conflict of a 409 response. Other 409 responses are problems, for example of an invite that is pending.
async fn conflict(response: Response) -> CallError {
    let body = response.text().await.unwrap_or_default();
    match serde_json::from_str::<Conflict>(&body) {
        Ok(conflict) => conflict.into(),
        Err(_) => CallError::Rejected(detail(&body)),
    }
}

async fn text(response: Response) -> String {
    let status = response.status();
    match response.text().await {
        Ok(body) if !body.is_empty() => detail(&body),
        _ => status.to_string(),
    }
}

/// The message of a problem with its fields.
fn detail(body: &str) -> String {
    let Ok(problem) = serde_json::from_str::<contract::Problem>(body) else {
        return body.chars().take(300).collect();
    };
    let fields = problem.errors.iter().map(|field| format!(" {}: {}", field.pointer, field.message));
    format!("{}{}", problem.detail, fields.collect::<String>())
}

/// The APIs of the services.
impl ServiceClient {
    pub(crate) async fn tenants(&self) -> Result<Vec<StoredTenant>, CallError> {
        self.list_pages(TENANTS, |tenant: &StoredTenant| tenant.tenant_id.to_string()).await
    }

    pub(crate) async fn put_tenant(
        &self,
        tenant_id: &TenantId,
        desired: &ManagedTenant,
    ) -> Result<WrittenTenant, CallError> {
        self.read(Method::PUT, &tenant_path(tenant_id), Some(desired)).await
    }

    pub(crate) async fn renew_invite(
        &self,
        tenant_id: &TenantId,
        owner: Owner,
    ) -> Result<IssuedInvite, CallError> {
        self.read(Method::POST, &invite_path(tenant_id), Some(&owner)).await
    }

    pub(crate) async fn release_tenant(&self, tenant_id: &TenantId, owner: Owner) -> Result<(), CallError> {
        let path = format!("{}?uid={}&generation={}", tenant_path(tenant_id), owner.uid, owner.generation);
        self.send(Method::DELETE, &path, NO_BODY).await.map(drop)
    }

    pub(crate) async fn producers(&self) -> Result<Vec<StoredProducer>, CallError> {
        self.list_pages(PRODUCERS, |producer: &StoredProducer| producer.uid.to_string()).await
    }

    pub(crate) async fn put_producer(&self, uid: Uuid, write: &ManagedProducer) -> Result<(), CallError> {
        self.send(Method::PUT, &producer_path(uid), Some(write)).await.map(drop)
    }

    pub(crate) async fn delete_producer(
        &self,
        uid: Uuid,
        tenant_id: &TenantId,
        is_final: bool,
    ) -> Result<(), CallError> {
        let path = format!("{}?tenant_id={tenant_id}&is_final={is_final}", producer_path(uid));
        self.send(Method::DELETE, &path, NO_BODY).await.map(drop)
    }

    pub(crate) async fn consumers(&self) -> Result<Vec<StoredConsumer>, CallError> {
        self.list_pages(CONSUMERS, |consumer: &StoredConsumer| consumer.owner.uid.to_string()).await
    }

    pub(crate) async fn put_consumer(
        &self,
        uid: Uuid,
        write: &ManagedConsumer,
    ) -> Result<WrittenConsumer, CallError> {
        self.read(Method::PUT, &consumer_path(uid), Some(write)).await
    }

    pub(crate) async fn renew_login(
        &self,
        uid: Uuid,
        of: &ConsumerReference,
    ) -> Result<WrittenConsumer, CallError> {
        self.read(Method::POST, &login_path(uid), Some(of)).await
    }

    pub(crate) async fn delete_consumer(&self, uid: Uuid, of: &ConsumerReference) -> Result<(), CallError> {
        let path = format!("{}?name={}&is_final={}", consumer_path(uid), of.name, of.is_final);
        self.send(Method::DELETE, &path, NO_BODY).await.map(drop)
    }
}
