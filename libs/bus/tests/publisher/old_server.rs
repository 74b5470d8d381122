//! A server that is too old is not used: not at the start, and not after a lost connection.

use std::sync::Arc;

use bus::{
    Config, ConnectError, Connection, FeedEvent, InvalidationListener, InvalidationPublisher, PublishError,
    PublishLimits, Publisher,
};
use service::clock::SystemClock;
use service::telemetry::Metrics;
use testkit::Forwarder;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::broker::{Broker, SECOND, acme, deadline, event};
use crate::is_exposed;

const INFO: &[u8] = b"INFO {\"version\":\"2.12.5\",\"max_payload\":1048576}\r\n";

/// Accepts a client. Returns what it sends until it closes the connection.
async fn accept(old: &TcpListener) -> anyhow::Result<String> {
    let mut connection = BufReader::new(old.accept().await?.0);
    connection.write_all(INFO).await?;
    let mut received = String::new();
    while !received.ends_with("PING\r\n") {
        anyhow::ensure!(connection.read_line(&mut received).await? > 0, "closed after {received:?}");
    }
    connection.write_all(b"PONG\r\n").await?;
    connection.read_to_string(&mut received).await?;
    Ok(received)
}

#[tokio::test]
async fn no_client_of_a_server_that_is_too_old_is_returned() -> anyhow::Result<()> {
    let old = TcpListener::bind(("127.0.0.1", 0)).await?;
    let config = Config::new(format!("nats://{}", old.local_addr()?), "test");
    let clients = futures::future::join(bus::connect(&config), accept(&old));
    let (connected, accepted) = timeout(10 * SECOND, clients).await?;
    accepted?;
    let error = connected.err();
    assert!(matches!(&error, Some(ConnectError::OldServer(version)) if version == "2.12.5"), "{error:?}");
    Ok(())
}

#[tokio::test]
async fn a_connection_leaves_a_server_that_is_too_old_for_the_next_one() -> anyhow::Result<()> {
    let (broker, old) = (Broker::without_streams().await?, TcpListener::bind(("127.0.0.1", 0)).await?);
    let mut listener = InvalidationListener::start(&Connection::open(&broker.config()).await?).await?;
    let config = Config::new(format!("nats://{},{}", old.local_addr()?, broker.server.url), "test");
    let _publisher = InvalidationPublisher::start(config, Arc::new(SystemClock), &broker.tasks)?;
    let received = timeout(10 * SECOND, accept(&old)).await??;
    assert!(!received.contains("PUB"), "{received}");
    let first = timeout(10 * SECOND, listener.next()).await?;
    assert!(matches!(first, Some(FeedEvent::Message(_))), "{first:?}");
    Ok(())
}

#[tokio::test]
async fn a_publisher_does_not_use_a_server_that_is_too_old_after_a_lost_connection() -> anyhow::Result<()> {
    let (broker, forwarder) = (Broker::start().await?, Forwarder::start().await?);
    let (_, port) = broker.server.url.rsplit_once(':').unwrap();
    let (port, metrics) = (port.parse()?, Metrics::new("test"));
    forwarder.set_target(port);
    let config = Config::new(format!("nats://{}", forwarder.address), "test");
    let publisher = Publisher::start(config, "UDM", PublishLimits::default(), &metrics, &broker.tasks)?;
    timeout(10 * SECOND, publisher.ready()).await?;

    let old = TcpListener::bind(("127.0.0.1", 0)).await?;
    forwarder.set_target(old.local_addr()?.port());
    for _ in 0..2 {
        let (mut connection, _) = timeout(10 * SECOND, old.accept()).await??;
        connection.write_all(INFO).await?;
        let mut received = Vec::new();
        timeout(10 * SECOND, connection.read_to_end(&mut received)).await??;
        assert_eq!(received, b"", "the server gets no credentials");
    }
    assert!(!publisher.is_ready());
    assert!(is_exposed(&metrics, r#"svc_publish_available{stream="UDM"} 0"#), "{}", metrics.text());
    let outcome = publisher.publish(&acme(), event("e", b"{}"), deadline(5)).await;
    assert_eq!(outcome, Err(PublishError::Unavailable));

    forwarder.set_target(port);
    timeout(10 * SECOND, publisher.ready()).await?;
    publisher.publish(&acme(), event("e", b"{}"), deadline(5)).await?;
    Ok(())
}
