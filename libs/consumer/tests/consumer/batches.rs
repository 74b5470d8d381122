//! Calls with several events of one source.

use std::sync::Arc;

use consumer::Failure;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::broker::{Broker, Log, Running};

/// Ids of the events of each call.
type Calls = Arc<Mutex<Vec<Vec<String>>>>;

/// Starts a consumer that waits in its first call until all events were delivered, so that later calls have as many events as possible.
async fn start(
    broker: &Broker,
    count: usize,
    max: usize,
    fails: impl Fn(&[String]) -> Result<(), Failure> + Clone + Send + Sync + 'static,
) -> (Running, Log, Calls) {
    let (log, calls, release) = (Log::default(), Calls::default(), Arc::new(Semaphore::new(0)));
    let (handled, called, released) = (log.clone(), Arc::clone(&calls), Arc::clone(&release));
    let config = broker.config();
    let monitor = config.monitor.clone();
    let running = Running::start_batches(config, max, move |events| {
        let (log, calls, released, fails) =
            (handled.clone(), Arc::clone(&called), Arc::clone(&released), fails.clone());
        async move {
            drop(released.acquire().await.unwrap());
            let ids: Vec<_> = events.iter().map(|event| event.event_id.clone()).collect();
            calls.lock().push(ids.clone());
            fails(&ids)?;
            for event in &events {
                log.add(event);
            }
            Ok(())
        }
    });
    let all_wait = async || (monitor.status().in_flight == count).then_some(());
    testkit::wait_until("all events have arrived", all_wait).await;
    release.add_permits(1);
    (running, log, calls)
}

#[tokio::test]
async fn a_call_gets_the_waiting_events_of_one_source_in_order_up_to_the_maximum() {
    let broker = Broker::start().await;
    for number in 0..25 {
        broker.publish("a", number).await;
        broker.publish("b", number).await;
    }
    // The producer has repeated an event.
    broker.publish_with("a", 24, &[("Nats-Msg-Id", "later")]).await;
    let (_running, log, calls) = start(&broker, 51, 10, |_| Ok(())).await;
    broker.wait_until_acknowledged(51).await;
    let expected: Vec<_> = (0..25).collect();
    assert_eq!((log.of("a"), log.of("b")), (expected.clone(), expected));
    let calls = calls.lock().clone();
    for source in ["a:", "b:"] {
        let of_source = calls.iter().filter(|ids| ids.iter().all(|id| id.starts_with(source)));
        assert_eq!(of_source.map(Vec::len).collect::<Vec<_>>(), [1, 10, 10, 4], "{source}");
    }
    assert_eq!(calls.len(), 8, "{calls:?}");
}

#[tokio::test]
async fn of_a_call_that_fails_only_the_event_that_fails_alone_becomes_a_dead_letter() {
    let broker = Broker::start().await;
    for number in 0..6 {
        broker.publish("a", number).await;
    }
    let fails = |ids: &[String]| match ids {
        ids if ids.contains(&"a:3".to_owned()) => Err(Failure::reject("duplicate key")),
        _ => Ok(()),
    };
    let (_running, log, calls) = start(&broker, 6, 10, fails).await;
    broker.wait_until_acknowledged(6).await;
    assert_eq!(log.of("a"), [0, 1, 2, 4, 5]);
    let sizes: Vec<_> = calls.lock().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, 5, 1, 1, 1, 1, 1]);
    let (_, headers, _) = broker.dead_letter(1).await;
    assert_eq!(headers.get("ce-id").unwrap().as_str(), "a:3");
    assert_eq!(headers.get("Udm-Dlq-Attempts").unwrap().as_str(), "1");
    assert_eq!(broker.dead_letters().await, 1);
}

#[tokio::test]
async fn a_call_of_several_events_that_panics_costs_no_event() {
    let broker = Broker::start().await;
    for number in 0..4 {
        broker.publish("a", number).await;
    }
    let fails = |ids: &[String]| {
        assert_eq!(ids.len(), 1, "several events");
        Ok(())
    };
    let (_running, log, _) = start(&broker, 4, 10, fails).await;
    broker.wait_until_acknowledged(4).await;
    assert_eq!((log.of("a"), broker.dead_letters().await), (vec![0, 1, 2, 3], 0));
}
