//! Which errors are retried, and the pauses between attempts in virtual time.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::future::join_all;
use parking_lot::Mutex;
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::sync::Semaphore;

use super::cancellation::until;
use super::server::{Server, Step, VirtualClock, problem};
use crate::http::Clock;
use crate::{HttpTransport, HttpTransportConfig, Transport, UdmEvent};

fn event() -> UdmEvent {
    UdmEvent::new("fw").with_event_id("a")
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn busy(retry_after: u64) -> Step {
    Step::Respond(503, Some(retry_after), String::new())
}

#[tokio::test]
async fn retryable_errors_are_retried_with_the_same_bytes() {
    let mut steps: Vec<_> = [408, 429, 502, 503, 504].map(|status| problem(status, "code", None)).into();
    steps.push(Step::Disconnect);
    for step in steps {
        for batch in [false, true] {
            let server = Server::scripted([step.clone()]).await;
            let transport = server.transport();
            let success = if batch {
                transport.send_batch(&[UdmEvent::new("fw")]).await.success
            } else {
                transport.send(&UdmEvent::new("fw")).await.success
            };
            let requests = server.requests();
            assert!(success, "{step:?}");
            assert_eq!(requests.len(), 2, "{step:?}");
            assert_eq!(requests[0].body, requests[1].body);
        }
    }
}

#[tokio::test]
async fn a_request_above_the_quota_waits_for_its_turn_within_its_time() {
    for (max_retries, requests) in [(3, 10), (0, 1)] {
        let server = Server::scripted(vec![problem(429, "quota_exceeded", Some(2000)); 9]).await;
        let transport = server.transport_with(|config| config.max_retries = max_retries);
        let sent = transport.send_batch(&[event()]).await;
        assert_eq!((sent.success, server.requests().len()), (max_retries > 0, requests));
    }
    let server = Server::scripted(vec![problem(429, "quota_exceeded", Some(2000)); 99]).await;
    assert!(!server.transport().send(&event()).await.success);
    assert!((90..=101).contains(&server.clock.elapsed().as_secs()));
}

#[tokio::test]
async fn a_send_continues_soon_after_an_outage_of_the_broker_of_any_length() {
    for kind in KINDS {
        for code in ["dependency_unavailable", "ack_timeout", "stream_full"] {
            for ended_at in [18, 40, 80].map(seconds) {
                let unavailable = Box::new(problem(503, code, Some(1000)));
                let server = Server::scripted([Step::Until(ended_at, unavailable)]).await;
                assert_eq!(send(server.transport(), kind).await, [true, true], "{kind}, {code}");
                let time = server.clock.elapsed();
                assert!(time <= ended_at + seconds(5), "{kind}, {code}: {time:?}");
                assert!(server.requests().len() <= 60, "{kind}, {code}: {}", server.requests().len());
            }
        }
    }
    let server = Server::scripted([problem(503, "dependency_unavailable", Some(1000))]).await;
    assert!(!server.transport_with(|config| config.max_retries = 0).send(&event()).await.success);
}

#[tokio::test]
async fn a_rate_limit_of_a_proxy_counts_and_has_growing_pauses() {
    for retry_after in [None, Some(0), Some(1)] {
        let server = Server::scripted(vec![Step::Respond(429, retry_after, String::new()); 9]).await;
        let error = server.transport().send(&event()).await.error.unwrap();
        let pauses = server.clock.pauses();
        assert_eq!((error.status, pauses.len()), (Some(429), 3), "{retry_after:?}");
        assert!(pauses.iter().all(|pause| *pause >= seconds(1)), "{retry_after:?}: {pauses:?}");
        assert!(retry_after == Some(1) || pauses[2] >= seconds(30), "{retry_after:?}: {pauses:?}");
    }
}

#[tokio::test]
async fn max_retries_does_not_count_the_first_attempt() {
    for max_retries in 0..4 {
        let script = vec![problem(503, "overloaded", None); 9];
        let server = Server::scripted(script).await;
        let transport = server.transport_with(|config| config.max_retries = max_retries);
        let error = transport.send(&event()).await.error.unwrap();
        assert_eq!(server.requests().len(), max_retries as usize + 1);
        assert_eq!(error.code.as_deref(), Some("overloaded"));
        assert!(error.retryable);
    }
}

#[tokio::test]
async fn pauses_after_an_error_of_the_service_without_retry_after_are_limited_by_the_jitter() {
    let server = Server::scripted(vec![problem(503, "overloaded", None); 9]).await;
    assert!(server.transport_with(|config| config.max_retries = 9).send(&event()).await.success);
    let pauses = server.clock.pauses();
    assert_eq!(pauses.len(), 9);
    for (pause, limit) in pauses.into_iter().zip([250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]) {
        assert!(pause <= Duration::from_millis(limit));
    }
}

/// How a send can be made.
const KINDS: [&str; 3] = ["single", "batch", "linger"];

/// Sends the events `a` and `b`. Returns whether each was accepted.
async fn send(transport: HttpTransport, kind: &str) -> [bool; 2] {
    let events = ["a", "b"].map(|id| UdmEvent::new("fw").with_event_id(id));
    match kind {
        "single" => {
            let [first, second] = &events;
            [transport.send(first).await.success, transport.send(second).await.success]
        }
        "batch" => {
            let results = transport.send_batch(&events).await.results;
            [results[0].success, results[1].success]
        }
        _ => {
            let transport = transport.with_linger(Duration::from_millis(1)).unwrap();
            let (a, b) = tokio::join!(transport.send(&events[0]), transport.send(&events[1]));
            [a.success, b.success]
        }
    }
}

/// A clock that starts a server when a time has passed: the service restarts.
struct RestartClock {
    time: Arc<VirtualClock>,
    address: SocketAddr,
    restarted_at: Duration,
    server: Mutex<Option<Server>>,
}

#[async_trait]
impl Clock for RestartClock {
    fn now(&self) -> Instant {
        self.time.now()
    }

    async fn sleep(&self, pause: Duration) {
        self.time.sleep(pause).await;
        if self.time.elapsed() >= self.restarted_at && self.server.lock().is_none() {
            let server = Server::at(self.address, Arc::clone(&self.time)).await;
            *self.server.lock() = Some(server);
        }
    }
}

#[tokio::test]
async fn a_restart_of_the_service_loses_nothing_with_the_default_options() {
    for kind in KINDS {
        for restarted_at in [1, 3, 12, 30, 40].map(seconds) {
            for seed in 0..4 {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                drop(listener);
                let time: Arc<VirtualClock> = Arc::default();
                let server = Mutex::default();
                let clock = RestartClock { time, address, restarted_at, server };
                let config = HttpTransportConfig::new(format!("http://{address}"));
                let jitter = StdRng::seed_from_u64(seed);
                let transport = HttpTransport::with_clock(config, Arc::new(clock), jitter);
                let sent = send(transport, kind).await;
                assert!(sent.iter().all(|success| *success), "{kind}, {restarted_at:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_outage_behind_a_proxy_loses_nothing_with_the_default_options() {
    for kind in KINDS {
        let server = Server::scripted([Step::Away(seconds(40))]).await;
        assert_eq!(send(server.transport(), kind).await, [true, true], "{kind}");
    }
}

#[tokio::test]
async fn a_send_gives_up_after_the_documented_time_while_nothing_listens() {
    let server = Server::scripted([Step::Away(seconds(1000))]).await;
    let result = server.transport().send(&event()).await;
    assert_eq!((result.error.unwrap().status, server.requests().len()), (Some(502), 4));
    let time = server.clock.elapsed();
    assert!(time >= seconds(41) && time <= seconds(62), "{time:?}");
}

#[tokio::test]
async fn any_number_of_retries_during_an_outage_ends_before_the_deadline() {
    for (max_retries, at_least) in [(1, 1), (2, 31), (4, 43), (5, 47), (8, 90), (20, 90)] {
        let server = Server::scripted([Step::Away(seconds(1000))]).await;
        assert!(
            !server.transport_with(|config| config.max_retries = max_retries).send(&event()).await.success
        );
        let pauses = server.clock.pauses();
        assert!(pauses[0] <= Duration::from_millis(1500), "{max_retries}: {pauses:?}");
        let time = server.clock.elapsed();
        assert!(time >= seconds(at_least) && time <= seconds(100), "{max_retries}: {pauses:?}");
    }
}

#[tokio::test]
async fn total_timeout_shortens_the_pauses_of_an_outage() {
    let server = Server::scripted([Step::Away(seconds(20))]).await;
    let sent = server.transport().with_total_timeout(seconds(30)).send(&event()).await;
    assert!(sent.success, "{:?}", server.clock.pauses());
    let server = Server::scripted([Step::Away(seconds(1000))]).await;
    assert!(!server.transport().with_total_timeout(seconds(2)).send(&event()).await.success);
    assert_eq!(server.requests().len(), 4);
    assert!(server.clock.elapsed() < seconds(2));
}

#[tokio::test]
async fn an_event_is_not_sent_again_after_the_process_was_stopped_for_longer_than_the_duplicate_window() {
    for kind in KINDS {
        let lost = vec![Step::Disconnect; 2];
        let server = Server::scripted(lost).await;
        server.clock.set_overrun(seconds(130));
        assert_eq!(send(server.transport(), kind).await, [false, false], "{kind}");
        let requests = if kind == "single" { 2 } else { 1 };
        assert_eq!(server.requests().len(), requests, "{kind}");
    }
}

#[tokio::test]
async fn an_event_is_not_sent_again_after_a_long_wait_for_other_requests() {
    let permits = Arc::new(Semaphore::new(0));
    let server = Server::scripted([
        Step::Wait(Arc::clone(&permits)),
        problem(503, "overloaded", None),
        Step::Wait(Arc::clone(&permits)),
    ])
    .await;
    let transport = server.transport().with_max_concurrent_requests(1).unwrap();
    let events = ["a", "b"].map(|id| UdmEvent::new("fw").with_event_id(id));
    let sends = async { tokio::join!(transport.send(&events[0]), transport.send(&events[1])) };
    let stopped = async {
        // The second send waits for the first, and then the repetition of the first for the second.
        until(|| server.requests_in_progress() == 1).await;
        permits.add_permits(1);
        until(|| server.requests().len() == 2 && server.requests_in_progress() == 1).await;
        server.clock.advance(seconds(130));
        permits.add_permits(1);
    };
    let ((first, second), ()) = tokio::join!(sends, stopped);
    assert!(!first.success && second.success);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn retry_after_of_header_and_problem_is_the_minimum_pause() {
    for (step, floor) in [(busy(7), 7), (problem(429, "rate_limited", Some(9000)), 9)] {
        let server = Server::scripted([step]).await;
        assert!(server.transport().send(&event()).await.success);
        let pause = server.clock.pauses()[0];
        assert!(pause >= seconds(floor), "{pause:?}");
        assert!(pause <= seconds(floor) + Duration::from_millis(250), "{pause:?}");
    }
}

#[tokio::test]
async fn retry_after_can_be_a_date() {
    let date = "Sun, 06 Nov 1994 08:49:30 GMT";
    let server = Server::scripted([Step::Busy("Sun, 06 Nov 1994 08:49:37 GMT", date)]).await;
    assert!(server.transport().send(&event()).await.success);
    assert_eq!(server.clock.pauses()[0].as_secs(), 7);
}

#[tokio::test]
async fn a_retry_after_above_a_minute_is_an_error_at_once_that_contains_the_time() {
    let server = Server::scripted([busy(86_400)]).await;
    let error = server.transport().send(&event()).await.error.unwrap();
    assert_eq!((error.status, error.retry_after), (Some(503), Some(seconds(86_400))));
    assert!(server.clock.pauses().is_empty());
}

#[tokio::test]
async fn retry_after_of_a_partly_accepted_batch_is_respected() {
    let server = Server::scripted([Step::Reject(207, vec![(0, true)])]).await;
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
async fn deadline_includes_the_duration_of_attempts() {
    let slow = [Step::Advance(seconds(60)), busy(0), Step::Advance(seconds(60)), busy(0), Step::Accept];
    let server = Server::scripted(slow).await;
    let result = server.transport().send(&event()).await;
    assert!(!result.success);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn halves_of_a_batch_share_its_deadline_if_it_was_possibly_stored() {
    for (first, succeeds) in [(None, true), (Some(Step::Disconnect), false)] {
        let too_large = problem(413, "batch_too_large", None);
        let script = first.into_iter().chain([too_large, Step::Advance(seconds(101)), Step::Accept]);
        let server = Server::scripted(script).await;
        let batch = server.transport().send_batch(&[event(), UdmEvent::new("fw")]).await;
        assert_eq!(batch.success, succeeds, "{batch:?}");
        assert_eq!(server.requests().len(), 3);
        assert_eq!(batch.successful_events, if succeeds { 2 } else { 1 });
        assert!(batch.results[1].error.as_ref().is_none_or(|error| error.retryable));
    }
}

#[tokio::test]
async fn a_batch_that_is_too_slow_is_halved_and_each_half_has_its_own_time() {
    let too_slow = || problem(408, "body_timeout", None);
    let wait = || Step::Advance(seconds(90));
    let script = [wait(), too_slow(), wait(), too_slow(), wait(), Step::Accept, wait(), Step::Accept];
    let server = Server::scripted(script).await;
    let ids = ["a", "b", "c", "d"];
    let events = ids.map(|id| UdmEvent::new("fw").with_event_id(id));
    let batch = server.transport_with(|config| config.max_retries = 0).send_batch(&events).await;
    assert!(batch.success, "{batch:?}");
    let sent: Vec<_> = server.requests().iter().map(|request| request.ids().concat()).collect();
    assert_eq!(sent, ["abcd", "ab", "a", "b", "cd"]);
    assert!(server.clock.pauses().is_empty());
}

#[tokio::test]
async fn one_event_that_is_too_slow_is_sent_again_within_its_retries() {
    for (attempts, succeeds) in [(3, true), (4, false)] {
        let server = Server::scripted(vec![problem(408, "body_timeout", None); attempts]).await;
        let batch = server.transport().send_batch(&[event()]).await;
        assert_eq!((batch.success, server.requests().len()), (succeeds, 4));
        let status = batch.results[0].error.as_ref().and_then(|error| error.status);
        assert_eq!(status, (!succeeds).then_some(408));
    }
}

#[tokio::test]
async fn requests_of_a_long_batch_have_separate_deadlines() {
    let server = Server::scripted([Step::Advance(seconds(101)), Step::Accept, busy(50)]).await;
    let events: Vec<_> = (0..1001).map(|_| UdmEvent::new("fw")).collect();
    let batch = server.transport().send_batch(&events).await;
    assert!(batch.success);
    assert_eq!(server.requests().len(), 3);
    assert!(batch.response_time_ms.unwrap() >= 151_000.0);
}

/// Script of a server that accepts some events and rejects or delays others.
fn step() -> impl Strategy<Value = Step> {
    let rejected = proptest::collection::vec((0_usize..8, any::<bool>()), 0..8);
    prop_oneof![
        (0_u64..40).prop_map(|time| Step::Advance(seconds(time))),
        (0_u64..90).prop_map(busy),
        Just(problem(413, "batch_too_large", None)),
        Just(problem(408, "body_timeout", None)),
        Just(Step::Disconnect),
        rejected.prop_map(|rejected| Step::Reject(207, rejected)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// The service deduplicates for 120 s and responds within 10 s, so the last attempt must start within 110 s.
    #[test]
    fn every_retry_is_inside_the_duplicate_window(
        script in proptest::collection::vec(step(), 0..40),
        linger: bool,
        max_retries in 0_u32..30,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Server::scripted(script).await;
            let mut transport = server.transport_with(|config| config.max_retries = max_retries);
            let events: Vec<_> = (0..8).map(|id| UdmEvent::new("fw").with_event_id(id.to_string())).collect();
            if linger {
                transport = transport.with_linger(Duration::from_millis(1)).unwrap();
                join_all(events.iter().map(|event| transport.send(event))).await;
            } else {
                drop(transport.send_batch(&events).await);
            }
            let mut first_attempts = HashMap::new();
            for request in server.requests() {
                for id in request.ids() {
                    let first = *first_attempts.get(&id).unwrap_or(&request.received);
                    prop_assert!(request.received - first <= seconds(100));
                    // Other requests can have stored the event.
                    if !matches!(request.status, Some(408 | 413 | 429)) {
                        first_attempts.entry(id).or_insert(request.received);
                    }
                }
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn total_timeout_rejects_a_pause_that_ends_later() {
    for (timeout, requests) in [(8, 2), (6, 1)] {
        for batch in [false, true] {
            let server = Server::scripted([busy(7)]).await;
            let transport = server.transport().with_total_timeout(seconds(timeout));
            let success = if batch {
                transport.send_batch(&[event()]).await.success
            } else {
                transport.send(&event()).await.success
            };
            assert_eq!((success, server.requests().len()), (requests == 2, requests), "{timeout} s");
        }
    }
}

#[tokio::test]
async fn total_timeout_counts_from_the_last_delivered_event() {
    let partial = |retryable| Step::Reject(207, vec![(retryable, true)]);
    let server = Server::scripted([busy(7), partial(1), busy(7)]).await;
    let events = ["a", "b"].map(|id| UdmEvent::new("fw").with_event_id(id));
    let transport = server.transport().with_total_timeout(seconds(9));
    let batch = transport.send_batch(&events).await;
    assert!(batch.success, "{batch:?}");
    assert!(server.clock.pauses().iter().sum::<Duration>() > seconds(9));
}
