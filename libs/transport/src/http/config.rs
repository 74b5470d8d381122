//! What an `HttpTransport` is made from; names and defaults are the specification's.

use contract::Secret;

/// Configuration of an [`HttpTransport`](crate::HttpTransport). The key is withheld from `Debug`.
#[derive(Clone, Debug)]
pub struct HttpTransportConfig {
    /// Address of the service, `https://host[:port]`; with or without the API's path prefix `/api/v1`.
    pub endpoint: String,
    /// An API key or session token, sent as `Authorization: Bearer`.
    pub api_key: Option<Secret>,
    /// Bounds one attempt, in seconds. 30 by default.
    pub timeout_sec: f64,
    /// How often a failed request is sent again at most, after the first attempt. 3 by default.
    pub max_retries: u32,
}

impl HttpTransportConfig {
    /// The defaults, for this endpoint.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self { endpoint: endpoint.into(), api_key: None, timeout_sec: 30.0, max_retries: 3 }
    }
}
