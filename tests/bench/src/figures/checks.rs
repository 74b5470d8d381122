//! Session checks: how many a second, how long one takes, and how long while many people log in at once.

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
/// So many log in at once, for long enough that the queue is full most of the time.
const STORM: usize = 64;
const STORM_TIME: Duration = Duration::from_secs(5);

/// What one round found, in milliseconds.
struct Latency {
    p50: f64,
    p99: f64,
}

impl Bench<'_> {
    pub(crate) async fn checks(&mut self) -> anyhow::Result<()> {
        let (mut rates, mut medians, mut tails) = (Vec::new(), Vec::new(), Vec::new());
        let (mut peaks, mut served, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds(ROUNDS) {
            rates.push(self.rate().await?);
            let idle = latency(self.idle().await?)?;
            let peak = Peak::of(self.system.pid());
            let (checks, logins) = self.storm().await?;
            let storm = latency(checks)?;
            peaks.push(mebibytes(peak.bytes()));
            medians.push((storm.p50, idle.p50));
            tails.push((storm.p99, idle.p99));
            served.push(logins.rate());
            #[expect(clippy::cast_precision_loss, reason = "a number for people")]
            refused.push(logins.refused as f64);
        }
        self.report.add_alone("session checks/s", rates);
        let (limit, aim) = ("the same while nothing else runs", None);
        self.report.add(Pair { figure: "check p50, 64 logins, ms", limit, rounds: medians, aim });
        let aim = Some("≤ 2.00");
        self.report.add(Pair { figure: "check p99, 64 logins, ms", limit, rounds: tails, aim });
        self.report.add_alone("  logins/s meanwhile", served);
        self.report.add_alone("  logins sent away meanwhile", refused);
        self.report.add_alone("  memory meanwhile, MiB", peaks);
        Ok(())
    }

    async fn rate(&self) -> anyhow::Result<f64> {
        let (address, check) = (self.system.address, self.person.check());
        let load =
            async move || repeatedly(address, CONNECTIONS, &check, 200, RATE_TIME, Duration::ZERO).await;
        Ok(on_one_thread(load).await?.rate())
    }

    async fn idle(&self) -> anyhow::Result<Outcome> {
        let (address, check) = (self.system.address, self.person.check());
        on_one_thread(async move || repeatedly(address, 1, &check, 200, IDLE_TIME, PAUSE).await).await
    }

    async fn storm(&self) -> anyhow::Result<(Outcome, Outcome)> {
        let address = self.system.address;
        let (check, login) = (self.person.check(), self.member.login()?);
        on_one_thread(async move || {
            let checks = repeatedly(address, 1, &check, 200, STORM_TIME, PAUSE);
            let logins = repeatedly(address, STORM, &login, 200, STORM_TIME, Duration::ZERO);
            futures::future::try_join(checks, logins).await
        })
        .await
    }
}

fn latency(outcome: Outcome) -> anyhow::Result<Latency> {
    ensure!(outcome.refused == 0, "{} checks were refused", outcome.refused);
    let mut times = outcome.times;
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).copied().map_or(f64::NAN, milliseconds);
    Ok(Latency { p50: at(50), p99: at(99) })
}
