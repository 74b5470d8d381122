//! TLS and credentials of the connection to a real nats-server.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::path::Path;

use bus::{NatsSettings, PublishLimits, Publisher};
use data_encoding::BASE64URL_NOPAD;
use futures::StreamExt as _;
use nkeys::KeyPair;
use serde_json::{Value, json};
use service::Tasks;
use service::config::{ConfigErrors, Environment, Variables as _};
use service::telemetry::Metrics;
use testkit::{Certificates, NatsServer};
use tokio::time::timeout;

fn settings(pairs: &[(&str, &str)]) -> Result<NatsSettings, ConfigErrors> {
    NatsSettings::load(&Environment::from_pairs(pairs.iter().copied()))
}

/// Returns whether the server accepts the client. It then also accepts a publisher, which has a separate connection.
async fn connects(pairs: &[(&str, &str)]) -> bool {
    let config = settings(pairs).unwrap().for_service("test");
    let Ok(client) = bus::connect(&config).await else { return false };
    let mut probes = client.subscribe("$JS.API.STREAM.INFO.UDM").await.unwrap();
    // Waits for the response of the server.
    if client.flush().await.is_err() {
        return false;
    }
    let tasks = Tasks::default();
    let (limits, metrics) = (PublishLimits::default(), Metrics::new("test"));
    let _publisher = Publisher::start(config, "UDM", limits, &metrics, &tasks).unwrap();
    assert!(timeout(testkit::DEADLINE, probes.next()).await.unwrap().is_some());
    tasks.stopping().cancel();
    true
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn a_private_ca_verifies_the_server_and_a_client_certificate_the_client() {
    let (ours, other) = (Certificates::create().unwrap(), Certificates::create().unwrap());
    let (ca, other_ca) = (ours.authority(), other.authority());
    let (server_files, client_files) = (ours.server(), ours.client());
    let server = NatsServer::start_with(&format!(
        "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: true }}",
        server_files.join("tls.crt"),
        server_files.join("tls.key"),
        ca
    ))
    .await
    .unwrap();
    let url = ("SVC_NATS_URL", server.url.as_str());
    let client = ("SVC_NATS_CLIENT_CERTIFICATE", text(&client_files));
    assert!(connects(&[url, client, ("SVC_NATS_CA_FILE", text(&ca))]).await);
    assert!(!connects(&[url, client, ("SVC_NATS_CA_FILE", text(&other_ca))]).await, "another CA");
    assert!(!connects(&[url, client]).await, "the CAs of the system");
    assert!(!connects(&[url, ("SVC_NATS_CA_FILE", text(&ca))]).await, "no client certificate");
}

#[tokio::test]
async fn a_ca_requires_tls() {
    let server = NatsServer::start().await.unwrap();
    let ours = Certificates::create().unwrap();
    let (ca, url) = (ours.authority(), ("SVC_NATS_URL", server.url.as_str()));
    assert!(connects(&[url]).await);
    assert!(!connects(&[url, ("SVC_NATS_CA_FILE", text(&ca))]).await);
}

#[test]
fn a_wrong_file_is_a_configuration_error_with_its_path() {
    let ours = Certificates::create().unwrap();
    let (key, ca) = (ours.server().join("tls.key"), ours.authority());
    let errors =
        |name, value| settings(&[("SVC_NATS_URL", "nats://a"), (name, value)]).map(|_| ()).unwrap_err().0;
    assert_eq!(
        errors("SVC_NATS_CA_FILE", text(&key)),
        [format!(
            "SVC_NATS_CA_FILE={0}: {0} contains no certificate (expected file of certificates (PEM))",
            key.display()
        )]
    );
    let missing = errors("SVC_NATS_CLIENT_CERTIFICATE", text(&ca));
    assert!(missing[0].contains("tls.crt"), "{missing:?}");
    assert_eq!(
        errors("SVC_NATS_CREDENTIALS", "secret"),
        ["SVC_NATS_CREDENTIALS: invalid value (expected content of a `.creds` file)"]
    );
}

#[tokio::test]
async fn user_and_password_come_from_the_url_or_from_files() {
    let server =
        NatsServer::start_with(r#"authorization { user: ingest, password: "p:@/?#%41" }"#).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("username"), "ingest").unwrap();
    std::fs::write(directory.path().join("password"), "p:@/?#%41\n").unwrap();
    let login = ("SVC_NATS_LOGIN", text(directory.path()));
    let url = server.url.as_str();
    assert!(connects(&[("SVC_NATS_URL", url), login]).await);
    assert!(!connects(&[("SVC_NATS_URL", url)]).await);
    let with_user = url.replace("//", "//ingest:p%3A%40%2F%3F%23%2541@");
    assert!(connects(&[("SVC_NATS_URL", &with_user)]).await);
    let errors = |pairs| settings(pairs).map(|_| ()).unwrap_err().0;
    assert_eq!(
        errors(&[("SVC_NATS_URL", &with_user), login]),
        ["SVC_NATS_URL contains a user, and SVC_NATS_LOGIN is set: remove one of them"]
    );
}

/// A JWT of NATS: <https://docs.nats.io/running-a-nats-service/configuration/securing_nats/jwt>
fn jwt(issuer: &KeyPair, subject: &str, claims: &Value) -> String {
    let encode = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let header = encode(&json!({ "typ": "JWT", "alg": "ed25519-nkey" }));
    let body =
        json!({ "iss": issuer.public_key(), "sub": subject, "name": "test", "iat": 1, "nats": claims });
    let signed = format!("{header}.{}", encode(&body));
    let signature = BASE64URL_NOPAD.encode(&issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

#[tokio::test]
async fn credentials_identify_a_user_of_an_operator() {
    let (operator, account, system) =
        (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account());
    let limits = json!({ "subs": -1, "data": -1, "payload": -1, "conn": -1, "imports": -1, "exports": -1, "wildcards": true });
    let of_operator = jwt(&operator, &operator.public_key(), &json!({ "type": "operator", "version": 2 }));
    let preloaded = [&account, &system].map(|account| {
        let claims = json!({ "type": "account", "version": 2, "limits": limits });
        format!("{}: {}", account.public_key(), jwt(&operator, &account.public_key(), &claims))
    });
    let server = NatsServer::start_with(&format!(
        "operator: {of_operator}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{\n{}\n}}",
        system.public_key(),
        preloaded.join("\n")
    ))
    .await
    .unwrap();
    let creds = |issuer: &KeyPair| {
        let user = KeyPair::new_user();
        let token = jwt(
            issuer,
            &user.public_key(),
            &json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 }),
        );
        let seed = user.seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        (user.public_key(), text)
    };
    let url = ("SVC_NATS_URL", server.url.as_str());
    let (first, text) = creds(&account);
    assert!(connects(&[url, ("SVC_NATS_CREDENTIALS", &text)]).await);
    let (_, other) = creds(&KeyPair::new_account());
    assert!(!connects(&[url, ("SVC_NATS_CREDENTIALS", &other)]).await, "another account");
    assert!(!connects(&[url]).await, "no credentials");

    // A changed file is used when the connection is lost.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let file_name = file.path().to_str().unwrap();
    let settings = settings(&[url, ("SVC_NATS_CREDENTIALS_FILE", file_name)]).unwrap();
    let client = bus::connect(&settings.for_service("test")).await.unwrap();
    assert_eq!(user(&client).await.as_ref(), Some(&first));
    let (second, text) = creds(&account);
    std::fs::write(file.path(), text).unwrap();
    testkit::wait_until("the new credentials are used", async || {
        // A request during a reconnection gets no reply.
        let current = user(&client).await;
        if current.as_ref() == Some(&first) {
            client.force_reconnect().await.unwrap();
        }
        (current.as_ref() == Some(&second)).then_some(())
    })
    .await;
}

/// The user of the connection.
async fn user(client: &async_nats::Client) -> Option<String> {
    let reply = client.request("$SYS.REQ.USER.INFO", "".into()).await.ok()?;
    let info: Value = serde_json::from_slice(&reply.payload).unwrap();
    Some(info["data"]["user"].as_str().unwrap().to_owned())
}
