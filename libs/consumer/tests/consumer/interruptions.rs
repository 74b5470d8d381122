//! Stops, crashes and outages: nothing is lost, and the order of a source holds.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use consumer::{Config, ConsumerError, Failure};
use futures::StreamExt as _;
use testkit::{DEADLINE, wait_until, within};
use tokio::sync::Semaphore;

use super::broker::{ACK_WAIT, Broker, Log, Running};

/// Starts a consumer. Its handler waits for a permit before each event.
fn start_with_permits(config: Config, log: &Log) -> (Running, Arc<Semaphore>) {
    let permits = Arc::new(Semaphore::new(0));
    let (log, released) = (log.clone(), Arc::clone(&permits));
    let running = Running::start(config, move |event| {
        let (log, released) = (log.clone(), Arc::clone(&released));
        async move {
            released.acquire().await.unwrap().forget();
            log.add(&event);
            Ok(())
        }
    });
    (running, permits)
}

async fn wait_until_in_flight(broker: &Broker, count: usize) {
    wait_until("events are in flight", async || (broker.info().await.num_ack_pending >= count).then_some(()))
        .await;
}

#[tokio::test]
async fn a_stop_waits_for_the_events_in_flight() {
    let broker = Broker::start().await;
    for number in 0..3 {
        broker.publish("a", number).await;
    }
    let log = Log::default();
    let (mut running, permits) = start_with_permits(broker.config(), &log);
    wait_until_in_flight(&broker, 3).await;
    running.request_stop();
    permits.add_permits(3);
    running.stopped().await;
    assert_eq!((log.of("a"), broker.info().await.num_ack_pending), (vec![0, 1, 2], 0));
}

#[tokio::test]
async fn a_stop_ends_after_its_timeout_and_the_rest_is_delivered_again() {
    let broker = Broker::start().await;
    broker.publish("a", 0).await;
    let log = Log::default();
    let config = Config { stop_timeout: std::time::Duration::from_millis(10), ..broker.config() };
    let (running, _permits) = start_with_permits(config.clone(), &log);
    wait_until_in_flight(&broker, 1).await;
    running.stop().await;
    assert_eq!(log.ids().len(), 0);
    let (running, permits) = start_with_permits(config, &log);
    permits.add_permits(1);
    log.wait_for(1).await;
    running.stop().await;
}

#[tokio::test]
async fn after_a_crash_unacknowledged_events_precede_newer_ones_of_their_source() {
    let broker = Broker::start().await;
    for number in 0..5 {
        broker.publish("a", number).await;
    }
    let log = Log::default();
    let (running, permits) = start_with_permits(broker.config(), &log);
    permits.add_permits(1);
    log.wait_for(1).await;
    wait_until_in_flight(&broker, 4).await;
    running.crash().await;
    for number in 5..10 {
        broker.publish("a", number).await;
    }
    let second_log = Log::default();
    let (_running, permits) = start_with_permits(broker.config(), &second_log);
    permits.add_permits(100);
    broker.wait_until_acknowledged(10).await;
    let numbers = second_log.of("a");
    // The acknowledgement of the first event may not have arrived before the crash.
    let first = numbers[0];
    assert!(first <= 1 && numbers == (first..10).collect::<Vec<_>>(), "{numbers:?}");
}

#[tokio::test]
async fn unacknowledged_events_are_handled_in_the_order_of_the_stream_even_if_another_one_is_due_first() {
    let broker = Broker::start().await;
    for number in 0..5 {
        broker.publish("a", number).await;
    }
    broker.return_all(5).await;
    broker.publish("a", 5).await;
    let log = Log::default();
    let (_running, permits) = start_with_permits(broker.config(), &log);
    permits.add_permits(100);
    broker.wait_until_acknowledged(11).await;
    assert_eq!(log.of("a"), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn after_a_restart_of_the_broker_each_event_is_handled_once_in_order() {
    let mut broker = Broker::start().await;
    for number in 0..20 {
        broker.publish("a", number).await;
    }
    let log = Log::default();
    let (_running, permits) = start_with_permits(broker.config(), &log);
    permits.add_permits(5);
    log.wait_for(5).await;
    broker.server.restart().await.unwrap();
    permits.add_permits(1000);
    for number in 20..40 {
        broker.publish("a", number).await;
    }
    log.wait_for(40).await;
    assert_eq!(log.of("a"), (0..40).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_event_that_fails_without_end_does_not_prevent_reading_after_an_interruption() {
    let mut broker = Broker::start().await;
    broker.publish("failing", 0).await;
    let log = Log::default();
    let handled = log.clone();
    let config =
        Config { retry_for: None, stop_timeout: std::time::Duration::from_millis(100), ..broker.config() };
    let _running = Running::start(config, move |event| {
        let log = handled.clone();
        async move {
            log.add(&event);
            if event.source_id == "failing" { Err(Failure::retry("never")) } else { Ok(()) }
        }
    });
    log.wait_for(1).await;
    broker.server.restart().await.unwrap();
    broker.publish("b", 0).await;
    wait_until("the other source is handled", async || (!log.of("b").is_empty()).then_some(())).await;
}

#[tokio::test]
async fn a_delivery_to_another_process_does_not_break_the_order() {
    let broker = Broker::start().await;
    let log = Log::default();
    let (_running, permits) = start_with_permits(broker.config(), &log);
    permits.add_permits(1000);
    broker.publish("a", 0).await;
    log.wait_for(1).await;
    // Two requests wait now: one of the consumer, and one of the thief.
    let thief: PullConsumer = broker.admin.get_consumer_from_stream("consumer", "UDM").await.unwrap();
    let mut stolen = thief.batch().max_messages(3).expires(DEADLINE).messages().await.unwrap();
    let mut number = 0;
    while futures::poll!(stolen.next()).is_pending() {
        number += 1;
        broker.publish("a", number).await;
    }
    drop(stolen);
    for later in 1..=5 {
        broker.publish("a", number + later).await;
    }
    number += 5;
    broker.wait_until_acknowledged(u64::from(number) + 2).await;
    assert_eq!(log.of("a"), (0..=number).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_durable_that_limits_deliveries_is_rejected_because_the_broker_would_drop_events() {
    let broker = Broker::with_streams(1, 20).await;
    let run = consumer::run(broker.config(), std::future::pending(), |_| async { Ok(()) });
    let error = within(DEADLINE, "the error", Box::pin(run)).await.unwrap_err();
    assert!(matches!(error, ConsumerError::DeliveryLimit { .. }), "{error:?}");
    assert!(error.to_string().contains("svc consumers create"), "{error}");
}

#[tokio::test]
async fn a_missing_durable_ends_the_consumer_with_a_remedy() {
    let broker = Broker::start().await;
    broker.admin.delete_consumer_from_stream("consumer", "UDM").await.unwrap();
    let run = consumer::run(broker.config(), std::future::pending(), |_| async { Ok(()) });
    let error = within(DEADLINE, "the error", Box::pin(run)).await.unwrap_err();
    assert!(matches!(error, ConsumerError::NotFound { .. }), "{error:?}");
    assert!(error.to_string().contains("svc consumers create"), "{error}");
}

#[tokio::test]
async fn the_next_process_of_a_rolling_update_reads_without_a_pause_when_the_previous_one_stops() {
    let broker = Broker::start().await;
    // A pause until unacknowledged events are due would be longer than the test.
    broker.define_durable(Duration::from_mins(10), 0).await;
    for number in 0..5 {
        broker.publish("a", number).await;
    }
    let (log, next_log, next_config) = (Log::default(), Log::default(), broker.config());
    let (mut previous, permits) = start_with_permits(broker.config(), &log);
    permits.add_permits(1);
    log.wait_for(1).await;
    wait_until_in_flight(&broker, 4).await;
    let monitor = next_config.monitor.clone();
    let (next, next_permits) = start_with_permits(next_config, &next_log);
    next_permits.add_permits(100);
    wait_until("it is connected", async || monitor.status().is_connected.then_some(())).await;
    broker.publish("a", 5).await;
    assert_eq!((monitor.status().is_reading, next_log.ids().len()), (false, 0));
    previous.request_stop();
    permits.add_permits(100);
    previous.stopped().await;
    broker.publish("a", 6).await;
    broker.wait_until_acknowledged(7).await;
    assert!(monitor.status().is_reading);
    assert_eq!([log.of("a"), next_log.of("a")].concat(), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(broker.info().await.delivered.consumer_sequence, 7, "an event was delivered again");
    next.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_failed_event_and_the_next_process_tries_it_first_without_a_pause() {
    let broker = Broker::start().await;
    // Both would take longer than the test.
    broker.define_durable(2 * DEADLINE, 0).await;
    let config = Config { stop_timeout: 2 * DEADLINE, max_in_flight: 4, ..broker.config() };
    let log = Log::default();
    let attempted = log.clone();
    let running = Running::start(config.clone(), move |event| {
        attempted.add(&event);
        async { Err(Failure::retry("not available")) }
    });
    for number in 0..10 {
        broker.publish("a", number).await;
    }
    // Too many for a further request.
    wait_until_in_flight(&broker, 3).await;
    log.wait_for(2).await;
    running.stop().await;
    let next_log = Log::default();
    let (next, permits) = start_with_permits(config, &next_log);
    permits.add_permits(100);
    next_log.wait_for(10).await;
    assert_eq!(next_log.of("a"), (0..10).collect::<Vec<_>>());
    next.stop().await;
    assert_eq!(broker.dead_letters().await, 0);
}

#[tokio::test]
async fn after_the_durable_is_created_again_its_events_are_handled_again() {
    let broker = Broker::start().await;
    for number in 0..3 {
        broker.publish("a", number).await;
    }
    // The producer has repeated an event: it is skipped.
    broker.publish_with("a", 2, &[("Nats-Msg-Id", "later")]).await;
    let (config, log) = (broker.config(), Log::default());
    let monitor = config.monitor.clone();
    let (_running, permits) = start_with_permits(config, &log);
    permits.add_permits(100);
    broker.wait_until_acknowledged(4).await;
    assert_eq!((log.of("a"), monitor.status().handled), (vec![0, 1, 2], 3));
    broker.define_again(ACK_WAIT).await;
    broker.wait_until_acknowledged(4).await;
    assert_eq!((log.of("a"), monitor.status().handled), (vec![0, 1, 2, 0, 1, 2], 6));
}

#[tokio::test]
async fn of_several_processes_one_reads_and_after_its_crash_another_one() {
    let broker = Broker::start().await;
    let log = Log::default();
    let configs = [broker.config(), broker.config(), broker.config()];
    let monitors = configs.clone().map(|config| config.monitor);
    let mut processes: Vec<_> =
        configs.into_iter().map(|config| Some(start_with_permits(config, &log))).collect();
    for (_, permits) in processes.iter().flatten() {
        permits.add_permits(1000);
    }
    for round in 0..3 {
        let reading = wait_until("one process reads", async || {
            monitors.iter().position(|monitor| monitor.status().is_reading)
        })
        .await;
        for number in 0..10 {
            broker.publish("a", 10 * round + number).await;
        }
        broker.wait_until_acknowledged(10 * u64::from(round + 1)).await;
        let (process, _) = processes[reading].take().unwrap();
        process.crash().await;
        let monitor = &monitors[reading];
        wait_until("it has ended", async || (!monitor.status().is_reading).then_some(())).await;
    }
    assert_eq!(log.of("a"), (0..30).collect::<Vec<_>>());
}
