//! A connection to a server: handshake, TLS, and its two directions.

use std::io;

use async_nats::{Auth, ConnectInfo, Protocol, ServerAddr, ServerInfo};
use bytes::{Buf as _, BytesMut};
use data_encoding::BASE64URL_NOPAD;
use rustls::pki_types::ServerName;
use service::chain;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use uuid::Uuid;

use super::protocol::{self, Malformed, PING, ServerOperation};
use super::tls;
use crate::connect::{CONNECT_TIMEOUT, Config, ConnectError, back_off, check_version};

/// Room for received bytes before each read: several hundred replies.
const READ_BUFFER: usize = 32 * 1024;

/// A connection that has accepted the client.
pub(crate) struct WireConnection {
    pub(crate) reader: Reader,
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Prefix of the subjects of replies, of which there is one per connection.
    pub(crate) inbox: String,
    /// Maximum size of headers and payload of a message.
    pub(crate) max_payload: usize,
}

/// Opens connections to the servers of a configuration.
pub(crate) struct Dialer {
    config: Config,
    /// Number of the server that is tried first.
    next: usize,
    /// Number of attempts since the last connection, with the one that connected: a connection that breaks at once delays the next one.
    attempts: usize,
}

impl Dialer {
    /// Checks the configuration.
    ///
    /// # Errors
    /// The address or the credentials are malformed.
    pub(crate) fn new(config: Config) -> Result<Self, ConnectError> {
        config.servers()?;
        // Replicas start with different servers.
        let [.., random] = Uuid::now_v7().into_bytes();
        Ok(Self { config, next: random.into(), attempts: 0 })
    }

    /// Connects, without limit. Calls `failed` with the first error. Cancel safe.
    pub(crate) async fn connect(&mut self, failed: impl FnOnce(ConnectError)) -> WireConnection {
        let mut failed = Some(failed);
        loop {
            self.attempts += 1;
            sleep(back_off(self.attempts)).await;
            match self.dial().await {
                Ok(connection) => {
                    self.attempts = 1;
                    return connection;
                }
                Err(error) => {
                    if let Some(failed) = failed.take() {
                        failed(error);
                    } else {
                        tracing::debug!(error = chain(&error), "failed to connect to NATS; retrying");
                    }
                }
            }
        }
    }

    /// Connects to the first usable server, and tries each one once. Does not use servers that are too old.
    async fn dial(&mut self) -> Result<WireConnection, ConnectError> {
        let mut servers = self.config.servers()?;
        let first = self.next % servers.len().max(1);
        self.next = self.next.wrapping_add(1);
        servers.rotate_left(first);
        let mut error = ConnectError::Address;
        for server in servers {
            match WireConnection::open(&self.config, &server).await {
                Ok(connection) => {
                    if matches!(error, ConnectError::OldServer(_)) {
                        tracing::warn!(error = chain(&error), "NATS server skipped");
                    }
                    return Ok(connection);
                }
                // The errors of other servers can be temporary; an old server needs an update.
                Err(_) if matches!(error, ConnectError::OldServer(_)) => {}
                Err(failed) => error = failed,
            }
        }
        Err(error)
    }
}

/// The receiving direction.
pub(crate) struct Reader {
    stream: Box<dyn AsyncRead + Send + Unpin>,
    buffer: BytesMut,
}

impl WireConnection {
    /// Connects to a server.
    ///
    /// # Errors
    /// The server is not reachable, is too old, does not respond in time, or rejects the client.
    pub(crate) async fn open(config: &Config, server: &ServerAddr) -> Result<Self, ConnectError> {
        let opened = timeout(CONNECT_TIMEOUT, Self::open_untimed(config, server)).await;
        opened.unwrap_or_else(|elapsed| Err(io::Error::from(elapsed).into()))
    }

    async fn open_untimed(config: &Config, server: &ServerAddr) -> Result<Self, ConnectError> {
        let mut stream = TcpStream::connect((server.host(), server.port())).await?;
        stream.set_nodelay(true)?;
        let mut buffer = BytesMut::with_capacity(READ_BUFFER);
        let info: ServerInfo = receive(&mut stream, &mut buffer, |operation| match operation {
            ServerOperation::Info(info) => Some(serde_json::from_slice(info).map_err(io::Error::other)),
            _ => None,
        })
        .await??;
        check_version(&info.version)?;
        let tls_required = info.tls_required || server.tls_required() || config.requires_tls();
        let (stream, mut writer): (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>) =
            if tls_required {
                let name = ServerName::try_from(server.host().to_owned()).map_err(io::Error::other)?;
                let connector = TlsConnector::from(tls::client_config(config).await?);
                // Bytes that were received without TLS after the settings are not trusted.
                buffer.clear();
                let (reader, writer) = split(connector.connect(name, stream).await?);
                (Box::new(reader), Box::new(writer))
            } else {
                let (reader, writer) = stream.into_split();
                (Box::new(reader), Box::new(writer))
            };
        let mut reader = Reader { stream, buffer };
        let Auth { username, password, jwt, signature, .. } = config.authenticate(info.nonce.as_bytes())?;
        let connect = ConnectInfo {
            verbose: false,
            pedantic: false,
            echo: false,
            headers: true,
            no_responders: true,
            tls_required,
            protocol: Protocol::Dynamic,
            lang: "rust".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: Some(config.name.clone()),
            user: username,
            pass: password,
            auth_token: None,
            nkey: None,
            user_jwt: jwt,
            signature: signature.map(|signature| BASE64URL_NOPAD.encode(&signature)),
        };
        let connect = serde_json::to_string(&connect).map_err(io::Error::other)?;
        writer.write_all(format!("CONNECT {connect}\r\n").as_bytes()).await?;
        writer.write_all(PING).await?;
        writer.flush().await?;
        let accepted =
            |operation: ServerOperation<'_>| matches!(operation, ServerOperation::Pong).then_some(());
        receive(&mut reader.stream, &mut reader.buffer, accepted).await?;
        let prefix = config.inbox_prefix.as_deref().unwrap_or("_INBOX");
        let inbox = format!("{prefix}.{}", Uuid::now_v7().simple());
        Ok(Self { reader, writer, inbox, max_payload: info.max_payload })
    }
}

impl Reader {
    /// Receives more bytes. Cancel safe.
    ///
    /// # Errors
    /// The connection is broken or closed.
    pub(crate) async fn receive(&mut self) -> io::Result<()> {
        receive_bytes(&mut self.stream, &mut self.buffer).await
    }

    /// Calls `handle` with all complete operations that were received. Returns their length, to be discarded.
    ///
    /// # Errors
    /// The server does not follow the protocol.
    pub(crate) fn handle<'a>(
        &'a mut self,
        mut handle: impl FnMut(ServerOperation<'a>),
    ) -> Result<usize, Malformed> {
        let (bytes, mut length): (&'a [u8], _) = (&self.buffer, 0);
        while let Some((operation, of_operation)) = protocol::parse(&bytes[length..])? {
            handle(operation);
            length += of_operation;
        }
        Ok(length)
    }

    /// Discards bytes that were handled.
    pub(crate) fn discard(&mut self, length: usize) {
        self.buffer.advance(length);
    }
}

/// Receives operations until `accept` returns a value.
async fn receive<T>(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    accept: impl Fn(ServerOperation<'_>) -> Option<T>,
) -> Result<T, ConnectError> {
    loop {
        while let Some((operation, length)) = protocol::parse(buffer).map_err(io::Error::other)? {
            if let ServerOperation::Error(text) = operation {
                return Err(ConnectError::Rejected(text.to_owned()));
            }
            let accepted = accept(operation);
            buffer.advance(length);
            if let Some(accepted) = accepted {
                return Ok(accepted);
            }
        }
        receive_bytes(stream, buffer).await?;
    }
}

async fn receive_bytes(stream: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> io::Result<()> {
    buffer.reserve(READ_BUFFER);
    match stream.read_buf(buffer).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use service::Tasks;
    use testkit::{Certificates, NatsServer};
    use tokio::net::TcpListener;

    use super::*;

    async fn open(config: &Config) -> Result<WireConnection, ConnectError> {
        WireConnection::open(config, &config.servers().unwrap()[0]).await
    }

    #[tokio::test]
    async fn a_server_and_a_client_without_trusted_certificates_are_rejected() {
        let (ours, other) = (Certificates::create().unwrap(), Certificates::create().unwrap());
        let server = NatsServer::start_with(&format!(
            "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: true }}",
            ours.server().join("tls.crt"),
            ours.server().join("tls.key"),
            ours.authority()
        ))
        .await
        .unwrap();
        let config = Config {
            ca_file: Some(ours.authority()),
            client_certificate: Some(ours.client()),
            ..Config::new(&*server.url, "test")
        };
        assert!(open(&config).await.is_ok());
        assert!(open(&Config { ca_file: Some(other.authority()), ..config.clone() }).await.is_err());
        assert!(open(&Config { ca_file: None, ..config.clone() }).await.is_err());
        assert!(open(&Config { client_certificate: None, ..config }).await.is_err());
    }

    /// Returns the address of a server that announces 2.12.5.
    async fn old_server() -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        Tasks::default().spawn_short(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let info = r#"INFO {"version":"2.12.5","max_payload":1048576}"#;
                stream.write_all(format!("{info}\r\n").as_bytes()).await.unwrap();
            }
        });
        address.to_string()
    }

    #[tokio::test]
    async fn a_server_that_is_too_old_is_skipped_and_the_error_names_it() {
        let (old, current) = (old_server().await, NatsServer::start().await.unwrap());
        let with_another =
            |url: &str| Dialer::new(Config::new(format!("nats://{old},{url}"), "test")).unwrap();
        let mut dialer = with_another(&current.url);
        // Each call starts with another server.
        for _ in 0..2 {
            assert!(dialer.dial().await.is_ok());
        }
        let mut dialer = with_another("nats://127.0.0.1:1");
        for _ in 0..2 {
            let error = dialer.dial().await.err().map(|error| error.to_string()).unwrap();
            assert!(error.starts_with("nats-server 2.12.5 is too old"), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_error_of_an_outage_is_reported_and_attempts_are_delayed() {
        let mut dialer = Dialer::new(Config::new("nats://127.0.0.1:1", "test")).unwrap();
        for _ in 0..2 {
            let mut reported = 0;
            let connecting = dialer.connect(|_| reported += 1);
            assert!(timeout(Duration::from_secs(10), connecting).await.is_err());
            assert_eq!(reported, 1);
        }
        assert!(dialer.attempts < 40, "{}", dialer.attempts);
    }

    #[tokio::test]
    async fn a_server_without_tls_is_rejected_if_tls_is_required() {
        let (server, ours) = (NatsServer::start().await.unwrap(), Certificates::create().unwrap());
        let config = Config::new(&*server.url, "test");
        assert!(open(&config).await.is_ok());
        assert!(open(&Config { ca_file: Some(ours.authority()), ..config }).await.is_err());
        let with_tls = server.url.replace("nats://", "tls://");
        assert!(open(&Config::new(with_tls, "test")).await.is_err());
    }

    #[tokio::test]
    async fn the_error_of_a_rejected_client_has_the_message_of_the_server() {
        let server =
            NatsServer::start_with("authorization { user: ingest, password: secret }").await.unwrap();
        let rejected = open(&Config::new(server.url.replace("//", "//ingest:wrong@"), "test")).await;
        let error = rejected.err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("NATS rejected the client: Authorization Violation"));
        assert!(open(&Config::new(server.url.replace("//", "//ingest:secret@"), "test")).await.is_ok());
    }
}
