//! Events a second in batches, beside the client library that publishes the same messages by itself.

use std::time::Duration;

use super::costs::Costs;
use super::{BATCHES_AT_ONCE, Bench, mebibytes};
use crate::events::{events, list, messages};
use crate::load::{each_once, per_second};
use crate::process::Peak;
use crate::raw;
use crate::report::Pair;

const ROUNDS: usize = 7;
/// Events in a round.
const EVENTS: usize = 100_000;
const BATCH: usize = 500;

impl Bench<'_> {
    pub(crate) async fn batch(&mut self) -> anyhow::Result<()> {
        let context = self.broker().await?;
        let (mut rounds, mut peaks, mut costs) = (Vec::new(), Vec::new(), Costs::default());
        // The first is for warming up.
        for _ in 0..=self.rounds(ROUNDS) {
            let peak = Peak::of(self.system.pid());
            let ours = costs.of(self.system, EVENTS, self.over_http()).await?;
            peaks.push(mebibytes(peak.bytes()));
            let messages = messages(self.person.tenant_id(), &events(EVENTS))?;
            let limit = raw::publish(&context, messages, BATCH, BATCHES_AT_ONCE).await?;
            rounds.push((per_second(EVENTS, ours), per_second(EVENTS, limit)));
        }
        self.expect_events(&context, rounds.len() * 2 * EVENTS).await?;
        let figure = "events/s in batches of 500";
        let limit = "async-nats, same messages, 4 × 500 in flight";
        self.report.add(Pair { figure, limit, rounds: rounds.split_off(1), aim: None });
        costs.report(self.report);
        self.report.add_alone("  memory meanwhile, MiB", peaks.split_off(1));
        Ok(())
    }

    async fn over_http(&self) -> anyhow::Result<Duration> {
        let post = |batch: &[_]| self.person.post("/api/v1/events/batch", &list(batch));
        let requests = events(EVENTS).chunks(BATCH).map(post).collect();
        each_once(self.system.address, BATCHES_AT_ONCE, requests, 202).await
    }
}
