//! Progress of a batch, as its callback receives it.

use std::time::Duration;

use contract::ProblemKind;

use super::server::{Server, Step, problem};
use crate::{BatchProgress, UdmEvent};

/// Sends three events. Returns attempts, accepted, failed and waiting events, and whether there is a pause, of each call.
async fn progress(script: impl IntoIterator<Item = Step>) -> Vec<(usize, [usize; 3], bool)> {
    let server = Server::scripted(script).await;
    let events = ["a", "b", "c"].map(|id| UdmEvent::new("fw").with_event_id(id));
    let mut calls = Vec::new();
    let batch = server.transport().send_batch_with_progress(&events, |progress| calls.push(progress)).await;
    let last = calls.last().unwrap();
    assert_eq!((last.accepted, last.failed), (batch.successful_events, batch.failed_events));
    calls
        .into_iter()
        .map(
            |BatchProgress {
                 total_events,
                 attempts,
                 accepted,
                 failed,
                 waiting_for_retry,
                 retry_delay,
                 ..
             }| {
                assert_eq!(total_events, 3);
                (attempts, [accepted, failed, waiting_for_retry], retry_delay.is_some())
            },
        )
        .collect()
}

#[tokio::test]
async fn progress_counts_attempts_accepted_failed_and_waiting_events() {
    assert_eq!(progress([]).await, [(1, [3, 0, 0], false)]);
    let script = [problem(503, "overloaded", None), Step::Reject(207, vec![(0, true), (1, false)])];
    let expected = [(1, [0, 0, 3], true), (2, [1, 1, 1], true), (3, [2, 1, 0], false)];
    assert_eq!(progress(script).await, expected);
}

#[tokio::test]
async fn progress_of_a_failed_batch_ends_with_all_events_failed() {
    let denied = problem(401, "credential_invalid", None);
    assert_eq!(progress([denied.clone()]).await, [(1, [0, 3, 0], false)]);
    let script = [Step::Reject(207, vec![(2, true)]), denied];
    assert_eq!(progress(script).await, [(1, [2, 0, 1], true), (2, [2, 1, 0], false)]);
}

#[tokio::test]
async fn progress_contains_the_pause_before_a_retry() {
    let server = Server::scripted([Step::Respond(503, Some(7), String::new())]).await;
    let mut delays = Vec::new();
    let on_progress = |progress: BatchProgress| delays.extend(progress.retry_delay);
    assert!(server.transport().send_batch_with_progress(&[UdmEvent::new("fw")], on_progress).await.success);
    assert_eq!(delays, server.clock.pauses());
    assert!(delays[0] >= Duration::from_secs(7));
}

#[tokio::test]
async fn progress_is_reported_after_each_request_of_a_long_batch() {
    let server = Server::scripted([]).await;
    let mut accepted = Vec::new();
    let events = vec![UdmEvent::new("fw"); 2500];
    let on_progress = |progress: BatchProgress| accepted.push(progress.accepted);
    assert!(server.transport().send_batch_with_progress(&events, on_progress).await.success);
    assert_eq!(accepted, [1000, 2000, 2500]);
}

#[tokio::test]
async fn progress_contains_the_cause_of_a_pause() {
    let server = Server::scripted([problem(503, "overloaded", None), Step::Disconnect]).await;
    let mut causes = Vec::new();
    let on_progress = |progress: BatchProgress| {
        causes.extend(progress.retry_delay.map(|_| progress.retry_cause));
    };
    assert!(server.transport().send_batch_with_progress(&[UdmEvent::new("fw")], on_progress).await.success);
    assert_eq!(causes, [Some(ProblemKind::Overloaded), None]);
}
