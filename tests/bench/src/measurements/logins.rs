//! Logins per second, compared with the `argon2` crate on the same number of threads, and their CPU time and memory.

use std::thread;
use std::time::{Duration, Instant};

use argon2::{Algorithm, Argon2, Block, Params, Version};

use futures::future::try_join_all;

use super::{Bench, mebibytes, milliseconds};
use crate::http::Connection;
use crate::load::{LoadResult, on_one_thread, per_second, send_repeatedly};
use crate::process::{PeakMemory, cpu_time};
use crate::report::Comparison;

const ROUNDS: usize = 3;
const TIME: Duration = Duration::from_millis(2500);
/// Enough that each worker is busy, and few enough that no login is rejected.
const CONNECTIONS: u16 = 8;
/// People with an authenticator app in a round: each logs in twice, because a code is accepted once.
const PEOPLE: u16 = 64;

/// The memory of a hash.
#[derive(Clone, Copy)]
enum Memory {
    /// Allocated once per thread.
    Reused,
    /// Allocated for each hash, the default of the crate.
    Allocated,
}

impl Bench<'_> {
    pub(crate) async fn login_rate(&mut self) -> anyhow::Result<()> {
        let (mut reused, mut allocated, mut times, mut peaks) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds(ROUNDS) {
            let (address, logins) = (self.system.address, self.logins(CONNECTIONS)?);
            let peak = PeakMemory::of(self.system.pid());
            let load = async move || send_repeatedly(address, &logins, 200, TIME, Duration::ZERO).await;
            let before = cpu_time(self.system.pid());
            let result = on_one_thread(load).await?;
            let used = cpu_time(self.system.pid()).saturating_sub(before);
            times.push(milliseconds(used) / count(&result));
            let rate = result.rate();
            peaks.push(mebibytes(peak.bytes()));
            reused.push((rate, hashes(Memory::Reused)?));
            allocated.push((rate, hashes(Memory::Allocated)?));
        }
        let name = "logins per second, 8 connections";
        let (baseline, target) = ("argon2 crate, memory reused", Some("≥ 2.20"));
        self.report.add_comparison(Comparison { name, baseline, rounds: reused, target });
        let (baseline, target) = ("argon2 crate, memory allocated per hash", Some("≥ 3.30"));
        self.report.add_comparison(Comparison { name, baseline, rounds: allocated, target });
        self.report.add_value("  CPU time of the services per login, ms (target ≤ 42)", times);
        self.report.add_value("  memory before the first hash, MiB", vec![mebibytes(self.idle_bytes)]);
        self.report.add_value("  memory during logins, MiB", peaks);
        Ok(())
    }

    /// Logins with a code per second, compared with logins without one.
    pub(crate) async fn logins_with_code(&mut self) -> anyhow::Result<()> {
        let mut rounds = Vec::new();
        for round in 0..self.rounds(ROUNDS) {
            let mut people = Vec::new();
            for n in 0..PEOPLE {
                let email = format!("app-{round}-{n}@bench.example");
                let person = self.user.invite(self.system, &email).await?;
                let secret = person.set_up_app(&mut Connection::open(self.system.address).await?).await?;
                people.push((n, person, secret));
            }
            let started = Instant::now();
            let each = usize::from(PEOPLE / CONNECTIONS);
            try_join_all(people.chunks(each).map(async |people| {
                let mut connection = Connection::open(self.system.address).await?;
                // The steps that are accepted and were not used.
                for step in [0, 1] {
                    for (n, person, secret) in people {
                        person.log_in_with_code(&mut connection, *n, secret, step).await?;
                    }
                }
                anyhow::Ok(())
            }))
            .await?;
            let with_code = per_second(2 * usize::from(PEOPLE), started.elapsed());
            let (address, logins) = (self.system.address, self.logins(CONNECTIONS)?);
            let load = async move || send_repeatedly(address, &logins, 200, TIME, Duration::ZERO).await;
            rounds.push((with_code, on_one_thread(load).await?.rate()));
        }
        let name = "logins with a code per second, 8 connections";
        let (baseline, target) = ("logins without a second factor", Some("≥ 0.80"));
        self.report.add_comparison(Comparison { name, baseline, rounds, target });
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number for display")]
fn count(logins: &LoadResult) -> f64 {
    logins.times.len().max(1) as f64
}

/// Hashes per second with one thread per core and the default settings of the services.
fn hashes(memory: Memory) -> anyhow::Result<f64> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let started = Instant::now();
    let counts = thread::scope(|scope| {
        let running: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| hash_until(started + TIME, memory))).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or(Ok(0))).collect::<Result<Vec<_>, _>>()
    });
    let count = counts.map_err(|error| anyhow::anyhow!("{error}"))?.into_iter().sum();
    Ok(per_second(count, started.elapsed()))
}

fn hash_until(end: Instant, memory: Memory) -> argon2::Result<usize> {
    let params = Params::new(64 * 1024, 3, 4, Some(32))?;
    let mut arena = match memory {
        Memory::Reused => vec![Block::new(); params.block_count()],
        Memory::Allocated => Vec::new(),
    };
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let (password, salt, mut out) = (b"correct-horse-battery-9", [7; 16], [0; 32]);
    let mut count = 0;
    while Instant::now() < end {
        match memory {
            Memory::Reused => argon2.hash_password_into_with_memory(password, &salt, &mut out, &mut arena)?,
            Memory::Allocated => argon2.hash_password_into(password, &salt, &mut out)?,
        }
        count += 1;
    }
    Ok(count)
}
