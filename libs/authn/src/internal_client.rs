//! Client of the internal API of a service. Its requests have the service token.

use http::{Method, StatusCode};
use reqwest::Response;
use serde::Serialize;
use service::telemetry::outgoing_headers;
use url::Url;

use crate::batcher::LOOKUP_TIMEOUT;
use crate::{ServiceSecret, Unavailable};

/// Client of the internal API of one service. Clones share the connections.
#[derive(Clone)]
pub struct InternalClient {
    http: reqwest::Client,
    origin: Url,
    secret: ServiceSecret,
}

impl InternalClient {
    /// Returns a client of the API at this origin.
    ///
    /// # Errors
    /// The HTTP client cannot be created.
    pub fn new(origin: Url, secret: &ServiceSecret) -> Result<Self, reqwest::Error> {
        // Internal traffic never uses a proxy of the environment.
        let mut http =
            reqwest::Client::builder().no_proxy().timeout(LOOKUP_TIMEOUT).connect_timeout(LOOKUP_TIMEOUT);
        if origin.scheme() == "http" {
            // Plain HTTP needs no certificates. Otherwise every start would read and parse those of the machine.
            http = http.tls_certs_only([]);
        }
        let http = http.build()?;
        Ok(Self { http, origin, secret: secret.clone() })
    }

    /// Puts an object.
    ///
    /// # Errors
    /// The service is not available, or rejected the object.
    pub async fn put(&self, path: &str, body: &impl Serialize) -> Result<(), Unavailable> {
        self.send(Method::PUT, path, body).await?.error_for_status().map_err(unavailable)?;
        Ok(())
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Response, Unavailable> {
        let url = self.origin.join(path).map_err(Unavailable::because)?;
        let request = self.http.request(method, url).headers(outgoing_headers()).json(body);
        let (current, previous) = self.secret.tokens();
        let retry = previous.and_then(|token| Some(request.try_clone()?.bearer_auth(token.expose())));
        let response = request.bearer_auth(current.expose()).send().await.map_err(unavailable)?;
        match retry {
            // The service has not read the current token yet.
            Some(retry) if response.status() == StatusCode::UNAUTHORIZED => {
                retry.send().await.map_err(unavailable)
            }
            _ => Ok(response),
        }
    }
}

pub(crate) fn unavailable(error: reqwest::Error) -> Unavailable {
    Unavailable::because(error)
}
