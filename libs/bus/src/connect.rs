//! The connection to NATS. Each connection attempt, also after a lost connection, uses the current credentials.

use std::fmt;
use std::future::ready;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::{self, Context};
use async_nats::{Auth, AuthError, Client, ConnectOptions, Event, ReconnectToServer, ServerAddr, ServerInfo};
use futures::FutureExt as _;
use nkeys::KeyPair;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use service::config::{Live, Login, Reader, Variable, Variables};
use service::{LogThrottle, chain};
use tokio::sync::watch;
use tokio::task::unconstrained;
use tokio::time::Instant;

service::variables! {
    /// Connection of a service to NATS. Each service has its own NATS user (`deploy/nats/accounts.conf`).
    #[derive(Clone)]
    pub struct NatsSettings {
        access: NatsAccess,
        /// CA certificates that are trusted for the NATS servers, instead of those of the system. TLS is then required. The file is read at
        /// each connection.
        ca_file: Option<PathBuf> =
            Variable::new("SVC_NATS_CA_FILE", "file of certificates (PEM)").optional_with(parse_certificates),
        /// Client certificate for the NATS servers. TLS is then required. The files are read at each connection.
        client_certificate: Option<PathBuf> =
            Variable::new("SVC_NATS_CLIENT_CERTIFICATE", "directory with `tls.crt` and `tls.key` (PEM)")
                .optional_with(parse_client_certificate),
    }
}

service::variables! {
    /// Addresses and credentials. They follow their files.
    #[derive(Clone)]
    struct AccessVariables {
        /// URLs of the NATS servers. The user has the name of the service. `tls://` requires TLS. User and password of a changed file are
        /// used at the next connection, also after a lost connection. Changed addresses need a restart.
        url: Live<String> = Variable::new("SVC_NATS_URL", "nats://user:password@host:port, comma-separated")
            .secret()
            .required_live(parse_url),
        /// User and password, if `SVC_NATS_URL` has none. The files are read at each connection.
        login: Option<Login> =
            Variable::new("SVC_NATS_LOGIN", "directory with `username` and `password`").optional_login(),
        /// Credentials of the user, a JWT and its seed, instead of a user and password. The file is read at each connection.
        credentials: Option<Live<String>> =
            Variable::new("SVC_NATS_CREDENTIALS", "content of a `.creds` file").secret().optional_live(parse_credentials),
    }
}

/// Addresses and credentials without a contradiction.
#[derive(Clone)]
struct NatsAccess(AccessVariables);

impl Variables for NatsAccess {
    fn variables() -> Vec<Variable> {
        AccessVariables::variables()
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let access = AccessVariables::read(reader)?;
        let has_user = parse_addresses(&access.url.get()).is_ok_and(|(_, auth)| auth.username.is_some());
        let other = match (has_user, &access.credentials) {
            (true, _) => "SVC_NATS_URL contains a user",
            (false, Some(_)) => "SVC_NATS_CREDENTIALS is set",
            (false, None) => return Some(Self(access)),
        };
        if access.login.is_some() {
            reader.error(format!("{other}, and SVC_NATS_LOGIN is set: remove one of them"));
            return None;
        }
        Some(Self(access))
    }
}

impl NatsSettings {
    /// Returns the configuration of the connections of a service.
    pub fn for_service(&self, name: &str) -> Config {
        let AccessVariables { url, login, credentials } = self.access.0.clone();
        Config {
            url,
            login,
            credentials,
            ca_file: self.ca_file.clone(),
            client_certificate: self.client_certificate.clone(),
            // The broker permits each user only its own inbox prefix (deploy/nats/accounts.conf).
            inbox_prefix: Some(format!("_INBOX.{name}")),
            ..Config::new("", format!("svc-{name}"))
        }
    }
}

/// Interval of pings. The client closes the connection after two unanswered pings.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(2);
/// Number of pings without a response after which a connection without the client library is dropped.
pub(crate) const MAX_PINGS: u32 = 2;
/// Timeout of one connection attempt.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of one request through the client, for example for stream information.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Delay before the second attempt to connect. It doubles up to the maximum.
const FIRST_BACK_OFF: Duration = Duration::from_millis(20);
const MAX_BACK_OFF: Duration = Duration::from_secs(1);
/// An outage is logged when it has lasted this long. A restart of a server takes less time.
const SHORT_OUTAGE: Duration = Duration::from_secs(5);
/// Files of a client certificate, with the names of Kubernetes Secrets of the type `kubernetes.io/tls`.
pub(crate) const CERTIFICATE: &str = "tls.crt";
pub(crate) const KEY: &str = "tls.key";

/// Addresses of the servers and credentials of the client.
#[derive(Clone)]
pub struct Config {
    /// `nats://user:password@host:port`, or several addresses separated by commas; `tls://` for TLS. The user of the
    /// first address is used for all.
    pub url: Live<String>,
    /// Name of the connection in the logs of the server.
    pub name: String,
    /// User and password, instead of those of the URL.
    pub login: Option<Login>,
    /// Contents of a `.creds` file, instead of a user and password.
    pub credentials: Option<Live<String>>,
    /// File of CA certificates that are trusted instead of those of the system; requires TLS.
    pub ca_file: Option<PathBuf>,
    /// Directory of a client certificate: `tls.crt` and `tls.key`; requires TLS.
    pub client_certificate: Option<PathBuf>,
    /// Prefix of reply subjects, `_INBOX` by default.
    pub inbox_prefix: Option<String>,
}

impl Config {
    /// Returns a configuration without options.
    pub fn new(url: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            url: Live::fixed(url.into()),
            name: name.into(),
            login: None,
            credentials: None,
            ca_file: None,
            client_certificate: None,
            inbox_prefix: None,
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
    Credentials,
    /// No server is reachable, or the server rejected the client.
    #[error("failed to connect to NATS")]
    Unreachable(#[from] async_nats::ConnectError),
    /// No server is reachable, or its certificate is not trusted.
    #[error("failed to connect to NATS")]
    Failed(#[from] io::Error),
    /// The server rejected the client, with this message.
    #[error("NATS rejected the client: {0}")]
    Rejected(String),
    /// The server has this version, which is too old.
    #[error(
        "nats-server {0} is too old: a user could write messages of others. Update all servers to 2.12.6 or newer"
    )]
    OldServer(String),
}

/// The oldest server that checks all permissions: before, a header of a message can name a subject that its user may not publish.
const OLDEST_VERSION: (u64, u64, u64) = (2, 12, 6);

/// Checks the version that a server announces.
///
/// # Errors
/// The server is too old.
pub fn check_version(version: &str) -> Result<(), ConnectError> {
    let mut numbers = version.split(['.', '-', '+']).map_while(|part| part.parse::<u64>().ok());
    let mut next = || numbers.next().unwrap_or(0);
    let is_old = (next(), next(), next()) < OLDEST_VERSION;
    if is_old { Err(ConnectError::OldServer(version.to_owned())) } else { Ok(()) }
}

/// No server is connected at the moment.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("not connected to NATS")]
pub struct NotConnected;

fn parse_url(text: &str) -> Result<String, ConnectError> {
    parse_addresses(text).map(|_| text.to_owned())
}

fn parse_credentials(text: &str) -> Result<String, ConnectError> {
    sign(text, b"").map(|_| text.to_owned())
}

fn parse_certificates(path: &str) -> Result<PathBuf, String> {
    check_pem(Path::new(path), "CERTIFICATE-----")
}

fn parse_client_certificate(path: &str) -> Result<PathBuf, String> {
    let directory = Path::new(path);
    check_pem(&directory.join(CERTIFICATE), "CERTIFICATE-----")?;
    check_pem(&directory.join(KEY), "PRIVATE KEY-----")?;
    Ok(directory.to_owned())
}

/// Checks that a file contains a section, so that a wrong path is found at the start.
fn check_pem(path: &Path, section: &str) -> Result<PathBuf, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    if text.lines().any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(section)) {
        return Ok(path.to_owned());
    }
    Err(format!("{} contains no {}", path.display(), section.trim_end_matches('-').to_lowercase()))
}

/// Connects to NATS. The client reconnects without limit, so messages that need an acknowledgement must not be
/// published through it.
///
/// # Errors
/// No server is reachable, the server is too old, or the configuration is invalid.
pub async fn connect(config: &Config) -> Result<Client, ConnectError> {
    let (options, servers) = connect_options(config)?;
    let client = options.connect(servers).await?;
    check_version(&client.server_info().version)?;
    Ok(client)
}

/// A connection for requests and subscriptions, which connects and reconnects in the background. Clones share it.
///
/// The client library connects to any server. So each use of the connection checks the version of the server.
#[derive(Clone)]
pub struct Connection {
    pub(crate) client: Client,
    /// Reports that the connection broke.
    disconnects: watch::Receiver<()>,
}

impl Connection {
    /// Starts to connect. No server need be reachable yet.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub async fn open(config: &Config) -> Result<Self, ConnectError> {
        let (sender, disconnects) = watch::channel(());
        let (options, servers) = connect_options(config)?;
        // The servers in turn: the client library would use the same one again while it is reachable.
        let (attempts, log_throttle) = (AtomicUsize::new(0), LogThrottle::default());
        // The client library logs each attempt, so its log lines are off.
        let (tried, failed, reported) =
            (Arc::new(Mutex::new(String::new())), LogThrottle::default(), LogThrottle::default());
        let (server, failing_since) = (Arc::clone(&tried), Mutex::new(None));
        let client = options
            .retry_on_initial_connect()
            .reconnect_to_server_callback(move |servers, last| {
                let attempt = attempts.fetch_add(1, Ordering::Relaxed);
                let next = servers.get(attempt % servers.len().max(1));
                // There is no last server before the first connection.
                let old = check_version(&last.version).err().filter(|_| last != ServerInfo::default());
                if let Some(error) = &old
                    && log_throttle.is_due()
                {
                    tracing::warn!(error = chain(error), "NATS server skipped");
                }
                let delay = old.map(|_| MAX_BACK_OFF);
                if let Some(next) = next {
                    *tried.lock() = format!("{}:{}", next.addr.host(), next.addr.port());
                }
                ready(next.map(|server| ReconnectToServer { addr: server.addr.clone(), delay }))
            })
            .event_callback(move |event| {
                match event {
                    Event::Connected => *failing_since.lock() = None,
                    Event::Disconnected => sender.send_replace(()),
                    Event::ClientError(error) => {
                        let since: Instant = *failing_since.lock().get_or_insert_with(Instant::now);
                        if since.elapsed() > SHORT_OUTAGE && failed.is_due() {
                            tracing::warn!(server = *server.lock(), %error, "failed to connect to NATS; retrying");
                        }
                    }
                    error @ (Event::ServerError(_) | Event::SlowConsumer(_)) if reported.is_due() => {
                        tracing::warn!(server = *server.lock(), %error, "NATS connection has an error");
                    }
                    _ => {}
                }
                ready(())
            })
            .connect(servers)
            .await?;
        Ok(Self { client, disconnects })
    }

    /// Returns the client if a server is connected. Otherwise, the client would queue a message and send it late. If the server is too old,
    /// the client leaves it for the next one.
    pub(crate) fn connected(&self) -> Result<&Client, NotConnected> {
        let is_connected = self.client.connection_state() == State::Connected;
        let server = self.client.try_server_info().filter(|_| is_connected).ok_or(NotConnected)?;
        if check_version(&server.version).is_err() {
            // If the queue of the client is full, the next call leaves the server.
            let _ = unconstrained(self.client.force_reconnect()).now_or_never();
            return Err(NotConnected);
        }
        Ok(&self.client)
    }

    /// Returns the API of `JetStream`, if a server is connected.
    pub(crate) fn jetstream(&self) -> Result<Context, NotConnected> {
        Ok(jetstream::new(self.connected()?.clone()))
    }

    /// Returns a receiver of later disconnections.
    pub(crate) fn later_disconnects(&self) -> watch::Receiver<()> {
        let mut disconnects = self.disconnects.clone();
        disconnects.mark_unchanged();
        disconnects
    }
}

/// Returns client options and addresses.
pub(crate) fn connect_options(config: &Config) -> Result<(ConnectOptions, Vec<ServerAddr>), ConnectError> {
    let servers = config.servers()?;
    let current = config.clone();
    let authenticate = move |nonce: Vec<u8>| ready(current.authenticate(&nonce).map_err(AuthError::new));
    let mut options = ConnectOptions::with_auth_callback(authenticate)
        .name(&config.name)
        .ping_interval(PING_INTERVAL)
        .connection_timeout(CONNECT_TIMEOUT)
        .request_timeout(Some(REQUEST_TIMEOUT))
        .reconnect_delay_callback(back_off)
        .ignore_discovered_servers();
    if let Some(file) = &config.ca_file {
        options = options.require_tls(true).add_root_certificates(file.clone());
    }
    if let Some(directory) = &config.client_certificate {
        let (certificate, key) = (directory.join(CERTIFICATE), directory.join(KEY));
        options = options.require_tls(true).add_client_certificate(certificate, key);
    }
    if let Some(prefix) = &config.inbox_prefix {
        options = options.custom_inbox_prefix(prefix);
    }
    Ok((options, servers))
}

impl Config {
    /// Returns the addresses.
    ///
    /// # Errors
    /// The addresses or the credentials are malformed.
    pub(crate) fn servers(&self) -> Result<Vec<ServerAddr>, ConnectError> {
        self.authenticate(b"")?;
        Ok(parse_addresses(&self.url.get())?.0)
    }

    /// Returns the configuration of a connection to each of the servers as another user.
    ///
    /// # Errors
    /// The addresses are malformed.
    pub(crate) fn each_server_as(&self, user: &str, password: &str) -> Result<Vec<Self>, ConnectError> {
        let with_user = |server: ServerAddr| {
            let mut url = server.into_inner();
            url.set_username(user).and_then(|()| url.set_password(Some(password)))?;
            let url = Live::fixed(url.to_string());
            Ok(Self { url, login: None, credentials: None, inbox_prefix: None, ..self.clone() })
        };
        let (servers, _) = parse_addresses(&self.url.get())?;
        servers.into_iter().map(with_user).collect::<Result<_, ()>>().map_err(|()| ConnectError::Address)
    }

    /// Returns whether the servers must use TLS.
    pub(crate) fn requires_tls(&self) -> bool {
        self.ca_file.is_some() || self.client_certificate.is_some()
    }

    /// Returns the current credentials. The server requires a signature of its nonce for a JWT.
    pub(crate) fn authenticate(&self, nonce: &[u8]) -> Result<Auth, ConnectError> {
        if let Some(credentials) = &self.credentials {
            return sign(&credentials.get(), nonce);
        }
        let (_, mut auth) = parse_addresses(&self.url.get())?;
        if let Some(login) = &self.login {
            let (username, password) = login.get();
            (auth.username, auth.password) = (Some((*username).clone()), Some((*password).clone()));
        }
        Ok(auth)
    }
}

/// Returns the addresses without credentials, because the client library logs them, and the user and password of the first one.
fn parse_addresses(url: &str) -> Result<(Vec<ServerAddr>, Auth), ConnectError> {
    let (mut servers, mut auth) = (Vec::new(), Auth::new());
    for address in url.split(',') {
        let address: ServerAddr = address.trim().parse().map_err(|_| ConnectError::Address)?;
        let mut url = address.into_inner();
        if servers.is_empty() && !url.username().is_empty() {
            auth.username = Some(decode(url.username()));
            auth.password = Some(decode(url.password().unwrap_or_default()));
        }
        url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| ConnectError::Address)?;
        servers.push(ServerAddr::from_url(url).map_err(|_| ConnectError::Address)?);
    }
    Ok((servers, auth))
}

/// Returns the JWT of a `.creds` file, and the signature of a nonce.
fn sign(credentials: &str, nonce: &[u8]) -> Result<Auth, ConnectError> {
    let section = |name: &str| {
        let (_, rest) = credentials.split_once(&format!("-----BEGIN {name}-----"))?;
        rest.lines().map(str::trim).find(|line| !line.is_empty())
    };
    let key = section("USER NKEY SEED").and_then(|seed| KeyPair::from_seed(seed).ok());
    let mut auth = Auth::new();
    auth.jwt = section("NATS USER JWT").map(str::to_owned);
    auth.signature = key.and_then(|key| key.sign(nonce).ok());
    if auth.jwt.is_some() && auth.signature.is_some() { Ok(auth) } else { Err(ConnectError::Credentials) }
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
    fn servers_older_than_2_12_6_are_rejected() {
        for version in ["2.12.6", "2.12.10", "2.14.0-RC.1", "2.15.1", "3.0.0"] {
            assert!(check_version(version).is_ok(), "{version}");
        }
        for version in ["2.12.5", "2.12.0-RC.4", "2.9.25", "1.4.1", "", "beta"] {
            let error = check_version(version).unwrap_err().to_string();
            assert!(error.contains(version) && error.contains("2.12.6 or newer"), "{error}");
        }
    }

    #[test]
    fn a_login_is_checked_at_each_server() {
        let config = Config::new("tls://ingest:secret@one:4222,tls://two:4223", "test");
        let urls = config.each_server_as("acme", "pass").unwrap();
        let urls: Vec<_> = urls.iter().map(|config| (*config.url.get()).clone()).collect();
        assert_eq!(urls, ["tls://acme:pass@one:4222", "tls://acme:pass@two:4223"]);
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
