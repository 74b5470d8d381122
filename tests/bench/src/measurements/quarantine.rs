//! Events per second if one percent of the lines are invalid and quarantined, compared with valid lines only.

use std::time::Duration;

use anyhow::Context as _;
use async_nats::jetstream;
use bytes::Bytes;
use uuid::Uuid;

use super::Bench;
use crate::events::{batch_body, events};
use crate::load::{per_second, send_once};
use crate::report::Comparison;

const ROUNDS: usize = 7;
/// The invalid ones are fewer than the quarantine of a tenant can hold.
const EVENTS: usize = 100_000;
const BATCH_SIZE: usize = 500;
const CONNECTIONS: usize = 4;
const INVALID_EACH: usize = 100;

impl Bench<'_> {
    pub(crate) async fn quarantine(&mut self) -> anyhow::Result<()> {
        let config = bus::Config::new(&*self.system.run_file.nats_url, "bench");
        let context = jetstream::new(bus::connect(&config).await?);
        let dead_letters = context.get_stream(bus::DEAD_LETTER_STREAM).await?;
        let mut rounds = Vec::new();
        // The first round is a warm-up.
        for _ in 0..=self.rounds(ROUNDS) {
            dead_letters.purge().await.context("failed to purge the dead letters")?;
            let quarantined =
                self.send("/api/v1/events/batch?invalid=quarantine", with_invalid(EVENTS)).await?;
            let valid = self.send("/api/v1/events/batch", events(EVENTS)).await?;
            rounds.push((per_second(EVENTS, quarantined), per_second(EVENTS, valid)));
        }
        self.report.add_comparison(Comparison {
            name: "events per second, batches of 500, 1 % quarantined",
            baseline: "valid events only, without quarantine",
            rounds: rounds.split_off(1),
            target: Some("≥ 0.9"),
        });
        Ok(())
    }

    async fn send(&self, path: &str, events: Vec<Bytes>) -> anyhow::Result<Duration> {
        let post = |batch: &[_]| self.user.post(path, &batch_body(batch));
        send_once(self.system.address, CONNECTIONS, events.chunks(BATCH_SIZE).map(post).collect(), 202).await
    }
}

/// New events, of which some have no source.
fn with_invalid(count: usize) -> Vec<Bytes> {
    let mut events = events(count);
    for event in events.iter_mut().step_by(INVALID_EACH) {
        *event = format!(
            r#"{{"event_id":"{}","metadata":{{"event_type":"NETWORK_CONNECTION"}}}}"#,
            Uuid::now_v7()
        )
        .into();
    }
    events
}
