//! The proxy that `svc doctor` reports: it may be the cause of a failed connection.

use hyper_util::client::proxy::matcher::Matcher;

use super::Finding;
use crate::framework::context::Context;
use crate::framework::environment;

/// Describes the proxy. `failed` is whether the connection does not work.
pub(super) fn check(context: &Context, failed: bool) -> Finding {
    let Some(proxy) = proxy_of(context) else { return Finding::Ok("none is used".to_owned()) };
    let message = format!("requests go through {}, set by {}", proxy.address, proxy.variable);
    if failed { Finding::Warning(message, proxy.bypass()) } else { Finding::Ok(message) }
}

/// A proxy for requests to the service.
pub(super) struct Proxy {
    /// Address without credentials.
    pub(super) address: String,
    variable: &'static str,
    host: String,
}

impl Proxy {
    /// How to send requests without the proxy.
    pub(super) fn bypass(&self) -> String {
        format!(
            "To connect without the proxy: `export NO_PROXY={}`, or `unset {}`.",
            self.host, self.variable
        )
    }
}

/// The proxy in effect, by the same rules as those of the HTTP client.
pub(super) fn proxy_of(context: &Context) -> Option<Proxy> {
    let service = context.base_url().ok()?.value;
    if service.is_loopback() {
        return None;
    }
    let proxy = Matcher::from_system().intercept(&service.as_str().parse().ok()?)?;
    let own: &[&str] = if service.as_str().starts_with("https:") {
        &["HTTPS_PROXY", "https_proxy"]
    } else {
        &["HTTP_PROXY", "http_proxy"]
    };
    let mut variables = own.iter().chain(&["ALL_PROXY", "all_proxy"]);
    let variable = variables.find(|name| environment::text(name).is_some()).unwrap_or(&"the system");
    let host = service.authority();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host).to_owned();
    Some(Proxy { address: proxy.uri().to_string(), variable, host })
}
