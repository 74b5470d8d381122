//! The origin of the service, checked and in one spelling, so that it can be the key of stored credentials.

use std::fmt;
use std::net::IpAddr;

use contract::API_PREFIX;
use url::{Host, Url};

use crate::error::{CliError, Fault};

/// Where a service is looked for when nothing says otherwise.
pub(crate) const DEFAULT: &str = "http://127.0.0.1:8080";

/// `http` or `https`, host, port, perhaps a path prefix; never with `/api/v1`, a final slash, or a password.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BaseUrl(String);

impl BaseUrl {
    /// Reads what a person typed. `/api/v1` at the end is what the API adds by itself, so it is dropped.
    pub(crate) fn parse(text: &str) -> Result<Self, CliError> {
        // What may hold a password is not repeated.
        let shown = if text.contains('@') { "" } else { text };
        let invalid = |why: &str| {
            let colon = if shown.is_empty() { "" } else { ": " };
            Fault::ConfigurationInvalid.because(format!("the base URL {why}{colon}{shown}"))
        };
        let url = Url::parse(text).map_err(|_| invalid("is no URL (as https://svc.example.com)"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(invalid("must begin with http:// or https:// and name a host"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("must not hold a user or a password"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("must not hold a query or a fragment"));
        }
        let bare = url.as_str().trim_end_matches('/');
        Ok(Self(bare.strip_suffix(API_PREFIX).unwrap_or(bare).trim_end_matches('/').to_owned()))
    }

    /// The address of an API path, which begins with a slash.
    pub(crate) fn api(&self, path: &str) -> String {
        format!("{}{API_PREFIX}{path}", self.0)
    }

    /// The URL as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether what is sent stays on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let url = Url::parse(&self.0).ok();
        match url.as_ref().and_then(Url::host) {
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
            Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
            None => false,
        }
    }

    /// Whether credentials would cross a network that anybody can read.
    pub(crate) fn is_exposed(&self) -> bool {
        self.0.starts_with("http://") && !self.is_loopback()
    }
}

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
    fn spellings_of_one_service_become_one() {
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
    fn what_names_no_service_is_refused_and_a_password_is_not_repeated() {
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
    fn plain_http_is_exposed_unless_it_stays_on_the_machine() {
        for text in [
            "http://127.0.0.1:8080",
            "http://127.9.9.9",
            "http://localhost",
            "http://[::1]:1",
            "https://far.example",
        ] {
            assert!(!BaseUrl::parse(text).unwrap().is_exposed(), "{text}");
        }
        for text in ["http://far.example", "http://10.0.0.1:8080", "http://localhost.far.example"] {
            assert!(BaseUrl::parse(text).unwrap().is_exposed(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_spelling_is_stable(text in "https?://[a-z0-9.:-]{1,20}(/[a-z0-9/]{0,20})?") {
            if let Ok(once) = BaseUrl::parse(&text) {
                prop_assert_eq!(BaseUrl::parse(once.as_str()).unwrap(), once);
            }
        }
    }
}
