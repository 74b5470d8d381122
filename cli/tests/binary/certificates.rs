//! `--ca-file`: a service with a private certificate authority.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::serve::Listener;
use contract::ProblemKind;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::client::Client;
use crate::stub::{Stub, StubRequest, problem};

/// A TLS listener that drops connections after a failed handshake.
struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    fn new(tcp: TcpListener, own: &CertifiedKey<KeyPair>) -> Self {
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

fn service(request: &StubRequest) -> (u16, String) {
    match request.line.as_str() {
        "GET /api/v1/auth/session" => {
            let whoami = json!({
                "subject_type": "api_key", "key_id": "01890a5d-ac96-774b-bcce-b302099a8057", "tenant_id": "acme",
                "scopes": ["events:write"], "expires_at": "2030-01-01T00:00:00Z",
            });
            (200, whoami.to_string())
        }
        "POST /api/v1/events/batch" => {
            let result = json!({
                "index": 0, "event_id": request.json()[0]["event_id"], "status": "accepted", "duplicate": false,
                "server_event_id": "01890a5d-ac96-774b-bcce-b302099a8057",
            });
            let answer = json!({
                "batch_id": "01890a5d-ac96-774b-bcce-b302099a8057", "total_events": 1, "successful_events": 1,
                "failed_events": 0, "results": [result],
            });
            (202, answer.to_string())
        }
        _ => problem(ProblemKind::NotFound),
    }
}

fn certificate() -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap()
}

/// A service over TLS, and a client with its certificate in `own.pem` and another one in `other.pem`.
pub(crate) fn over_tls() -> (Stub, Client) {
    let own = certificate();
    let stub = Stub::with_listener("https", |listener| TlsListener::new(listener, &own), service);
    let client = Client::for_url(&stub.url).with_variable("SVC_API_KEY", "svc_ak_x");
    std::fs::write(client.home().join("own.pem"), own.cert.pem()).unwrap();
    std::fs::write(client.home().join("other.pem"), certificate().cert.pem()).unwrap();
    (stub, client)
}

const EVENT: &str = "{\"source_id\":\"fw\"}\n";

#[test]
fn requests_and_events_trust_the_ca_file() {
    let (stub, client) = over_tls();
    let whoami = client.run(&["auth", "whoami", "--ca-file", "own.pem", "--output", "json"]);
    assert_eq!(whoami.json()["tenant_id"], "acme");
    let send = ["events", "send", "-f", "-", "--ca-file", "own.pem", "--output", "json"];
    let result = client.run_with(&send, EVENT);
    assert_eq!(result.code, Some(0), "{result:?}");
    assert_eq!(stub.request_lines()[1], "POST /api/v1/events/batch");
    let by_variable = client.with_variable("SVC_CA_FILE", "own.pem");
    assert_eq!(by_variable.run_with(&["events", "send", "-f", "-"], EVENT).code, Some(0));
}

#[test]
fn sends_nothing_to_a_service_with_an_untrusted_certificate() {
    let (stub, client) = over_tls();
    let result = client.run(&["auth", "whoami", "--ca-file", "other.pem", "--output", "json"]);
    let doctor = client.run(&["doctor", "--ca-file", "other.pem"]);
    assert!(doctor.stdout.contains("--ca-file (SVC_CA_FILE)"), "{doctor:?}");
    let send = ["events", "send", "-f", "-", "--ca-file", "other.pem", "--output", "json"];
    for result in [result, client.run_with(&send, EVENT)] {
        let error = result.error();
        assert_eq!((result.code, &error["code"]), (Some(11), &"configuration_invalid".into()), "{result:?}");
        assert_eq!(error["retryable"], false);
        assert!(error["message"].as_str().unwrap().contains("is not trusted"), "{error}");
        assert!(error["remediation"].as_str().unwrap().contains("--ca-file (SVC_CA_FILE)"), "{error}");
    }
    assert!(stub.requests().is_empty());
}

#[test]
fn invalid_ca_file_is_exit_status_11() {
    let (_stub, client) = over_tls();
    std::fs::write(client.home().join("none.pem"), "nothing").unwrap();
    for file in ["none.pem", "missing.pem"] {
        for command in [&["auth", "whoami"][..], &["events", "send", "-f", "-"]] {
            let result =
                client.run_with(&[command, &["--ca-file", file, "--output", "json"]].concat(), EVENT);
            let error = result.error();
            assert_eq!((result.code, error["code"].as_str()), (Some(11), Some("configuration_invalid")));
            assert!(error["message"].as_str().unwrap().contains(file), "{error}");
        }
    }
}

#[test]
fn https_to_a_port_without_tls_is_named() {
    let stub = Stub::new(service);
    let client = Client::for_url(&stub.url.replace("http:", "https:")).with_variable("SVC_TOKEN", "svc_st_x");
    std::fs::write(client.home().join("own.pem"), certificate().cert.pem()).unwrap();
    let result = client.run(&["auth", "whoami", "--ca-file", "own.pem", "--output", "json"]);
    let error = result.error();
    assert_eq!((result.code, error["code"].as_str()), (Some(9), Some("unreachable")));
    assert_eq!(error["retryable"], false);
    assert!(error["message"].as_str().unwrap().contains("does not answer with TLS"), "{error}");
    assert!(error["remediation"].as_str().unwrap().contains("http://"), "{error}");
    let send = ["events", "send", "-f", "-", "--ca-file", "own.pem", "--output", "json"];
    let error = client.run_with(&send, EVENT).error();
    assert!(error["message"].as_str().unwrap().contains("does not answer with TLS; if"), "{error}");
}
