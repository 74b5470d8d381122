//! Events a second one by one, beside HTTP that does nothing with them and beside the client library without HTTP.

use super::Bench;
use super::costs::Costs;
use crate::events::{events, messages};
use crate::floor::Floor;
use crate::http::request;
use crate::load::{each_once, per_second};
use crate::raw;
use crate::report::Pair;

const ROUNDS: usize = 5;
/// Events in a round.
const EVENTS: usize = 10_000;
const AT_ONCE: usize = 64;

impl Bench<'_> {
    pub(crate) async fn single(&mut self) -> anyhow::Result<()> {
        let (context, floor) = (self.broker().await?, Floor::start().await?);
        let (mut http, mut nats, mut costs) = (Vec::new(), Vec::new(), Costs::default());
        // The first is for warming up.
        for _ in 0..=self.rounds(ROUNDS) {
            let events = events(EVENTS);
            let sent = events.iter().map(|event| self.person.post("/api/v1/events", event)).collect();
            let load = each_once(self.system.address, AT_ONCE, sent, 202);
            let ours = per_second(EVENTS, costs.of(self.system, EVENTS, load).await?);
            let ignored = events.iter().map(|event| request("POST", "/", &[], event)).collect();
            let floor = each_once(floor.address, AT_ONCE, ignored, 202).await?;
            http.push((ours, per_second(EVENTS, floor)));
            let messages = messages(self.person.tenant_id(), &self::events(EVENTS))?;
            let raw = raw::publish(&context, messages, 1, AT_ONCE).await?;
            nats.push((ours, per_second(EVENTS, raw)));
        }
        self.expect_events(&context, http.len() * 2 * EVENTS).await?;
        let figure = "single events/s, 64 connections";
        let limit = "HTTP that ignores the body, 64 connections";
        self.report.add(Pair { figure, limit, rounds: http.split_off(1), aim: None });
        let limit = "async-nats, same messages, 64 at once";
        self.report.add(Pair { figure, limit, rounds: nats.split_off(1), aim: None });
        costs.report(self.report);
        Ok(())
    }
}
