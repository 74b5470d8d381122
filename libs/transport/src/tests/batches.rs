//! Partly accepted batches: retries, splitting and totals.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use serde_json::json;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::server::{Rules, Server, Step, problem};
use crate::{BatchSendResult, HttpTransport, HttpTransportConfig, Transport, TransportErrorKind, UdmEvent};

fn events(ids: impl IntoIterator<Item = impl Into<String>>) -> Vec<UdmEvent> {
    ids.into_iter().map(|id| UdmEvent::new("fw").with_event_id(id)).collect()
}

fn summaries(batch: &BatchSendResult) -> Vec<(&str, bool)> {
    batch.results.iter().map(|result| (result.event_id.as_str(), result.success)).collect()
}

fn ids_of(server: &Server) -> Vec<Vec<String>> {
    server.requests().iter().map(super::server::Request::ids).collect()
}

#[tokio::test]
async fn only_retryable_events_are_sent_again() {
    let first = Step::Reject(207, vec![(1, true), (2, false), (4, true)]);
    let second = Step::Reject(207, vec![(1, true)]);
    let server = Server::scripted([first, second]).await;
    let batch = server.transport().send_batch(&events(["a", "b", "c", "d", "e"])).await;
    assert_eq!(ids_of(&server), [vec!["a", "b", "c", "d", "e"], vec!["b", "e"], vec!["e"]]);
    assert_eq!(summaries(&batch), [("a", true), ("b", true), ("c", false), ("d", true), ("e", true)]);
    assert_eq!((batch.total_events, batch.successful_events, batch.failed_events), (5, 4, 1));
    assert_eq!(batch.batch_id, Some(Uuid::from_u128(1).to_string()));
    let error = batch.results[2].error.as_ref().unwrap();
    assert_eq!((error.kind, error.code.as_deref()), (TransportErrorKind::Status, Some("some_code")));
    assert_eq!((error.message.as_str(), error.retryable), ("no (at /x)", false));
}

#[tokio::test]
async fn other_tasks_run_while_the_rest_of_a_failed_batch_is_skipped() {
    let turns = Arc::new(AtomicUsize::new(0));
    let (of_task, failed_at) = (Arc::clone(&turns), Arc::new(AtomicUsize::new(usize::MAX)));
    let mut other = JoinSet::new();
    other.spawn(async move {
        loop {
            of_task.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    // Nothing listens there. The first of ten requests fails, and the others are not sent.
    let config = HttpTransportConfig { max_retries: 0, ..HttpTransportConfig::new("http://127.0.0.1:1") };
    let (now, failed) = (Arc::clone(&turns), Arc::clone(&failed_at));
    let transport = HttpTransport::new(config)
        .on_request(move |_| failed.store(now.load(Ordering::Relaxed), Ordering::Relaxed));
    let batch = transport.send_batch(&vec![UdmEvent::new("fw"); 10_000]).await;
    assert_eq!(batch.failed_events, 10_000);
    let (turns, failed_at) = (turns.load(Ordering::Relaxed), failed_at.load(Ordering::Relaxed));
    assert!(turns > failed_at.saturating_add(5), "{turns} turns, {failed_at} of them before the failure");
}

#[tokio::test]
async fn event_rejected_by_every_attempt_fails_with_its_own_error() {
    let server = Server::scripted(vec![Step::Reject(207, vec![(0, true)]); 9]).await;
    let batch = server.transport().send_batch(&events(["a", "b"])).await;
    assert_eq!(summaries(&batch), [("a", false), ("b", true)]);
    assert_eq!(server.requests().len(), 4);
    assert!(batch.results[0].error.as_ref().unwrap().retryable);
}

#[tokio::test]
async fn batch_above_a_quota_is_sent_in_parts_while_each_attempt_delivers_events() {
    let ids: Vec<_> = (0..30).map(|id| format!("e{id}")).collect();
    // Each attempt delivers two events.
    let over_quota = |left: usize| Step::Reject(207, (2..left).map(|index| (index, true)).collect());
    let server = Server::scripted((0..14).map(|attempt| over_quota(30 - 2 * attempt))).await;
    let batch = server.transport().send_batch(&events(ids.clone())).await;
    assert_eq!((batch.successful_events, batch.failed_events), (30, 0));
    let sent: Vec<_> = ids_of(&server).iter().map(Vec::len).collect();
    assert_eq!(sent, (1..=15).rev().map(|left| 2 * left).collect::<Vec<_>>());
    assert!(server.clock.pauses().iter().all(|pause| *pause >= std::time::Duration::from_secs(1)));
}

#[tokio::test]
async fn batch_above_a_quota_fails_for_the_events_that_are_left_at_the_deadline() {
    let ids: Vec<_> = (0..1000).map(|id| format!("e{id}")).collect();
    let over_quota = |left: usize| Step::Reject(207, (1..left).map(|index| (index, true)).collect());
    let server = Server::scripted((0..999).map(|attempt| over_quota(1000 - attempt))).await;
    let batch = server.transport().send_batch(&events(ids)).await;
    assert!((80..=101).contains(&batch.successful_events), "{}", batch.successful_events);
    assert!(batch.results.iter().filter_map(|result| result.error.as_ref()).all(|error| error.retryable));
}

#[tokio::test]
async fn error_after_a_partial_success_keeps_the_accepted_events() {
    let script = [Step::Reject(207, vec![(1, true)]), problem(401, "credential_invalid", None)];
    let server = Server::scripted(script).await;
    let batch = server.transport().send_batch(&events(["a", "b"])).await;
    assert_eq!(summaries(&batch), [("a", true), ("b", false)]);
    assert_eq!(batch.results[1].error.as_ref().unwrap().code.as_deref(), Some("credential_invalid"));
}

#[tokio::test]
async fn results_are_read_from_responses_with_any_status() {
    let server = Server::scripted([Step::Reject(422, vec![(0, false), (1, false)])]).await;
    let batch = server.transport().send_batch(&events(["a", "b"])).await;
    assert_eq!(batch.failed_events, 2);
    let error = batch.results[1].error.as_ref().unwrap();
    assert_eq!((error.status, error.code.as_deref()), (Some(422), Some("some_code")));
    assert_eq!(server.requests().len(), 1);

    let server = Server::scripted([Step::Reject(503, vec![(0, true), (1, true)])]).await;
    assert!(server.transport().send_batch(&events(["a", "b"])).await.success);
}

#[tokio::test]
async fn batch_that_is_too_large_is_halved_until_it_fits() {
    let rules = Rules { max_events: Some(2), ..Rules::default() };
    let server = Server::with_rules(rules, []).await;
    let ids: Vec<_> = (0..7).map(|number| number.to_string()).collect();
    let batch = server.transport_with(|config| config.max_retries = 0).send_batch(&events(&ids)).await;
    assert!(batch.success);
    assert_eq!(
        batch.results.iter().map(|result| &result.event_id).collect::<Vec<_>>(),
        ids.iter().collect::<Vec<_>>()
    );
    let accepted: Vec<_> = ids_of(&server).into_iter().filter(|ids| ids.len() <= 2).flatten().collect();
    assert_eq!(accepted, ids);
}

#[tokio::test]
async fn event_above_the_limit_fails_alone() {
    let server = Server::scripted([]).await;
    let batch = server.transport().send_batch(&events(["a", "b", "huge", "c", "d"])).await;
    assert_eq!(summaries(&batch), [("a", true), ("b", true), ("huge", false), ("c", true), ("d", true)]);
    assert_eq!(batch.results[2].error.as_ref().unwrap().status, Some(413));
}

#[tokio::test]
async fn request_that_fails_as_a_whole_ends_the_batch() {
    let all_rejected = Step::Reject(503, (0..1000).map(|place| (place, true)).collect());
    for (step, code) in
        [(problem(401, "credential_invalid", None), "credential_invalid"), (all_rejected, "some_code")]
    {
        let server = Server::scripted([step]).await;
        let ids: Vec<_> = (0..1500).map(|number| number.to_string()).collect();
        let batch = server.transport_with(|config| config.max_retries = 0).send_batch(&events(ids)).await;
        assert_eq!((batch.total_events, batch.failed_events), (1500, 1500));
        assert!(
            batch.results.iter().all(|result| result.error.as_ref().unwrap().code.as_deref() == Some(code))
        );
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn partly_accepted_request_does_not_end_the_batch() {
    let server = Server::scripted([Step::Reject(207, vec![(3, true)])]).await;
    let ids: Vec<_> = (0..1500).map(|number| number.to_string()).collect();
    let batch = server.transport_with(|config| config.max_retries = 0).send_batch(&events(ids)).await;
    assert_eq!((batch.successful_events, batch.failed_events), (1499, 1));
}

#[tokio::test]
async fn results_that_do_not_match_the_batch_are_a_protocol_error() {
    let result = |index: usize| json!({"index": index, "status": "accepted"});
    for indexes in [vec![], vec![0], vec![0, 0], vec![0, 2], vec![0, 1, 2], vec![1, 2]] {
        let results: Vec<_> = indexes.iter().copied().map(result).collect();
        let body = json!({
            "batch_id": Uuid::nil(), "total_events": 2, "successful_events": 2, "failed_events": 0, "results": results,
        });
        let server = Server::scripted([Step::Respond(202, None, body.to_string())]).await;
        let batch = server.transport().send_batch(&events(["a", "b"])).await;
        assert_eq!(batch.failed_events, 2, "{indexes:?}");
        assert_eq!(batch.results[0].error.as_ref().unwrap().kind, TransportErrorKind::Protocol);
    }
}

fn step() -> impl Strategy<Value = Step> {
    let places = proptest::collection::vec((0_usize..8, any::<bool>()), 0..8);
    prop_oneof![
        Just(Step::Accept),
        Just(Step::Disconnect),
        Just(problem(413, "batch_too_large", None)),
        Just(problem(503, "overloaded", Some(20_000))),
        Just(Step::Respond(502, None, "<html>".into())),
        Just(Step::Advance(std::time::Duration::from_secs(40))),
        (0_u8..20).prop_map(|one_in| if one_in == 0 {
            Step::Respond(200, None, "?".into())
        } else {
            Step::Accept
        }),
        (prop_oneof![Just(207_u16), Just(422), Just(503)], places.clone())
            .prop_map(|(status, places)| Step::Reject(status, places)),
        places.prop_map(|places| Step::Reject(207, places)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn each_event_has_one_correct_result_for_any_responses(
        size in 1_usize..9,
        script in proptest::collection::vec(step(), 0..12),
        max_retries in 0_u32..5,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Server::scripted(script).await;
            let ids: Vec<_> = (0..size).map(|number| number.to_string()).collect();
            let batch =
                server.transport_with(|config| config.max_retries = max_retries).send_batch(&events(&ids)).await;
            let results: Vec<_> = batch.results.iter().map(|result| result.event_id.clone()).collect();
            prop_assert_eq!(results, ids);
            prop_assert_eq!(batch.total_events, size);
            prop_assert_eq!(batch.successful_events + batch.failed_events, size);
            prop_assert_eq!(batch.success, batch.failed_events == 0);
            for result in &batch.results {
                prop_assert_eq!(result.success, server.accepted(&result.event_id));
                prop_assert_eq!(result.success, result.error.is_none());
            }
            Ok(())
        })?;
    }
}
