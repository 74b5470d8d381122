//! How long the transport waits between attempts, in virtual time.

use std::time::Duration;

use super::server::{Server, Step, problem};
use crate::{Transport, UdmEvent};

fn event() -> UdmEvent {
    UdmEvent::new("fw").with_event_id("a")
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn busy(retry_after: u64) -> Step {
    Step::Say(503, Some(retry_after), String::new())
}

#[tokio::test]
async fn without_a_wish_the_pauses_stay_below_the_doubling_limit() {
    let server = Server::scripted(vec![Step::Say(503, None, String::new()); 9]).await;
    server.transport_with(|config| config.max_retries = 9).send(&event()).await;
    let pauses = server.clock.pauses();
    assert_eq!(pauses.len(), 9);
    for (pause, limit) in pauses.into_iter().zip([250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]) {
        assert!(pause <= Duration::from_millis(limit));
    }
}

#[tokio::test]
async fn the_services_wish_is_a_floor_in_header_and_problem() {
    for (step, floor) in [(busy(7), 7), (problem(429, "rate_limited", Some(9000)), 9)] {
        let server = Server::scripted([step]).await;
        assert!(server.transport().send(&event()).await.success);
        let pause = server.clock.pauses()[0];
        assert!(pause >= seconds(floor), "{pause:?}");
        assert!(pause <= seconds(floor) + Duration::from_millis(250), "{pause:?}");
    }
}

#[tokio::test]
async fn the_wish_is_capped_at_a_minute() {
    let server = Server::scripted([busy(86_400)]).await;
    assert!(server.transport().send(&event()).await.success);
    assert!(server.clock.pauses()[0] <= seconds(61));
}

#[tokio::test]
async fn the_wish_of_a_partly_accepted_batch_is_kept_too() {
    let server = Server::scripted([Step::Refuse(207, vec![(0, true)])]).await;
    assert!(server.transport().send_batch(&[event(), UdmEvent::new("fw")]).await.success);
    assert!(server.clock.pauses()[0] >= seconds(1));
}

#[tokio::test]
async fn no_attempt_starts_later_than_a_hundred_seconds_after_the_first() {
    let server = Server::scripted(vec![busy(45); 9]).await;
    let result = server.transport_with(|config| config.max_retries = 9).send(&event()).await;
    assert_eq!(result.error.unwrap().status, Some(503));
    assert_eq!(server.requests().len(), 3);
    assert!(server.clock.pauses().iter().sum::<Duration>() <= seconds(100));
}

#[tokio::test]
async fn the_time_that_attempts_take_counts() {
    let slow = [Step::Take(seconds(60)), busy(0), Step::Take(seconds(60)), busy(0), Step::Accept];
    let server = Server::scripted(slow).await;
    let result = server.transport().send(&event()).await;
    assert!(!result.success);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn the_halves_of_a_batch_have_no_more_time_than_the_whole() {
    let too_large = problem(413, "batch_too_large", None);
    let server = Server::scripted([too_large, Step::Take(seconds(101)), Step::Accept]).await;
    let batch = server.transport().send_batch(&[event(), UdmEvent::new("fw")]).await;
    assert_eq!((batch.successful_events, batch.failed_events), (1, 1));
    assert_eq!(server.requests().len(), 2);
    assert!(batch.results[1].error.as_ref().unwrap().retryable);
}

#[tokio::test]
async fn the_requests_of_a_long_batch_have_their_time_each() {
    let server = Server::scripted([Step::Take(seconds(101)), Step::Accept, busy(50)]).await;
    let events: Vec<_> = (0..1001).map(|_| UdmEvent::new("fw")).collect();
    let batch = server.transport().send_batch(&events).await;
    assert!(batch.success);
    assert_eq!(server.requests().len(), 3);
    assert!(batch.response_time_ms.unwrap() >= 151_000.0);
}
