//! What the platform asks on the admin port: is the process alive, and may it get requests?
//!
//! Neither answer depends on Postgres or NATS. A dependency that fails later is answered by typed 503s instead: taking
//! every pod out of the endpoints at once would turn a pause into an outage.

use tokio::sync::watch;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;

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

/// The admin listener's routes: `/livez` and `/readyz`.
pub fn router(readiness: Readiness) -> Router {
    Router::new().route("/livez", get(async || "ok\n")).route("/readyz", get(readyz)).with_state(readiness)
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
