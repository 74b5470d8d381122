//! The HTTP client under the calls: TLS, proxies, and what its failures mean.

use std::error::Error;
use std::time::Duration;

use contract::TraceContext;
use reqwest::Client;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;

use super::Api;
use crate::base_url::BaseUrl;
use crate::ca_file::CaFile;
use crate::error::{CliError, Fault, Result};
use crate::output::Output;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

impl Api {
    /// Prepares to reach this service; nothing is sent yet.
    pub(crate) fn new(
        base: BaseUrl,
        ca_file: Option<&CaFile>,
        timeout: Duration,
        trace: Option<TraceContext>,
        out: Output,
    ) -> Result<Self> {
        // Redirects are not followed: they would carry the credential to wherever the answer says.
        let mut builder = Client::builder()
            .user_agent(concat!("svc/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .connect_timeout(timeout)
            .default_headers(traceparent(trace));
        if base.is_loopback() {
            // What stays on the machine passes no proxy.
            builder = builder.no_proxy();
        }
        if let Some(file) = ca_file {
            builder = builder.tls_certs_only(file.certificates()?);
        } else if base.is_loopback() && base.as_str().starts_with("http:") {
            // No certificate will be looked at, so a machine without any is fine.
            builder = builder.tls_certs_only([]);
        }
        let http = builder.build().map_err(|error| {
            Fault::ConfigurationInvalid.because(format!("no HTTP client can be made: {}", causes(&error)))
        })?;
        Ok(Self { http, base, out, timeout })
    }
}

/// The header that makes every call a child of the run.
fn traceparent(trace: Option<TraceContext>) -> HeaderMap {
    let header = trace.and_then(|trace| HeaderValue::try_from(trace.to_string()).ok());
    header.map(|header| (TRACEPARENT, header)).into_iter().collect()
}

/// The error for a request that got no answer.
pub(super) fn failure(error: &reqwest::Error, base: &BaseUrl) -> CliError {
    if error.is_timeout() {
        return Fault::TimedOut.because(format!("{base}: {}", causes(error)));
    }
    if error.is_builder() {
        return Fault::Usage.because(format!("the request cannot be made: {}", causes(error)));
    }
    Fault::Unreachable.because(format!("{base} cannot be reached: {}", causes(error)))
}

/// The innermost causes say what happened; the outer ones only repeat the address.
fn causes(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
