//! Measurements at the size of a large installation: logins of one tenant, rate limits, a large table of sessions, and recorded uses of
//! many sessions.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use authn::IntrospectionBatcher;
use hashing::{RawToken, SystemEntropy, TokenDigest, TokenKind};
use service::Tasks;

use super::Bench;
use super::credentials::{CALLERS, RATE_TIME, rate};
use crate::load::{on_one_thread, per_second, send_once, send_repeatedly};
use crate::report::Comparison;
use crate::sessions::SessionTable;
use crate::system::{Launcher, System};
use crate::user::{self, BenchUser};

const ROUNDS: usize = 5;
const CONNECTIONS: u16 = 64;
const TENANTS: usize = 32;
const SESSIONS: usize = 1_000_000;
/// Sessions of one statement.
const CHUNK: usize = 100_000;
/// The part of the sessions that is compared with all of them.
const FEW_SESSIONS: usize = 1000;
const USED_SESSIONS: usize = 20_000;
/// A hash that costs little compared with the rest of a login, and a rate limit that counts and never rejects.
const VARIABLES: [(&str, &str); 3] =
    [("SVC_ARGON2_MEMORY_COST", "64"), ("SVC_ARGON2_TIME_COST", "1"), ("SVC_LIMIT_DEFAULT", "10000/s")];

impl Bench<'_> {
    pub(crate) async fn scale(&mut self, launcher: &Launcher<'_>) -> anyhow::Result<()> {
        let other = launcher.start(&VARIABLES).await?;
        let admin = user::first_admin(&other).await?;
        self.logins_of_one_tenant(&other, &admin).await?;
        self.rate_limits(&other, &admin).await?;
        drop(other);
        // A million sessions would slow down the later measurements.
        let other = launcher.start(&[]).await?;
        let admin = user::first_admin(&other).await?;
        let sessions = SessionTable::connect(&other.run_file.database_url, admin.user_id()).await?;
        self.many_sessions(&sessions).await?;
        self.used_sessions(other.address, &sessions).await
    }

    async fn logins_of_one_tenant(&mut self, system: &System, admin: &BenchUser) -> anyhow::Result<()> {
        let of_one = admin.invite_members(system).await?;
        let mut of_many = Vec::new();
        for n in 0..TENANTS {
            of_many.push(user::tenant_admin(system, format!("tenant-{n}")).await?);
        }
        let mut rounds = Vec::new();
        for _ in 0..self.rounds(ROUNDS) {
            let one = repeated(system.address, logins(&of_one)?).await?;
            rounds.push((one, repeated(system.address, logins(&of_many)?).await?));
        }
        let name = "logins per second in one tenant, password hash of 64 KiB, 64 connections";
        let (baseline, target) = ("the same logins in 32 tenants", Some("≥ 0.90"));
        self.report.add_comparison(Comparison { name, baseline, rounds, target });
        Ok(())
    }

    async fn rate_limits(&mut self, limited: &System, user: &BenchUser) -> anyhow::Result<()> {
        let mut rounds = Vec::new();
        for _ in 0..self.rounds(ROUNDS) {
            let with = repeated(limited.address, session_checks(user)).await?;
            rounds.push((with, repeated(self.system.address, session_checks(&self.user)).await?));
        }
        let name = "session checks per second with rate limits, from 64 IPv6 networks";
        let baseline = "the same checks without rate limits";
        self.report.add_comparison(Comparison { name, baseline, rounds, target: None });
        Ok(())
    }

    async fn many_sessions(&mut self, sessions: &SessionTable) -> anyhow::Result<()> {
        let digests: Vec<_> =
            (0..SESSIONS).map(|n| TokenDigest::from_text(&format!("bench-scale-{n}"))).collect();
        for chunk in digests.chunks(CHUNK) {
            sessions.insert(chunk).await?;
        }
        let batcher = IntrospectionBatcher::new(sessions.clone(), &Tasks::default());
        let look_up = async |batch: Vec<_>| Ok(batcher.introspect_all(batch).await?);
        let mut rounds = Vec::new();
        for _ in 0..self.rounds(ROUNDS) {
            let all = rate(CALLERS, 1, &digests, look_up).await?;
            rounds.push((all, rate(CALLERS, 1, &digests[..FEW_SESSIONS], look_up).await?));
        }
        let name = "introspections per second, 1,000,000 sessions, 64 callers";
        let baseline = "the same, 1,000 of these sessions";
        self.report.add_comparison(Comparison { name, baseline, rounds, target: None });
        Ok(())
    }

    /// The first check of a session in a minute records its use.
    async fn used_sessions(&mut self, address: SocketAddr, sessions: &SessionTable) -> anyhow::Result<()> {
        let mut rounds = Vec::new();
        for _ in 0..self.rounds(ROUNDS) {
            let tokens: Vec<_> =
                (0..USED_SESSIONS).map(|_| RawToken::generate(TokenKind::Session, &SystemEntropy)).collect();
            let digests: Vec<_> = tokens.iter().map(RawToken::digest).collect();
            sessions.insert_used(&digests, 2).await?;
            let checks: Vec<_> = tokens.iter().map(|token| user::session_check(token.expose())).collect();
            let started = Instant::now();
            send_once(address, CONNECTIONS.into(), checks.clone(), 200).await?;
            sessions.wait_until_used(&digests).await?;
            let first = started.elapsed();
            let second = send_once(address, CONNECTIONS.into(), checks, 200).await?;
            rounds.push((per_second(USED_SESSIONS, first), per_second(USED_SESSIONS, second)));
        }
        let name = "session checks per second that record the use of the session";
        let baseline = "second check of the same sessions, which records nothing";
        self.report.add_comparison(Comparison { name, baseline, rounds, target: None });
        Ok(())
    }
}

/// One login per connection, each from its own client address.
fn logins(users: &[BenchUser]) -> anyhow::Result<Vec<Vec<u8>>> {
    (0..CONNECTIONS).zip(users.iter().cycle()).map(|(n, user)| user.login_from(n)).collect()
}

/// One session check per connection, each from its own client address.
fn session_checks(user: &BenchUser) -> Vec<Vec<u8>> {
    (0..CONNECTIONS).map(|n| user.session_check_from(n)).collect()
}

/// The rate of these requests, each repeated on its own connection.
async fn repeated(address: SocketAddr, requests: Vec<Vec<u8>>) -> anyhow::Result<f64> {
    let load = async move || send_repeatedly(address, &requests, 200, RATE_TIME, Duration::ZERO).await;
    Ok(on_one_thread(load).await?.rate())
}
