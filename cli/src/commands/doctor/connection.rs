//! The checks of connection and proxy of `svc doctor`: does the service answer at the base URL, or something else, or nothing? A proxy
//! may be the cause.

use contract::{Problem, identity, routes};
use reqwest::StatusCode;

use super::Finding;
use crate::framework::api::{Api, ApiResponse};
use crate::framework::context::Context;
use crate::framework::endpoint::BaseUrl;
use crate::framework::error::{CliError, ErrorKind, Result};

/// Returns the response to `GET /version` if it is that of the service.
pub(super) async fn check(context: &Context, api: &Api, service: &BaseUrl) -> Result<ApiResponse> {
    match api.call(&routes::GET_VERSION, &[]).send_once().await {
        Ok(response) if is_version(&response) => Ok(response),
        other => Err(explain(context, service, other).await),
    }
}

fn is_version(response: &ApiResponse) -> bool {
    response.status().is_success() && response.json::<identity::Version>().is_ok()
}

/// Error for the absence of an answer, or for one that is not the version of the service.
async fn explain(context: &Context, service: &BaseUrl, result: Result<ApiResponse>) -> CliError {
    // A server with TLS answers a plain request with an alert, or with status 400.
    let may_be_tls = match &result {
        Ok(response) => response.status() == StatusCode::BAD_REQUEST,
        Err(error) => error.code != ErrorKind::TimedOut.code(),
    };
    if let Some(secure) = service.with_tls()
        && may_be_tls
        && speaks_tls(context, &secure).await
    {
        return ErrorKind::Unreachable.with_message(format!("{service} answers with TLS")).with_remediation(
            format!("Use https: `svc config set base-url {secure}`, --base-url or SVC_BASE_URL."),
        );
    }
    let response = match result {
        Ok(response) => response,
        Err(error) => return with_proxy(context, error),
    };
    let status = response.status();
    if status.is_redirection()
        && let Some(target) = response.header("location")
    {
        let target = target.trim_end_matches("/version");
        return ErrorKind::UnexpectedResponse
            .with_message(format!("{service} redirects to {target}"))
            .with_remediation(format!(
                "Use that address: `svc config set base-url {target}`, --base-url or SVC_BASE_URL."
            ));
    }
    if serde_json::from_slice::<Problem>(response.body()).is_ok() {
        return response.error_for_status().err().unwrap_or_else(|| ErrorKind::UnexpectedResponse.into());
    }
    let kind = response.header("content-type").unwrap_or("no content type").to_owned();
    let gateway = if matches!(status.as_u16(), 502..=504) {
        "If it is the address of a reverse proxy, the proxy does not reach the service: check that the service runs. Otherwise: "
    } else {
        ""
    };
    let error = ErrorKind::UnexpectedResponse
        .with_message(format!("{service} answers with HTTP {status} ({kind}), but not as the service"))
        .with_remediation(format!(
            "{gateway}Correct the address: `svc config set base-url URL`, --base-url or SVC_BASE_URL. `svc config list` shows \
             which one is used."
        ));
    with_proxy(context, error)
}

/// Describes the proxy. `failed` is whether the connection does not work.
pub(super) fn check_proxy(context: &Context, failed: bool) -> Finding {
    let Some(proxy) = proxy_of(context) else { return Finding::Ok("none is used".to_owned()) };
    let message = format!("requests go through {}, set by {}", proxy.address, proxy.variable);
    if failed { Finding::Warning(message, proxy.bypass) } else { Finding::Ok(message) }
}

/// A proxy for requests to the service.
struct Proxy {
    /// Address without credentials.
    address: String,
    variable: &'static str,
    /// How to send requests without the proxy.
    bypass: String,
}

/// The proxy in effect.
fn proxy_of(context: &Context) -> Option<Proxy> {
    let service = context.base_url().ok()?.value;
    let choice = service.proxy().ok()?;
    let proxy = choice.proxy()?;
    let (address, variable) = (proxy.address(), proxy.variable());
    let host = service.authority();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    let bypass = format!("To connect without the proxy: `export NO_PROXY={host}`, or `unset {variable}`.");
    Some(Proxy { address, variable, bypass })
}

/// Adds the proxy as a possible cause.
fn with_proxy(context: &Context, error: CliError) -> CliError {
    match proxy_of(context) {
        Some(proxy) => {
            let message = if error.message.contains(&proxy.address) {
                error.message
            } else {
                format!("{}; the request went through the proxy {}", error.message, proxy.address)
            };
            let remediation = format!("{} {}", proxy.bypass, error.remediation);
            CliError { message, remediation, ..error }
        }
        None => error,
    }
}

/// Returns whether the server answers a TLS handshake, even with a certificate that is not trusted.
async fn speaks_tls(context: &Context, secure: &BaseUrl) -> bool {
    match context.api_for(secure.clone()) {
        Ok(api) => api.speaks_tls().await,
        Err(_) => false,
    }
}
