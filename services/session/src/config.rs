//! The configuration of the session service.

use std::num::NonZeroU32;
use std::time::Duration;

use audit::{AUDIT_PERSONAL, PiiPolicy};
use authn::{OperatorSettings, PlatformSecret, ServiceSecret};
use bus::NatsSettings;
use database::DatabaseSettings;
use ratelimit::{Limit, Rate};
use service::config::{Variable, parse_http_url};
use service::http::ConnectionSettings;
use service::process::{IDENTITY_URL, PUBLIC_URL, parse_origin};
use url::Url;

use crate::domain::session::Lifetimes;

/// Rate of wrong user codes: ten at once, then one per minute. A device code is valid for ten minutes.
const WRONG_USER_CODES: Rate = Rate::new(NonZeroU32::new(10).unwrap(), Duration::from_mins(1));

service::variables! {
    /// Configuration of the session service.
    #[derive(Clone)]
    pub struct Config {
        pub(crate) database: DatabaseSettings,
        /// Origin of the public API.
        pub public_url: String = PUBLIC_URL.required_with(parse_origin),
        /// Address of the page of device login, as devices show it. It must lead to `/api/v1/pages/device`, for example by a
        /// redirect. The default is the address of the page.
        pub(crate) device_url: Option<String> =
            Variable::new("SVC_DEVICE_URL", "URL without query and fragment").optional_with(page_address),
        /// Secret of the internal API.
        pub service_secret: ServiceSecret,
        pub(crate) platform_secret: PlatformSecret,
        /// Access of the Kubernetes operator to the internal API.
        pub(crate) operator: OperatorSettings,
        /// Internal API of the identity service.
        pub identity_url: Url = IDENTITY_URL.required_with(parse_http_url),
        pub(crate) nats: NatsSettings,
        pub(crate) audit_personal: PiiPolicy = AUDIT_PERSONAL.required(),
        pub(crate) lifetimes: Lifetimes,
        pub(crate) connections: ConnectionSettings,
        pub(crate) rate_limits: RateLimits,
    }
}

service::variables! {
    /// Rate limits per client address.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct RateLimits {
        /// Start of device logins.
        pub(crate) device: Limit = Limit::setting(ratelimit::DEVICE, "device"),
        /// All other routes.
        pub(crate) default: Limit = Limit::setting(ratelimit::DEFAULT, "default"),
    }
}

/// Returns an address to which a fragment can be added.
fn page_address(text: &str) -> Result<String, &'static str> {
    let url: Url = text.parse().map_err(|_| "malformed URL")?;
    let is_page = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && !text.contains(['?', '#', '@']);
    is_page
        .then(|| text.to_owned())
        .ok_or("must be http:// or https:// with a host, without user, query and fragment")
}

impl RateLimits {
    /// Limit of wrong user codes. It is off if the device limit is off.
    pub(crate) fn user_code(&self) -> Limit {
        Limit { name: "user_code", rate: self.device.rate.map(|_| WRONG_USER_CODES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_page_of_device_login_can_get_a_fragment() {
        for good in ["https://acme.example/device", "http://127.0.0.1:8080/device", "https://acme.example"] {
            assert_eq!(page_address(good).as_deref(), Ok(good));
        }
        for bad in [
            "acme.example/device",
            "ftp://acme.example/device",
            "https://a@acme.example/device",
            "https://acme.example/?a",
            "https://acme.example/device#a",
            "https://",
            "javascript:alert(1)",
        ] {
            assert!(page_address(bad).is_err(), "{bad}");
        }
    }
}
