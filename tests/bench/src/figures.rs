//! What is measured, one file a matter.

mod batch;
mod broker;
mod checks;
mod costs;
mod credentials;
mod images;
mod logins;
mod refusals;
mod single;

use std::time::Duration;

use crate::person::Person;
use crate::report::Report;
use crate::system::System;

/// Events go to that many connections or tasks at once in batches. What is in flight then fits into what one tenant may hold.
const BATCHES_AT_ONCE: usize = 4;
const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// What every figure works with.
pub(crate) struct Bench<'a> {
    pub(crate) system: &'a System,
    /// Who sends and is checked.
    pub(crate) person: Person,
    /// Who log in.
    pub(crate) members: Vec<Person>,
    pub(crate) rounds: Option<usize>,
    /// Resident bytes of the services before the first password was hashed.
    pub(crate) base: u64,
    /// What the stream held before the figure at hand.
    pub(crate) known_events: u64,
    pub(crate) report: &'a mut Report,
}

impl Bench<'_> {
    fn rounds(&self, usual: usize) -> usize {
        self.rounds.unwrap_or(usual).max(1)
    }

    /// Logins for so many connections, each from an address of its own, as people do.
    fn many_logins(&self, connections: u16) -> anyhow::Result<Vec<Vec<u8>>> {
        (0..connections).zip(self.members.iter().cycle()).map(|(n, member)| member.login_from(n)).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number for people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / MEBIBYTE
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
