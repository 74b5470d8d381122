//! Admin port: liveness, readiness and metrics. Public port: readiness.
//!
//! Liveness does not depend on Postgres or NATS. If a dependency fails after the start, requests get typed 503 responses.
//! The pods stay in the endpoints, because removing all of them would turn a short failure into an outage.

use tokio::sync::watch;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use prometheus_client::metrics::gauge::Gauge;

use crate::telemetry::Metrics;

/// The conditions under which the process is ready for requests. Clones share the state.
#[derive(Clone)]
pub struct Readiness(watch::Sender<Vec<(&'static str, bool)>>);

/// One condition of readiness. It starts closed.
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
    /// Adds a closed condition.
    pub fn gate(&self, name: &'static str) -> Gate {
        let mut index = 0;
        self.0.send_modify(|gates| {
            index = gates.len();
            gates.push((name, false));
        });
        Gate { readiness: self.clone(), index }
    }

    /// Returns the names of the closed conditions.
    pub fn closed(&self) -> Vec<&'static str> {
        self.0.borrow().iter().filter(|(_, open)| !open).map(|(name, _)| *name).collect()
    }

    /// Waits until all conditions are open.
    pub async fn opened(&self) {
        // An error is impossible: `self` keeps the sender open.
        let _ = self.0.subscribe().wait_for(|gates| gates.iter().all(|(_, open)| *open)).await;
    }
}

impl Gate {
    /// Opens the condition.
    pub fn open(&self) {
        self.set(true);
    }

    /// Closes the condition.
    pub fn close(&self) {
        self.set(false);
    }

    fn set(&self, open: bool) {
        self.readiness.0.send_modify(|gates| gates[self.index].1 = open);
    }
}

/// Creates the router of the admin port: `/livez`, `/readyz` and `/metrics`.
pub fn router(readiness: Readiness, metrics: Metrics) -> Router {
    export_gates(&readiness, &metrics);
    readyz_router(readiness)
        .route("/livez", get(async || "ok\n"))
        .route("/metrics", get(async move || ([(CONTENT_TYPE, OPEN_METRICS)], metrics.text())))
}

/// Creates the router of `/readyz`. It is also on the public port, because load balancers of cloud providers check the port that they send
/// requests to. No route of the ingress leads to it.
pub(crate) fn readyz_router(readiness: Readiness) -> Router {
    Router::new().route("/readyz", get(readyz)).with_state(readiness)
}

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Exports the conditions as metrics. Services of one process can use the same name: the metric is 1 if all of them are
/// open.
fn export_gates(readiness: &Readiness, metrics: &Metrics) {
    let help = "State of a readiness condition: 1 is open, 0 is closed";
    let (gates, readiness) = (metrics.family::<Gauge>("readiness_gate_open", help), readiness.clone());
    metrics.at_scrape(move || {
        let now = readiness.0.borrow();
        for (gate, _) in now.iter() {
            let closed = now.iter().any(|(other, open)| other == gate && !open);
            gates.get_or_create(&vec![("gate", (*gate).into())]).set((!closed).into());
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
    fn a_process_is_ready_while_all_gates_are_open() {
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
