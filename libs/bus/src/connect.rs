//! The connection to NATS.

use std::fmt;
use std::time::Duration;

use async_nats::{Client, ConnectOptions, ServerAddr};
use percent_encoding::percent_decode_str;
use service::config::Variable;

/// Addresses of the NATS servers. Each service has its own NATS user (`deploy/nats/accounts.conf`).
pub const NATS_URL: Variable = Variable {
    name: "SVC_NATS_URL",
    form: "nats://user:password@host:port, comma-separated",
    default: None,
    secret: true,
    meaning: "URLs of the NATS servers. The user has the name of the service.",
};

/// Interval of pings. The client closes the connection after two unanswered pings.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of one connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of one request through the client, for example for stream information.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Delay before the second attempt to connect. It doubles up to the maximum.
const FIRST_BACK_OFF: Duration = Duration::from_millis(20);
const MAX_BACK_OFF: Duration = Duration::from_secs(1);

/// Addresses of the servers and credentials of the client.
#[derive(Clone)]
pub struct Config {
    /// `nats://user:password@host:port`, or several addresses separated by commas; `tls://` for TLS. The user of the
    /// first address is used for all.
    pub url: String,
    /// Name of the connection in the logs of the server.
    pub name: String,
    /// Contents of a `.creds` file.
    pub credentials: Option<String>,
    /// Prefix of reply subjects, `_INBOX` by default.
    pub inbox_prefix: Option<String>,
    /// Whether [`connect`] succeeds before a server is reachable and connects in the background.
    pub wait_for_broker: bool,
}

impl Config {
    /// Returns a configuration without options: [`connect`] fails if no server is reachable.
    pub fn new(url: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            name: name.into(),
            credentials: None,
            inbox_prefix: None,
            wait_for_broker: false,
        }
    }
}

/// Omits the secrets.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("name", &self.name).finish_non_exhaustive()
    }
}

/// No connection was established.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is malformed. The message omits the address, because it can contain a password.
    #[error("malformed NATS address")]
    Address,
    /// The contents of the `.creds` file are malformed.
    #[error("malformed NATS credentials")]
    Credentials(#[source] std::io::Error),
    /// No server is reachable, or the server rejected the client.
    #[error("failed to connect to NATS")]
    Unreachable(#[from] async_nats::ConnectError),
}

/// Checks the form of a list of NATS addresses.
///
/// # Errors
/// An address is malformed.
pub fn check_url(text: &str) -> Result<(), ConnectError> {
    connect_options(&Config::new(text, "")).map(|_| ())
}

/// Connects to NATS. The client reconnects without limit, so messages that need an acknowledgement must not be
/// published through it.
pub async fn connect(config: &Config) -> Result<Client, ConnectError> {
    let (mut options, servers) = connect_options(config)?;
    if config.wait_for_broker {
        options = options.retry_on_initial_connect();
    }
    Ok(options.reconnect_delay_callback(back_off).connect(servers).await?)
}

/// Returns client options and addresses without credentials: the client library logs the addresses.
pub(crate) fn connect_options(config: &Config) -> Result<(ConnectOptions, Vec<ServerAddr>), ConnectError> {
    let mut options = ConnectOptions::new()
        .name(&config.name)
        .ping_interval(PING_INTERVAL)
        .connection_timeout(CONNECT_TIMEOUT)
        .request_timeout(Some(REQUEST_TIMEOUT))
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

/// Delay before a connection attempt: none before the first, then 20 ms, doubling to 1 s.
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
    fn debug_output_and_addresses_omit_the_password() {
        let config = Config::new("nats://ingest:p%40ss@127.0.0.1:4222, nats://other:4223", "test");
        assert!(!format!("{config:?}").contains("ss"));
        let (_, servers) = connect_options(&config).unwrap();
        let urls: Vec<_> = servers.iter().map(ServerAddr::as_url_str).collect();
        assert!(urls.iter().all(|url| !url.contains("ingest") && !url.contains("ss@")), "{urls:?}");
        assert_eq!(servers.len(), 2);
    }

    #[test]
    fn error_of_a_malformed_address_omits_the_address() {
        let error = connect_options(&Config::new("nats://u:secret@[", "test")).map(|_| ()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"));
    }

    #[test]
    fn back_off_doubles_up_to_one_second() {
        let delays: Vec<_> = [0, 1, 2, 3, 4, 8, 9, 1_000_000].map(|n| back_off(n).as_millis()).into();
        assert_eq!(delays, [0, 0, 20, 40, 80, 1000, 1000, 1000]);
    }
}
