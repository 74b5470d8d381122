//! Metrics as `OpenMetrics` text on the admin port. All names start with `svc_`; `docs/metrics.md` lists them.
//!
//! A library gets handles of its metrics at the start, which cost an atomic addition. Services of one process share a metric
//! and use different labels. A gauge that is only needed for a scrape is updated at the scrape.

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::Clock as _;
use crate::clock::SystemClock;

/// Names and values of the labels of a metric.
pub type Labels = Vec<(&'static str, Cow<'static, str>)>;

/// Creates histograms with these upper bounds.
#[derive(Clone)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// Metrics of a process. Clones share the registry.
#[derive(Clone)]
pub struct Metrics(Arc<Mutex<RegistryState>>);

struct RegistryState {
    registry: Registry,
    /// By name.
    registered: HashMap<&'static str, Box<dyn Any + Send>>,
    /// The gauges with several sources, and their values before the first one.
    starts: Vec<(Gauge, i64)>,
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
        let (registered, starts, on_scrape) = (HashMap::new(), Vec::new(), Vec::new());
        Self(Arc::new(Mutex::new(RegistryState { registry, registered, starts, on_scrape })))
    }

    /// Registers the metrics of a library that has no other dependency on this crate.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        register(&mut self.0.lock().registry);
    }

    /// Returns the counter or gauge with this name and these labels. The first call registers it. The name ends with the
    /// unit: `_seconds`, `_bytes` or none.
    pub fn metric<M: Metric + TypedMetric + Clone + Default>(
        &self,
        name: &'static str,
        help: &str,
        labels: &[(&'static str, &str)],
    ) -> M {
        self.series(name, help, labels, M::default as fn() -> M)
    }

    /// Returns the histogram with this name and these labels. The first call registers it.
    pub fn histogram(
        &self,
        name: &'static str,
        help: &str,
        labels: &[(&'static str, &str)],
        buckets: &'static [f64],
    ) -> Histogram {
        self.series(name, help, labels, Buckets(buckets))
    }

    /// Returns all counters or gauges with this name, for labels that are not known at the start.
    pub fn family<M: Metric + TypedMetric + Default>(
        &self,
        name: &'static str,
        help: &str,
    ) -> Family<Labels, M> {
        self.find_or_register(name, help, Family::default)
    }

    fn series<M, C>(&self, name: &'static str, help: &str, labels: &[(&'static str, &str)], new: C) -> M
    where
        M: Metric + TypedMetric + Clone,
        C: MetricConstructor<M> + Clone + Send + Sync + 'static,
    {
        if labels.is_empty() {
            return self.find_or_register(name, help, || new.new_metric());
        }
        let family = || Family::<Labels, M, C>::new_with_constructor(new);
        let labels = labels.iter().map(|(name, value)| (*name, Cow::Owned((*value).to_owned())));
        self.find_or_register(name, help, family).get_or_create_owned(&labels.collect())
    }

    fn find_or_register<M: Metric + Clone>(
        &self,
        name: &'static str,
        help: &str,
        create: impl FnOnce() -> M,
    ) -> M {
        let mut state = self.0.lock();
        let RegistryState { registry, registered, .. } = &mut *state;
        let known = registered.entry(name).or_insert_with(|| {
            let metric = create();
            match name.rsplit_once('_') {
                Some((name, "seconds")) => {
                    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
                }
                Some((name, "bytes")) => {
                    registry.register_with_unit(name, help, Unit::Bytes, metric.clone());
                }
                _ => registry.register(name, help, metric.clone()),
            }
            Box::new(metric)
        });
        match known.downcast_ref::<M>() {
            Some(metric) => metric.clone(),
            None => unreachable!("a name has one type"),
        }
    }

    /// Runs `update` before each scrape, to set gauges to their current values.
    pub fn at_scrape(&self, update: impl Fn() + Send + 'static) {
        self.0.lock().on_scrape.push(Box::new(update));
    }

    /// Adds a source of the gauge with this name and these labels. Each scrape sets the gauge to `start`, which is the same for all
    /// sources. Each source then replaces the value of those before it by the aggregate with its own: their sum, for example.
    pub fn aggregate_at_scrape(
        &self,
        name: &'static str,
        help: &str,
        labels: &[(&'static str, &str)],
        start: i64,
        aggregate: impl Fn(i64) -> i64 + Send + 'static,
    ) {
        let gauge: Gauge = self.metric(name, help, labels);
        self.0.lock().starts.push((gauge.clone(), start));
        self.at_scrape(move || {
            gauge.set(aggregate(gauge.get()));
        });
    }

    /// Returns all metrics as `OpenMetrics` text.
    pub fn text(&self) -> String {
        let state = self.0.lock();
        for (gauge, start) in &state.starts {
            gauge.set(*start);
        }
        state.on_scrape.iter().for_each(|update| update());
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &state.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

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
        let metrics = Metrics::new("test");
        let rooms = || metrics.metric::<Gauge>("rooms", "Rooms", &[]);
        let (one, other) = (rooms(), rooms());
        metrics.at_scrape(move || {
            one.inc();
        });
        other.set(40);
        assert!(metrics.text().contains("svc_rooms 41\n"));
        assert_eq!(metrics.text().matches("# TYPE svc_rooms").count(), 1);
    }

    #[test]
    fn a_gauge_with_several_sources_is_their_sum_or_minimum_at_each_scrape() {
        let metrics = Metrics::new("test");
        for (service, value) in [("a", 0_i64), ("a", 2), ("b", 5), ("a", 1)] {
            let labels = [("service", service)];
            metrics.aggregate_at_scrape("waiting", "Help", &labels, 0, move |sum| sum + value);
            metrics.aggregate_at_scrape("available", "Help", &labels, 9, move |least| least.min(value));
        }
        for text in [metrics.text(), metrics.text()] {
            for line in [
                "svc_waiting{service=\"a\"} 3\n",
                "svc_waiting{service=\"b\"} 5\n",
                "svc_available{service=\"a\"} 0\n",
                "svc_available{service=\"b\"} 5\n",
            ] {
                assert!(text.contains(line), "{line}{text}");
            }
        }
    }

    #[test]
    fn a_name_has_one_series_for_each_set_of_labels() {
        let metrics = Metrics::new("test");
        let count = |service| metrics.metric::<Counter>("waited_seconds", "Wait", &[("service", service)]);
        count("a").inc();
        count("a").inc();
        count("b").inc();
        let text = metrics.text();
        assert!(text.contains("svc_waited_seconds_total{service=\"a\"} 2\n"), "{text}");
        assert!(text.contains("svc_waited_seconds_total{service=\"b\"} 1\n"), "{text}");
        assert_eq!(text.matches("# UNIT svc_waited_seconds seconds\n").count(), 1, "{text}");
    }
}
