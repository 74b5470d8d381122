//! Metrics as `OpenMetrics` text on the admin port. All names start with `svc_`; `docs/metrics.md` lists them.
//!
//! A library keeps handles of its metrics, which cost an atomic addition, and registers them at the start. A gauge that
//! is only needed for a scrape is updated at the scrape.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::Clock as _;
use crate::clock::SystemClock;

/// Metrics of a process. Clones share the registry.
#[derive(Clone)]
pub struct Metrics(Arc<Mutex<State>>);

struct State {
    registry: Registry,
    shared: HashMap<TypeId, Box<dyn Any + Send>>,
    on_scrape: Vec<Box<dyn Fn() + Send>>,
}

impl Metrics {
    /// Creates the registry of a process, with its version and start time.
    pub fn new(process: &'static str) -> Self {
        let mut registry = Registry::with_prefix("svc");
        let build = [("process", process), ("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "Process and version; always 1", Info::new(build));
        let started: Gauge = Gauge::default();
        started.set(SystemClock.now().timestamp());
        registry.register_with_unit(
            "process_start_time",
            "Start time of the process as Unix time",
            Unit::Seconds,
            started,
        );
        Self(Arc::new(Mutex::new(State { registry, shared: HashMap::new(), on_scrape: Vec::new() })))
    }

    /// Registers metrics that exist once per process.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.lock().registry);
    }

    /// Returns the metrics of a type, and registers them on the first call. Services of one process share a metric and use
    /// different labels.
    pub fn shared<T: Clone + Send + 'static>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        let mut state = self.lock();
        let State { registry, shared, .. } = &mut *state;
        let known = shared.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(register(registry)));
        match known.downcast_ref::<T>() {
            Some(metrics) => metrics.clone(),
            None => unreachable!("the key is the type"),
        }
    }

    /// Runs `update` before each scrape, to set gauges to their current values.
    pub fn at_scrape(&self, update: impl Fn() + Send + 'static) {
        self.lock().on_scrape.push(Box::new(update));
    }

    /// Returns all metrics as `OpenMetrics` text.
    pub fn text(&self) -> String {
        let state = self.lock();
        state.on_scrape.iter().for_each(|update| update());
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &state.registry);
        text
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_process_and_version() {
        let text = Metrics::new("ingest").text();
        let version = env!("CARGO_PKG_VERSION");
        assert!(
            text.contains(&format!("svc_build_info{{process=\"ingest\",version=\"{version}\"}} 1")),
            "{text}"
        );
        assert!(text.contains("svc_process_start_time_seconds 1"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn registers_metrics_once_and_updates_gauges_at_the_scrape() {
        #[derive(Clone)]
        struct Rooms(Gauge);
        let metrics = Metrics::new("test");
        let register = |registry: &mut Registry| {
            let rooms = Rooms(Gauge::default());
            registry.register("rooms", "Rooms", rooms.0.clone());
            rooms
        };
        let (one, other) = (metrics.shared(register), metrics.shared(register));
        metrics.at_scrape(move || {
            one.0.inc();
        });
        other.0.set(40);
        assert!(metrics.text().contains("svc_rooms 41\n"));
        assert_eq!(metrics.text().matches("# TYPE svc_rooms").count(), 1);
    }
}
