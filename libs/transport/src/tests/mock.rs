//! What a mock transport can be told to do.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::{MockBehavior, MockTransport, Transport, TransportError, TransportErrorKind, UdmEvent};

fn mock(behavior: MockBehavior) -> MockTransport {
    MockTransport::new(Some(behavior))
}

#[tokio::test]
async fn without_a_behaviour_everything_is_accepted() {
    let transport = MockTransport::new(None);
    assert!(transport.send(&UdmEvent::new("fw")).await.success);
    assert!(transport.send_batch(&[UdmEvent::new("fw")]).await.success);
}

#[tokio::test]
async fn with_fail_all_every_event_fails_and_is_recorded() {
    let error = TransportError::new(TransportErrorKind::Timeout, "as told");
    let transport =
        mock(MockBehavior { fail_all: true, error: Some(error.clone()), ..MockBehavior::default() });
    let result = transport.send(&UdmEvent::new("a")).await;
    assert!(!result.success);
    assert_eq!(result.error, Some(error));
    assert_eq!(transport.send_batch(&[UdmEvent::new("b"), UdmEvent::new("c")]).await.failed_events, 2);
    let sources: Vec<_> = transport.sent_events().into_iter().map(|event| event.source_id).collect();
    assert_eq!(sources, ["a", "b", "c"]);
}

#[tokio::test]
async fn the_first_events_fail_over_all_calls() {
    let transport = mock(MockBehavior { fail_first: 3, ..MockBehavior::default() });
    let event = UdmEvent::new("fw");
    assert!(!transport.send(&event).await.success);
    let batch = transport.send_batch(&[event.clone(), event.clone(), event.clone()]).await;
    assert_eq!(batch.results.iter().map(|result| result.success).collect::<Vec<_>>(), [false, false, true]);
    assert!(transport.send(&event).await.success);
}

#[tokio::test]
async fn what_is_sent_is_recorded_whole() {
    let transport = MockTransport::new(None);
    let event = UdmEvent::new("fw").with_event_id("a").with_field("later", 1);
    transport.send(&event).await;
    assert_eq!(transport.sent_events(), [event]);
}

#[tokio::test(start_paused = true)]
async fn each_call_takes_its_latency_and_is_recorded_before() {
    let latency = Duration::from_secs(5);
    let transport = mock(MockBehavior { latency, ..MockBehavior::default() });
    let event = UdmEvent::new("fw");
    let start = Instant::now();
    assert_eq!(transport.send(&event).await.response_time_ms, Some(5000.0));
    transport.send_batch(std::slice::from_ref(&event)).await;
    assert_eq!(start.elapsed(), latency * 2);

    assert!(timeout(latency / 2, transport.send(&event)).await.is_err());
    assert_eq!(transport.sent_events().len(), 3);
}
