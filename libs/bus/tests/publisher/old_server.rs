//! The server is replaced by one that is too old: the publisher does not use it after the lost connection, as at its start.

use bus::{Config, PublishError, PublishLimits, Publisher};
use service::telemetry::Metrics;
use testkit::Forwarder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::broker::{Broker, SECOND, acme, deadline, event};
use crate::is_exposed;

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
        connection.write_all(b"INFO {\"version\":\"2.12.5\",\"max_payload\":1048576}\r\n").await?;
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
