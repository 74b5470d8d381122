//! Session checks: rate and latency, without other load and during logins up to ten times the capacity.

use std::time::Duration;

use anyhow::ensure;

use super::{Bench, mebibytes, milliseconds};
use crate::load::{LoadResult, on_one_thread, send_repeatedly};
use crate::process::PeakMemory;
use crate::report::Comparison;

const ROUNDS: usize = 3;
/// Connections for the rate.
const CONNECTIONS: usize = 16;
const RATE_TIME: Duration = Duration::from_millis(1500);
/// The pause between checks on the one connection for the latency.
const PAUSE: Duration = Duration::from_millis(2);
const IDLE_TIME: Duration = Duration::from_millis(2500);
/// Concurrent logins. Other products were measured with the same number.
const LOGINS: u16 = 64;
const LOGINS_TIME: Duration = Duration::from_secs(5);
/// Several times the capacity of two cores: each client logs in once per second.
const OVERLOAD_LOGINS: u16 = 200;
const OVERLOAD_PAUSE: Duration = Duration::from_secs(1);
const OVERLOAD_TIME: Duration = Duration::from_secs(30);
/// The maximum time in the hash queue, in milliseconds.
const QUEUE_LIMIT_MS: f64 = 2000.0;

/// The memory of a hash worker.
const ARENA_MEBIBYTES: usize = 64;

/// Percentiles of one round in milliseconds.
struct Latency {
    p50: f64,
    p99: f64,
}

impl Bench<'_> {
    pub(crate) async fn session_checks(&mut self) -> anyhow::Result<()> {
        let (mut rates, mut medians, mut tails, mut logins_rates) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds(ROUNDS) {
            rates.push(self.check_rate().await?);
            let idle = self.idle_latency().await?;
            let (checks, logins) = self.check_during_logins(LOGINS, Duration::ZERO, LOGINS_TIME).await?;
            let busy = latency(&checks)?;
            medians.push((busy.p50, idle.p50));
            tails.push((busy.p99, idle.p99));
            logins_rates.push(logins.rate());
        }
        self.report.add_value("session checks per second, 16 connections", rates);
        let (name, baseline) =
            ("session check during 64 logins, p50, ms", "session check without other load");
        self.report.add_comparison(Comparison { name, baseline, rounds: medians, target: None });
        let (name, target) = ("session check during 64 logins, p99, ms", Some("≤ 2.00"));
        self.report.add_comparison(Comparison { name, baseline, rounds: tails, target });
        self.report.add_value("  logins per second", logins_rates);
        self.overload().await
    }

    /// 30 seconds of logins at ten times the capacity.
    async fn overload(&mut self) -> anyhow::Result<()> {
        let (one, idle) = (self.login_latency().await?, self.idle_latency().await?);
        let peak = PeakMemory::of(self.system.pid());
        let (checks, logins) =
            self.check_during_logins(OVERLOAD_LOGINS, OVERLOAD_PAUSE, OVERLOAD_TIME).await?;
        let (busy, accepted) = (latency(&checks)?, percentiles(&logins));
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
        self.report.add_value("  accepted logins per second", vec![logins.rate()]);
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

    async fn idle_latency(&self) -> anyhow::Result<Latency> {
        let (address, check) = (self.system.address, [self.user.session_check()]);
        let load = async move || send_repeatedly(address, &check, 200, IDLE_TIME, PAUSE).await;
        latency(&on_one_thread(load).await?)
    }

    /// The median latency of a login without other load, in milliseconds.
    async fn login_latency(&self) -> anyhow::Result<f64> {
        let (address, login) = (self.system.address, self.logins(1)?);
        let load = async move || send_repeatedly(address, &login, 200, IDLE_TIME, PAUSE).await;
        Ok(latency(&on_one_thread(load).await?)?.p50)
    }

    async fn check_during_logins(
        &self,
        connections: u16,
        pause: Duration,
        time: Duration,
    ) -> anyhow::Result<(LoadResult, LoadResult)> {
        let address = self.system.address;
        let (check, logins) = ([self.user.session_check()], self.logins(connections)?);
        on_one_thread(async move || {
            let checks = send_repeatedly(address, &check, 200, time, PAUSE);
            let logins = send_repeatedly(address, &logins, 200, time, pause);
            futures::future::try_join(checks, logins).await
        })
        .await
    }
}

/// The percentiles of session checks. A rejected check is an error.
fn latency(result: &LoadResult) -> anyhow::Result<Latency> {
    ensure!(result.rejected == 0, "{} session checks were rejected", result.rejected);
    Ok(percentiles(result))
}

fn percentiles(result: &LoadResult) -> Latency {
    let mut times = result.times.clone();
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).copied().map_or(f64::NAN, milliseconds);
    Latency { p50: at(50), p99: at(99) }
}
