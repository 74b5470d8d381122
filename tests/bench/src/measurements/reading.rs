//! Events per second that a consumer reads with the default options of a client, compared with an administrator of the account `UDM`, which
//! reads without the imports of an account.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use async_nats::ConnectOptions;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::{self, Context};
use contract::consumers::{ConsumerStart, CreateConsumer, CreatedConsumer};
use futures::TryStreamExt as _;

use super::Bench;
use crate::events::{batch_body, events};
use crate::http::Connection;
use crate::load::{per_second, send_once};
use crate::report::Comparison;

const ROUNDS: usize = 7;
const EVENTS: usize = 100_000;
const BATCH_SIZE: usize = 500;
const CONNECTIONS: usize = 4;
/// The bound of unacknowledged events of both, large enough that no client waits for it.
const MAX_ACK_PENDING: u32 = 10_000;

impl Bench<'_> {
    pub(crate) async fn reading(&mut self) -> anyhow::Result<()> {
        let url = &*self.system.run_file.nats_url;
        let direct = jetstream::new(bus::connect(&bus::Config::new(url, "bench")).await?);
        direct.get_stream(bus::UDM_STREAM).await?.purge().await.context("failed to purge the events")?;
        let post = |batch: &[_]| self.user.post("/api/v1/events/batch", &batch_body(batch));
        let requests = events(EVENTS).chunks(BATCH_SIZE).map(post).collect();
        send_once(self.system.address, CONNECTIONS, requests, 202).await?;
        let mut rounds = Vec::new();
        // The first round is a warm-up.
        for round in 0..=self.rounds(ROUNDS) {
            let consumer = self.read_as_consumer(&format!("bench-{round}")).await?;
            let direct = self.read_directly(&direct).await?;
            rounds.push((per_second(EVENTS, consumer), per_second(EVENTS, direct)));
        }
        // After the last round: a deletion reloads the broker, which then rejects requests for a moment.
        let mut connection = Connection::open(self.system.address).await?;
        for round in 0..rounds.len() {
            let path = format!("/api/v1/consumers/bench-{round}");
            let delete = self.system.platform_request("DELETE", &path, b"")?;
            connection.exchange(&delete).await?.expect(204)?;
        }
        self.report.add_comparison(Comparison {
            name: "events per second of a consumer, client with default options",
            baseline: "administrator of the account UDM, same client",
            rounds: rounds.split_off(1),
            target: Some("≥ 0.9"),
        });
        Ok(())
    }

    /// Reads all events with a new login.
    async fn read_as_consumer(&self, name: &str) -> anyhow::Result<Duration> {
        let create = CreateConsumer {
            name: name.parse()?,
            tenant_id: Some(self.user.tenant_id().clone()),
            all_tenants: false,
            event_types: Vec::new(),
            partitions: None,
            start: Some(ConsumerStart::All),
            ack_wait_seconds: None,
            max_ack_pending: Some(MAX_ACK_PENDING),
        };
        let create =
            self.system.platform_request("POST", "/api/v1/consumers", &serde_json::to_vec(&create)?)?;
        let mut connection = Connection::open(self.system.address).await?;
        let created: CreatedConsumer =
            serde_json::from_slice(connection.exchange(&create).await?.expect(201)?)?;
        let login = created.login.filter(|login| login.active).context("the login is not active")?;
        let address =
            self.system.run_file.nats_url.rsplit(['@', '/']).next().context("the run file has no address")?;
        let options = ConnectOptions::with_user_and_password(login.user, login.password);
        read(&jetstream::new(options.connect(address).await?), name).await
    }

    /// Reads all events with a durable that has the same settings.
    async fn read_directly(&self, context: &Context) -> anyhow::Result<Duration> {
        const NAME: &str = "bench-direct";
        let durable = pull::Config {
            durable_name: Some(NAME.to_owned()),
            ack_policy: AckPolicy::Explicit,
            filter_subject: format!("udm.v1.*.{}.>", self.user.tenant_id()),
            max_ack_pending: MAX_ACK_PENDING.into(),
            ..pull::Config::default()
        };
        context.create_consumer_on_stream(durable, bus::UDM_STREAM).await?;
        let elapsed = read(context, NAME).await?;
        context.delete_consumer_from_stream(NAME, bus::UDM_STREAM).await?;
        Ok(elapsed)
    }
}

/// Reads and acknowledges all events with the defaults of the client library. Returns the time.
async fn read(context: &Context, name: &str) -> anyhow::Result<Duration> {
    let durable: jetstream::consumer::PullConsumer =
        context.get_consumer_from_stream(name, bus::UDM_STREAM).await?;
    let started = Instant::now();
    let mut messages = durable.messages().await?;
    for number in 0..EVENTS {
        let message = messages.try_next().await?.with_context(|| format!("no event after {number}"))?;
        message.ack().await.map_err(anyhow::Error::from_boxed)?;
    }
    Ok(started.elapsed())
}
