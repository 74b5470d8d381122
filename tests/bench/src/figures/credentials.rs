//! Checks of credentials: looked up for many callers at once, remembered, and revoked; and what sessions take of memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use authn::{Cache, CredentialVerifier as _, Introspection, IntrospectionBatcher, Introspector as _};
use futures::future::try_join_all;
use hashing::{RawToken, SystemEntropy, TokenDigest, TokenKind};
use service::Tasks;
use service::clock::SystemClock;
use service::telemetry::{Telemetry, TraceSettings};

use super::{Bench, mebibytes, milliseconds};
use crate::http::{Connection, request};
use crate::load::{on_one_thread, per_second, repeatedly};
use crate::process::resident;
use crate::report::Pair;
use crate::sessions::{Answering, Sessions};

const ROUNDS: usize = 5;
const CALLERS: usize = 64;
/// What a gathered look-up holds, and how many are under way: the best that was seen on such a machine.
const GATHERED: usize = 32;
const GATHERED_AT_ONCE: usize = 2;
/// One look-up a statement is fastest with so many at once.
const SINGLE_AT_ONCE: usize = 16;
const RATE_TIME: Duration = Duration::from_secs(1);
const SESSIONS: usize = 100_000;
const REVOCATIONS: usize = 300;
const CHECKS: usize = 2_000_000;

impl Bench<'_> {
    pub(crate) async fn credentials(&mut self) -> anyhow::Result<()> {
        let sessions = Sessions::connect(&self.system.run_file.database_url, self.person.user_id()).await?;
        let before = sessions.bytes().await?;
        let digests: Vec<_> = (0..SESSIONS).map(|n| TokenDigest::of_text(&format!("bench-{n}"))).collect();
        sessions.insert(&digests).await?;
        let per_session = mebibytes(sessions.bytes().await? - before);
        self.introspections(&sessions, &digests).await?;
        self.report.add_alone("  100,000 sessions in Postgres, MiB", vec![per_session]);
        self.remembered(&digests).await?;
        self.revocations(&sessions).await
    }

    async fn introspections(&mut self, sessions: &Sessions, digests: &[TokenDigest]) -> anyhow::Result<()> {
        let gather = IntrospectionBatcher::new(sessions.clone(), &Tasks::default());
        let (mut gathered, mut single, mut over_http) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds(ROUNDS) {
            let ours = rate(CALLERS, 1, digests, async |some| Ok(gather.introspect_all(some).await?)).await?;
            let look_up = async |some: Vec<_>| Ok(sessions.look_up(&some).await?);
            gathered.push((ours, rate(GATHERED_AT_ONCE, GATHERED, digests, look_up).await?));
            let one_by_one = rate(SINGLE_AT_ONCE, 1, digests, look_up).await?;
            single.push((ours, one_by_one));
            let (address, checks) = (self.system.address, vec![self.person.check(); CALLERS]);
            let load = async move || repeatedly(address, &checks, 200, RATE_TIME, Duration::ZERO).await;
            over_http.push((on_one_thread(load).await?.rate(), one_by_one));
        }
        let figure = "introspections/s, 64 callers";
        let (limit, aim) = ("bare pool, 32 credentials a statement", Some("≥ 0.50"));
        self.report.add(Pair { figure, limit, rounds: gathered, aim });
        let limit = "bare pool, one a statement";
        self.report.add(Pair { figure, limit, rounds: single, aim: None });
        let figure = "session checks/s over HTTP, 64 connections";
        self.report.add(Pair { figure, limit, rounds: over_http, aim: None });
        Ok(())
    }

    async fn remembered(&mut self, digests: &[TokenDigest]) -> anyhow::Result<()> {
        let asked = Arc::new(AtomicUsize::new(0));
        let invalidations = bus::Config::new(&*self.system.run_file.nats_url, "bench");
        let telemetry = Telemetry::start("bench", &TraceSettings::default())?;
        let answering = Answering::to(&asked);
        let cache =
            Cache::start(answering, invalidations, Arc::new(SystemClock), &Tasks::default(), &telemetry);
        // Nothing is remembered before invalidations are heard.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            let before = asked.load(Ordering::Relaxed);
            cache.introspect(digests[0]).await?;
            if asked.load(Ordering::Relaxed) == before {
                break;
            }
        }
        let before = resident(std::process::id());
        for some in digests.chunks(1000) {
            try_join_all(some.iter().map(|digest| cache.introspect(*digest))).await?;
        }
        let taken = resident(std::process::id()).saturating_sub(before);
        let begun = Instant::now();
        let known = asked.load(Ordering::Relaxed);
        // A few thousand: those that are in use at once, and more than the processor's nearest memory holds.
        for digest in digests[SESSIONS - 4000..].iter().cycle().take(CHECKS) {
            ensure!(cache.introspect(*digest).await?.is_some(), "they live");
        }
        let elapsed = begun.elapsed();
        ensure!(asked.load(Ordering::Relaxed) <= known + 4000, "they were remembered");
        self.report.add_alone("remembered checks/s, one thread", vec![per_second(CHECKS, elapsed)]);
        self.report.add_alone("  100,000 sessions remembered, MiB", vec![mebibytes(taken)]);
        Ok(())
    }

    async fn revocations(&mut self, sessions: &Sessions) -> anyhow::Result<()> {
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
        self.report.add_alone("revocation until ingest refuses, p50, ms", vec![at(50)]);
        self.report.add_alone("revocation until ingest refuses, p99, ms", vec![at(99)]);
        Ok(())
    }
}

/// From the answer to a logout to the first refusal by ingest, which knew the session.
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
        ensure!(revoked.elapsed() < Duration::from_secs(10), "a revoked session is let in for ever");
    }
    Ok(revoked.elapsed())
}

/// Credentials a second, when so many callers ask for so many at a time.
async fn rate(
    callers: usize,
    at_a_time: usize,
    digests: &[TokenDigest],
    ask: impl AsyncFn(Vec<TokenDigest>) -> anyhow::Result<Vec<Introspection>>,
) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let asking = (0..callers).map(|caller| {
        let (mut at, ask) = (caller * 1009, &ask);
        async move {
            let mut answered = 0;
            while begun.elapsed() < RATE_TIME {
                // Strides through all sessions: neighbours would lie in one page.
                let some = (0..at_a_time).map(|n| digests[(at + n * 7919) % digests.len()]).collect();
                at += at_a_time * 7919;
                answered += ask(some).await?.into_iter().flatten().count();
            }
            anyhow::Ok(answered)
        }
    });
    let answered = try_join_all(asking).await?.into_iter().sum();
    Ok(per_second(answered, begun.elapsed()))
}
