//! The first minutes after a crash: the events that were in flight are tried one at a time. Only crashes during the attempts of
//! an event cost it.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::PullConsumer;
use consumer::{Config, Event, Failure};
use futures::StreamExt as _;
use parking_lot::Mutex;
use testkit::wait_until;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::broker::{Broker, Log, Running};

/// Number of sources with a failing event.
const FAILING: u32 = 16;

/// Publishes the first event of each source, and crashes while they are handled.
async fn crash_with_events_in_flight(broker: &Broker, sources: &[String]) {
    for source in sources {
        broker.publish(source, 0).await;
    }
    let log = Log::default();
    let running = start_blocking(broker.config(), &log);
    log.wait_for(sources.len()).await;
    running.crash().await;
}

/// Starts a consumer with a handler that logs the event and does not return.
fn start_blocking(config: Config, log: &Log) -> Running {
    let log = log.clone();
    Running::start(config, move |event| {
        log.add(&event);
        pending()
    })
}

/// Starts a consumer with a handler that logs all events.
fn start_logging(config: Config, log: &Log) -> Running {
    let log = log.clone();
    Running::start(config, move |event| {
        log.add(&event);
        async { Ok(()) }
    })
}

fn failing_sources() -> Vec<String> {
    (0..FAILING).map(|number| format!("failing-{number}")).collect()
}

#[tokio::test]
async fn after_a_crash_new_events_are_read_while_earlier_ones_are_tried_again() {
    let broker = Broker::start().await;
    let mut sources = failing_sources();
    sources.push("slow".to_owned());
    crash_with_events_in_flight(&broker, &sources).await;
    // The first attempt fails, the second one does not return. The event of `slow` is handled after all second attempts have started.
    let (attempts, retried) = (Arc::<Mutex<HashMap<String, u32>>>::default(), Arc::new(Semaphore::new(0)));
    let (log, started) = (Log::default(), Log::default());
    let (handled, slow) = (log.clone(), started.clone());
    let _running = Running::start(broker.config(), move |event: Arc<Event>| {
        let (attempts, retried) = (Arc::clone(&attempts), Arc::clone(&retried));
        let (log, slow) = (handled.clone(), slow.clone());
        async move {
            if event.source_id.starts_with("failing") {
                let is_first = attempts.lock().insert(event.source_id.clone(), 1).is_none();
                if is_first {
                    return Err(Failure::retry("not available"));
                }
                retried.add_permits(1);
                pending::<()>().await;
            }
            if event.source_id == "slow" {
                slow.add(&event);
                retried.acquire_many(FAILING).await.unwrap().forget();
            }
            log.add(&event);
            Ok(())
        }
    });
    started.wait_for(1).await;
    broker.publish("healthy", 0).await;
    wait_until("the new event is handled", async || (log.of("healthy") == [0]).then_some(())).await;
    assert_eq!(log.of("slow"), [0]);
}

#[tokio::test]
async fn a_failed_attempt_after_a_crash_is_not_a_crash() {
    let broker = Broker::start().await;
    let sources = failing_sources();
    crash_with_events_in_flight(&broker, &sources).await;
    let log = Log::default();
    let attempted = log.clone();
    let running = Running::start(broker.config(), move |event| {
        attempted.add(&event);
        async {
            sleep(Duration::from_millis(250)).await;
            Err(Failure::retry("not available"))
        }
    });
    // Each event has four failed attempts, and some a fifth one.
    log.wait_for(4 * sources.len() + sources.len() / 2).await;
    running.crash().await;
    let log = Log::default();
    let _running = start_logging(broker.config(), &log);
    wait_until("no event is in flight", async || (broker.info().await.num_ack_pending == 0).then_some(()))
        .await;
    assert_eq!(broker.dead_letters().await, 0);
    assert_eq!(log.ids().len(), sources.len());
}

#[tokio::test]
async fn an_event_that_blocks_survives_any_number_of_stops() {
    let broker = Broker::start().await;
    broker.publish("a", 0).await;
    let config = Config { stop_timeout: Duration::from_millis(10), ..broker.config() };
    for _ in 0..7 {
        let log = Log::default();
        let running = start_blocking(config.clone(), &log);
        log.wait_for(1).await;
        running.stop().await;
    }
    let log = Log::default();
    let _running = start_logging(config, &log);
    wait_until("the event is acknowledged", async || {
        (broker.info().await.num_ack_pending == 0).then_some(())
    })
    .await;
    assert_eq!((broker.dead_letters().await, log.ids()), (0, vec!["a:0".to_owned()]));
}

/// Lets the broker deliver an event this number of times, without an attempt.
async fn deliver_times(broker: &Broker, stream_sequence: u64, times: i64) {
    let consumer: PullConsumer = broker.admin.get_consumer_from_stream("consumer", "UDM").await.unwrap();
    loop {
        let mut batch = consumer.batch().max_messages(1).messages().await.unwrap();
        let message = batch.next().await.unwrap().unwrap();
        let info = message.info().unwrap();
        if info.stream_sequence == stream_sequence {
            if info.delivered == times {
                return;
            }
            message.double_ack_with(AckKind::Nak(None)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_event_that_only_waits_survives_any_number_of_crashes() {
    let broker = Broker::start().await;
    broker.publish("a", 0).await;
    broker.publish("a", 1).await;
    // As after 78 crashes. Five crashes during an attempt also lead to the number 81.
    deliver_times(&broker, 2, 78).await;
    for _ in 79..=80 {
        let log = Log::default();
        let running = start_blocking(broker.config(), &log);
        log.wait_for(1).await;
        running.crash().await;
        assert_eq!(log.ids(), ["a:0"]);
    }
    let log = Log::default();
    let _running = start_logging(broker.config(), &log);
    wait_until("no event is in flight", async || (broker.info().await.num_ack_pending == 0).then_some(()))
        .await;
    assert_eq!((broker.dead_letters().await, log.of("a")), (0, vec![0, 1]));
}
