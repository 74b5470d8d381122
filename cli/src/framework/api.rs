//! Client of the HTTP API: requests with a time limit and retries, responses and lists.

mod list;
mod response;

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use contract::routes::{self, Route};
use contract::session::Whoami;
use contract::{Secret, TraceContext};
use futures::Stream;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenancy::{TenantId, UserId, X_SESSION_ID, X_TENANT_ID, X_USER_ID};
use tokio::time::Instant;
use transport::ProxyChoice;

pub(crate) use list::{Paging, TenantsApi};
pub(crate) use response::ApiResponse;

use crate::framework::ca_file::CaFile;
use crate::framework::credential::Credential;
use crate::framework::endpoint::BaseUrl;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::output::{Output, RequestLog};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Pause before a retry if the response has no `Retry-After`.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The part of the time limit in which the connection must be established. It is less than the whole time limit, so that the error shows
/// whether the request can have been sent: without a connection, it fails earlier and with another error.
const CONNECT_SHARE: (u32, u32) = (3, 4);

/// What to do about a certificate that is not trusted.
pub(crate) const UNTRUSTED_CERTIFICATE: &str = "For a private certificate authority, pass its PEM file as --ca-file (SVC_CA_FILE), or \
    run `svc config set ca-file`. If the certificate has another name, use this name in --base-url (SVC_BASE_URL).";

/// Largest response. A page of a list has at most a few MiB.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;

/// Longest wait for the answer to a handshake that a server without TLS may not answer.
const MAX_HANDSHAKE: Duration = Duration::from_secs(5);

/// HTTP client for one service.
#[derive(Clone)]
pub(crate) struct Api {
    http: Client,
    base: BaseUrl,
    proxy: ProxyChoice,
    out: Output,
    timeout: Duration,
    /// Sent with each request.
    credential: Option<Credential>,
    user: Option<UserId>,
}

/// User and tenant of a session.
pub(crate) struct SessionOwner {
    pub(crate) tenant: TenantId,
    pub(crate) user: UserId,
}

impl Api {
    /// Creates the client without connecting.
    pub(crate) fn new(
        base: BaseUrl,
        ca_file: Option<&CaFile>,
        timeout: Duration,
        trace: Option<TraceContext>,
        out: Output,
    ) -> Result<Self> {
        // Following a redirect would send the credential to the address in the response.
        let proxy = base.proxy()?;
        let builder = Client::builder()
            .user_agent(concat!("svc/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .connect_timeout(timeout * CONNECT_SHARE.0 / CONNECT_SHARE.1)
            .default_headers(traceparent(trace));
        let failed = |error: reqwest::Error| {
            let message = format!("failed to create the HTTP client: {}", transport::root_cause(&error));
            ErrorKind::ConfigurationInvalid.with_message(message)
        };
        let mut builder = proxy.apply(builder).map_err(failed)?;
        if let Some(file) = ca_file {
            builder = builder.tls_certs_only(file.certificates()?);
        } else if base.is_loopback() && base.as_str().starts_with("http:") {
            // No certificate is checked, so a machine without system certificates must not fail.
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(failed)?;
        Ok(Self { http, base, proxy, out, timeout, credential: None, user: None })
    }

    /// Sends the credential, and its tenant if known, with each request. Errors name where it comes from.
    pub(crate) fn with_credential(self, credential: Credential) -> Result<Self> {
        bearer(&credential.secret)?;
        Ok(Self { credential: Some(credential), ..self })
    }

    /// Sends `X-User-ID` with each request.
    pub(crate) fn for_user(self, user: UserId) -> Self {
        Self { user: Some(user), ..self }
    }

    /// Credential that is sent with each request.
    pub(crate) fn credential(&self) -> Option<&Credential> {
        self.credential.as_ref()
    }

    /// User and tenant of the session. Asks the service about a token of the environment.
    pub(crate) async fn owner(&self) -> Result<SessionOwner> {
        if let Some(Credential { tenant: Some(tenant), user: Some(user), .. }) = &self.credential {
            return Ok(SessionOwner { tenant: tenant.clone(), user: *user });
        }
        let Whoami { tenant_id: tenant, user_id, .. } = self.call(&routes::WHOAMI, &[]).fetch().await?;
        match user_id {
            Some(user) => Ok(SessionOwner { tenant, user }),
            None => Err(ErrorKind::InputInvalid.with_message("the credential is not a user session")),
        }
    }

    /// Returns whether the server answers a TLS handshake, even with a certificate that is not trusted.
    pub(crate) async fn speaks_tls(&self) -> bool {
        let timeout = self.timeout.min(MAX_HANDSHAKE);
        let request = self.http.get(self.base.api(routes::GET_VERSION.path)).timeout(timeout);
        match request.send().await {
            Ok(_) => true,
            Err(error) => transport::tls_errors(&error).any(|error| {
                use rustls::Error::{AlertReceived, InvalidCertificate, PeerIncompatible};
                matches!(error, AlertReceived(_) | InvalidCertificate(_) | PeerIncompatible(_))
            }),
        }
    }

    /// Prepares a request to a route. `parameters` replace the path parameters in order.
    pub(crate) fn call(&self, route: &Route, parameters: &[&dyn Display]) -> Call<'_> {
        self.call_path(route.method.into(), &route.path_with(parameters))
    }

    /// Prepares a request to a path below `/api/v1`, which starts with a slash.
    pub(crate) fn call_path(&self, method: Method, path: &str) -> Call<'_> {
        let url = self.base.api(path);
        // A path that the table does not have gets a response of the service or of something else.
        let route = routes::match_request(method.as_str(), path);
        let idempotent = route.map_or_else(|| method.is_idempotent(), Route::is_idempotent);
        let call = Call { api: self, method, url, idempotent, headers: HeaderMap::new(), body: None };
        let (credential, user) = (self.credential.as_ref(), self.user);
        let call = call.tenant(credential.and_then(|credential| credential.tenant.as_ref()));
        // The token is valid in a header: `with_credential` has checked it.
        let token = credential.and_then(|credential| bearer(&credential.secret).ok());
        let call = call.header(AUTHORIZATION, token);
        call.header(X_USER_ID, user.and_then(|user| HeaderValue::try_from(user.to_string()).ok()))
    }
}

/// A request that is not sent yet.
pub(crate) struct Call<'a> {
    api: &'a Api,
    method: Method,
    url: String,
    /// Whether the request can be repeated after a lost response.
    idempotent: bool,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
}

impl Call<'_> {
    /// Sets a bearer credential that the user does not know.
    pub(crate) fn token(self, token: &Secret) -> Result<Self> {
        Ok(self.header(AUTHORIZATION, Some(bearer(token)?)))
    }

    /// Sets `X-Session-ID` to a raw session token.
    pub(crate) fn session(self, token: &Secret) -> Result<Self> {
        Ok(self.header(X_SESSION_ID, Some(secret_value(token.expose())?)))
    }

    /// Sets `X-Tenant-ID`.
    pub(crate) fn tenant(self, tenant: Option<&TenantId>) -> Self {
        match tenant {
            // A tenant id consists of visible ASCII characters.
            Some(tenant) => self.header(X_TENANT_ID, HeaderValue::try_from(tenant.as_str()).ok()),
            None => self,
        }
    }

    /// Sets a JSON body.
    pub(crate) fn json(self, body: &impl Serialize) -> Result<Self> {
        let body =
            serde_json::to_vec(body).map_err(|error| ErrorKind::Defect.with_message(error.to_string()))?;
        Ok(self.body(body))
    }

    /// Sets a body that is JSON already. The service checks it.
    pub(crate) fn body(mut self, body: Vec<u8>) -> Self {
        self.body = Some(body);
        self.header(CONTENT_TYPE, Some(HeaderValue::from_static("application/json")))
    }

    /// Sends the request and deserializes the response.
    pub(crate) async fn fetch<T: DeserializeOwned>(self) -> Result<T> {
        self.send().await?.json()
    }

    /// Sends the request to a route that answers without a body.
    pub(crate) async fn execute(self) -> Result<()> {
        self.send().await?.empty()
    }

    /// Sends the request. A response without a success status is an error.
    pub(crate) async fn send(self) -> Result<ApiResponse> {
        self.send_any().await?.error_for_status()
    }

    /// Sends the request and returns the response with any status. Retries a busy service within the time limit.
    pub(crate) async fn send_any(self) -> Result<ApiResponse> {
        let deadline = Instant::now() + self.api.timeout;
        loop {
            let response = self.attempt(deadline).await?;
            let pause = response.retry_after().unwrap_or(DEFAULT_RETRY_AFTER);
            if !self.may_retry(response.status()) || Instant::now() + pause >= deadline {
                return Ok(response);
            }
            let cause = if response.status() == StatusCode::TOO_MANY_REQUESTS {
                "rate limited"
            } else {
                "service unavailable"
            };
            self.api.out.announce_wait(pause, cause);
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends the request once and returns the response with any status.
    pub(crate) async fn send_once(self) -> Result<ApiResponse> {
        self.attempt(Instant::now() + self.api.timeout).await
    }

    /// Sends the request once. Returns the body of a response with a success status, as it arrives.
    pub(crate) async fn stream(self) -> Result<impl Stream<Item = reqwest::Result<Bytes>>> {
        let request_id = uuid::Uuid::now_v7().to_string();
        let response = self.in_time(&request_id, Instant::now() + self.api.timeout, async {
            let response = self.open(&request_id).await?;
            if response.status().is_success() {
                require_event_stream(&response, self.api)?;
                return Ok((response.status(), request_id.clone(), response));
            }
            let rejected = self.read(response, &request_id).await?.error_for_status();
            Err(rejected.err().unwrap_or_else(|| ErrorKind::UnexpectedResponse.into()))
        });
        response.await.map(Response::bytes_stream)
    }

    async fn attempt(&self, deadline: Instant) -> Result<ApiResponse> {
        let request_id = &uuid::Uuid::now_v7().to_string();
        let exchange = async {
            let response = self.open(request_id).await?;
            let response = self.read(response, request_id).await?;
            Ok((response.status(), response.request_id.clone(), response))
        };
        self.in_time(request_id, deadline, exchange).await
    }

    /// Waits for status, request id and result of a request until the deadline, and logs it.
    async fn in_time<T>(
        &self,
        request_id: &str,
        deadline: Instant,
        exchange: impl Future<Output = Result<(StatusCode, String, T)>>,
    ) -> Result<T> {
        let started = Instant::now();
        let result = tokio::time::timeout_at(deadline, exchange).await.unwrap_or_else(|_| {
            let message = format!("no response from {} within {:?}", self.url, self.api.timeout);
            Err(self.lost(ErrorKind::TimedOut).with_message(message))
        });
        let (outcome, response_id) = match &result {
            Ok((status, id, _)) => (status.to_string(), id.as_str()),
            Err(error) => (error.code.clone(), request_id),
        };
        self.api.out.log_request(&RequestLog {
            method: self.method.as_str(),
            // The query may contain personal data.
            url: self.url.split('?').next().unwrap_or_default(),
            outcome: &outcome,
            request_id: response_id,
            millis: started.elapsed().as_millis(),
        });
        result.map(|(_, _, result)| result).map_err(|error| error.with_request_id(request_id))
    }

    /// Sends the request. The body of the response is not read yet.
    async fn open(&self, request_id: &str) -> Result<Response> {
        let request = self.api.http.request(self.method.clone(), &self.url);
        let mut request = request.headers(self.headers.clone()).header(X_REQUEST_ID, request_id);
        if let Some(body) = &self.body {
            request = request.body(body.clone());
        }
        match request.send().await {
            Ok(response) => Ok(response),
            Err(error) => Err(self.proxy_error(&error).await.unwrap_or_else(|| self.request_error(&error))),
        }
    }

    /// Error of a proxy that did not connect to the service.
    async fn proxy_error(&self, error: &reqwest::Error) -> Option<CliError> {
        let (proxy, endpoint) = (self.api.proxy.proxy()?, self.api.base.endpoint().ok()?);
        let failure = proxy.explain(&endpoint, &transport::root_cause(error)).await?;
        let (first, rest) = failure.advice.split_at_checked(1).unwrap_or_default();
        let advice = format!("{}{rest}.", first.to_uppercase());
        let error = ErrorKind::Unreachable.with_message(failure.message).with_remediation(advice);
        Some(CliError { retryable: failure.is_temporary, ..error })
    }

    async fn read(&self, response: Response, request_id: &str) -> Result<ApiResponse> {
        let (status, headers) = (response.status(), response.headers().clone());
        let endpoint = self.api.base.endpoint()?;
        let path = endpoint.service_path(response.url()).map(str::to_owned);
        let body = self.read_body(response).await?;
        let own_id = headers.get(X_REQUEST_ID).and_then(|value| value.to_str().ok());
        let request_id = own_id.unwrap_or(request_id).to_owned();
        let credential = self.api.credential.as_ref().map(|credential| credential.source.clone());
        Ok(ApiResponse { status, request_id, credential, idempotent: self.idempotent, path, headers, body })
    }

    async fn read_body(&self, mut response: Response) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.request_error(&error))? {
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                let message = format!(
                    "the response of {} is larger than {} MiB",
                    self.api.base,
                    MAX_RESPONSE_BYTES >> 20
                );
                return Err(self.lost(ErrorKind::UnexpectedResponse).with_message(message));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Returns whether the request may be sent again. The service does not process a request that it rejects with 429. After
    /// 502 to 504, only idempotent requests are safe to repeat.
    fn may_retry(&self, status: StatusCode) -> bool {
        match status {
            StatusCode::TOO_MANY_REQUESTS => true,
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                self.idempotent
            }
            _ => false,
        }
    }

    /// Kind of the error if the response is lost: this one, unless the request must not be repeated.
    fn lost(&self, kind: ErrorKind) -> ErrorKind {
        if self.idempotent { kind } else { ErrorKind::ResponseLost }
    }

    /// Error for a request without a complete response.
    fn request_error(&self, error: &reqwest::Error) -> CliError {
        let (base, cause) = (&self.api.base, transport::root_cause(error));
        if error.is_builder() {
            return ErrorKind::Usage.with_message(format!("invalid request: {cause}"));
        }
        if base.as_str().starts_with("https:") && transport::tls_errors(error).any(transport::is_not_tls) {
            let error = ErrorKind::Unreachable
                .with_message(format!("{base} does not answer with TLS"))
                .with_remediation(
                    "If the service has no TLS on this port, use http:// in --base-url (SVC_BASE_URL). Otherwise correct the \
                     port.",
                );
            return CliError { retryable: false, ..error };
        }
        if transport::tls_errors(error).any(|error| matches!(error, rustls::Error::InvalidCertificate(_))) {
            return ErrorKind::ConfigurationInvalid
                .with_message(format!("{base} is not trusted: {cause}"))
                .with_remediation(UNTRUSTED_CERTIFICATE);
        }
        let kind = if error.is_timeout() { ErrorKind::TimedOut } else { ErrorKind::Unreachable };
        // Before the connection exists, nothing of the request is sent.
        if error.is_connect() {
            let through = self.api.proxy.proxy().map_or_else(String::new, |proxy| {
                format!(" through the proxy {} ({})", proxy.address(), proxy.variable())
            });
            return kind.with_message(format!("cannot connect to {base}{through}: {cause}"));
        }
        self.lost(kind)
            .with_message(format!("the connection to {base} broke before the response was complete: {cause}"))
    }

    fn header(mut self, name: HeaderName, value: Option<HeaderValue>) -> Self {
        if let Some(value) = value {
            self.headers.insert(name, value);
        }
        self
    }
}

/// A page that answers in place of the service has no events.
fn require_event_stream(response: &Response, api: &Api) -> Result<()> {
    let content_type =
        response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("none");
    if content_type.starts_with("text/event-stream") {
        return Ok(());
    }
    let message = format!("{} answers with content type {content_type} in place of events", api.base);
    Err(ErrorKind::UnexpectedResponse.with_message(message))
}

fn bearer(token: &Secret) -> Result<HeaderValue> {
    secret_value(&format!("Bearer {}", token.expose()))
}

/// Value of a header that logs do not show.
fn secret_value(text: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::try_from(text)
        .map_err(|_| ErrorKind::InputInvalid.with_message("the credential contains invalid characters"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Header that makes all requests children of the run's trace.
fn traceparent(trace: Option<TraceContext>) -> HeaderMap {
    let header = trace.and_then(|trace| HeaderValue::try_from(trace.to_string()).ok());
    header.map(|header| (TRACEPARENT, header)).into_iter().collect()
}
