//! A broker with the event stream, and publishers into it.

#![expect(clippy::unwrap_used, reason = "fixtures of tests")]

use std::time::Duration;

use async_nats::jetstream::{self, stream};
use bus::{Config, Durability, Limits, Message, Profile, Publisher, Request};
use bytes::Bytes;
use chrono::DateTime;
use tenancy::TenantId;
use testkit::nats::NatsServer;
use tokio::time::{Instant, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) struct Broker {
    pub(crate) server: NatsServer,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl Broker {
    /// With the event stream, of ample size.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        Self::with_stream_of(1 << 30).await
    }

    pub(crate) async fn with_stream_of(max_bytes: u64) -> anyhow::Result<Self> {
        let broker = Self::bare().await?;
        let profile = Profile { durability: Durability::Dev, replicas: 1, max_bytes };
        bus::ensure(&broker.jetstream().await?, &bus::events(&profile)).await?;
        Ok(broker)
    }

    /// With no stream.
    pub(crate) async fn bare() -> anyhow::Result<Self> {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        Ok(Self { server: NatsServer::start().await?, tasks, stop })
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

    pub(crate) async fn publisher(&self, limits: Limits) -> anyhow::Result<Publisher> {
        self.publisher_of("UDM", limits).await
    }

    pub(crate) async fn publisher_of(&self, stream: &str, limits: Limits) -> anyhow::Result<Publisher> {
        let publisher = self.start_publisher(stream, limits)?;
        timeout(10 * SECOND, publisher.ready()).await?;
        Ok(publisher)
    }

    pub(crate) fn start_publisher(&self, stream: &str, limits: Limits) -> anyhow::Result<Publisher> {
        Ok(Publisher::start(self.config(), stream, limits, &self.tasks, self.stop.clone())?)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) fn acme() -> TenantId {
    "acme".parse().unwrap()
}

pub(crate) fn deadline(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

pub(crate) fn event(id: &str, payload: &[u8]) -> Message {
    let request = Request::new(acme(), DateTime::UNIX_EPOCH, "req-1", "key:k1", None);
    let event = udm::parse(br#"{"source_id":"fw"}"#).unwrap();
    Message::event(&request, &event, id, Bytes::copy_from_slice(payload)).unwrap()
}

pub(crate) fn events(count: usize) -> Vec<Message> {
    (0..count).map(|n| event(&format!("e{n}"), format!(r#"{{"n":{n}}}"#).as_bytes())).collect()
}

pub(crate) async fn unhealthy(publisher: &Publisher) {
    let mut poll = interval(Duration::from_millis(5));
    while publisher.healthy() {
        poll.tick().await;
    }
}

#[expect(clippy::disallowed_methods, reason = "an answer, not an event")]
pub(crate) async fn answer(client: &async_nats::Client, question: async_nats::Message, answer: &'static str) {
    client.publish(question.reply.unwrap(), answer.into()).await.unwrap();
}
