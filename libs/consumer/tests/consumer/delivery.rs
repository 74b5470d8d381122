//! Order, attempts, dead letters, duplicates, traces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use consumer::{Config, Failure};
use futures::StreamExt as _;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_sdk::trace::SdkTracerProvider;
use testkit::{DEADLINE, wait_until, within};
use tokio::sync::{Barrier, Semaphore};
use tracing::instrument::WithSubscriber as _;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::layer::SubscriberExt as _;

use super::broker::{Broker, Log, Running, source_in_half};

#[tokio::test]
async fn events_contain_what_the_producer_sent_and_what_the_service_added() {
    let broker = Broker::start().await;
    broker.publish("fw 1/ä", 1).await;
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
    let _running = Running::start(broker.config(), move |event| {
        sender.send(event).unwrap();
        async { Ok(()) }
    });
    let event = within(DEADLINE, "an event", events.recv()).await.unwrap();
    assert_eq!((event.tenant_id.as_str(), event.source_id.as_str()), ("acme", "fw 1/ä"));
    assert_eq!((event.event_id.as_str(), event.event_type.as_str()), ("fw_1/ä:1", "USER_LOGIN"));
    assert_eq!(event.received_at.to_rfc3339(), "2026-01-31T12:00:00.250+00:00");
    assert_eq!((event.time, event.delivery), (event.received_at, 1));
    assert_eq!(event.headers.get("Udm-Credential").unwrap().as_str(), "key:k1");
    assert!(event.payload.starts_with(br#"{"source_id":"fw 1/"#));
    broker.wait_until_acknowledged(1).await;
}

#[tokio::test]
async fn events_of_a_source_are_handled_in_order_and_other_sources_at_the_same_time() {
    let broker = Broker::start().await;
    for number in 0..50 {
        for source in ["a", "b", "c"] {
            broker.publish(source, number).await;
        }
    }
    // The first events of the sources wait for each other, and until later ones are delivered.
    let (log, barrier) = (Log::default(), Arc::new(Barrier::new(4)));
    let (handled, first_events) = (log.clone(), Arc::clone(&barrier));
    let _running = Running::start(broker.config(), move |event| {
        let (log, barrier) = (handled.clone(), Arc::clone(&first_events));
        async move {
            if event.event_id.ends_with(":0") {
                barrier.wait().await;
            }
            log.add(&event);
            Ok(())
        }
    });
    wait_until("later events are delivered", async || {
        (broker.info().await.num_ack_pending > 100).then_some(())
    })
    .await;
    barrier.wait().await;
    log.wait_for(150).await;
    let expected: Vec<_> = (0..50).collect();
    for source in ["a", "b", "c"] {
        assert_eq!(log.of(source), expected, "{source}");
    }
    broker.wait_until_acknowledged(150).await;
}

#[tokio::test]
async fn a_failed_event_is_tried_again_while_later_events_of_its_source_wait() {
    let broker = Broker::start().await;
    for number in 0..3 {
        broker.publish("a", number).await;
    }
    broker.publish("b", 0).await;
    let (log, attempts) = (Log::default(), Arc::new(AtomicU32::new(0)));
    let handled = log.clone();
    let _running = Running::start(broker.config(), move |event| {
        let (log, attempts) = (handled.clone(), Arc::clone(&attempts));
        async move {
            if event.event_id == "a:0" && attempts.fetch_add(1, Ordering::Relaxed) < 2 {
                return Err(Failure::retry("not available"));
            }
            log.add(&event);
            Ok(())
        }
    });
    log.wait_for(4).await;
    assert_eq!((log.of("a"), log.ids()[0].as_str()), (vec![0, 1, 2], "b:0"));
}

#[tokio::test]
async fn an_event_that_cannot_be_handled_becomes_a_dead_letter_with_its_reason() {
    let broker = Broker::start().await;
    broker.publish("rejected", 0).await;
    broker.publish("failing", 0).await;
    broker.publish("failing", 1).await;
    let log = Log::default();
    let handled = log.clone();
    // Long enough for a second attempt, and too short for a third.
    let config = Config { retry_for: Some(Duration::from_millis(600)), ..broker.config() };
    let _running = Running::start(config, move |event| {
        handled.add(&event);
        async move {
            match event.event_id.as_str() {
                "rejected:0" => Err(Failure::reject("unknown\nformat")),
                "failing:0" => Err(Failure::retry("no connection")),
                _ => Ok(()),
            }
        }
    });
    let (subject, headers, payload) = broker.dead_letter(1).await;
    assert_eq!(subject, "udm.dlq.v1.acme.consumer");
    let header = |name: &str| headers.get(name).map(|value| value.as_str().to_owned());
    assert_eq!(header("ce-id").as_deref(), Some("rejected:0"));
    assert_eq!(header("Udm-Dlq-Reason").as_deref(), Some("unknown format"));
    assert_eq!(header("Udm-Dlq-Attempts").as_deref(), Some("1"));
    assert!(header("Nats-Msg-Id").unwrap().starts_with("dlq-"));
    assert_eq!(payload, r#"{"source_id":"rejected","metadata":{"event_type":"USER_LOGIN"}}"#);
    let (_, headers, _) = broker.dead_letter(2).await;
    assert_eq!(headers.get("Udm-Dlq-Reason").unwrap().as_str(), "no connection");
    assert_eq!(headers.get("Udm-Dlq-Attempts").unwrap().as_str(), "2");
    broker.wait_until_acknowledged(3).await;
    assert_eq!(log.of("failing"), [0, 0, 1]);
}

#[tokio::test]
async fn without_a_limit_an_event_is_tried_until_it_succeeds() {
    let broker = Broker::start().await;
    broker.publish("a", 0).await;
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&attempts);
    let config = Config { retry_for: None, ..broker.config() };
    let _running = Running::start(config, move |_| {
        let is_enough = counted.fetch_add(1, Ordering::Relaxed) >= 3;
        async move { if is_enough { Ok(()) } else { Err(Failure::retry("not yet")) } }
    });
    broker.wait_until_acknowledged(1).await;
    assert_eq!(attempts.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn a_handler_reads_fields_in_either_spelling_and_the_origin_of_the_time() {
    let broker = Broker::start().await;
    broker.publish("a", 0).await;
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let _running = Running::start(broker.config(), move |event| {
        sender.send(event).unwrap();
        std::future::ready(Ok(()))
    });
    let mut event = Arc::unwrap_or_clone(receiver.recv().await.unwrap());
    assert_eq!(event.values("metadata.event_type"), ["USER_LOGIN"]);
    assert_eq!(event.headers.get("ce-timeorigin").unwrap().as_str(), "receipt");
    event.payload = r#"{"sourceId":"a","securityResult":{"ruleName":["r"]}}"#.into();
    assert_eq!(
        (event.values("source_id"), event.values("security_result.rule_name")),
        (vec!["a".into()], vec!["r".into()])
    );
    assert_eq!(event.values("metadata.event_type").len(), 0);
}

#[tokio::test]
async fn a_malformed_message_becomes_a_dead_letter() {
    let broker = Broker::start().await;
    broker.publish_with("a", 0, &[("ce-time", "yesterday")]).await;
    let _running = Running::start(broker.config(), |_| async { panic!("the handler was called") });
    let (_, headers, _) = broker.dead_letter(1).await;
    let reason = headers.get("Udm-Dlq-Reason").unwrap().as_str();
    assert_eq!(reason, "malformed message: ce-time is missing or invalid");
}

#[tokio::test]
async fn an_event_that_is_stored_twice_is_handled_once() {
    let broker = Broker::start().await;
    broker.publish("a", 0).await;
    // A producer that retries after the duplicate window stores the event again.
    broker.publish_with("a", 0, &[("Nats-Msg-Id", "later")]).await;
    broker.publish("b", 0).await;
    let log = Log::default();
    let handled = log.clone();
    let _running = Running::start(broker.config(), move |event| {
        handled.add(&event);
        async { Ok(()) }
    });
    broker.wait_until_acknowledged(3).await;
    assert_eq!((log.of("a"), log.of("b")), (vec![0], vec![0]));
}

#[tokio::test]
async fn a_replay_is_handled_by_the_consumer_it_is_for() {
    let broker = Broker::start().await;
    broker.publish_with("a", 0, &[("Udm-Replay-For", "other")]).await;
    broker.publish_with("a", 1, &[("Udm-Replay-For", "consumer")]).await;
    let log = Log::default();
    let handled = log.clone();
    let _running = Running::start(broker.config(), move |event| {
        handled.add(&event);
        async { Ok(()) }
    });
    broker.wait_until_acknowledged(2).await;
    assert_eq!(log.ids(), ["a:1"]);
}

#[tokio::test]
async fn a_slow_event_is_not_delivered_again() {
    let broker = Broker::start().await;
    let mut acks = broker.admin.client().subscribe("$JS.ACK.UDM.consumer.>").await.unwrap();
    broker.publish("a", 0).await;
    let (log, release) = (Log::default(), Arc::new(Semaphore::new(0)));
    let (handled, released) = (log.clone(), Arc::clone(&release));
    let _running = Running::start(broker.config(), move |event| {
        let (log, released) = (handled.clone(), Arc::clone(&released));
        async move {
            log.add(&event);
            released.acquire().await.unwrap().forget();
            Ok(())
        }
    });
    // Three reports take as long as the time for an acknowledgement.
    for _ in 0..10 {
        let ack = within(DEADLINE, "a report of progress", acks.next()).await.unwrap();
        assert_eq!(ack.payload, "+WPI");
    }
    release.add_permits(1);
    broker.wait_until_acknowledged(1).await;
    assert_eq!((log.ids().len(), broker.info().await.delivered.consumer_sequence), (1, 1));
}

#[tokio::test]
async fn all_streams_are_read() {
    let broker = Broker::with_streams(2, 0).await;
    let log = Log::default();
    for half in [0, 1] {
        broker.publish(&source_in_half(half), 0).await;
    }
    let handled = log.clone();
    let _running = Running::start(broker.config(), move |event| {
        handled.add(&event);
        async { Ok(()) }
    });
    log.wait_for(2).await;
}

#[tokio::test]
async fn the_number_of_events_in_flight_is_bounded() {
    let broker = Broker::start().await;
    for number in 0..20 {
        broker.publish(&format!("source-{number}"), 0).await;
    }
    let (log, release) = (Log::default(), Arc::new(Semaphore::new(0)));
    let (handled, released) = (log.clone(), Arc::clone(&release));
    let config = Config { max_in_flight: 4, ..broker.config() };
    let _running = Running::start(config, move |event| {
        let (log, released) = (handled.clone(), Arc::clone(&released));
        async move {
            log.add(&event);
            released.acquire().await.unwrap().forget();
            Ok(())
        }
    });
    for finished in 0..20 {
        log.wait_for(finished + 1).await;
        let delivered = broker.info().await.delivered.consumer_sequence;
        assert!(delivered <= finished as u64 + 4, "{delivered} {finished}");
        release.add_permits(1);
    }
    broker.wait_until_acknowledged(20).await;
}

#[tokio::test]
async fn the_span_of_the_handler_belongs_to_the_trace_of_the_request() {
    let broker = Broker::start().await;
    broker.publish("a", 0).await;
    // With one subscriber only, other threads decide without it whether a span is enabled.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let provider = SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let trace_id = Arc::new(parking_lot::Mutex::new(None));
    let recorded = Arc::clone(&trace_id);
    let run = consumer::run(broker.config(), std::future::pending(), move |_| {
        let context = tracing::Span::current().context();
        *recorded.lock() = Some(context.span().span_context().trace_id().to_string());
        async { Ok(()) }
    });
    let handled = wait_until("the event is handled", async || trace_id.lock().clone());
    tokio::select! {
        result = run.with_subscriber(tracing_subscriber::registry().with(layer)) => result.unwrap(),
        id = handled => assert_eq!(id, "4bf92f3577b34da6a3ce929d0e0e4736"),
    }
}
