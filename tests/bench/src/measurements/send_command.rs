//! `svc events send` of a large file, compared with the batches of the transport library in this process: rate, and memory of the
//! command.

use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::value::RawValue;
use tokio::process::Command;
use tokio::task::JoinSet;
use transport::{HttpTransport, HttpTransportConfig, OutgoingEvent, new_event_id};

use super::{Bench, mebibytes};
use crate::events::events;
use crate::load::per_second;
use crate::process::PeakMemory;
use crate::report::Comparison;

const ROUNDS: usize = 1;
/// 500 MB.
const EVENTS: usize = 1_000_000;
/// Events of the baseline, which are in memory.
const BASELINE_EVENTS: usize = 200_000;
/// The defaults of the command.
const BATCH_SIZE: usize = 500;
const CONCURRENCY: usize = 4;

impl Bench<'_> {
    pub(crate) async fn send_command(&mut self, program: &Path) -> anyhow::Result<()> {
        let (mut rates, mut memory) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds(ROUNDS) {
            // Halves of the baseline before and after, because other load on the machine changes.
            let before = self.send_baseline().await?;
            let directory = tempfile::tempdir()?;
            let file = directory.path().join("events.ndjson");
            write_events(&file)?;
            let (elapsed, peak) = self.run_command(program, &file).await?;
            let after = self.send_baseline().await?;
            let baseline = per_second(2 * BASELINE_EVENTS, before + after);
            rates.push((per_second(EVENTS, elapsed), baseline));
            memory.push(mebibytes(peak));
        }
        self.report.add_comparison(Comparison {
            name: "svc events send, a million events of 500 bytes, per second",
            baseline: "batches of the transport library, 4 × 500",
            rounds: rates,
            target: Some("≥ 0.8"),
        });
        self.report.add_value("  memory of svc, MiB (target: below 64)", memory);
        Ok(())
    }

    /// Sends batches of events that are JSON already, as the command does.
    async fn send_baseline(&self) -> anyhow::Result<Duration> {
        let transport = Arc::new(HttpTransport::new(HttpTransportConfig {
            api_key: Some(self.user.token().clone()),
            ..HttpTransportConfig::new(&*self.system.run_file.base_url)
        }));
        let outgoing = events(BASELINE_EVENTS).into_iter().map(|event| {
            let event = RawValue::from_string(String::from_utf8(event.to_vec())?)?;
            Ok(OutgoingEvent::from_json(event, new_event_id)?)
        });
        let outgoing: Arc<Vec<OutgoingEvent>> = Arc::new(outgoing.collect::<anyhow::Result<_>>()?);
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for task in 0..CONCURRENCY {
            let (transport, outgoing) = (Arc::clone(&transport), Arc::clone(&outgoing));
            tasks.spawn(async move {
                let mut accepted = 0;
                for batch in outgoing.chunks(BATCH_SIZE).skip(task).step_by(CONCURRENCY) {
                    accepted += transport.send_outgoing(batch, |_| ()).await.successful_events;
                }
                accepted
            });
        }
        let accepted: usize = tasks.join_all().await.into_iter().sum();
        ensure!(accepted == BASELINE_EVENTS, "{accepted} of {BASELINE_EVENTS} events were accepted");
        Ok(started.elapsed())
    }

    /// Returns the duration and the peak memory.
    async fn run_command(&self, program: &Path, file: &Path) -> anyhow::Result<(Duration, u64)> {
        let started = Instant::now();
        let child = Command::new(program)
            .args(["events", "send", "--output", "json", "--file"])
            .arg(file)
            .env("SVC_BASE_URL", &self.system.run_file.base_url)
            .env("SVC_TOKEN", self.user.token().expose())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("failed to start {}", program.display()))?;
        let peak = PeakMemory::of(child.id().context("the command has ended")?);
        let output = child.wait_with_output().await?;
        let (elapsed, peak) = (started.elapsed(), peak.bytes());
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        ensure!(summary["accepted"] == EVENTS, "{summary}");
        Ok((elapsed, peak))
    }
}

fn write_events(file: &Path) -> anyhow::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(file)?);
    for _ in 0..EVENTS / BASELINE_EVENTS {
        for event in events(BASELINE_EVENTS) {
            file.write_all(&event)?;
            file.write_all(b"\n")?;
        }
    }
    Ok(file.flush()?)
}
