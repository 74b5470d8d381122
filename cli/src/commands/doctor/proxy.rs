//! The proxy that `svc doctor` reports: it may be the cause of a failed connection.

use transport::ProxyChoice;

use super::Finding;
use crate::framework::context::Context;

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

/// The proxy in effect.
pub(super) fn proxy_of(context: &Context) -> Option<Proxy> {
    let service = context.base_url().ok()?.value;
    let (address, variable) = match service.proxy().ok()? {
        ProxyChoice::Proxy(proxy) => (proxy.address(), proxy.variable()),
        ProxyChoice::Direct | ProxyChoice::System => return None,
    };
    let host = service.authority();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host).to_owned();
    Some(Proxy { address, variable, host })
}
