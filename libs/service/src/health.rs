//! What the platform asks on the admin port: is the process alive, may it get requests, and how is it doing?
//!
//! No answer depends on Postgres or NATS. A dependency that fails later is answered by typed 503s instead: taking
//! every pod out of the endpoints at once would turn a pause into an outage.

use tokio::sync::watch;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::telemetry::Metrics;

/// What still stands between the process and its first request. Clones are handles to the same.
#[derive(Clone)]
pub struct Readiness(watch::Sender<Vec<(&'static str, bool)>>);

/// One condition of readiness. It is closed until it is opened.
pub struct Gate {
    readiness: Readiness,
    index: usize,
}

impl Default for Readiness {
    fn default() -> Self {
        Self(watch::Sender::new(Vec::new()))
    }
}

impl Readiness {
    /// Adds a condition.
    pub fn gate(&self, name: &'static str) -> Gate {
        let mut index = 0;
        self.0.send_modify(|gates| {
            index = gates.len();
            gates.push((name, false));
        });
        Gate { readiness: self.clone(), index }
    }

    /// The conditions that do not hold.
    pub fn closed(&self) -> Vec<&'static str> {
        self.0.borrow().iter().filter(|(_, open)| !open).map(|(name, _)| *name).collect()
    }

    /// Waits until every condition holds.
    pub async fn opened(&self) {
        // The sender lives as long as `self`, so this ends only when they all do.
        let _ = self.0.subscribe().wait_for(|gates| gates.iter().all(|(_, open)| *open)).await;
    }
}

impl Gate {
    /// The condition holds.
    pub fn open(&self) {
        self.set(true);
    }

    /// The condition does not hold any more.
    pub fn close(&self) {
        self.set(false);
    }

    fn set(&self, open: bool) {
        self.readiness.0.send_modify(|gates| gates[self.index].1 = open);
    }
}

/// The admin listener's routes: `/livez`, `/readyz` and `/metrics`.
pub fn router(readiness: Readiness, metrics: Metrics) -> Router {
    show_gates(&readiness, &metrics);
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .with_state(readiness)
        .route("/metrics", get(async move || ([(CONTENT_TYPE, OPEN_METRICS)], metrics.text())))
}

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Named {
    gate: &'static str,
}

/// Several services in one process may name a gate alike: it is open when all of them are.
fn show_gates(readiness: &Readiness, metrics: &Metrics) {
    let gates: Family<Named, Gauge> = metrics.shared(|registry: &mut Registry| {
        let gates = Family::default();
        registry.register(
            "readiness_gate_open",
            "Whether a condition of readiness holds: 1 or 0",
            gates.clone(),
        );
        gates
    });
    let readiness = readiness.clone();
    metrics.at_scrape(move || {
        let now = readiness.0.borrow();
        for (gate, _) in now.iter() {
            let closed = now.iter().any(|(other, open)| other == gate && !open);
            gates.get_or_create(&Named { gate }).set((!closed).into());
        }
    });
}

async fn readyz(State(readiness): State<Readiness>) -> Response {
    let closed = readiness.closed();
    if closed.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for: {}\n", closed.join(", "))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_while_every_gate_is_open() {
        let readiness = Readiness::default();
        let (schema, stream) = (readiness.gate("schema"), readiness.gate("stream"));
        assert_eq!(readiness.closed(), ["schema", "stream"]);
        schema.open();
        stream.open();
        assert!(readiness.closed().is_empty());
        schema.close();
        assert_eq!(readiness.closed(), ["schema"]);
    }
}
