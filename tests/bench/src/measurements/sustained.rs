//! Three minutes of batches with limits and quotas: rate, memory, and latency at half the rate. Also the memory of events that wait
//! for the broker.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use async_nats::jetstream;
use futures::future::try_join_all;
use rustix::process::{Pid, Signal, kill_process};

use super::{Bench, mebibytes, milliseconds};
use crate::events::{batch_body, events_of};
use crate::http::Connection;
use crate::load::{LoadResult, per_second};
use crate::process::{PeakMemory, resident_bytes};

const TIME: Duration = Duration::from_mins(3);
const HALF_LOAD_TIME: Duration = Duration::from_secs(30);
const CONNECTIONS: u8 = 4;
const BATCH: usize = 100;
const SOURCES: usize = 100_000;
/// Above any rate of this machine, so that the quota is enforced and never reached.
const QUOTA: &[u8] = br#"{"quota":{"events_per_second":10000000,"bytes_per_second":2147483647}}"#;
/// Events that wait: almost the memory budget of one tenant.
const WAITING_BATCHES: usize = 8;
const WAITING_BATCH: usize = 500;
const RECOVERY_TIMEOUT: Duration = Duration::from_mins(1);

impl Bench<'_> {
    pub(crate) async fn sustained(&mut self) -> anyhow::Result<()> {
        self.set_quota().await?;
        self.delete_events().await?;
        let broker = self.broker_pid();
        let time = if self.rounds.is_some() { HALF_LOAD_TIME } else { TIME };
        let before = resident_bytes(broker);
        let (services_peak, broker_peak) = (PeakMemory::of(self.system.pid()), PeakMemory::of(broker));
        let full = self.send_for(time, Duration::ZERO).await?;
        self.report.add_value("events per second, sustained, batches of 100", vec![full.rate() * 100.0]);
        self.report.add_value("  memory of the services, MiB", vec![mebibytes(services_peak.bytes())]);
        self.report.add_value("  memory of the broker before, MiB", vec![mebibytes(before)]);
        self.report.add_value("  memory of the broker, peak, MiB", vec![mebibytes(broker_peak.bytes())]);
        self.delete_events().await?;
        let interval = Duration::from_secs_f64(2.0 * f64::from(CONNECTIONS) / full.rate());
        let half = self.send_for(HALF_LOAD_TIME, interval).await?;
        let mut times = half.times;
        times.sort_unstable();
        let percentile = |part: usize| times.get(times.len() * part / 100).copied().map(milliseconds);
        let [median, p99] = [50, 99].map(|part| percentile(part).unwrap_or(f64::NAN));
        self.report.add_value("  p50 of a batch at half the rate, ms", vec![median]);
        self.report.add_value("  p99 of a batch at half the rate, ms", vec![p99]);
        self.delete_events().await
    }

    /// Sends new batches on each connection, not faster than one per `interval`.
    async fn send_for(&self, time: Duration, interval: Duration) -> anyhow::Result<LoadResult> {
        let started = Instant::now();
        let loops = (0..CONNECTIONS).map(async |_| {
            let mut connection = Connection::open(self.system.address).await?;
            let mut times = Vec::new();
            while started.elapsed() < time {
                let batch = self.user.post("/api/v1/events/batch", &batch_body(&events_of(BATCH, SOURCES)));
                let sent = Instant::now();
                connection.exchange(&batch).await?.expect(202)?;
                times.push(sent.elapsed());
                tokio::time::sleep(interval.saturating_sub(sent.elapsed())).await;
            }
            anyhow::Ok(times)
        });
        let times = try_join_all(loops).await?.concat();
        Ok(LoadResult { times, rejected: 0, elapsed: started.elapsed() })
    }

    /// Memory of events that the broker does not acknowledge.
    pub(crate) async fn waiting_events(&mut self) -> anyhow::Result<()> {
        let broker = Pid::from_raw(self.system.run_file.children.nats).context("the broker has no pid")?;
        let before = resident_bytes(self.system.pid());
        let peak = PeakMemory::of(self.system.pid());
        kill_process(broker, Signal::STOP)?;
        let requests = (0..WAITING_BATCHES).map(async |_| {
            let body = batch_body(&events_of(WAITING_BATCH, SOURCES));
            let mut connection = Connection::open(self.system.address).await?;
            let batch = self.user.post("/api/v1/events/batch", &body);
            anyhow::Ok(connection.exchange(&batch).await?.status)
        });
        let statuses = try_join_all(requests).await;
        kill_process(broker, Signal::CONT)?;
        let statuses = statuses?;
        ensure!(statuses.iter().all(|status| *status == 503), "the broker responded: {statuses:?}");
        let used = peak.bytes().saturating_sub(before);
        let kibibytes =
            mebibytes(used) * 1024.0 / per_second(WAITING_BATCHES * WAITING_BATCH, Duration::from_secs(1));
        self.report.add_value("memory of a waiting event of 500 bytes, KiB", vec![kibibytes]);
        self.report.add_value(
            "  seconds until an event is accepted again (target ≤ 5)",
            vec![self.recovery().await?],
        );
        Ok(())
    }

    /// Pauses the broker for longer than a request takes. Returns the time until an event is accepted after it continues.
    async fn recovery(&self) -> anyhow::Result<f64> {
        let broker = Pid::from_raw(self.system.run_file.children.nats).context("the broker has no pid")?;
        kill_process(broker, Signal::STOP)?;
        let rejected = self.send_event().await;
        kill_process(broker, Signal::CONT)?;
        let continued = Instant::now();
        ensure!(rejected? == 503, "the broker responded");
        while self.send_event().await? != 202 {
            ensure!(continued.elapsed() < RECOVERY_TIMEOUT, "no event is accepted");
        }
        Ok(continued.elapsed().as_secs_f64())
    }

    /// Sends an event. Returns the status.
    async fn send_event(&self) -> anyhow::Result<u16> {
        let request = self.user.post("/api/v1/events", &events_of(1, 1).concat());
        let mut connection = Connection::open(self.system.address).await?;
        Ok(connection.exchange(&request).await?.status)
    }

    /// Deletes all events, so that the stream does not become full.
    async fn delete_events(&self) -> anyhow::Result<()> {
        let config = bus::Config::new(&*self.system.run_file.nats_url, "bench");
        let context = jetstream::new(bus::connect(&config).await?);
        context.get_stream(bus::UDM_STREAM).await?.purge().await?;
        Ok(())
    }

    /// Sets a quota, so that it is checked for each event.
    async fn set_quota(&self) -> anyhow::Result<()> {
        let path = format!("/api/v1/tenants/{}", self.user.tenant_id());
        let update = self.system.platform_request("PATCH", &path, QUOTA)?;
        Connection::open(self.system.address).await?.exchange(&update).await?.expect(200)?;
        Ok(())
    }

    pub(super) fn broker_pid(&self) -> u32 {
        u32::try_from(self.system.run_file.children.nats).unwrap_or_default()
    }
}
