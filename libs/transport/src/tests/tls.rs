//! A service with a private certificate authority.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::serve::Listener;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::server::Server;
use crate::{Transport, TransportErrorKind, UdmEvent};

/// A self-signed certificate for 127.0.0.1.
pub(super) struct Authority(CertifiedKey<KeyPair>);

impl Authority {
    fn new() -> Self {
        Self(generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap())
    }

    fn pem(&self) -> String {
        self.0.cert.pem()
    }
}

/// A TLS listener that drops connections after a failed handshake.
pub(super) struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    pub(super) fn new(tcp: TcpListener, Authority(own): &Authority) -> Self {
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        Self { tcp, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.tcp.accept().await.unwrap();
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}

#[tokio::test]
async fn trusts_a_service_with_a_given_root_certificate() {
    let authority = Authority::new();
    let server = Server::over_tls(&authority).await;
    let transport = server.transport().with_root_certificates(authority.pem().as_bytes()).unwrap();
    transport.connect().await.unwrap();
    assert!(transport.send(&UdmEvent::new("fw")).await.success);
    // One of several certificates is enough.
    let both = Authority::new().pem() + &authority.pem();
    assert!(server.transport().with_root_certificates(both.as_bytes()).unwrap().health_check().await);
}

#[tokio::test]
async fn sends_nothing_to_a_service_of_another_authority() {
    let server = Server::over_tls(&Authority::new()).await;
    let transport = server.transport().with_root_certificates(Authority::new().pem().as_bytes()).unwrap();
    let error = transport.send(&UdmEvent::new("fw")).await.error.unwrap();
    assert_eq!((error.kind, error.retryable), (TransportErrorKind::UntrustedCertificate, false));
    assert!(error.message.contains("is not trusted: invalid peer certificate"), "{}", error.message);
    assert!(server.clock.pauses().is_empty());
    assert!(!server.transport().health_check().await);
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn root_certificates_apply_to_a_connected_transport() {
    let authority = Authority::new();
    let server = Server::over_tls(&authority).await;
    let transport = server.transport();
    assert!(!transport.health_check().await);
    let trusting = transport.with_root_certificates(authority.pem().as_bytes()).unwrap();
    assert!(trusting.health_check().await);
}
