//! What an event costs each of the processes that it passes through: steadier than a rate on a machine that does other
//! things too, and it shows where the time goes.

use std::time::Duration;

use crate::process::{family_time, processor_time};
use crate::report::Report;
use crate::system::System;

const NAMES: [&str; 3] =
    ["  services' processor time, µs", "  broker's processor time, µs", "  database's processor time, µs"];

/// Processor time for each event, round by round.
#[derive(Default)]
pub(super) struct Costs([Vec<f64>; 3]);

impl Costs {
    /// Runs a load of so many events; returns how long it took by its own account.
    pub(super) async fn of(
        &mut self,
        system: &System,
        events: usize,
        load: impl Future<Output = anyhow::Result<Duration>>,
    ) -> anyhow::Result<Duration> {
        let before = times(system);
        let elapsed = load.await?;
        let after = times(system);
        for (place, rounds) in self.0.iter_mut().enumerate() {
            let spent = after[place].saturating_sub(before[place]);
            #[expect(clippy::cast_precision_loss, reason = "a number for people")]
            rounds.push(spent.as_secs_f64() * 1e6 / events as f64);
        }
        Ok(elapsed)
    }

    /// Adds a row each, without the first round.
    pub(super) fn report(self, report: &mut Report) {
        for (name, mut rounds) in NAMES.into_iter().zip(self.0) {
            report.add_alone(name, rounds.split_off(1));
        }
    }
}

fn times(system: &System) -> [Duration; 3] {
    let children = system.run_file.children;
    let pid = |pid: i32| u32::try_from(pid).unwrap_or_default();
    [processor_time(system.pid()), processor_time(pid(children.nats)), family_time(pid(children.postgres))]
}
