//! Time from sending an event until a reader has it: `GET /events/stream` compared with a subscription of the bare NATS client. And
//! what many tenants and sources cost the broker.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use async_nats::jetstream;
use futures::StreamExt as _;
use tenancy::TenantId;

use super::{Bench, milliseconds};
use crate::events::{events, events_of, messages, publish_baseline};
use crate::http::Connection;
use crate::load::per_second;
use crate::report::Comparison;

const EVENTS: usize = 500;
const TENANTS: usize = 1_000;
const SOURCES: usize = 100_000;
const ROUNDS: usize = 3;
/// Events of a round; each tenant has the same number.
const MANY_EVENTS: usize = 100_000;

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
        let context =
            jetstream::new(bus::connect(&bus::Config::new(&*self.system.run_file.nats_url, "bench")).await?);
        let mut rounds = Vec::new();
        for _ in 0..=self.rounds(ROUNDS) {
            let mut many = Vec::with_capacity(MANY_EVENTS);
            for number in 0..TENANTS {
                let tenant: TenantId = format!("tenant-{number}").parse()?;
                many.extend(messages(&tenant, &events_of(MANY_EVENTS / TENANTS, SOURCES))?);
            }
            let elapsed = publish_baseline(&context, many, 500, 4).await?;
            let one = messages(self.user.tenant_id(), &events(MANY_EVENTS))?;
            let baseline = publish_baseline(&context, one, 500, 4).await?;
            rounds.push((per_second(MANY_EVENTS, elapsed), per_second(MANY_EVENTS, baseline)));
        }
        self.report.add_comparison(Comparison {
            name: "broker: 1,000 tenants, 100,000 sources, events/s",
            baseline: "broker: one tenant and 32 sources",
            rounds: rounds.split_off(1),
            target: Some("≥ 0.9"),
        });
        Ok(())
    }
}
