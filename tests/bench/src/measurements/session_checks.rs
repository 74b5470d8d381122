//! Session checks: rate and latency, without other load and during logins up to ten times the capacity. The latency during logins is
//! also compared with that of a server without work.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;

use super::{Bench, mebibytes, milliseconds};
use crate::http::{BaselineServer, request};
use crate::load::{LoadResult, on_one_thread, send_repeatedly};
use crate::process::PeakMemory;
use crate::report::Comparison;

const ROUNDS: usize = 5;
/// Connections for the rate.
const CONNECTIONS: usize = 16;
const RATE_TIME: Duration = Duration::from_millis(1500);
/// The pause between checks on the one connection for the latency.
const PAUSE: Duration = Duration::from_millis(2);
const IDLE_TIME: Duration = Duration::from_millis(2500);
/// The maximum time in the hash queue, in milliseconds.
const QUEUE_LIMIT_MS: f64 = 2000.0;

/// The memory of a hash worker.
const ARENA_MEBIBYTES: usize = 64;

/// Percentiles of one round in milliseconds.
struct Latency {
    p50: f64,
    p99: f64,
}

/// A request, sent repeatedly to measure its latency.
struct Probe {
    address: SocketAddr,
    request: Vec<u8>,
    status: u16,
}

/// A load of logins.
#[derive(Clone, Copy)]
struct Logins {
    connections: u16,
    pause: Duration,
    time: Duration,
}

/// Other products were measured with the same number of connections.
const CONCURRENT: Logins = Logins { connections: 64, pause: Duration::ZERO, time: Duration::from_secs(5) };
/// Several times the capacity of two cores: each client logs in once per second.
const OVERLOAD: Logins =
    Logins { connections: 200, pause: Duration::from_secs(1), time: Duration::from_secs(30) };

impl Bench<'_> {
    pub(crate) async fn session_checks(&mut self) -> anyhow::Result<()> {
        let server = BaselineServer::start().await?;
        let (mut rates, mut medians, mut tails) = (Vec::new(), Vec::new(), Vec::new());
        let (mut baselines, mut limits, mut logins_rates) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds(ROUNDS) {
            rates.push(self.check_rate().await?);
            let idle = self.check().idle_latency().await?;
            let bare_idle = Probe::without_work(&server).idle_latency().await?;
            let (busy, logins) = self.latency_during(CONCURRENT, self.check()).await?;
            // Each latency has its own load of logins, because two measured clients would delay each other.
            let (bare, _) = self.latency_during(CONCURRENT, Probe::without_work(&server)).await?;
            medians.push((busy.p50, idle.p50));
            tails.push((busy.p99, idle.p99));
            baselines.push((busy.p99, bare.p99));
            limits.push((bare.p99, bare_idle.p99));
            logins_rates.push(logins.rate());
        }
        self.report.add_value("session checks per second, 16 connections", rates);
        let (name, baseline) =
            ("session check during 64 logins, p50, ms", "session check without other load");
        self.report.add_comparison(Comparison { name, baseline, rounds: medians, target: None });
        let (name, target) = ("session check during 64 logins, p99, ms", Some("≤ 2.00"));
        self.report.add_comparison(Comparison { name, baseline, rounds: tails, target });
        let baseline = "HTTP server without work, during 64 logins";
        self.report.add_comparison(Comparison { name, baseline, rounds: baselines, target: None });
        // The limit of the first comparison: every process waits for the processor, also one without work.
        self.report.add_comparison(Comparison {
            name: "  HTTP server without work during 64 logins, p99, ms",
            baseline: "HTTP server without work, without other load",
            rounds: limits,
            target: None,
        });
        self.report.add_value("  logins per second", logins_rates);
        self.overload().await
    }

    async fn overload(&mut self) -> anyhow::Result<()> {
        let (one, idle) = (self.login_latency().await?, self.check().idle_latency().await?);
        let before = self.send_logins(CONCURRENT).await?.rate();
        let peak = PeakMemory::of(self.system.pid());
        let (busy, logins) = self.latency_during(OVERLOAD, self.check()).await?;
        // The mean of the capacity before and after, because the speed of a shared machine changes.
        let capacity = f64::midpoint(before, self.send_logins(CONCURRENT).await?.rate());
        let accepted = percentiles(&logins);
        self.report.add_comparison(Comparison {
            name: "session check during 200 logins/s for 30 s, p99, ms",
            baseline: "session check without other load",
            rounds: vec![(busy.p99, idle.p99)],
            target: Some("≤ 2.00"),
        });
        self.report.add_comparison(Comparison {
            name: "  accepted login, p99, ms",
            baseline: "queue limit of 2 s plus one login",
            rounds: vec![(accepted.p99, QUEUE_LIMIT_MS + one)],
            target: Some("≤ 1.00"),
        });
        let arenas = std::thread::available_parallelism().map_or(1, usize::from) * ARENA_MEBIBYTES;
        #[expect(clippy::cast_precision_loss, reason = "a number for display")]
        let arenas = arenas as f64;
        let above_idle = mebibytes(peak.bytes().saturating_sub(self.idle_bytes));
        self.report.add_comparison(Comparison {
            name: "  memory above idle, MiB",
            baseline: "one worker with 64 MiB per core",
            rounds: vec![(above_idle, arenas)],
            target: Some("≤ 1.10"),
        });
        self.report.add_comparison(Comparison {
            name: "  accepted logins per second",
            baseline: "64 concurrent logins, without checks",
            rounds: vec![(logins.rate(), capacity)],
            target: Some("≥ 0.90"),
        });
        #[expect(clippy::cast_precision_loss, reason = "a number for display")]
        let rejected = logins.rejected as f64 / logins.elapsed.as_secs_f64();
        self.report.add_value("  rejected logins per second", vec![rejected]);
        Ok(())
    }

    async fn check_rate(&self) -> anyhow::Result<f64> {
        let (address, checks) = (self.system.address, vec![self.user.session_check(); CONNECTIONS]);
        let load = async move || send_repeatedly(address, &checks, 200, RATE_TIME, Duration::ZERO).await;
        Ok(on_one_thread(load).await?.rate())
    }

    fn check(&self) -> Probe {
        Probe { address: self.system.address, request: self.user.session_check(), status: 200 }
    }

    /// The median latency of a login without other load, in milliseconds.
    async fn login_latency(&self) -> anyhow::Result<f64> {
        let request = self.logins(1)?.swap_remove(0);
        Ok(Probe { address: self.system.address, request, status: 200 }.idle_latency().await?.p50)
    }

    async fn send_logins(&self, load: Logins) -> anyhow::Result<LoadResult> {
        let (address, logins) = (self.system.address, self.logins(load.connections)?);
        on_one_thread(async move || send_repeatedly(address, &logins, 200, load.time, load.pause).await).await
    }

    async fn latency_during(&self, load: Logins, probe: Probe) -> anyhow::Result<(Latency, LoadResult)> {
        let (address, logins) = (self.system.address, self.logins(load.connections)?);
        on_one_thread(async move || {
            let logins = send_repeatedly(address, &logins, 200, load.time, load.pause);
            futures::future::try_join(probe.latency(load.time), logins).await
        })
        .await
    }
}

impl Probe {
    fn without_work(server: &BaselineServer) -> Self {
        Self { address: server.address, request: request("POST", "/", &[], b""), status: 202 }
    }

    async fn idle_latency(self) -> anyhow::Result<Latency> {
        on_one_thread(async move || self.latency(IDLE_TIME).await).await
    }

    /// Returns the percentiles of the latency. A rejected request is an error.
    async fn latency(&self, time: Duration) -> anyhow::Result<Latency> {
        let request = std::slice::from_ref(&self.request);
        let result = send_repeatedly(self.address, request, self.status, time, PAUSE).await?;
        ensure!(result.rejected == 0, "{} requests were rejected", result.rejected);
        Ok(percentiles(&result))
    }
}

fn percentiles(result: &LoadResult) -> Latency {
    let mut times = result.times.clone();
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).copied().map_or(f64::NAN, milliseconds);
    Latency { p50: at(50), p99: at(99) }
}
