//! TLS in a program that has installed no provider of rustls: the transport uses one and installs none.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::sync::Arc;

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use transport::{HttpTransport, HttpTransportConfig, Secret, Transport, TransportErrorKind, UdmEvent};

/// Answers each connection with a problem of the service, after TLS.
async fn serve(listener: TcpListener, own: CertifiedKey<KeyPair>) {
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![own.cert.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(mut stream) = acceptor.accept(stream).await else { continue };
        let mut head = [0; 1024];
        let _ = stream.read(&mut head).await;
        let answer = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}

#[tokio::test]
async fn the_tls_provider_of_the_process_belongs_to_the_program() {
    let own = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (pem, listener) = (own.cert.pem(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address = listener.local_addr().unwrap();
    let mut server = JoinSet::new();
    server.spawn(serve(listener, own));
    let transport = |scheme: &str| {
        HttpTransport::new(HttpTransportConfig {
            api_key: Some(Secret::new("svc_ak_x")),
            max_retries: 0,
            ..HttpTransportConfig::new(format!("{scheme}://{address}"))
        })
    };
    let kind =
        async |transport: HttpTransport| transport.send(&UdmEvent::new("fw")).await.error.unwrap().kind;
    let trusting = transport("https").with_root_certificates(pem.as_bytes()).unwrap();
    assert_eq!(kind(trusting).await, TransportErrorKind::Status);
    assert_eq!(kind(transport("https")).await, TransportErrorKind::UntrustedCertificate);
    assert_eq!(kind(transport("http")).await, TransportErrorKind::Connection);
    // rustls installs one itself for a configuration without an explicit provider, or panics if several are compiled in.
    assert!(CryptoProvider::get_default().is_none());
    ring::default_provider().install_default().unwrap();
}
