//! Dead letters while their stream has no place, and those of large events.

use consumer::Failure;
use testkit::wait_until;

use super::broker::{Broker, Log, Running};

/// Rejects the events of sources that begin with `bad`.
fn start(broker: &Broker, log: &Log) -> Running {
    let handled = log.clone();
    Running::start(broker.config(), move |event| {
        handled.add(&event);
        let result = if event.source_id.starts_with("bad") { Err(Failure::reject("bad")) } else { Ok(()) };
        async move { result }
    })
}

async fn wait_for_dead_letters(broker: &Broker, count: u64) {
    wait_until("the dead letters are stored", async || (broker.dead_letters().await == count).then_some(()))
        .await;
}

#[tokio::test]
async fn events_of_a_tenant_with_too_many_dead_letters_are_kept_and_other_tenants_go_on() {
    let broker = Broker::start().await;
    broker.limit_dead_letters(|stream| stream.max_messages_per_subject = 1).await;
    let log = Log::default();
    let running = start(&broker, &log);
    broker.publish("bad-1", 0).await;
    wait_for_dead_letters(&broker, 1).await;
    broker.publish("bad-2", 0).await;
    log.wait_for(2).await;
    broker.publish_of("globex", "bad-3", 0).await;
    broker.publish("good", 0).await;
    wait_for_dead_letters(&broker, 2).await;
    let (subject, headers, _) = broker.dead_letter(2).await;
    assert_eq!(subject, "udm.dlq.v1.globex.consumer");
    assert_eq!(headers.get("ce-id").unwrap().as_str(), "bad-3:0");
    wait_until("only one event is not acknowledged", async || {
        let info = broker.info().await;
        (info.num_pending == 0 && info.num_ack_pending == 1 && log.of("good") == [0]).then_some(())
    })
    .await;
    assert_eq!(broker.info().await.ack_floor.stream_sequence, 1, "the second event of the tenant waits");

    broker.admin.get_stream("UDM_DLQ").await.unwrap().delete_message(1).await.unwrap();
    broker.wait_until_acknowledged(4).await;
    let (subject, headers, _) = broker.dead_letter(3).await;
    assert_eq!(subject, "udm.dlq.v1.acme.consumer");
    assert_eq!(headers.get("ce-id").unwrap().as_str(), "bad-2:0");
    assert_eq!(log.of("bad-2"), [0], "the handler is not called again");
    running.stop().await;
}

#[tokio::test]
async fn while_the_stream_of_dead_letters_is_full_events_are_handled_and_the_rejected_one_is_kept() {
    let broker = Broker::start().await;
    broker.limit_dead_letters(|stream| stream.max_bytes = 16).await;
    let log = Log::default();
    let running = start(&broker, &log);
    broker.publish("bad", 0).await;
    log.wait_for(1).await;
    for number in 0..20 {
        broker.publish("good", number).await;
    }
    log.wait_for(21).await;
    assert_eq!(broker.dead_letters().await, 0);
    broker.limit_dead_letters(|stream| stream.max_bytes = 64 << 10).await;
    broker.wait_until_acknowledged(21).await;
    assert_eq!(broker.dead_letters().await, 1);
    assert_eq!(log.of("bad"), [0]);
    running.stop().await;
}

#[tokio::test]
async fn the_dead_letter_of_a_large_event_refers_to_it_and_fits_the_limit_of_its_account() {
    let broker = Broker::start().await;
    let log = Log::default();
    let running = start(&broker, &log);
    for (number, size) in [(0, 4096), (1, 4097), (2, 256 << 10)] {
        // The longest source has 256 bytes, three times as many when it is encoded.
        let source = format!("bad{}", "ä".repeat(126));
        let start = format!(r#"{{"source_id":"{source}","note":""#);
        let json = format!("{start}{}\"}}", "x".repeat(size - start.len() - 2));
        assert_eq!(json.len(), size);
        broker.publish_payload("acme", &source, number, json, &[]).await;
    }
    for (number, copied) in [(1, 4096), (2, 0), (3, 0)] {
        let (_, headers, payload) = broker.dead_letter(number).await;
        assert_eq!(payload.len(), copied);
        assert_eq!(headers.get("Udm-Dlq-Stream").unwrap().as_str(), "UDM");
        assert_eq!(headers.get("Udm-Dlq-Sequence").unwrap().as_str(), number.to_string());
    }
    broker.wait_until_acknowledged(3).await;
    running.stop().await;
}
