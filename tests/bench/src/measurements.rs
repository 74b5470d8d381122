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
mod timing;

use std::time::Duration;

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
