//! What a transport logs about an outage.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::server::{Server, Step, problem};
use crate::{Transport, UdmEvent};

/// Records the levels of the messages of this library, from `INFO` on.
#[derive(Clone, Default)]
struct Levels(Arc<Mutex<Vec<Level>>>);

impl Subscriber for Levels {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("transport::") && *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        self.0.lock().push(*event.metadata().level());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Sends events, the last of which are accepted. Returns the levels.
async fn logged(script: Vec<Step>, sends: usize) -> Vec<Level> {
    let levels = Levels::default();
    let _guard = tracing::subscriber::set_default(levels.clone());
    let server = Server::scripted(script).await;
    let transport = server.transport();
    for _ in 0..sends {
        assert!(transport.send(&UdmEvent::new("fw")).await.success);
    }
    levels.0.lock().clone()
}

#[tokio::test]
async fn an_outage_is_logged_when_it_begins_and_when_it_ends() {
    let until = Duration::from_secs(30);
    let unavailable = Box::new(problem(503, "dependency_unavailable", Some(1000)));
    for outage in [vec![Step::Disconnect], vec![Step::Away(until)], vec![Step::Until(until, unavailable)]] {
        assert_eq!(logged(outage.clone(), 3).await, [Level::WARN, Level::INFO], "{outage:?}");
    }
}

#[tokio::test]
async fn a_service_that_fails_often_is_logged_once_a_minute() {
    let failure = || [Step::Disconnect, Step::Accept];
    let later = [Step::Advance(Duration::from_secs(70))];
    let script = failure().into_iter().chain(failure()).chain(later).chain(failure()).collect();
    assert_eq!(logged(script, 3).await, [Level::WARN, Level::INFO, Level::WARN, Level::INFO]);
}

#[tokio::test]
async fn a_service_that_is_overloaded_or_rejects_an_event_is_no_outage() {
    let script = vec![problem(503, "overloaded", Some(1000)), problem(429, "quota_exceeded", Some(1000))];
    assert!(logged(script, 1).await.is_empty());
}
