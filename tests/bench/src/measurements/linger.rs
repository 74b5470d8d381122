//! Concurrent single sends of the transport library with linger, compared with the same sends without it: rate, and CPU time per
//! event. The broker stores each event separately, so linger saves only CPU time of client and services.

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

const ROUNDS: usize = 3;
/// Enough that the first requests, which open connections, do not count.
const EVENTS: usize = 60_000;
/// Tasks that send one event after the other.
const CALLERS: usize = 500;
const LINGER: Duration = Duration::from_millis(2);

/// Events per second, and CPU time per event in microseconds.
struct Cost {
    rate: f64,
    client_and_services: f64,
    broker: f64,
}

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
        let mut rounds = Vec::new();
        // The first round is a warm-up.
        for _ in 0..=self.rounds(ROUNDS) {
            rounds.push((self.send_single(&with).await?, self.send_single(&without).await?));
        }
        rounds.remove(0);
        for (name, of, target) in [
            ("single sends per second with linger", (|cost| cost.rate) as fn(&Cost) -> f64, None),
            ("  CPU of client and services, µs/event", |cost| cost.client_and_services, Some("≤ 0.2")),
            ("  CPU of the broker, µs/event", |cost| cost.broker, None),
        ] {
            self.report.add_comparison(Comparison {
                name,
                baseline: "the same sends without linger, 500 callers",
                rounds: rounds.iter().map(|(with, without)| (of(with), of(without))).collect(),
                target,
            });
        }
        Ok(())
    }

    /// Sends the events one by one.
    async fn send_single(&self, transport: &Arc<HttpTransport>) -> anyhow::Result<Cost> {
        let events: Vec<UdmEvent> =
            events(EVENTS).iter().map(|event| serde_json::from_slice(event)).collect::<Result<_, _>>()?;
        let events = Arc::new(events);
        let (started, before) = (Instant::now(), self.cpu_times());
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
        let elapsed = started.elapsed();
        let [client_and_services, broker] =
            std::array::from_fn(|index| self.cpu_times()[index].saturating_sub(before[index]));
        let per_event =
            |used: Duration| used.as_secs_f64() * 1e6 / per_second(EVENTS, Duration::from_secs(1));
        Ok(Cost {
            rate: per_second(EVENTS, elapsed),
            client_and_services: per_event(client_and_services),
            broker: per_event(broker),
        })
    }

    /// CPU times of this process with the services, and of the broker.
    fn cpu_times(&self) -> [Duration; 2] {
        [cpu_time(std::process::id()) + cpu_time(self.system.pid()), cpu_time(self.broker_pid())]
    }
}
