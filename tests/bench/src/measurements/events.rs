//! Events per second, single and in batches, compared with bare HTTP and the bare NATS client, and the CPU time of each process
//! per event. CPU time varies less than a rate on a shared machine.

use std::time::Duration;

use anyhow::ensure;
use async_nats::jetstream::{self, Context};
use bytes::Bytes;

use super::{Bench, mebibytes};
use crate::events::{batch_body, events, events_in_camel_case, messages, publish_baseline};
use crate::http::{BaselineServer, request};
use crate::load::{per_second, send_once};
use crate::process::{PeakMemory, cpu_time, cpu_time_with_children};
use crate::report::{Comparison, Report};
use crate::system::System;

const BATCH_ROUNDS: usize = 7;
const BATCH_EVENTS: usize = 100_000;
const BATCH_SIZE: usize = 500;
/// Connections or tasks that send batches. The batches in flight must fit into the memory budget of one tenant.
const BATCH_CONNECTIONS: usize = 4;

const SINGLE_ROUNDS: usize = 5;
const SINGLE_EVENTS: usize = 10_000;
const SINGLE_CONNECTIONS: usize = 64;

impl Bench<'_> {
    pub(crate) async fn batch_events(&mut self) -> anyhow::Result<()> {
        let (context, before) = self.connect_to_stream().await?;
        let (mut rounds, mut peaks) = (Vec::new(), Vec::new());
        let (mut cpu, mut baseline_cpu) = (CpuTimes::default(), CpuTimes::default());
        // The first round is a warm-up.
        for _ in 0..=self.rounds(BATCH_ROUNDS) {
            let peak = PeakMemory::of(self.system.pid());
            let elapsed =
                cpu.measure(self.system, BATCH_EVENTS, self.send_batches(events(BATCH_EVENTS))).await?;
            peaks.push(mebibytes(peak.bytes()));
            let messages = messages(self.user.tenant_id(), &events(BATCH_EVENTS))?;
            let baseline = publish_baseline(&context, messages, BATCH_SIZE, BATCH_CONNECTIONS);
            let baseline = baseline_cpu.measure(self.system, BATCH_EVENTS, baseline).await?;
            rounds.push((per_second(BATCH_EVENTS, elapsed), per_second(BATCH_EVENTS, baseline)));
        }
        expect_stored(&context, before, rounds.len() * 2 * BATCH_EVENTS).await?;
        let baseline = "async-nats, same messages, 4 × 500 in flight";
        self.report.add_comparison(Comparison {
            name: "events per second, batches of 500",
            baseline,
            rounds: rounds.split_off(1),
            target: None,
        });
        cpu.report(self.report, baseline_cpu, baseline);
        self.report.add_value("  memory of the services, MiB", peaks.split_off(1));
        Ok(())
    }

    /// The two spellings of names are sent in turn, so that both have the same load of the machine.
    pub(crate) async fn spellings(&mut self) -> anyhow::Result<()> {
        let (mut camel_case, mut snake_case) = (CpuTimes::default(), CpuTimes::default());
        // The first round is a warm-up.
        for _ in 0..=self.rounds(BATCH_ROUNDS) {
            let load = self.send_batches(events_in_camel_case(BATCH_EVENTS));
            camel_case.measure(self.system, BATCH_EVENTS, load).await?;
            let load = self.send_batches(events(BATCH_EVENTS));
            snake_case.measure(self.system, BATCH_EVENTS, load).await?;
        }
        let ([camel_case, ..], [snake_case, ..]) = (camel_case.0, snake_case.0);
        self.report.add_comparison(Comparison {
            name: "CPU of the services with names in camelCase, µs/event",
            baseline: "the same events with names in snake_case",
            rounds: camel_case.into_iter().zip(snake_case).skip(1).collect(),
            target: Some("≤ 1.05"),
        });
        Ok(())
    }

    async fn send_batches(&self, events: Vec<Bytes>) -> anyhow::Result<Duration> {
        let post = |batch: &[_]| self.user.post("/api/v1/events/batch", &batch_body(batch));
        let requests = events.chunks(BATCH_SIZE).map(post).collect();
        send_once(self.system.address, BATCH_CONNECTIONS, requests, 202).await
    }

    pub(crate) async fn single_events(&mut self) -> anyhow::Result<()> {
        let (context, before) = self.connect_to_stream().await?;
        let server = BaselineServer::start().await?;
        let (mut http, mut nats) = (Vec::new(), Vec::new());
        let (mut cpu, mut baseline_cpu) = (CpuTimes::default(), CpuTimes::default());
        // The first round is a warm-up.
        for _ in 0..=self.rounds(SINGLE_ROUNDS) {
            let events = events(SINGLE_EVENTS);
            let requests = events.iter().map(|event| self.user.post("/api/v1/events", event)).collect();
            let load = send_once(self.system.address, SINGLE_CONNECTIONS, requests, 202);
            let rate = per_second(SINGLE_EVENTS, cpu.measure(self.system, SINGLE_EVENTS, load).await?);
            let requests = events.iter().map(|event| request("POST", "/", &[], event)).collect();
            let baseline = send_once(server.address, SINGLE_CONNECTIONS, requests, 202).await?;
            http.push((rate, per_second(SINGLE_EVENTS, baseline)));
            let messages = messages(self.user.tenant_id(), &self::events(SINGLE_EVENTS))?;
            let baseline = publish_baseline(&context, messages, 1, SINGLE_CONNECTIONS);
            let baseline = baseline_cpu.measure(self.system, SINGLE_EVENTS, baseline).await?;
            nats.push((rate, per_second(SINGLE_EVENTS, baseline)));
        }
        expect_stored(&context, before, http.len() * 2 * SINGLE_EVENTS).await?;
        let name = "single events per second, 64 connections";
        let baseline = "HTTP server without work, 64 connections";
        self.report.add_comparison(Comparison { name, baseline, rounds: http.split_off(1), target: None });
        let baseline = "async-nats, same messages, 64 in flight";
        self.report.add_comparison(Comparison { name, baseline, rounds: nats.split_off(1), target: None });
        cpu.report(self.report, baseline_cpu, baseline);
        Ok(())
    }

    /// Connects as the administrator of the broker. Also returns the number of stored events.
    async fn connect_to_stream(&self) -> anyhow::Result<(Context, u64)> {
        let config = bus::Config::new(&*self.system.run_file.nats_url, "bench");
        let context = jetstream::new(bus::connect(&config).await?);
        let stored = stored_events(&context).await?;
        Ok((context, stored))
    }
}

/// Checks that the stream contains all acknowledged events. If not, the rates are meaningless.
async fn expect_stored(context: &Context, before: u64, acknowledged: usize) -> anyhow::Result<()> {
    let stored = stored_events(context).await? - before;
    ensure!(
        stored == acknowledged as u64,
        "{acknowledged} events were acknowledged, but {stored} are stored"
    );
    Ok(())
}

async fn stored_events(context: &Context) -> anyhow::Result<u64> {
    Ok(context.get_stream(bus::UDM_STREAM).await?.cached_info().state.messages)
}

/// CPU time per event of services, broker and database in µs, by round.
#[derive(Default)]
struct CpuTimes([Vec<f64>; 3]);

impl CpuTimes {
    /// Runs a load and records the CPU time per event. Returns the result of the load.
    async fn measure(
        &mut self,
        system: &System,
        events: usize,
        load: impl Future<Output = anyhow::Result<Duration>>,
    ) -> anyhow::Result<Duration> {
        let before = cpu_times(system);
        let elapsed = load.await?;
        let after = cpu_times(system);
        for (index, rounds) in self.0.iter_mut().enumerate() {
            let used = after[index].saturating_sub(before[index]);
            #[expect(clippy::cast_precision_loss, reason = "a number for display")]
            rounds.push(used.as_secs_f64() * 1e6 / events as f64);
        }
        Ok(elapsed)
    }

    /// Adds one row for each process, without the warm-up round. The row of the broker is compared with its time during the baseline.
    fn report(self, report: &mut Report, baseline: Self, baseline_name: &'static str) {
        let [services, broker, database] = self.0;
        let [_, broker_baseline, _] = baseline.0;
        report.add_value("  CPU of the services, µs/event", services[1..].to_vec());
        report.add_comparison(Comparison {
            name: "  CPU of the broker, µs/event",
            baseline: baseline_name,
            rounds: broker.into_iter().zip(broker_baseline).skip(1).collect(),
            target: None,
        });
        report.add_value("  CPU of the database, µs/event", database[1..].to_vec());
    }
}

fn cpu_times(system: &System) -> [Duration; 3] {
    let children = system.run_file.children;
    let pid = |pid: i32| u32::try_from(pid).unwrap_or_default();
    [cpu_time(system.pid()), cpu_time(pid(children.nats)), cpu_time_with_children(pid(children.postgres))]
}
