//! A nats-server with the event stream, and publishers.

#![expect(clippy::unwrap_used, reason = "fixtures of tests")]

use std::time::Duration;

use async_nats::jetstream::{self, stream};
use bus::{Config, EventContext, Message, Profile, PublishLimits, Publisher, StreamSet};
use bytes::Bytes;
use chrono::DateTime;
use service::Tasks;
use service::telemetry::Metrics;
use tenancy::TenantId;
use testkit::nats::NatsServer;
use tokio::time::{Instant, interval, timeout};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) struct Broker {
    pub(crate) server: NatsServer,
    pub(crate) tasks: Tasks,
}

impl Broker {
    /// Starts a server with an event stream of 64 MiB.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        Self::with_stream_size(64 << 20).await
    }

    pub(crate) async fn with_stream_size(max_bytes: u64) -> anyhow::Result<Self> {
        Self::with_profile(&Profile::single_server(max_bytes)).await
    }

    pub(crate) async fn with_profile(profile: &Profile) -> anyhow::Result<Self> {
        let broker = Self::without_streams().await?;
        bus::ensure(&broker.jetstream().await?, profile).await?;
        Ok(broker)
    }

    /// Starts a server without streams.
    pub(crate) async fn without_streams() -> anyhow::Result<Self> {
        Ok(Self { server: NatsServer::start().await?, tasks: Tasks::default() })
    }

    pub(crate) fn config(&self) -> Config {
        Config::new(&self.server.url, "test")
    }

    pub(crate) async fn jetstream(&self) -> anyhow::Result<jetstream::Context> {
        Ok(jetstream::new(bus::connect(&self.config()).await?))
    }

    pub(crate) async fn stream(&self, name: &str, subject: &str) -> anyhow::Result<()> {
        let config = stream::Config {
            name: name.to_owned(),
            subjects: vec![subject.to_owned()],
            ..Default::default()
        };
        self.jetstream().await?.create_stream(config).await?;
        Ok(())
    }

    pub(crate) async fn publisher(&self, limits: PublishLimits) -> anyhow::Result<Publisher> {
        self.publisher_of("UDM", limits).await
    }

    pub(crate) async fn publisher_of(
        &self,
        streams: impl Into<StreamSet>,
        limits: PublishLimits,
    ) -> anyhow::Result<Publisher> {
        let publisher = self.start_publisher(streams, limits)?;
        timeout(10 * SECOND, publisher.ready()).await?;
        Ok(publisher)
    }

    pub(crate) fn start_publisher(
        &self,
        streams: impl Into<StreamSet>,
        limits: PublishLimits,
    ) -> anyhow::Result<Publisher> {
        Ok(Publisher::start(self.config(), streams, limits, &Metrics::new("test"), &self.tasks)?)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.tasks.stopping().cancel();
    }
}

pub(crate) fn acme() -> TenantId {
    "acme".parse().unwrap()
}

pub(crate) fn deadline(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

pub(crate) fn event(id: &str, payload: &[u8]) -> Message {
    event_of("fw", id, payload)
}

pub(crate) fn event_of(source_id: &str, id: &str, payload: &[u8]) -> Message {
    let context = EventContext::new(acme(), DateTime::UNIX_EPOCH, "req-1", "key:k1", None);
    let raw = format!(r#"{{"source_id":"{source_id}"}}"#);
    let event = udm::parse(raw.as_bytes()).unwrap();
    Message::event(&context, &event, id, Bytes::copy_from_slice(payload)).unwrap()
}

pub(crate) fn events(count: usize) -> Vec<Message> {
    (0..count).map(|n| event(&format!("e{n}"), format!(r#"{{"n":{n}}}"#).as_bytes())).collect()
}

pub(crate) async fn until_unavailable(publisher: &Publisher) {
    let mut poll = interval(Duration::from_millis(5));
    while publisher.is_ready() {
        poll.tick().await;
    }
}

#[expect(clippy::disallowed_methods, reason = "a reply, not an event")]
pub(crate) async fn reply(client: &async_nats::Client, request: async_nats::Message, reply: &'static str) {
    client.publish(request.reply.unwrap(), reply.into()).await.unwrap();
}

/// Sends a message with these headers and waits for the reply of the stream.
pub(crate) async fn request(
    context: &jetstream::Context,
    subject: String,
    headers: async_nats::HeaderMap,
) -> anyhow::Result<()> {
    let client = context.client();
    client.request_with_headers(subject, headers, Bytes::new()).await?;
    Ok(())
}
