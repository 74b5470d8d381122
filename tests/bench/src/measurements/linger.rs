//! Concurrent single sends of the transport library with linger, compared with the same sends without it: rate, and CPU time of
//! client, services and broker per event.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::task::JoinSet;
use transport::{HttpTransport, HttpTransportConfig, Transport as _, UdmEvent};

use super::Bench;
use crate::events::events;
use crate::load::per_second;
use crate::process::cpu_time;
use crate::report::Comparison;

const ROUNDS: usize = 5;
const EVENTS: usize = 20_000;
/// Tasks that send one event after the other.
const CALLERS: usize = 500;
const LINGER: Duration = Duration::from_millis(2);

impl Bench<'_> {
    pub(crate) async fn linger(&mut self) -> anyhow::Result<()> {
        let transport = || {
            HttpTransport::new(HttpTransportConfig {
                api_key: Some(self.user.token().clone()),
                ..HttpTransportConfig::new(&*self.system.run_file.base_url)
            })
        };
        let without = Arc::new(transport());
        let with = Arc::new(transport().with_linger(LINGER)?);
        let (mut rates, mut cpu) = (Vec::new(), Vec::new());
        // The first round is a warm-up.
        for _ in 0..=self.rounds(ROUNDS) {
            let (rate, used) = self.send_single(&with).await?;
            let (baseline_rate, baseline_used) = self.send_single(&without).await?;
            rates.push((rate, baseline_rate));
            cpu.push((used, baseline_used));
        }
        self.report.add_comparison(Comparison {
            name: "single sends per second with linger",
            baseline: "the same sends without linger, 500 callers",
            rounds: rates.split_off(1),
            target: Some("≥ 5"),
        });
        self.report.add_comparison(Comparison {
            name: "  CPU of client, services and broker, µs/event",
            baseline: "the same sends without linger",
            rounds: cpu.split_off(1),
            target: Some("≤ 0.2"),
        });
        Ok(())
    }

    /// Sends the events one by one. Returns events per second, and the CPU time per event in microseconds.
    async fn send_single(&self, transport: &Arc<HttpTransport>) -> anyhow::Result<(f64, f64)> {
        let events: Vec<UdmEvent> =
            events(EVENTS).iter().map(|event| serde_json::from_slice(event)).collect::<Result<_, _>>()?;
        let events = Arc::new(events);
        let (started, before) = (Instant::now(), self.cpu_time());
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let (transport, events) = (Arc::clone(transport), Arc::clone(&events));
            callers.spawn(async move {
                let mut accepted = 0;
                for event in events.iter().skip(caller).step_by(CALLERS) {
                    accepted += usize::from(transport.send(event).await.success);
                }
                accepted
            });
        }
        let accepted: usize = callers.join_all().await.into_iter().sum();
        ensure!(accepted == EVENTS, "{accepted} of {EVENTS} events were accepted");
        let used = self.cpu_time().saturating_sub(before).as_secs_f64() * 1e6;
        Ok((per_second(EVENTS, started.elapsed()), used / per_second(EVENTS, Duration::from_secs(1))))
    }

    /// CPU time of this process, the services and the broker.
    fn cpu_time(&self) -> Duration {
        let broker = u32::try_from(self.system.run_file.children.nats).unwrap_or_default();
        [std::process::id(), self.system.pid(), broker].into_iter().map(cpu_time).sum()
    }
}
