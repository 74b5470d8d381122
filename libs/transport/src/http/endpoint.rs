//! The address of the service, as programs and people write it.

use std::fmt;

use contract::{API_PREFIX, Problem, ProblemKind};
use url::{Host, Url};

/// A validated address: http or https, host, optional port and path.
#[derive(Clone, Debug)]
pub struct Endpoint {
    url: Url,
    path: String,
}

impl Endpoint {
    /// Parses an address. Accepts a trailing slash, the prefix of the API, and a path prefix of a proxy.
    ///
    /// # Errors
    ///
    /// The reason, which does not repeat the text: it may contain a password.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let url = Url::parse(text).map_err(|_| "expected a URL such as https://svc.example.com")?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err("it must start with http:// or https:// and contain a host");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it must not contain a user or a password");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("it must not contain a query or a fragment");
        }
        let path = url.path().trim_end_matches('/');
        let path = path.strip_suffix(API_PREFIX).unwrap_or(path).trim_end_matches('/').to_owned();
        Ok(Self { url, path })
    }

    pub(super) fn as_url(&self) -> &Url {
        &self.url
    }

    /// URL of an API path, relative to its prefix.
    pub fn url(&self, path: &str) -> String {
        format!("{self}{API_PREFIX}{path}")
    }

    /// Path of the URL of a request as the service must receive it: a proxy removes the path of the address.
    pub fn service_path<'a>(&self, url: &'a Url) -> Option<&'a str> {
        url.path().strip_prefix(&self.path)
    }

    /// Returns whether requests are encrypted.
    pub fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Returns whether the host is a loopback address, which a proxy cannot reach.
    pub fn is_loopback(&self) -> bool {
        match self.url.host() {
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.url.origin().ascii_serialization(), self.path)
    }
}

/// Returns whether the service does not know the path that it has received, which is not that of the request: the address has a path
/// that no proxy removes, or a proxy changes it. No object is missing. `path` is that of [`Endpoint::service_path`].
pub fn is_of_another_path(problem: &Problem, path: Option<&str>) -> bool {
    problem.code == ProblemKind::NotFound.code() && path.is_some_and(|path| path != problem.instance)
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
    fn the_service_does_not_receive_the_path_of_the_address() {
        for text in ["https://example.org", "https://example.org/svc/"] {
            let endpoint = Endpoint::parse(text).unwrap();
            let url = endpoint.url("/users?email=a").parse().unwrap();
            assert_eq!(endpoint.service_path(&url), Some("/api/v1/users"), "{text}");
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
            let reason = Endpoint::parse(text).unwrap_err();
            assert!(!reason.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn detects_loopback_by_name_and_address() {
        for (text, loopback) in [
            ("http://localhost:1", true),
            ("http://127.9.9.9", true),
            ("http://[::1]", true),
            ("http://svc.localhost", true),
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
