//! The base URL of the service to connect to, validated and normalized. Stored credentials are keyed by it.

use std::fmt;
use std::str::FromStr;

use contract::API_PREFIX;
use tenancy::serde_as_text;
use transport::{Endpoint, ProxyChoice};

use crate::framework::error::{ErrorKind, Result};

/// Base URL without option, variable and context: what `make up` prints. Passkeys need a host name.
pub(crate) const DEFAULT_BASE_URL: &str = "http://localhost:8080";

/// A normalized base URL: `http` or `https`, host, port and optional path prefix, without `/api/v1` and trailing slash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BaseUrl(String);

impl BaseUrl {
    /// Parses and normalizes a URL. Removes a trailing `/api/v1`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let endpoint = Endpoint::parse(text).map_err(|reason| {
            // A URL that may contain a password is not repeated in the error.
            let shown = if text.contains('@') { String::new() } else { format!(": {text}") };
            ErrorKind::ConfigurationInvalid.with_message(format!("invalid base URL{shown} ({reason})"))
        })?;
        Ok(Self(endpoint.to_string()))
    }

    /// URL of an API path, which starts with a slash.
    pub(crate) fn api(&self, path: &str) -> String {
        format!("{}{API_PREFIX}{path}", self.0)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The same address with TLS; `None` if it has TLS already.
    pub(crate) fn with_tls(&self) -> Option<Self> {
        self.0.strip_prefix("http://").map(|rest| Self(format!("https://{rest}")))
    }

    /// Host and port, as written in the URL.
    pub(crate) fn authority(&self) -> &str {
        let (_, rest) = self.0.split_once("://").unwrap_or_default();
        rest.split('/').next().unwrap_or_default()
    }

    /// Returns whether the host is a loopback address.
    pub(crate) fn is_loopback(&self) -> bool {
        Endpoint::parse(&self.0).is_ok_and(|endpoint| endpoint.is_loopback())
    }

    pub(crate) fn endpoint(&self) -> Result<Endpoint> {
        Endpoint::parse(&self.0).map_err(|reason| ErrorKind::ConfigurationInvalid.with_message(reason))
    }

    /// How requests are sent, by the variables of the environment.
    pub(crate) fn proxy(&self) -> Result<ProxyChoice> {
        ProxyChoice::of(&self.endpoint()?)
            .map_err(|reason| ErrorKind::ConfigurationInvalid.with_message(reason))
    }

    /// Returns whether credentials would cross a network unencrypted.
    pub(crate) fn is_unencrypted(&self) -> bool {
        self.0.starts_with("http://") && !self.is_loopback()
    }
}

impl FromStr for BaseUrl {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Self::parse(text).map_err(|error| error.message)
    }
}

serde_as_text!(BaseUrl);

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> String {
        BaseUrl::parse(text).unwrap().0
    }

    #[test]
    fn normalizes_spellings_of_one_service() {
        for text in [
            "https://svc.example",
            "https://svc.example/",
            "HTTPS://SVC.example:443/api/v1/",
            "https://svc.example/api/v1",
        ] {
            assert_eq!(parsed(text), "https://svc.example", "{text}");
        }
        assert_eq!(parsed("http://[::1]:8080"), "http://[::1]:8080");
        assert_eq!(parsed("https://host/prefix/"), "https://host/prefix");
    }

    #[test]
    fn rejects_invalid_urls_without_repeating_a_password() {
        for text in ["", "svc.example", "ftp://svc.example", "https://x/?a=b", "https://x/#f", "mailto:x"] {
            assert_eq!(BaseUrl::parse(text).unwrap_err().code, "configuration_invalid", "{text}");
        }
        for text in [
            "https://user:hunter22@x",
            "user:hunter22@x",
            "https://user:hunter22@x:port",
            "https://user:hunter22@",
        ] {
            let error = BaseUrl::parse(text).unwrap_err();
            assert!(!error.message.contains("hunter22"), "{text}");
        }
    }

    #[test]
    fn plain_http_is_unencrypted_unless_it_stays_on_the_machine() {
        for text in [
            "http://127.0.0.1:8080",
            "http://127.9.9.9",
            "http://localhost",
            "http://[::1]:1",
            "https://far.example",
        ] {
            assert!(!BaseUrl::parse(text).unwrap().is_unencrypted(), "{text}");
        }
        for text in ["http://far.example", "http://10.0.0.1:8080", "http://localhost.far.example"] {
            assert!(BaseUrl::parse(text).unwrap().is_unencrypted(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn normalization_is_idempotent(text in "https?://[a-z0-9.:-]{1,20}(/[a-z0-9/]{0,20})?") {
            if let Ok(once) = BaseUrl::parse(&text) {
                prop_assert_eq!(BaseUrl::parse(once.as_str()).unwrap(), once);
            }
        }
    }
}
