//! Time from sending an event until a reader has it: `GET /events/stream` compared with a subscription of the bare NATS client. And
//! what many tenants and sources cost.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use async_nats::jetstream;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{Bench, milliseconds};
use crate::events::{batch_body, events, events_of, messages, publish_baseline};
use crate::http::Connection;
use crate::load::{per_second, send_once};
use crate::report::Comparison;
use crate::user::{BenchUser, tenant_admin};

const EVENTS: usize = 500;
const TENANTS: usize = 1_000;
const SOURCES: usize = 100_000;
const ROUNDS: usize = 7;
/// Each tenant sends one batch per round.
const BATCH: usize = 100;
const CONNECTIONS: usize = 4;
/// Tenants that are created at the same time: each costs two password hashes.
const CREATIONS: usize = 4;

impl Bench<'_> {
    pub(crate) async fn tail(&mut self) -> anyhow::Result<()> {
        let client = bus::connect(&bus::Config::new(&*self.system.run_file.nats_url, "bench")).await?;
        let mut subscription = client.subscribe("udm.v1.>").await?;
        client.flush().await?;
        let url = format!("{}/api/v1/events/stream", self.system.run_file.base_url);
        let response =
            testkit::client::plain_http().get(url).bearer_auth(self.user.token().expose()).send().await?;
        let mut stream = response.error_for_status()?.bytes_stream();
        let mut received = stream.next().await.context("the response has ended")??.to_vec();
        let mut connection = Connection::open(self.system.address).await?;
        let mut rounds = Vec::new();
        for event in events(EVENTS) {
            let request = self.user.post("/api/v1/events", &event);
            let id = udm::parse(&event)?.event_id.context("the event has no id")?.into_owned();
            let started = Instant::now();
            connection.exchange(&request).await?.expect(202)?;
            let message = subscription.next().await.context("the subscription has ended")?;
            let subscribed = started.elapsed();
            ensure!(message.payload == event, "another event arrived");
            received.clear();
            while !received.windows(id.len()).any(|part| part == id.as_bytes()) {
                received.extend(stream.next().await.context("the response has ended")??);
            }
            rounds.push((milliseconds(started.elapsed()), milliseconds(subscribed)));
        }
        let mut times: Vec<_> = rounds.iter().map(|(time, _)| *time).collect();
        times.sort_unstable_by(f64::total_cmp);
        let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or(f64::NAN);
        self.report.add_comparison(Comparison {
            name: "time until /events/stream has an event, ms",
            baseline: "NATS subscription, same event",
            rounds,
            target: None,
        });
        self.report.add_value("  p99, ms", vec![p99]);
        Ok(())
    }

    pub(crate) async fn many_tenants(&mut self) -> anyhow::Result<()> {
        let system = self.system;
        let admins = (0..TENANTS).map(|number| tenant_admin(system, format!("tenant-{number}")));
        let admins: Vec<_> =
            stream::iter(admins.collect::<Vec<_>>()).buffer_unordered(CREATIONS).try_collect().await?;
        let client = bus::connect(&bus::Config::new(&*system.run_file.nats_url, "bench")).await?;
        let context = jetstream::new(client);
        let (mut one_tenant, mut bare_client) = (Vec::new(), Vec::new());
        // The first round is a warm-up.
        for _ in 0..=self.rounds(ROUNDS) {
            let many = admins.iter().map(|admin| batch(admin, &events_of(BATCH, SOURCES))).collect();
            let one = (0..TENANTS).map(|_| batch(&self.user, &events(BATCH))).collect();
            let same = admins.iter().map(|admin| messages(admin.tenant_id(), &events_of(BATCH, SOURCES)));
            let same = same.collect::<anyhow::Result<Vec<_>>>()?.concat();
            let rate = |elapsed| per_second(TENANTS * BATCH, elapsed);
            let many = rate(send_once(system.address, CONNECTIONS, many, 202).await?);
            one_tenant.push((many, rate(send_once(system.address, CONNECTIONS, one, 202).await?)));
            bare_client.push((many, rate(publish_baseline(&context, same, BATCH, CONNECTIONS).await?)));
        }
        // The broker needs more time for distinct subjects. Only the async-nats baseline has the same subjects.
        let name = "1,000 tenants, 100,000 sources, batches of 100, events/s";
        for (baseline, mut rounds, target) in [
            ("one tenant and 32 sources", one_tenant, None),
            ("async-nats, same tenants and sources, 4 × 100 in flight", bare_client, Some("≥ 0.95")),
        ] {
            self.report.add_comparison(Comparison { name, baseline, rounds: rounds.split_off(1), target });
        }
        Ok(())
    }
}

fn batch(user: &BenchUser, events: &[Bytes]) -> Vec<u8> {
    user.post("/api/v1/events/batch", &batch_body(events))
}
