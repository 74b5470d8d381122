//! The proxy that the environment names for an address. An unusable value is an error: the HTTP library would ignore it.

use std::ffi::OsString;
use std::net::IpAddr;
use std::time::Duration;

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{ClientBuilder, Proxy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use super::endpoint::Endpoint;

/// Time limit of the request that asks a proxy for its status again.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// A proxy, and the environment variable that names it.
#[derive(Clone, Debug)]
pub struct EnvironmentProxy {
    variable: &'static str,
    url: Url,
}

/// How requests to an address are sent.
#[derive(Clone, Debug)]
pub enum ProxyChoice {
    /// Without a proxy: the address is loopback, or `NO_PROXY` contains it.
    Direct,
    /// The environment names no proxy. On macOS and Windows, the system can have one.
    System,
    /// Through this proxy.
    Proxy(EnvironmentProxy),
}

/// An error of a proxy that did not connect to the address.
#[derive(Clone, Debug)]
pub struct ProxyFailure {
    /// What happened.
    pub message: String,
    /// What to do.
    pub advice: String,
    /// Whether the same request can succeed later.
    pub is_temporary: bool,
}

impl ProxyChoice {
    /// Reads the variables as curl does: `HTTPS_PROXY` or `HTTP_PROXY`, else `ALL_PROXY`, and `NO_PROXY`, each also in lower case. Empty
    /// variables count as unset.
    ///
    /// # Errors
    ///
    /// The message names the variable that is unusable, without its value: it may contain a password.
    pub fn of(endpoint: &Endpoint) -> Result<Self, String> {
        #[expect(clippy::disallowed_methods, reason = "as every HTTP client")]
        Self::from_variables(endpoint, |name| std::env::var_os(name))
    }

    fn from_variables(
        endpoint: &Endpoint,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, String> {
        let text = |name: &'static str| match variable(name).filter(|value| !value.is_empty()) {
            Some(value) => value.into_string().map(Some).map_err(|_| format!("{name} is not valid UTF-8")),
            None => Ok(None),
        };
        // In a CGI program, HTTP_PROXY is a header of the request: the HTTP library then uses no proxy.
        if endpoint.is_loopback() || variable("REQUEST_METHOD").is_some() {
            return Ok(Self::Direct);
        }
        for name in ["NO_PROXY", "no_proxy"] {
            if let Some(list) = text(name)? {
                if is_bypassed(&list, endpoint.as_url()) {
                    return Ok(Self::Direct);
                }
                break;
            }
        }
        let own =
            if endpoint.is_https() { ["HTTPS_PROXY", "https_proxy"] } else { ["HTTP_PROXY", "http_proxy"] };
        for name in own.into_iter().chain(["ALL_PROXY", "all_proxy"]) {
            if let Some(value) = text(name)? {
                let url = parse(&value)
                    .map_err(|reason| format!("{name} {reason}; set it to http://HOST:PORT, or unset it"))?;
                return Ok(Self::Proxy(EnvironmentProxy { variable: name, url }));
            }
        }
        Ok(Self::System)
    }

    /// Makes a client send its requests in this way.
    pub fn apply(&self, builder: ClientBuilder) -> reqwest::Result<ClientBuilder> {
        Ok(match self {
            Self::Direct => builder.no_proxy(),
            Self::System => builder,
            Self::Proxy(proxy) => builder.no_proxy().proxy(Proxy::all(proxy.url.clone())?),
        })
    }

    /// The proxy of the environment.
    pub fn proxy(&self) -> Option<&EnvironmentProxy> {
        match self {
            Self::Proxy(proxy) => Some(proxy),
            _ => None,
        }
    }
}

impl EnvironmentProxy {
    /// The variable that names the proxy.
    pub fn variable(&self) -> &'static str {
        self.variable
    }

    /// The address without user and password.
    pub fn address(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Explains the innermost cause of a failed request, if the proxy did not connect to the address.
    pub async fn explain(&self, endpoint: &Endpoint, cause: &str) -> Option<ProxyFailure> {
        let status = match cause.strip_prefix("tunnel error: ")? {
            "proxy authorization required" => Some(407),
            "unsuccessful" => timeout(STATUS_TIMEOUT, self.status_for(endpoint)).await.ok().flatten(),
            _ => return None,
        };
        let (address, variable) = (self.address(), self.variable);
        let status_text = status.map_or_else(String::new, |status| format!(": HTTP {status}"));
        let advice = match status {
            Some(407) => {
                format!("set {variable} to http://USER:PASSWORD@HOST:PORT with a user of the proxy")
            }
            Some(status) if status < 500 => {
                format!("ask the administrator of the proxy to allow {endpoint}, or add its host to NO_PROXY")
            }
            _ => format!(
                "check the address {endpoint}, and that the proxy can reach it; or add its host to NO_PROXY"
            ),
        };
        Some(ProxyFailure {
            message: format!("the proxy {address} ({variable}) did not connect to {endpoint}{status_text}"),
            advice,
            is_temporary: status.is_none_or(|status| status >= 500),
        })
    }

    /// Status of the response to CONNECT. The HTTP library reports only that it is an error.
    async fn status_for(&self, endpoint: &Endpoint) -> Option<u16> {
        let (host, port) = (self.url.host_str()?, self.url.port_or_known_default()?);
        // An encrypted connection to the proxy itself is rare.
        if self.url.scheme() != "http" {
            return None;
        }
        let target = endpoint.as_url();
        let target = format!("{}:{}", target.host_str()?, target.port_or_known_default()?);
        let mut proxy = TcpStream::connect((host.trim_matches(['[', ']']), port)).await.ok()?;
        let matcher = Matcher::builder().all(self.url.as_str()).build();
        let intercept = matcher.intercept(&endpoint.as_url().as_str().parse().ok()?)?;
        let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
        if let Some(credential) = intercept.basic_auth() {
            request.extend_from_slice(&[b"Proxy-Authorization: ", credential.as_bytes(), b"\r\n"].concat());
        }
        proxy.write_all(&[&request[..], b"\r\n"].concat()).await.ok()?;
        // "HTTP/1.1 502"
        let mut line = [0; 12];
        proxy.read_exact(&mut line).await.ok()?;
        std::str::from_utf8(&line).ok()?.split(' ').nth(1)?.parse().ok().filter(|status| *status != 200)
    }
}

fn parse(value: &str) -> Result<Url, String> {
    let invalid = |reason: &str| format!("is not the address of a proxy ({reason})");
    let url = if value.contains("://") { Url::parse(value) } else { Url::parse(&format!("http://{value}")) };
    let url = url.map_err(|error| invalid(&error.to_string()))?;
    match url.scheme() {
        "http" | "https" if url.path() != "/" || url.query().is_some() || url.fragment().is_some() => {
            Err(invalid("it contains a path"))
        }
        "http" | "https" => Ok(url),
        scheme => Err(format!("names a proxy with the scheme {scheme}, which is not supported")),
    }
}

/// Returns whether an entry of `NO_PROXY` matches. Entries are separated by commas or spaces: `*`, a name, which includes its subdomains
/// and can start with `.` or `*.`, an IP address, or a network (CIDR). Each can end with a port, which must be that of the address.
fn is_bypassed(list: &str, address: &Url) -> bool {
    let Ok(uri) = address.as_str().parse() else { return false };
    let port = address.port_or_known_default();
    list.split([',', ' ', '\t', '\n']).filter(|entry| !entry.is_empty()).any(|entry| {
        let (name, own_port) = split_port(entry);
        let matcher = Matcher::builder()
            .all("http://proxy")
            .no(name.strip_prefix('*').filter(|rest| !rest.is_empty()).unwrap_or(name));
        own_port.is_none_or(|own| Some(own) == port) && matcher.build().intercept(&uri).is_none()
    })
}

/// Splits `host:port`. Brackets around an IPv6 address are removed.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    if let Some((address, rest)) = entry.strip_prefix('[').and_then(|entry| entry.split_once(']')) {
        return (address, rest.strip_prefix(':').and_then(|port| port.parse().ok()));
    }
    match entry.rsplit_once(':') {
        Some((host, port)) if entry.parse::<IpAddr>().is_err() && !entry.contains('/') => {
            match port.parse() {
                Ok(port) => (host, Some(port)),
                Err(_) => (entry, None),
            }
        }
        _ => (entry, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(address: &str, variables: &[(&str, &str)]) -> Result<ProxyChoice, String> {
        let endpoint = Endpoint::parse(address).unwrap();
        ProxyChoice::from_variables(&endpoint, |name| {
            variables.iter().find(|(own, _)| *own == name).map(|(_, value)| value.into())
        })
    }

    fn is_direct(address: &str, no_proxy: &str) -> bool {
        let variables = [("HTTPS_PROXY", "http://proxy:3128"), ("NO_PROXY", no_proxy)];
        matches!(choice(address, &variables), Ok(ProxyChoice::Direct))
    }

    #[test]
    fn a_value_that_is_no_proxy_is_an_error_that_names_its_variable_and_not_its_value() {
        for value in [
            "nonsense://hunter22",
            "socks5://user:hunter22@proxy:1080",
            "http://",
            "http:/hunter22",
            "proxy:hunter22",
            "hunter22 proxy",
            "http://proxy:70000",
            "http://proxy/hunter22",
            "://hunter22",
            "https//hunter22",
            "http://[hunter22",
        ] {
            for variable in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
                let error = choice("https://svc.example", &[(variable, value)]).unwrap_err();
                assert!(
                    error.starts_with(variable) && error.contains("http://HOST:PORT"),
                    "{value}: {error}"
                );
                assert!(!error.contains("hunter22"), "{error}");
            }
        }
        let other = choice("https://svc.example", &[("HTTP_PROXY", "nonsense://x")]).unwrap();
        assert!(matches!(other, ProxyChoice::System), "{other:?}");
    }

    #[test]
    fn the_variable_of_the_scheme_precedes_and_an_empty_one_counts_as_unset() {
        let of = |variables: &[(&str, &str)]| {
            choice("https://svc.example", variables)
                .unwrap()
                .proxy()
                .map(|proxy| (proxy.variable(), proxy.address()))
        };
        let all = ("ALL_PROXY", "all:1");
        assert_eq!(
            of(&[all, ("https_proxy", "http://u:p@own:2/")]),
            Some(("https_proxy", "http://own:2".into()))
        );
        assert_eq!(of(&[all, ("HTTPS_PROXY", "")]), Some(("ALL_PROXY", "http://all:1".into())));
        assert_eq!(of(&[all, ("REQUEST_METHOD", "GET")]), None);
        assert_eq!(of(&[("HTTP_PROXY", "http://other:3")]), None);
    }

    #[test]
    fn no_proxy_accepts_names_with_dots_ports_addresses_and_networks() {
        let service = "https://svc.example:8443";
        for list in [
            "*",
            "svc.example",
            "SVC.example",
            ".svc.example",
            "example",
            ".example",
            "*.example",
            "svc.example:8443",
            ".example:8443",
            "other, svc.example",
            "other svc.example:8443",
        ] {
            assert!(is_direct(service, list), "{list}");
        }
        for list in [
            "",
            "vc.example",
            "svc.example:443",
            "svc.example.org",
            "example:443",
            "10.0.0.0/8",
            "svc.example:",
            ":8443",
        ] {
            assert!(!is_direct(service, list), "{list}");
        }
        for (address, list, expected) in [
            ("https://10.1.2.3", "10.0.0.0/8", true),
            ("https://10.1.2.3", "10.1.2.3:443", true),
            ("https://10.1.2.3", "10.1.2.3:80", false),
            ("https://11.1.2.3", "10.0.0.0/8", false),
            ("https://[fd00::1]", "fd00::/8", true),
            ("https://[fd00::1]:8443", "[fd00::1]:8443", true),
            ("https://[fd00::1]:8443", "[fd00::1]:443", false),
            ("https://[fd00::1]", "fd00::1", true),
        ] {
            assert_eq!(is_direct(address, list), expected, "{address} {list}");
        }
    }

    #[test]
    fn a_proxy_that_is_not_used_is_not_checked() {
        let variables = [("HTTPS_PROXY", "nonsense://x"), ("NO_PROXY", "svc.example")];
        assert!(matches!(choice("https://svc.example", &variables), Ok(ProxyChoice::Direct)));
        assert!(matches!(choice("https://localhost:8443", &variables[..1]), Ok(ProxyChoice::Direct)));
    }
}
