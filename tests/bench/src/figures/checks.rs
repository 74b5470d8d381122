//! Session checks: how many a second, how long one takes, and how long while many people log in at once, up to far more
//! than can be served.

use std::time::Duration;

use anyhow::ensure;

use super::{Bench, mebibytes, milliseconds};
use crate::load::{Outcome, on_one_thread, repeatedly};
use crate::process::Peak;
use crate::report::Pair;

const ROUNDS: usize = 3;
/// Connections that ask for the rate.
const CONNECTIONS: usize = 16;
const RATE_TIME: Duration = Duration::from_millis(1500);
/// One asks now and then for the latency.
const PAUSE: Duration = Duration::from_millis(2);
const IDLE_TIME: Duration = Duration::from_millis(2500);
/// So many log in at once, which the peers were measured with.
const MANY: u16 = 64;
const MANY_TIME: Duration = Duration::from_secs(5);
/// Ten times what two cores can hash: each comes back after a second, as those who are sent away are told.
const STORM: u16 = 200;
const STORM_PAUSE: Duration = Duration::from_secs(1);
const STORM_TIME: Duration = Duration::from_secs(30);
/// How long a login may wait until its hash begins, in milliseconds.
const QUEUE_LIMIT: f64 = 2000.0;

/// What a worker keeps for its hashes.
const ARENA_MEBIBYTES: usize = 64;

/// What one round found, in milliseconds.
struct Latency {
    p50: f64,
    p99: f64,
}

impl Bench<'_> {
    pub(crate) async fn checks(&mut self) -> anyhow::Result<()> {
        let (mut rates, mut medians, mut tails, mut served) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds(ROUNDS) {
            rates.push(self.rate().await?);
            let idle = self.idle().await?;
            let (checks, logins) = self.beside_logins(MANY, Duration::ZERO, MANY_TIME).await?;
            let busy = latency(&checks)?;
            medians.push((busy.p50, idle.p50));
            tails.push((busy.p99, idle.p99));
            served.push(logins.rate());
        }
        self.report.add_alone("session checks/s", rates);
        let (limit, aim) = ("the same while nothing else runs", None);
        self.report.add(Pair { figure: "check p50, 64 logins, ms", limit, rounds: medians, aim });
        let aim = Some("≤ 2.00");
        self.report.add(Pair { figure: "check p99, 64 logins, ms", limit, rounds: tails, aim });
        self.report.add_alone("  logins/s meanwhile", served);
        self.ten_times_capacity().await
    }

    /// Half a minute of far more logins than there are hashes.
    async fn ten_times_capacity(&mut self) -> anyhow::Result<()> {
        let (one, idle) = (self.one_login().await?, self.idle().await?);
        let peak = Peak::of(self.system.pid());
        let (checks, logins) = self.beside_logins(STORM, STORM_PAUSE, STORM_TIME).await?;
        let (busy, accepted) = (latency(&checks)?, percentiles(&logins));
        let limit = "the same while nothing else runs";
        let (figure, aim) = ("check p99, 30 s of 200 logins/s, ms", Some("≤ 2.00"));
        self.report.add(Pair { figure, limit, rounds: vec![(busy.p99, idle.p99)], aim });
        let limit = "2 s in the queue and one login";
        let (figure, aim) = ("  accepted login p99, ms", Some("≤ 1.00"));
        self.report.add(Pair { figure, limit, rounds: vec![(accepted.p99, QUEUE_LIMIT + one)], aim });
        let arenas = std::thread::available_parallelism().map_or(1, usize::from) * ARENA_MEBIBYTES;
        #[expect(clippy::cast_precision_loss, reason = "a number for people")]
        let arenas = arenas as f64;
        let limit = "a worker a core, each with 64 MiB";
        let (figure, aim) = ("  memory above the base, MiB", Some("≤ 1.10"));
        let above = mebibytes(peak.bytes().saturating_sub(self.base));
        self.report.add(Pair { figure, limit, rounds: vec![(above, arenas)], aim });
        self.report.add_alone("  logins/s meanwhile", vec![logins.rate()]);
        #[expect(clippy::cast_precision_loss, reason = "a number for people")]
        let refused = logins.refused as f64 / logins.elapsed.as_secs_f64();
        self.report.add_alone("  logins/s sent away meanwhile", vec![refused]);
        Ok(())
    }

    async fn rate(&self) -> anyhow::Result<f64> {
        let (address, checks) = (self.system.address, vec![self.person.check(); CONNECTIONS]);
        let load = async move || repeatedly(address, &checks, 200, RATE_TIME, Duration::ZERO).await;
        Ok(on_one_thread(load).await?.rate())
    }

    async fn idle(&self) -> anyhow::Result<Latency> {
        let (address, check) = (self.system.address, [self.person.check()]);
        let load = async move || repeatedly(address, &check, 200, IDLE_TIME, PAUSE).await;
        latency(&on_one_thread(load).await?)
    }

    /// How long one login takes while nothing else runs, in milliseconds.
    async fn one_login(&self) -> anyhow::Result<f64> {
        let (address, login) = (self.system.address, self.many_logins(1)?);
        let load = async move || repeatedly(address, &login, 200, IDLE_TIME, PAUSE).await;
        Ok(latency(&on_one_thread(load).await?)?.p50)
    }

    async fn beside_logins(
        &self,
        connections: u16,
        pause: Duration,
        time: Duration,
    ) -> anyhow::Result<(Outcome, Outcome)> {
        let address = self.system.address;
        let (check, logins) = ([self.person.check()], self.many_logins(connections)?);
        on_one_thread(async move || {
            let checks = repeatedly(address, &check, 200, time, PAUSE);
            let logins = repeatedly(address, &logins, 200, time, pause);
            futures::future::try_join(checks, logins).await
        })
        .await
    }
}

/// Of checks, none of which may be refused.
fn latency(outcome: &Outcome) -> anyhow::Result<Latency> {
    ensure!(outcome.refused == 0, "{} checks were refused", outcome.refused);
    Ok(percentiles(outcome))
}

fn percentiles(outcome: &Outcome) -> Latency {
    let mut times = outcome.times.clone();
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).copied().map_or(f64::NAN, milliseconds);
    Latency { p50: at(50), p99: at(99) }
}
