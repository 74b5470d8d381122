//! Faults, and their schedule: it depends on the seed only, and a file can replace it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use contract::paths::Upstream;
use e2e::ALL_SERVICES;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

/// Number of processes of a service.
pub(crate) const fn processes(service: Upstream) -> usize {
    match service {
        Upstream::Identity | Upstream::Session => 2,
        Upstream::Ingest => 3,
    }
}

/// Number of servers of the broker.
pub(crate) const NODES: usize = 3;

/// The longest fault, in milliseconds. A client that retries stays within the duplicate window of two minutes.
const MAX_DURATION: u64 = 12_000;

/// The part of the system that a fault affects. The faults of one target follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    Identity(usize),
    Session(usize),
    Ingest(usize),
    Broker,
    Database,
    Network(Path),
}

/// A connection between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Path {
    /// From the producers to a process of ingest.
    Ingest(usize),
    /// From all services to a server of the broker.
    Node(usize),
    /// From a service to Postgres.
    IdentityDatabase,
    SessionDatabase,
}

impl Path {
    pub(crate) const ALL: [Self; 8] = [
        Self::Ingest(0),
        Self::Ingest(1),
        Self::Ingest(2),
        Self::Node(0),
        Self::Node(1),
        Self::Node(2),
        Self::IdentityDatabase,
        Self::SessionDatabase,
    ];
}

/// What happens to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// SIGKILL, and a new process at the end.
    Kill,
    /// SIGTERM, and a new process as soon as it has stopped.
    Terminate,
    /// SIGSTOP, and SIGCONT at the end.
    Pause,
    /// A new process with a clock that is wrong by seconds, and another one with the right clock at the end.
    WrongClock(i64),
    /// SIGKILL for one server of the broker.
    KillNode(usize),
    /// SIGSTOP for servers of the broker, one or a majority.
    PauseNodes(usize, Option<usize>),
    /// A server of the broker reaches no other one, but its clients reach it.
    IsolateNode(usize),
    /// Each write of a server of the broker to a file fails; at the end it is killed and started.
    FullDisk(usize),
    /// SIGSTOP for all processes of Postgres.
    PauseDatabase,
    /// SIGKILL for one backend of Postgres: Postgres ends all connections and recovers from its WAL.
    CrashDatabase,
    /// The primary of Postgres stops permanently, and its standby is promoted.
    PromoteStandby,
    /// The primary of Postgres stops and its standby is promoted. A standby starts at the address of the former primary, to which new
    /// connections lead until the end. Connections that are open then stay open.
    SwapServers,
    /// No bytes arrive, and connections stay open.
    Interrupt,
    /// Bytes arrive this many milliseconds later.
    Delay(u64),
    /// Requests arrive, responses do not. At the end, the connections break.
    LoseResponses,
}

/// A fault at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// Milliseconds after the start of the round. A fault starts later if another one of its target has not ended.
    pub(crate) at: u64,
    pub(crate) target: Target,
    pub(crate) kind: Kind,
    /// Milliseconds.
    pub(crate) duration: u64,
}

impl Fault {
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_millis(self.duration)
    }

    /// The error of a kind that the target does not have, in a schedule from a file.
    pub(crate) fn invalid<T>(&self) -> anyhow::Result<T> {
        bail!("{:?} is not a fault of {:?}", self.kind, self.target)
    }
}

/// The faults of one round, in the order of their times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Schedule {
    /// Seed of the load.
    pub(crate) seed: u64,
    /// Seconds of load.
    pub(crate) seconds: u64,
    pub(crate) faults: Vec<Fault>,
}

impl Schedule {
    /// Chooses the faults of a round. They end before the load ends.
    pub(crate) fn random(seed: u64, seconds: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let end = (seconds * 1000).saturating_sub(MAX_DURATION);
        let (mut at, mut faults) = (1000, Vec::new());
        while at < end {
            faults.push(random_fault(&mut random, at));
            at += random.random_range(200..6_000);
        }
        Self { seed, seconds, faults }
    }

    /// How far the clock of a process is ahead at most.
    pub(crate) fn clock_ahead(&self) -> Duration {
        let seconds = self.faults.iter().map(|fault| match fault.kind {
            Kind::WrongClock(seconds) => u64::try_from(seconds).unwrap_or_default(),
            _ => 0,
        });
        Duration::from_secs(seconds.max().unwrap_or_default())
    }

    /// The faults of each target.
    pub(crate) fn by_target(&self) -> BTreeMap<Target, Vec<Fault>> {
        let mut targets: BTreeMap<Target, Vec<Fault>> = BTreeMap::new();
        for fault in &self.faults {
            targets.entry(fault.target).or_default().push(*fault);
        }
        targets
    }
}

fn random_fault(random: &mut StdRng, at: u64) -> Fault {
    let (target, kind) = match random.random_range(0..13) {
        0..6 => {
            let service = ALL_SERVICES[random.random_range(0..ALL_SERVICES.len())];
            let number = random.random_range(0..processes(service));
            let target = match service {
                Upstream::Identity => Target::Identity(number),
                Upstream::Session => Target::Session(number),
                Upstream::Ingest => Target::Ingest(number),
            };
            let kind = match random.random_range(0..8) {
                0..3 => Kind::Kill,
                3..5 => Kind::Terminate,
                5..7 => Kind::Pause,
                _ => Kind::WrongClock(random.random_range(-300..=300)),
            };
            (target, kind)
        }
        6..9 => {
            let node = random.random_range(0..NODES);
            let kind = match random.random_range(0..7) {
                0..2 => Kind::KillNode(node),
                2 => Kind::PauseNodes(node, None),
                3 => Kind::PauseNodes(node, Some((node + 1) % NODES)),
                4 => Kind::FullDisk(node),
                _ => Kind::IsolateNode(node),
            };
            (Target::Broker, kind)
        }
        9 => {
            let kind = match random.random_range(0..4) {
                0 => Kind::PauseDatabase,
                1 => Kind::CrashDatabase,
                2 => Kind::SwapServers,
                _ => Kind::PromoteStandby,
            };
            (Target::Database, kind)
        }
        _ => {
            let path = Path::ALL[random.random_range(0..Path::ALL.len())];
            let kind = match random.random_range(0..3) {
                0 => Kind::Interrupt,
                1 => Kind::Delay(random.random_range(10..400)),
                _ => Kind::LoseResponses,
            };
            (Target::Network(path), kind)
        }
    };
    // Short ones are more frequent.
    let duration = MAX_DURATION >> random.random_range(0..5_u32);
    Fault { at, target, kind, duration }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_a_schedule_and_a_file_contains_all_of_it() {
        let schedule = Schedule::random(7, 60);
        assert_eq!(schedule, Schedule::random(7, 60));
        assert_ne!(schedule.faults, Schedule::random(8, 60).faults);
        let text = serde_json::to_string(&schedule).unwrap();
        assert_eq!(serde_json::from_str::<Schedule>(&text).unwrap(), schedule);
    }

    #[test]
    fn every_target_and_kind_of_fault_occurs_and_ends_in_time() {
        let schedules: Vec<_> = (0..50).map(|seed| Schedule::random(seed, 60)).collect();
        let faults = || schedules.iter().flat_map(|schedule| &schedule.faults);
        let names = |text: String| text.split('(').next().unwrap().to_owned();
        let kinds: std::collections::BTreeSet<_> =
            faults().map(|fault| names(format!("{:?}", fault.kind))).collect();
        assert_eq!(kinds.len(), 15, "{kinds:?}");
        let targets: std::collections::BTreeSet<_> = faults().map(|fault| fault.target).collect();
        assert_eq!(targets.len(), 17, "{targets:?}");
        assert!(faults().all(|fault| fault.at + fault.duration <= 60_000));
    }
}
