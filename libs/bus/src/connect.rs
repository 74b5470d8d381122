//! The connection to NATS.

use std::fmt;
use std::time::Duration;

use async_nats::{Client, ConnectOptions, ServerAddr};
use percent_encoding::percent_decode_str;
use service::config::Variable;

use crate::publisher::PublishMetrics;

/// Where the broker is. Each service has a user of its own there (`deploy/nats/accounts.conf`).
pub const NATS_URL: Variable = Variable {
    name: "SVC_NATS_URL",
    form: "nats://user:password@host:port, several with commas",
    default: None,
    secret: true,
    meaning: "The NATS servers, as the user who is called like the service.",
};

/// A dead broker is noticed after three of these at most.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// How long one attempt to connect may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// How long an answer may take: stream information, and whatever else is asked through this client.
const REQUEST_LIMIT: Duration = Duration::from_secs(3);
/// The wait between attempts doubles up to this.
const MAX_BACK_OFF: Duration = Duration::from_secs(1);
const FIRST_BACK_OFF: Duration = Duration::from_millis(20);

/// Where the broker is and who we are to it.
#[derive(Clone)]
pub struct Config {
    /// `nats://user:password@host:port`, or several with commas between; `tls://` for TLS. The first one's user counts.
    pub url: String,
    /// What the broker calls this connection in its logs.
    pub name: String,
    /// The contents of a `.creds` file, when the broker wants one.
    pub credentials: Option<String>,
    /// Under which subjects answers may come; `_INBOX` when absent.
    pub inbox_prefix: Option<String>,
    /// Whether `connect` waits in the background for a broker that is not there yet, instead of failing.
    pub wait_for_broker: bool,
    /// Where a publisher over this connection counts.
    pub metrics: PublishMetrics,
}

impl Config {
    /// A broker at this address, which must be there already.
    pub fn new(url: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            name: name.into(),
            credentials: None,
            inbox_prefix: None,
            wait_for_broker: false,
            metrics: PublishMetrics::default(),
        }
    }
}

/// Without the secrets.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// An address that names no server. The address is not repeated: it may hold a password.
    #[error("the broker's address is malformed")]
    Address,
    /// The `.creds` contents cannot be used.
    #[error("the broker's credentials are malformed")]
    Credentials(#[source] std::io::Error),
    /// The broker is not there, or does not want us.
    #[error("the broker does not answer")]
    Unreachable(#[from] async_nats::ConnectError),
}

/// Connects. The client reconnects by itself, for ever; nothing that must be acknowledged is published through it.
pub async fn connect(config: &Config) -> Result<Client, ConnectError> {
    let (mut options, servers) = dial(config)?;
    if config.wait_for_broker {
        options = options.retry_on_initial_connect();
    }
    Ok(options.reconnect_delay_callback(back_off).connect(servers).await?)
}

/// Options and addresses. The user and password leave the addresses, since the client library writes those to its logs.
pub(crate) fn dial(config: &Config) -> Result<(ConnectOptions, Vec<ServerAddr>), ConnectError> {
    let mut options = ConnectOptions::new()
        .name(&config.name)
        .ping_interval(PING_INTERVAL)
        .connection_timeout(CONNECT_LIMIT)
        .request_timeout(Some(REQUEST_LIMIT))
        .ignore_discovered_servers();
    let mut servers = Vec::new();
    for address in config.url.split(',') {
        let address: ServerAddr = address.trim().parse().map_err(|_| ConnectError::Address)?;
        let mut url = address.into_inner();
        if servers.is_empty() && !url.username().is_empty() {
            options =
                options.user_and_password(decode(url.username()), decode(url.password().unwrap_or_default()));
        }
        url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| ConnectError::Address)?;
        servers.push(ServerAddr::from_url(url).map_err(|_| ConnectError::Address)?);
    }
    if let Some(credentials) = &config.credentials {
        options = options.credentials(credentials).map_err(ConnectError::Credentials)?;
    }
    if let Some(prefix) = &config.inbox_prefix {
        options = options.custom_inbox_prefix(prefix);
    }
    Ok((options, servers))
}

/// At once, then 20 ms, doubling to 1 s.
pub(crate) fn back_off(attempt: usize) -> Duration {
    if attempt <= 1 {
        return Duration::ZERO;
    }
    let doublings = u32::try_from(attempt - 2).unwrap_or(u32::MAX).min(16);
    FIRST_BACK_OFF.saturating_mul(1 << doublings).min(MAX_BACK_OFF)
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_neither_shown_nor_left_in_the_address() {
        let config = Config::new("nats://ingest:p%40ss@127.0.0.1:4222, nats://other:4223", "test");
        assert!(!format!("{config:?}").contains("ss"));
        let (_, servers) = dial(&config).unwrap();
        let urls: Vec<_> = servers.iter().map(ServerAddr::as_url_str).collect();
        assert!(urls.iter().all(|url| !url.contains("ingest") && !url.contains("ss@")), "{urls:?}");
        assert_eq!(servers.len(), 2);
    }

    #[test]
    fn a_malformed_address_is_refused_without_being_repeated() {
        let fault = dial(&Config::new("nats://u:secret@[", "test")).map(|_| ()).unwrap_err();
        assert!(!format!("{fault} {fault:?}").contains("secret"));
    }

    #[test]
    fn waits_double_up_to_a_second() {
        let waits: Vec<_> = [0, 1, 2, 3, 4, 8, 9, 1_000_000].map(|n| back_off(n).as_millis()).into();
        assert_eq!(waits, [0, 0, 20, 40, 80, 1000, 1000, 1000]);
    }
}
