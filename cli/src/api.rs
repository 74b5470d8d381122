//! The HTTP API from this side: one call at a time, with its deadline, its retries and its answer read.

mod answer;
mod client;
mod list;

use std::time::Duration;

use contract::Secret;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenancy::{TenantId, UserId, X_SESSION_ID, X_TENANT_ID, X_USER_ID};
use tokio::time::Instant;

pub(crate) use answer::Answer;
pub(crate) use list::{Extent, Part};

use crate::base_url::BaseUrl;
use crate::error::{Fault, Result};
use crate::output::{Exchange, Output};

/// The header that names a request in the service's logs.
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Wait before another try where the service names none.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// One service, reached with this run's settings.
pub(crate) struct Api {
    http: reqwest::Client,
    base: BaseUrl,
    out: Output,
    timeout: Duration,
}

impl Api {
    /// A call of this path, which begins with a slash and stands below `/api/v1`.
    pub(crate) fn call(&self, method: Method, path: &str) -> Call<'_> {
        let url = self.base.api(path);
        Call { api: self, method, url, headers: Vec::new(), body: None }
    }
}

/// A call in the making.
pub(crate) struct Call<'a> {
    api: &'a Api,
    method: Method,
    url: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Option<Vec<u8>>,
}

impl Call<'_> {
    /// Proves who calls.
    pub(crate) fn bearer(self, credential: &Secret) -> Result<Self> {
        self.secret_header(AUTHORIZATION, format!("Bearer {}", credential.expose()))
    }

    /// Names the session to revoke.
    pub(crate) fn session(self, token: &Secret) -> Result<Self> {
        self.secret_header(X_SESSION_ID, token.expose().to_owned())
    }

    /// Names the tenant that the call is about.
    pub(crate) fn tenant(self, tenant: Option<&TenantId>) -> Self {
        match tenant {
            // A tenant id is visible ASCII.
            Some(tenant) => self.header(X_TENANT_ID, HeaderValue::try_from(tenant.as_str()).ok()),
            None => self,
        }
    }

    /// Names the user that the call is about.
    pub(crate) fn user(self, user: UserId) -> Self {
        self.header(X_USER_ID, HeaderValue::try_from(user.to_string()).ok())
    }

    /// Gives the call a body.
    pub(crate) fn json(self, body: &impl Serialize) -> Result<Self> {
        let body = serde_json::to_vec(body).map_err(|error| Fault::Defect.because(error.to_string()))?;
        Ok(self.body(body))
    }

    /// Gives the call a body that is JSON already, or is meant not to be.
    pub(crate) fn body(mut self, body: Vec<u8>) -> Self {
        self.body = Some(body);
        self.header(CONTENT_TYPE, Some(HeaderValue::from_static("application/json")))
    }

    /// Makes the call and reads its answer as this type.
    pub(crate) async fn fetch<T: DeserializeOwned>(self) -> Result<T> {
        self.send().await?.read()
    }

    /// Makes the call, whose answer says nothing but that it is done.
    pub(crate) async fn done(self) -> Result<()> {
        self.send().await.map(drop)
    }

    /// Makes the call, which must succeed.
    pub(crate) async fn send(self) -> Result<Answer> {
        self.answer().await?.successful()
    }

    /// Makes the call, whatever it is answered. What the service is too busy for is tried again while time is left, as it
    /// asks.
    pub(crate) async fn answer(self) -> Result<Answer> {
        let deadline = Instant::now() + self.api.timeout;
        loop {
            let request_id = uuid::Uuid::now_v7().to_string();
            let answer = self.attempt(&request_id, deadline).await?;
            let wait = answer.wait().unwrap_or(DEFAULT_WAIT);
            if !self.may_repeat(answer.status()) || Instant::now() + wait >= deadline {
                return Ok(answer);
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn attempt(&self, request_id: &str, deadline: Instant) -> Result<Answer> {
        let started = Instant::now();
        let answer =
            match tokio::time::timeout_at(deadline, self.exchange(request_id)).await {
                Ok(answer) => answer,
                Err(_) => Err(Fault::TimedOut
                    .because(format!("no answer from {} within {:?}", self.url, self.api.timeout))),
            };
        let (outcome, answered_id) = match &answer {
            Ok(answer) => (answer.status().to_string(), answer.request_id()),
            Err(error) => (error.code.clone(), request_id),
        };
        self.api.out.trace(&Exchange {
            method: self.method.as_str(),
            // A query may hold anything.
            url: self.url.split('?').next().unwrap_or_default(),
            outcome: &outcome,
            request_id: answered_id,
            millis: started.elapsed().as_millis(),
        });
        answer.map_err(|error| error.of_request(request_id))
    }

    async fn exchange(&self, request_id: &str) -> Result<Answer> {
        let mut request =
            self.api.http.request(self.method.clone(), &self.url).header(X_REQUEST_ID, request_id);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(body) = &self.body {
            request = request.body(body.clone());
        }
        let failed = |error: &reqwest::Error| client::failure(error, &self.api.base);
        let response = request.send().await.map_err(|error| failed(&error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.bytes().await.map_err(|error| failed(&error))?;
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let wait = text(RETRY_AFTER).and_then(|value| value.parse().ok()).map(Duration::from_secs);
        Ok(Answer::new(status, text(X_REQUEST_ID).unwrap_or(request_id), wait, &body))
    }

    /// Too many requests were not acted upon, whatever they asked for. A call that only reads or ends something can be
    /// made twice anyway.
    fn may_repeat(&self, status: StatusCode) -> bool {
        let harmless = matches!(self.method, Method::GET | Method::HEAD | Method::DELETE);
        match status {
            StatusCode::TOO_MANY_REQUESTS => true,
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                harmless
            }
            _ => false,
        }
    }

    fn secret_header(self, name: HeaderName, value: String) -> Result<Self> {
        let mut value = HeaderValue::try_from(value).map_err(|_| {
            Fault::InputInvalid.because("the credential holds characters that no credential has")
        })?;
        value.set_sensitive(true);
        Ok(self.header(name, Some(value)))
    }

    fn header(mut self, name: HeaderName, value: Option<HeaderValue>) -> Self {
        self.headers.extend(value.map(|value| (name, value)));
        self
    }
}
