//! Handlers that panic or block affect only their own event.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use consumer::Config;
use futures::StreamExt as _;
use parking_lot::Mutex;
use testkit::{DEADLINE, wait_until, within};
use tokio::runtime;
use tracing::instrument::WithSubscriber as _;

use super::broker::{Broker, Log, Running};

/// Blocks the thread of a handler, like a synchronous client of a database, until the sender is dropped.
#[derive(Clone)]
struct Block(Arc<Mutex<HashMap<String, Receiver<()>>>>);

impl Block {
    /// Blocks the first call for each of these events.
    fn new(ids: &[&str]) -> (Self, HashMap<String, Sender<()>>) {
        let (mut senders, mut receivers) = (HashMap::new(), HashMap::new());
        for id in ids {
            let (sender, receiver) = channel();
            senders.insert((*id).to_owned(), sender);
            receivers.insert((*id).to_owned(), receiver);
        }
        (Self(Arc::new(Mutex::new(receivers))), senders)
    }

    fn wait(&self, id: &str) {
        let receiver = self.0.lock().remove(id);
        if let Some(receiver) = receiver {
            // An error is the end of the block.
            let _ = receiver.recv();
        }
    }
}

/// Starts a consumer. Its handler logs each call, and then blocks.
fn start_blocking(config: Config, log: &Log, block: &Block) -> Running {
    let (log, block) = (log.clone(), block.clone());
    Running::start(config, move |event| {
        let (log, block) = (log.clone(), block.clone());
        async move {
            log.add(&event);
            block.wait(&event.event_id);
            Ok(())
        }
    })
}

#[tokio::test]
async fn a_handler_that_panics_costs_its_own_event_only() {
    let broker = Broker::start().await;
    for number in 0..10 {
        broker.publish("a", number).await;
        broker.publish("b", number).await;
    }
    let log = Log::default();
    let handled = log.clone();
    let running = Running::start(broker.config(), move |event| {
        let log = handled.clone();
        // Both in the function and in its future.
        assert_ne!(event.event_id, "b:0", "in the function");
        async move {
            assert_ne!(event.event_id, "a:3", "in the future");
            log.add(&event);
            Ok(())
        }
    });
    broker.wait_until_acknowledged(20).await;
    assert_eq!(log.of("a"), [0, 1, 2, 4, 5, 6, 7, 8, 9]);
    assert_eq!(log.of("b"), (1..10).collect::<Vec<_>>());
    assert_eq!(broker.dead_letters().await, 2);
    for number in [1, 2] {
        let (_, headers, _) = broker.dead_letter(number).await;
        let header = |name: &str| headers.get(name).unwrap().as_str().to_owned();
        let place = if header("ce-id") == "a:3" { "in the future" } else { "in the function" };
        let reason = header("Udm-Dlq-Reason");
        assert!(reason.starts_with("the handler panicked: ") && reason.contains(place), "{reason}");
        assert_eq!(header("Udm-Dlq-Attempts"), "5");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn handlers_that_block_delay_no_other_source_even_with_one_worker_thread() {
    let broker = Broker::start().await;
    let (log, ids) = (Log::default(), ["a:0", "b:0"]);
    let (block, senders) = Block::new(&ids);
    let running = start_blocking(broker.config(), &log, &block);
    for number in 0..2 {
        broker.publish("a", number).await;
        broker.publish("b", number).await;
    }
    log.wait_for(2).await;
    for number in 0..100 {
        broker.publish("c", number).await;
    }
    wait_until("the other source is handled", async || (log.of("c").len() == 100).then_some(())).await;
    assert_eq!((log.of("a"), log.of("b")), (vec![0], vec![0]));
    drop(senders);
    broker.wait_until_acknowledged(104).await;
    assert_eq!((log.of("a"), log.of("b"), broker.dead_letters().await), (vec![0, 1], vec![0, 1], 0));
    running.stop().await;
}

#[tokio::test]
async fn a_runtime_that_is_blocked_completely_breaks_no_session() {
    let broker = Broker::start().await;
    let mut acks = broker.admin.client().subscribe("$JS.ACK.UDM.consumer.>").await.unwrap();
    let log = Log::default();
    let (block, senders) = Block::new(&["a:0"]);
    let (handled, config) = (log.clone(), broker.config());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let consumer = std::thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stopped = async move { stopped.await.unwrap_or_default() };
        runtime.block_on(consumer::run(config, stopped, move |event| {
            let (log, block) = (handled.clone(), block.clone());
            async move {
                log.add(&event);
                block.wait(&event.event_id);
                Ok(())
            }
        }))
    });
    broker.publish("a", 0).await;
    log.wait_for(1).await;
    for number in 0..100 {
        broker.publish("b", number).await;
    }
    // The reader goes on: the events are delivered, and it reports progress for longer than the time for an acknowledgement.
    wait_until("later events are delivered", async || {
        (broker.info().await.num_ack_pending == 101).then_some(())
    })
    .await;
    for _ in 0..5 * 101 {
        let ack = within(DEADLINE, "a report of progress", acks.next()).await.unwrap();
        assert_eq!(ack.payload, "+WPI");
    }
    assert_eq!(log.ids(), ["a:0"]);
    drop(senders);
    broker.wait_until_acknowledged(101).await;
    assert_eq!(log.of("b"), (0..100).collect::<Vec<_>>());
    assert_eq!(broker.info().await.delivered.consumer_sequence, 101, "nothing was delivered again");
    stop.send(()).unwrap();
    consumer.join().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_handler_that_blocks_during_a_restart_of_the_broker_is_not_called_again() {
    let mut broker = Broker::start().await;
    let log = Log::default();
    let (block, senders) = Block::new(&["a:0"]);
    let config = Config { stop_timeout: Duration::from_millis(100), ..broker.config() };
    let running = start_blocking(config, &log, &block);
    broker.publish("a", 0).await;
    broker.publish("a", 1).await;
    log.wait_for(1).await;
    broker.server.restart().await.unwrap();
    broker.publish("b", 0).await;
    wait_until("the other source is handled", async || (!log.of("b").is_empty()).then_some(())).await;
    // A killed server can have forgotten that it delivered the first two. All three are delivered then, without a redelivery.
    wait_until("the first event is delivered again", async || {
        let info = broker.info().await;
        (info.num_redelivered > 0 || info.delivered.consumer_sequence == 3).then_some(())
    })
    .await;
    assert_eq!(log.of("a"), [0]);
    drop(senders);
    broker.wait_until_acknowledged(3).await;
    assert_eq!((log.of("a"), broker.dead_letters().await), (vec![0, 1], 0));
    running.stop().await;
}

#[tokio::test]
async fn a_handler_that_does_not_return_is_ended_after_its_time_limit_and_its_event_is_tried_again() {
    let broker = Broker::start().await;
    broker.publish("a", 0).await;
    broker.publish("a", 1).await;
    let log = Log::default();
    let config = Config { handler_timeout: Some(Duration::from_millis(100)), ..broker.config() };
    let handled = log.clone();
    let running = Running::start(config, move |event| {
        let log = handled.clone();
        async move {
            log.add(&event);
            if log.of("a").len() < 3 {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    broker.wait_until_acknowledged(2).await;
    assert_eq!((log.of("a"), broker.dead_letters().await), (vec![0, 0, 0, 1], 0));
    running.stop().await;
}

/// The log of a consumer.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs a consumer with handlers that do not return. Returns the first line of its log that contains this text.
async fn logged_with_hung_handlers(config: Config, text: &str) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    // With one subscriber only, other threads decide without it whether a line is enabled.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let run = consumer::run(config, std::future::pending(), |_| std::future::pending());
    let logged = wait_until("the line is logged", async || {
        let written = String::from_utf8(lines.0.lock().clone()).unwrap();
        written.lines().find(|line| line.contains(text)).map(str::to_owned)
    });
    tokio::select! {
        result = run.with_subscriber(subscriber) => panic!("{result:?}"),
        line = logged => line,
    }
}

#[tokio::test]
async fn a_handler_that_does_not_return_is_logged() {
    let broker = Broker::start().await;
    broker.publish("a", 0).await;
    let line = logged_with_hung_handlers(broker.config(), "a handler has not returned").await;
    assert!(line.contains("WARN") && line.contains("a:0") && line.contains("seconds=1"), "{line}");
}

#[tokio::test]
async fn handlers_that_keep_new_events_from_being_read_are_logged() {
    let broker = Broker::start().await;
    for source in ["a", "b", "c"] {
        broker.publish(source, 0).await;
    }
    let config = Config { max_in_flight: 2, ..broker.config() };
    let line = logged_with_hung_handlers(config, "no events are read").await;
    assert!(line.contains("WARN") && line.contains("events=2") && line.contains("consumer"), "{line}");
}
