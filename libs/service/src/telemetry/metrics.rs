//! Metrics, in `OpenMetrics` text on the admin port. All names begin with `svc_`; `docs/metrics.md` lists them.
//!
//! Each library counts with handles of its own, which cost an atomic addition, and puts them into the process's registry
//! when the service is put together. What is only worth knowing when somebody asks is read at that moment.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::Clock as _;
use crate::clock::SystemClock;

/// The metrics of a process. Clones are handles to the same.
#[derive(Clone)]
pub struct Metrics(Arc<Mutex<State>>);

struct State {
    registry: Registry,
    shared: HashMap<TypeId, Box<dyn Any + Send>>,
    readers: Vec<Box<dyn Fn() + Send>>,
}

impl Metrics {
    /// The registry of a process, with its version and the time of its start.
    pub fn new(process: &'static str) -> Self {
        let mut registry = Registry::with_prefix("svc");
        let build = [("process", process), ("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "The process and its version; always 1", Info::new(build));
        let started: Gauge = Gauge::default();
        started.set(SystemClock.now().timestamp());
        registry.register_with_unit(
            "process_start_time",
            "When the process started, since 1970",
            Unit::Seconds,
            started,
        );
        Self(Arc::new(Mutex::new(State { registry, shared: HashMap::new(), readers: Vec::new() })))
    }

    /// Registers what there is once in a process.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.lock().registry);
    }

    /// The instruments of a kind, registered by whoever asks first. Several services in one process share a metric and tell
    /// themselves apart by its labels.
    pub fn shared<T: Clone + Send + 'static>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        let mut state = self.lock();
        let State { registry, shared, .. } = &mut *state;
        let known = shared.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(register(registry)));
        match known.downcast_ref::<T>() {
            Some(instruments) => instruments.clone(),
            None => unreachable!("the key is the type"),
        }
    }

    /// Runs `read` whenever metrics are asked for, before they are written: it sets gauges to what they are now.
    pub fn at_scrape(&self, read: impl Fn() + Send + 'static) {
        self.lock().readers.push(Box::new(read));
    }

    /// All metrics as `OpenMetrics` text.
    pub fn text(&self) -> String {
        let state = self.lock();
        state.readers.iter().for_each(|read| read());
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
    fn a_process_says_what_it_is() {
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
    fn instruments_are_registered_once_and_gauges_read_when_asked() {
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
