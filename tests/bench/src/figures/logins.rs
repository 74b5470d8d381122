//! Logins a second, beside bare Argon2id on as many threads as there are workers, and the memory that they take.

use std::thread;
use std::time::{Duration, Instant};

use argon2::{Algorithm, Argon2, Block, Params, Version};

use super::{Bench, mebibytes};
use crate::load::{on_one_thread, per_second, repeatedly};
use crate::process::Peak;
use crate::report::Pair;

const ROUNDS: usize = 3;
const TIME: Duration = Duration::from_millis(2500);
/// Enough that no worker ever waits for work, and that nobody waits in vain for a worker.
const CONNECTIONS: u16 = 8;

/// Where a hash gets its memory.
#[derive(Clone, Copy)]
enum Memory {
    /// Made once for each thread.
    Kept,
    /// Made for each hash, as the crate does it by itself.
    Fresh,
}

impl Bench<'_> {
    pub(crate) async fn logins(&mut self) -> anyhow::Result<()> {
        let (mut kept, mut fresh, mut peaks) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds(ROUNDS) {
            let (address, logins) = (self.system.address, self.many_logins(CONNECTIONS)?);
            let peak = Peak::of(self.system.pid());
            let load = async move || repeatedly(address, &logins, 200, TIME, Duration::ZERO).await;
            let ours = on_one_thread(load).await?.rate();
            peaks.push(mebibytes(peak.bytes()));
            kept.push((ours, hashes(Memory::Kept)?));
            fresh.push((ours, hashes(Memory::Fresh)?));
        }
        let figure = "logins/s";
        let limit = "argon2, memory reused";
        self.report.add(Pair { figure, limit, rounds: kept, aim: Some("≥ 0.97") });
        let limit = "argon2, memory allocated per hash";
        self.report.add(Pair { figure, limit, rounds: fresh, aim: Some("≥ 1.40") });
        self.report.add_alone("memory before the first hash, MiB", vec![mebibytes(self.base)]);
        self.report.add_alone("memory while logins run, MiB", peaks);
        Ok(())
    }
}

/// Hashes a second of one thread a core, with the settings that the services use unless told otherwise.
fn hashes(memory: Memory) -> anyhow::Result<f64> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let begun = Instant::now();
    let counts = thread::scope(|scope| {
        let running: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| hash_until(begun + TIME, memory))).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or(Ok(0))).collect::<Result<Vec<_>, _>>()
    });
    let count = counts.map_err(|error| anyhow::anyhow!("{error}"))?.into_iter().sum();
    Ok(per_second(count, begun.elapsed()))
}

fn hash_until(end: Instant, memory: Memory) -> argon2::Result<usize> {
    let params = Params::new(64 * 1024, 3, 4, Some(32))?;
    let mut arena = match memory {
        Memory::Kept => vec![Block::new(); params.block_count()],
        Memory::Fresh => Vec::new(),
    };
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let (password, salt, mut out) = (b"correct-horse-battery-9", [7; 16], [0; 32]);
    let mut count = 0;
    while Instant::now() < end {
        match memory {
            Memory::Kept => argon2.hash_password_into_with_memory(password, &salt, &mut out, &mut arena)?,
            Memory::Fresh => argon2.hash_password_into(password, &salt, &mut out)?,
        }
        count += 1;
    }
    Ok(count)
}
