//! A connection to a server: handshake, TLS, and its two directions.
//!
//! A burst of messages is written into one buffer, and the replies are read from one. The client library would pass each message
//! through a queue, and allocate each header and reply.

use std::io;

use async_nats::{Auth, ServerAddr};
use bytes::{Buf as _, BytesMut};
use data_encoding::BASE64URL_NOPAD;
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::protocol::{self, Malformed, PING, ServerOperation};
use crate::connect::{CONNECT_TIMEOUT, Config, ConnectError};
use crate::tls;

/// Room for received bytes before each read: several hundred replies.
const READ_BUFFER: usize = 32 * 1024;

/// A connection that has accepted the client.
pub(super) struct Connection {
    pub(super) reader: Reader,
    pub(super) writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Maximum size of headers and payload of a message.
    pub(super) max_payload: usize,
}

/// The receiving direction.
pub(super) struct Reader {
    stream: Box<dyn AsyncRead + Send + Unpin>,
    buffer: BytesMut,
}

/// The used settings of a server.
#[derive(Deserialize)]
struct Info {
    max_payload: usize,
    #[serde(default)]
    nonce: String,
    #[serde(default)]
    tls_required: bool,
}

/// The settings of the client.
#[derive(Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the protocol")]
struct Connect<'a> {
    verbose: bool,
    pedantic: bool,
    echo: bool,
    headers: bool,
    no_responders: bool,
    tls_required: bool,
    protocol: u8,
    lang: &'static str,
    version: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sig: Option<String>,
}

impl Connection {
    /// Connects to a server.
    ///
    /// # Errors
    /// The server is not reachable, does not respond in time, or rejects the client.
    pub(super) async fn open(config: &Config, server: &ServerAddr) -> Result<Self, ConnectError> {
        let opened = timeout(CONNECT_TIMEOUT, Self::open_untimed(config, server)).await;
        opened.unwrap_or_else(|elapsed| Err(io::Error::from(elapsed).into()))
    }

    async fn open_untimed(config: &Config, server: &ServerAddr) -> Result<Self, ConnectError> {
        let mut stream = TcpStream::connect((server.host(), server.port())).await?;
        stream.set_nodelay(true)?;
        let mut buffer = BytesMut::with_capacity(READ_BUFFER);
        let info: Info = receive(&mut stream, &mut buffer, |operation| match operation {
            ServerOperation::Info(info) => Some(serde_json::from_slice(info).map_err(io::Error::other)),
            _ => None,
        })
        .await??;
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
        let connect = Connect {
            verbose: false,
            pedantic: false,
            echo: false,
            headers: true,
            no_responders: true,
            tls_required,
            protocol: 1,
            lang: "rust",
            version: env!("CARGO_PKG_VERSION"),
            name: &config.name,
            user: username,
            pass: password,
            jwt,
            sig: signature.map(|signature| BASE64URL_NOPAD.encode(&signature)),
        };
        let connect = serde_json::to_string(&connect).map_err(io::Error::other)?;
        writer.write_all(format!("CONNECT {connect}\r\n").as_bytes()).await?;
        writer.write_all(PING).await?;
        writer.flush().await?;
        let accepted =
            |operation: ServerOperation<'_>| matches!(operation, ServerOperation::Pong).then_some(());
        receive(&mut reader.stream, &mut reader.buffer, accepted).await?;
        Ok(Self { reader, writer, max_payload: info.max_payload })
    }
}

impl Reader {
    /// Receives more bytes. Cancel safe.
    ///
    /// # Errors
    /// The connection is broken or closed.
    pub(super) async fn receive(&mut self) -> io::Result<()> {
        receive_bytes(&mut self.stream, &mut self.buffer).await
    }

    /// Calls `handle` with all complete operations that were received. Returns their length, to be discarded.
    ///
    /// # Errors
    /// The server does not follow the protocol.
    pub(super) fn handle<'a>(
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
    pub(super) fn discard(&mut self, length: usize) {
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
    use testkit::{Certificates, NatsServer};

    use super::*;

    async fn open(config: &Config) -> Result<Connection, ConnectError> {
        Connection::open(config, &config.servers().unwrap()[0]).await
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
