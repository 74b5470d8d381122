//! Address of the service.

use contract::API_PREFIX;
use url::{Host, Url};

use crate::{TransportError, TransportErrorKind};

/// A validated address: http or https, host, optional port and path.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    url: Url,
    path: String,
}

impl Endpoint {
    /// Parses an address. Accepts a trailing slash, the prefix of the API, and a path prefix of a proxy.
    pub(super) fn parse(text: &str) -> Result<Self, TransportError> {
        let url = Url::parse(text).map_err(|error| invalid(&format!("is not a URL ({error})")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(invalid("must start with http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("must not contain a credential; set api_key instead"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("must not contain a query or a fragment"));
        }
        let path = url.path().trim_end_matches('/');
        let path = path.strip_suffix(API_PREFIX).unwrap_or(path).trim_end_matches('/').to_owned();
        Ok(Self { url, path })
    }

    /// URL of an API path, relative to its prefix.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{self}{API_PREFIX}{path}")
    }

    pub(super) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Returns whether the host is a loopback address, which a proxy cannot reach.
    pub(super) fn is_loopback(&self) -> bool {
        match self.url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.url.origin().ascii_serialization(), self.path)
    }
}

fn invalid(reason: &str) -> TransportError {
    let message = format!("the endpoint {reason} (example: http://127.0.0.1:8080)");
    TransportError::new(TransportErrorKind::Configuration, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_all_forms_of_an_address() {
        for (text, url) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/api/v1/events"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/api/v1/events"),
            ("http://127.0.0.1:8080/api/v1", "http://127.0.0.1:8080/api/v1/events"),
            ("https://Example.org/api/v1//", "https://example.org/api/v1/events"),
            ("https://example.org:443/svc/", "https://example.org/svc/api/v1/events"),
            ("https://[::1]:8443", "https://[::1]:8443/api/v1/events"),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().url("/events"), url);
        }
    }

    #[test]
    fn rejects_invalid_addresses_without_repeating_credentials() {
        for text in [
            "",
            "127.0.0.1:8080",
            "ftp://a",
            "http://",
            "http://u:hunter2@a",
            "http://a?k=hunter2",
            "http://a#b",
        ] {
            let error = Endpoint::parse(text).unwrap_err();
            assert_eq!(error.kind, TransportErrorKind::Configuration, "{text}");
            assert!(!error.message.contains("hunter2"));
        }
    }

    #[test]
    fn detects_loopback_by_name_and_address() {
        for (text, loopback) in [
            ("http://localhost:1", true),
            ("http://127.9.9.9", true),
            ("http://[::1]", true),
            ("http://localhost.example.org", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().is_loopback(), loopback, "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_a_formatted_endpoint_returns_the_same_endpoint(text in "https?://[a-z]{1,9}(:[1-9][0-9]{3})?(/[a-z0-9]{1,4}){0,3}/{0,2}") {
            let endpoint = Endpoint::parse(&text).unwrap();
            let again = Endpoint::parse(&endpoint.url("")).unwrap();
            prop_assert_eq!(endpoint.url("/x"), again.url("/x"));
        }

        #[test]
        fn parser_accepts_any_text_without_panicking(text in ".*") {
            let _ = Endpoint::parse(&text);
        }
    }
}
