//! The address of the service, as people write it.

use contract::API_PREFIX;
use url::{Host, Url};

use crate::{TransportError, TransportErrorKind};

/// A checked address: http or https, a host, perhaps a path, nothing else.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    url: Url,
    path: String,
}

impl Endpoint {
    /// Takes the origin, also with a trailing slash, the API's prefix, or a path that a proxy puts before it.
    pub(super) fn parse(text: &str) -> Result<Self, TransportError> {
        let url = Url::parse(text).map_err(|error| faulty(&format!("is not a URL ({error})")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(faulty("is neither http nor https"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(faulty("holds a credential; set api_key instead"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(faulty("holds a query or a fragment"));
        }
        let path = url.path().trim_end_matches('/');
        let path = path.strip_suffix(API_PREFIX).unwrap_or(path).trim_end_matches('/').to_owned();
        Ok(Self { url, path })
    }

    /// The URL of a path of the API, given below its prefix.
    pub(super) fn at(&self, path: &str) -> String {
        format!("{self}{API_PREFIX}{path}")
    }

    pub(super) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Whether it is this machine, which no proxy can reach for us.
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

fn faulty(what: &str) -> TransportError {
    let message = format!("the endpoint {what}; it is the service's address, such as http://127.0.0.1:8080");
    TransportError::new(TransportErrorKind::Configuration, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_address_is_found_however_it_is_written() {
        for (text, url) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/api/v1/events"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/api/v1/events"),
            ("http://127.0.0.1:8080/api/v1", "http://127.0.0.1:8080/api/v1/events"),
            ("https://Example.org/api/v1//", "https://example.org/api/v1/events"),
            ("https://example.org:443/svc/", "https://example.org/svc/api/v1/events"),
            ("https://[::1]:8443", "https://[::1]:8443/api/v1/events"),
        ] {
            assert_eq!(Endpoint::parse(text).unwrap().at("/events"), url);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_and_not_repeated() {
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
    fn loopback_is_known_by_name_and_number() {
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
        fn writing_an_endpoint_and_reading_it_again_changes_nothing(text in "https?://[a-z]{1,9}(:[1-9][0-9]{3})?(/[a-z0-9]{1,4}){0,3}/{0,2}") {
            let endpoint = Endpoint::parse(&text).unwrap();
            let again = Endpoint::parse(&endpoint.at("")).unwrap();
            prop_assert_eq!(endpoint.at("/x"), again.at("/x"));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            let _ = Endpoint::parse(&text);
        }
    }
}
