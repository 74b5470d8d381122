//! The measurements.

mod connections;
mod credentials;
mod durability;
mod event_types;
mod events;
mod images;
mod linger;
mod logins;
mod polls;
mod quarantine;
mod reading;
mod relay;
mod scale;
mod send_command;
mod session_checks;
mod sustained;
mod tail;
mod tenant_bursts;
mod timing;

use std::time::Duration;

use anyhow::ensure;

use crate::load::LoadResult;
use crate::report::Report;
use crate::system::System;
use crate::user::BenchUser;

const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// The common state of the measurements.
pub(crate) struct Bench<'a> {
    pub(crate) system: &'a System,
    /// The user for events and session checks.
    pub(crate) user: BenchUser,
    /// The users who log in.
    pub(crate) members: Vec<BenchUser>,
    pub(crate) rounds: Option<usize>,
    /// The resident memory of the services before the first password hash.
    pub(crate) idle_bytes: u64,
    pub(crate) report: &'a mut Report,
}

impl Bench<'_> {
    fn rounds(&self, default: usize) -> usize {
        self.rounds.unwrap_or(default).max(1)
    }

    /// One login request for each connection, each from its own client address.
    fn logins(&self, connections: u16) -> anyhow::Result<Vec<Vec<u8>>> {
        (0..connections).zip(self.members.iter().cycle()).map(|(n, member)| member.login_from(n)).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number for display")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / MEBIBYTE
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// The p99 of the latency of a load, in milliseconds.
fn p99(load: &LoadResult) -> anyhow::Result<f64> {
    let mut times = load.times.clone();
    ensure!(!times.is_empty(), "no request was accepted");
    times.sort_unstable();
    Ok(milliseconds(times[times.len() * 99 / 100]))
}
