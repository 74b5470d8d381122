//! Credentials, TLS and the loss of the connection, and what a program learns about them.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use consumer::{Config, ConnectOptions, ConnectionEvent, ConsumerError, Failure};
use parking_lot::Mutex;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::CryptoProvider;
use testkit::nats::NatsServer;
use testkit::{DEADLINE, Disturbance, Forwarder, wait_until, within};
use tokio::task::JoinSet;

use super::broker::{Broker, Log, PASSWORD, Running};

/// A consumer that logs its events.
fn start(config: Config, log: &Log) -> Running {
    let log = log.clone();
    Running::start(config, move |event| {
        log.add(&event);
        async { Ok(()) }
    })
}

async fn error_of(config: Config) -> ConsumerError {
    let run = consumer::run(config, pending(), |_| async { Ok(()) });
    within(DEADLINE, "the error", Box::pin(run)).await.unwrap_err()
}

#[tokio::test]
async fn after_the_limit_of_reconnects_the_consumer_ends_with_an_error() {
    let mut broker = Broker::start().await;
    let options = ConnectOptions::with_user_and_password("consumer", PASSWORD).max_reconnects(2);
    let (config, log) = (Config { options, ..broker.config() }, Log::default());
    let monitor = config.monitor.clone();
    let mut running = start(config, &log);
    broker.publish("a", 0).await;
    log.wait_for(1).await;
    broker.server.stop();
    let error = running.failed().await;
    assert!(matches!(error, ConsumerError::Closed), "{error:?}");
    assert!(error.to_string().contains("max_reconnects"), "{error}");
    assert!(!monitor.status().is_connected);
}

#[tokio::test]
async fn a_program_sees_the_state_and_each_change_of_the_connection() {
    let mut broker = Broker::start().await;
    for number in 0..3 {
        broker.publish("a", number).await;
    }
    let changes = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&changes);
    let options = ConnectOptions::with_user_and_password("consumer", PASSWORD);
    let options = options.event_callback(move |event| seen.lock().push(event));
    let config = Config { options, ..broker.config() };
    let monitor = config.monitor.clone();
    let _running = Running::start(config, |event| async move {
        if event.event_id == "a:1" { Err(Failure::reject("unknown")) } else { Ok(()) }
    });
    let counts = async || {
        let status = monitor.status();
        ((status.handled, status.dead_letters, status.in_flight) == (2, 1, 0)).then_some(status)
    };
    let status = wait_until("the events are counted", counts).await;
    assert_eq!((status.is_connected, status.is_reading, status.last_error), (true, true, None));
    let mut statuses = monitor.subscribe();
    broker.server.stop();
    let is_lost = statuses.wait_for(|status| !status.is_connected && !status.is_reading);
    within(DEADLINE, "the loss", is_lost).await.unwrap();
    broker.server.restart().await.unwrap();
    let is_recovered = statuses.wait_for(|status| status.is_connected && status.is_reading);
    within(DEADLINE, "the recovery", is_recovered).await.unwrap();
    assert!(monitor.status().last_error.is_some());
    wait_until("the program knows", async || {
        let changes = changes.lock();
        [ConnectionEvent::Disconnected, ConnectionEvent::Connected]
            .iter()
            .all(|change| changes.contains(change))
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_start_without_a_broker_fails_at_once_or_waits_for_it() {
    let mut broker = Broker::start().await;
    broker.publish("a", 0).await;
    broker.server.stop();
    assert!(matches!(error_of(broker.config()).await, ConsumerError::Connect(_)));
    let options = ConnectOptions::with_user_and_password("consumer", PASSWORD).retry_on_initial_connect();
    let (config, log) = (Config { options, ..broker.config() }, Log::default());
    // A stop ends the waiting.
    start(config.clone(), &Log::default()).stop().await;
    let monitor = config.monitor.clone();
    let running = start(config, &log);
    wait_until("the error is reported", async || monitor.status().last_error).await;
    broker.server.restart().await.unwrap();
    log.wait_for(1).await;
    running.stop().await;
}

#[tokio::test]
async fn a_start_while_the_broker_reloads_waits_for_its_answer() {
    let broker = Broker::start().await;
    broker.publish("a", 0).await;
    broker.set_responders(false).await;
    let (config, log) = (broker.config(), Log::default());
    let monitor = config.monitor.clone();
    let running = start(config, &log);
    wait_until("the request fails", async || monitor.status().last_error).await;
    assert!(!monitor.status().is_reading);
    broker.set_responders(true).await;
    log.wait_for(1).await;
    running.stop().await;
}

#[tokio::test]
async fn large_events_are_read_over_a_slow_connection_without_a_second_delivery() {
    const EVENTS: usize = 24;
    let broker = Broker::start().await;
    broker.define_durable(DEADLINE, 0).await;
    for number in 0..EVENTS {
        let json = format!(r#"{{"source_id":"a","note":"{}"}}"#, "x".repeat(250_000));
        broker.publish_payload("acme", "a", u32::try_from(number).unwrap(), json, &[]).await;
    }
    let forwarder = Forwarder::start().await.unwrap();
    forwarder.set_target(broker.server.url.rsplit(':').next().unwrap().parse().unwrap());
    // At most 640 KB/s. The client library waits for a response for 7 s.
    forwarder.disturb(Disturbance::Delayed(Duration::from_millis(100)));
    let servers = format!("nats://{}", forwarder.address);
    let (config, log) = (Config { servers: servers.clone(), ..broker.config() }, Log::default());
    let running = start(config, &log);
    log.wait_for(EVENTS).await;
    assert_eq!(broker.info().await.delivered.consumer_sequence, EVENTS as u64);
    running.stop().await;

    // Those that a process has returned arrive before one of them is handled.
    broker.define_again(DEADLINE).await;
    broker.return_all(EVENTS).await;
    let config = Config { servers, ..broker.config() };
    let monitor = config.monitor.clone();
    let _running = start(config, &Log::default());
    wait_until("all are in flight", async || (monitor.status().in_flight == EVENTS).then_some(())).await;
}

#[tokio::test]
async fn a_configuration_without_a_stream_is_rejected_with_a_reason() {
    let error = error_of(Config { streams: Vec::new(), ..Config::new("nats://localhost", "a", "b") }).await;
    assert_eq!(error.to_string(), "invalid configuration of the consumer: `streams` is empty");
}

#[test]
fn a_configuration_is_printed_without_its_credentials() {
    let text = format!("{:?}", Config::new("nats://user:secret-1@a:4222,b:4222", "archive", "secret-2"));
    assert!(text.contains("archive") && text.contains("a:4222") && text.contains("b:4222"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test]
async fn rejected_credentials_are_reported_by_name() {
    let broker = Broker::start().await;
    let options = ConnectOptions::with_user_and_password("consumer", "wrong");
    let config = Config { options: options.clone(), ..broker.config() };
    // What `main` prints.
    let error = format!("{:?}", error_of(config).await);
    assert!(error.starts_with("failed to connect to NATS: authorization violation"), "{error}");
    let config = Config { options: options.retry_on_initial_connect(), ..broker.config() };
    let monitor = config.monitor.clone();
    let _running = start(config, &Log::default());
    let error = wait_until("the error is reported", async || monitor.status().last_error).await;
    assert!(error.contains("authorization violation"), "{error}");
}

#[tokio::test]
async fn a_login_that_is_replaced_ends_the_consumer_and_one_that_comes_back_does_not() {
    let broker = Broker::start().await;
    let log = Log::default();
    let limited = Config { rejected_for: Some(Duration::from_secs(2)), ..broker.config() };
    let patient = Config { rejected_for: None, ..broker.config() };
    let monitors = [&limited, &patient].map(|config| config.monitor.clone());
    let mut ends = JoinSet::new();
    ends.spawn(error_of(limited));
    let running = start(patient, &log);
    broker.publish("a", 0).await;
    for monitor in &monitors {
        wait_until("it is connected", async || monitor.status().is_connected.then_some(())).await;
    }
    broker.set_password("replaced");
    let error = ends.join_next().await.unwrap().unwrap();
    assert!(matches!(error, ConsumerError::Rejected { .. }), "{error:?}");
    assert!(error.to_string().contains("svc consumers rotate-login"), "{error}");
    broker.set_password(PASSWORD);
    wait_until("it reads again", async || monitors[1].status().is_connected.then_some(())).await;
    broker.publish("a", 1).await;
    wait_until("the event is handled", async || log.ids().contains(&"a:1".to_owned()).then_some(())).await;
    running.stop().await;
}

#[tokio::test]
async fn tls_uses_no_provider_of_the_process_and_trusts_given_certificates_only() {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let home = tempfile::tempdir().unwrap();
    let files = [home.path().join("cert.pem"), home.path().join("key.pem")];
    std::fs::write(&files[0], cert.pem()).unwrap();
    std::fs::write(&files[1], signing_key.serialize_pem()).unwrap();
    // The server requires a certificate of the client, too.
    let [cert_file, key_file] = &files;
    let tls = format!(
        "tls {{ cert_file: {cert_file:?}, key_file: {key_file:?}, ca_file: {cert_file:?}, verify: true }}"
    );
    let server = NatsServer::start_with(&tls).await.unwrap();
    let address = server.url.replace("nats://", "tls://");
    let options = || ConnectOptions::with_user_and_password("consumer", PASSWORD);
    let config = |options| Config { options, ..Config::new(&address, "consumer", PASSWORD) };
    let error = error_of(config(options())).await;
    assert!(matches!(error, ConsumerError::Connect(_)), "trusted by the system: {error:?}");
    let trusting = options().root_certificates(cert.pem().as_bytes()).unwrap();
    let error = error_of(config(trusting.clone())).await;
    assert!(!matches!(error, ConsumerError::NotFound { .. }), "without a certificate: {error:?}");
    let key = signing_key.serialize_pem();
    let complete = trusting.client_certificate(cert.pem().as_bytes(), key.as_bytes()).unwrap();
    let error = error_of(config(complete)).await;
    assert!(matches!(error, ConsumerError::NotFound { .. }), "connected: {error:?}");
    // rustls installs one itself for a configuration without an explicit provider, or panics if several are compiled in.
    assert!(CryptoProvider::get_default().is_none());
}

#[test]
fn malformed_certificates_are_rejected_with_a_reason() {
    let options = ConnectOptions::with_token("token");
    for pem in ["", "text", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let error = options.clone().root_certificates(pem.as_bytes()).err();
        assert!(matches!(error, Some(ConsumerError::Options(_))), "{pem}");
    }
    assert!(options.client_certificate(b"", b"").is_err());
    assert!(ConnectOptions::with_credentials("text").is_err());
}

#[test]
fn the_documentation_starts_with_the_example_that_is_compiled() {
    let (document, example) =
        (include_str!("../../../../docs/consumers.md"), include_str!("../../examples/read_events.rs"));
    let program = document.split_once("```rust\n").and_then(|(_, rest)| rest.split_once("```"));
    assert_eq!(program.unwrap().0, example);
}
