//! Credential checks: batched lookups, cached checks, revocation latency, and the memory of sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use authn::{
    CredentialCache, CredentialVerifier as _, Introspection, IntrospectionBatcher, Introspector as _,
};
use futures::future::try_join_all;
use hashing::{RawToken, SystemEntropy, TokenDigest, TokenKind};
use service::Tasks;
use service::clock::SystemClock;
use service::telemetry::{Telemetry, TraceSettings};

use super::{Bench, mebibytes, milliseconds};
use crate::http::{Connection, request};
use crate::load::{on_one_thread, per_second, send_repeatedly};
use crate::process::resident_bytes;
use crate::report::Comparison;
use crate::sessions::{CountingIntrospector, SessionTable};

const ROUNDS: usize = 5;
pub(super) const CALLERS: usize = 64;
/// Batch size and number of concurrent batches of the baseline: the fastest combination on such a machine.
const BATCH_SIZE: usize = 32;
const CONCURRENT_BATCHES: usize = 2;
/// The fastest concurrency for one lookup per statement.
const CONCURRENT_SINGLES: usize = 16;
pub(super) const RATE_TIME: Duration = Duration::from_secs(1);
const SESSIONS: usize = 100_000;
const REVOCATIONS: usize = 300;
const CHECKS: usize = 2_000_000;

impl Bench<'_> {
    pub(crate) async fn credentials(&mut self) -> anyhow::Result<()> {
        let sessions = SessionTable::connect(&self.system.run_file.database_url, self.user.user_id()).await?;
        let before = sessions.bytes().await?;
        let digests: Vec<_> = (0..SESSIONS).map(|n| TokenDigest::from_text(&format!("bench-{n}"))).collect();
        sessions.insert(&digests).await?;
        let table_size = mebibytes(sessions.bytes().await? - before);
        self.introspections(&sessions, &digests).await?;
        self.report.add_value("  100,000 sessions in Postgres, MiB", vec![table_size]);
        self.cached_checks(&digests).await?;
        self.revocations(&sessions).await
    }

    async fn introspections(
        &mut self,
        sessions: &SessionTable,
        digests: &[TokenDigest],
    ) -> anyhow::Result<()> {
        let batcher = IntrospectionBatcher::new(sessions.clone(), &Tasks::default());
        let (mut in_batches, mut single, mut over_http) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds(ROUNDS) {
            let batcher_rate =
                rate(CALLERS, 1, digests, async |batch| Ok(batcher.introspect_all(batch).await?)).await?;
            let look_up = async |batch: Vec<_>| Ok(sessions.look_up(&batch).await?);
            in_batches.push((batcher_rate, rate(CONCURRENT_BATCHES, BATCH_SIZE, digests, look_up).await?));
            let one_by_one = rate(CONCURRENT_SINGLES, 1, digests, look_up).await?;
            single.push((batcher_rate, one_by_one));
            let (address, checks) = (self.system.address, vec![self.user.session_check(); CALLERS]);
            let load = async move || send_repeatedly(address, &checks, 200, RATE_TIME, Duration::ZERO).await;
            over_http.push((on_one_thread(load).await?.rate(), one_by_one));
        }
        let name = "introspections per second, 64 callers";
        let (baseline, target) = ("bare pool, 32 credentials per statement", Some("≥ 0.50"));
        self.report.add_comparison(Comparison { name, baseline, rounds: in_batches, target });
        let baseline = "bare pool, 1 credential per statement";
        self.report.add_comparison(Comparison { name, baseline, rounds: single, target: None });
        let name = "session checks per second over HTTP, 64 connections";
        self.report.add_comparison(Comparison { name, baseline, rounds: over_http, target: None });
        Ok(())
    }

    async fn cached_checks(&mut self, digests: &[TokenDigest]) -> anyhow::Result<()> {
        let lookups = Arc::new(AtomicUsize::new(0));
        let nats = bus::Connection::open(&bus::Config::new(&*self.system.run_file.nats_url, "bench")).await?;
        let telemetry = Telemetry::start("bench", &TraceSettings::default())?;
        let introspector = CountingIntrospector::new(&lookups);
        let cache =
            CredentialCache::start(introspector, nats, Arc::new(SystemClock), &Tasks::default(), &telemetry);
        let before = resident_bytes(std::process::id());
        for chunk in digests.chunks(1000) {
            try_join_all(chunk.iter().map(|digest| cache.introspect(*digest))).await?;
        }
        let used = resident_bytes(std::process::id()).saturating_sub(before);
        let started = Instant::now();
        let before = lookups.load(Ordering::Relaxed);
        // 4,000 credentials: a typical number in use, and too many for the L1 cache of the CPU.
        for digest in digests[SESSIONS - 4000..].iter().cycle().take(CHECKS) {
            ensure!(cache.introspect(*digest).await?.is_some(), "an active session was rejected");
        }
        let elapsed = started.elapsed();
        // Twice, because the cache is cleared when the invalidation feed comes up.
        ensure!(lookups.load(Ordering::Relaxed) <= before + 2 * 4000, "the cache was not used");
        self.report.add_value("cached checks per second, one thread", vec![per_second(CHECKS, elapsed)]);
        self.report.add_value("  100,000 cached sessions, MiB", vec![mebibytes(used)]);
        Ok(())
    }

    async fn revocations(&mut self, sessions: &SessionTable) -> anyhow::Result<()> {
        let tokens: Vec<_> =
            (0..REVOCATIONS).map(|_| RawToken::generate(TokenKind::Session, &SystemEntropy)).collect();
        sessions.insert(&tokens.iter().map(RawToken::digest).collect::<Vec<_>>()).await?;
        let mut connection = Connection::open(self.system.address).await?;
        let mut latencies = Vec::new();
        for token in &tokens {
            latencies.push(revocation(&mut connection, token).await?);
        }
        latencies.sort_unstable();
        let at = |share: usize| milliseconds(latencies[latencies.len() * share / 100]);
        self.report.add_value("revocation until ingest rejects, p50, ms", vec![at(50)]);
        self.report.add_value("revocation until ingest rejects, p99, ms", vec![at(99)]);
        Ok(())
    }
}

/// The time from the response to a logout to the first rejection by ingest, which has cached the session.
async fn revocation(connection: &mut Connection, token: &RawToken) -> anyhow::Result<Duration> {
    let bearer = format!("Bearer {}", token.expose());
    let check = request("POST", "/api/v1/events", &[("Authorization", &bearer)], b"no event");
    for _ in 0..2 {
        connection.exchange(&check).await?.expect(400)?;
    }
    let logout = request("POST", "/api/v1/auth/sessions/logout", &[("X-Session-ID", token.expose())], b"");
    connection.exchange(&logout).await?.expect(204)?;
    let revoked = Instant::now();
    while connection.exchange(&check).await?.status != 401 {
        ensure!(
            revoked.elapsed() < Duration::from_secs(10),
            "ingest accepts a session 10 s after its revocation"
        );
    }
    Ok(revoked.elapsed())
}

/// Lookups per second with `callers` concurrent callers, each with `batch_size` credentials per call.
pub(super) async fn rate(
    callers: usize,
    batch_size: usize,
    digests: &[TokenDigest],
    look_up: impl AsyncFn(Vec<TokenDigest>) -> anyhow::Result<Vec<Introspection>>,
) -> anyhow::Result<f64> {
    let started = Instant::now();
    let tasks = (0..callers).map(|caller| {
        let (mut position, look_up) = (caller * 1009, &look_up);
        async move {
            let mut found = 0;
            while started.elapsed() < RATE_TIME {
                // A large stride, because neighbouring sessions are in the same database page.
                let batch = (0..batch_size).map(|n| digests[(position + n * 7919) % digests.len()]).collect();
                position += batch_size * 7919;
                found += look_up(batch).await?.into_iter().flatten().count();
            }
            anyhow::Ok(found)
        }
    });
    let found = try_join_all(tasks).await?.into_iter().sum();
    Ok(per_second(found, started.elapsed()))
}
