//! A service with a private certificate authority.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::serve::Listener;
use rcgen::{CertificateParams, CertifiedKey, KeyPair, date_time_ymd};
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
        Self::valid(2020, 2100)
    }

    /// Valid from the begin of a year to that of another one.
    fn valid(from: i32, to: i32) -> Self {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let signing_key = KeyPair::generate().unwrap();
        Self(CertifiedKey { cert: params.self_signed(&signing_key).unwrap(), signing_key })
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
async fn a_certificate_that_has_expired_or_is_not_valid_yet_is_named_as_the_cause() {
    for (from, to, advice) in [(2020, 2021, "the certificate has expired"), (2099, 2100, "is not valid yet")]
    {
        let authority = Authority::valid(from, to);
        let server = Server::over_tls(&authority).await;
        let transport = server.transport().with_root_certificates(authority.pem().as_bytes()).unwrap();
        let error = transport.connect().await.unwrap_err();
        assert_eq!(error.kind, TransportErrorKind::UntrustedCertificate, "{error}");
        assert!(error.message.contains(advice) && error.message.contains("check the clock"), "{error}");
        assert!(!error.message.contains("with_root_certificates"), "{error}");
    }
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
