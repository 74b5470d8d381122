//! Contract of the trait `Transport`. Each implementation runs the whole suite.

use std::collections::HashSet;
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;

use super::server::{Rules, Server};
use crate::{
    HttpTransport, MockBehavior, MockTransport, OutgoingEvent, Transport, TransportErrorKind, UdmEvent,
};

/// A transport to a service that accepts all events except those with the id `bad`.
trait Subject {
    fn transport(&self) -> &dyn Transport;

    /// Ids of the received events, in order.
    fn received_ids(&self) -> Vec<String>;
}

struct Mock(MockTransport);

impl Mock {
    #[expect(clippy::unused_async, reason = "same signature as the other subject")]
    async fn new(reachable: bool) -> Self {
        Self(MockTransport::new(Some(MockBehavior {
            fail_event_ids: HashSet::from(["bad".to_owned()]),
            fail_connect: !reachable,
            ..MockBehavior::default()
        })))
    }
}

impl Subject for Mock {
    fn transport(&self) -> &dyn Transport {
        &self.0
    }

    fn received_ids(&self) -> Vec<String> {
        self.0.sent_events().into_iter().filter_map(|event| event.event_id).collect()
    }
}

struct Http(Server, HttpTransport);

impl Http {
    async fn new(reachable: bool) -> Self {
        let rules = Rules {
            rejected_ids: HashSet::from(["bad".to_owned()]),
            unhealthy: !reachable,
            ..Rules::default()
        };
        let server = Server::with_rules(rules, []).await;
        let transport = server.transport();
        Self(server, transport)
    }
}

impl Subject for Http {
    fn transport(&self) -> &dyn Transport {
        &self.1
    }

    fn received_ids(&self) -> Vec<String> {
        let posts = self.0.requests().into_iter().filter(|request| request.path != "/api/v1/health");
        posts
            .flat_map(|request| match request.path.as_str() {
                "/api/v1/events" => vec![super::server::id_of(&request.body)],
                _ => request.ids(),
            })
            .collect()
    }
}

/// An HTTP transport that collects concurrent sends.
struct Lingering(Http);

impl Lingering {
    async fn new(reachable: bool) -> Self {
        let Http(server, transport) = Http::new(reachable).await;
        Self(Http(server, transport.with_linger(Duration::from_millis(1)).unwrap()))
    }
}

impl Subject for Lingering {
    fn transport(&self) -> &dyn Transport {
        self.0.transport()
    }

    fn received_ids(&self) -> Vec<String> {
        self.0.received_ids()
    }
}

macro_rules! conformance {
    ($subject:ident; $($rule:ident($reachable:literal)),+ $(,)?) => {
        $(#[tokio::test]
        async fn $rule() {
            super::$rule(&super::$subject::new($reachable).await).await;
        })+
    };
    ($($rules:tt)+) => {
        mod mock { conformance!(Mock; $($rules)+); }
        mod http { conformance!(Http; $($rules)+); }
        mod lingering { conformance!(Lingering; $($rules)+); }
    };
}

conformance!(
    accepted_event_keeps_its_id_and_gets_a_server_id(true),
    event_without_an_id_is_sent_with_a_new_one(true),
    id_in_the_other_spelling_is_the_id(true),
    rejected_event_is_a_result_with_an_error(true),
    batch_has_one_result_per_event_in_order(true),
    batch_of_accepted_events_is_a_success(true),
    empty_batch_is_a_success(true),
    long_batch_arrives_complete_and_in_order(true),
    same_id_gets_the_same_server_id(true),
    connect_and_disconnect_can_be_repeated(true),
    sending_does_not_require_connect(true),
    concurrent_tasks_share_one_transport(true),
    results_have_the_specified_fields(true),
    ready_service_is_healthy(true),
    json_is_sent_unchanged(true),
    without_a_send_in_flight_flush_returns_at_once(true),
    unavailable_service_is_not_healthy_and_connect_fails(false),
);

fn event(id: &str) -> UdmEvent {
    UdmEvent::new("fw").with_event_id(id)
}

async fn accepted_event_keeps_its_id_and_gets_a_server_id(subject: &dyn Subject) {
    let result = subject.transport().send(&event("a")).await;
    assert!(result.success);
    assert_eq!(result.event_id, "a");
    assert_eq!(result.error, None);
    assert!(result.response_time_ms.unwrap() >= 0.0);
    assert!(Uuid::parse_str(&result.server_event_id.unwrap()).is_ok());
    assert_eq!(subject.received_ids(), ["a"]);
}

async fn event_without_an_id_is_sent_with_a_new_one(subject: &dyn Subject) {
    let transport = subject.transport();
    let mut ids = vec![transport.send(&UdmEvent::new("fw")).await.event_id];
    ids.extend(
        transport.send_batch(&[UdmEvent::new("fw")]).await.results.into_iter().map(|result| result.event_id),
    );
    for id in &ids {
        assert_eq!(Uuid::parse_str(id).unwrap().get_version_num(), 7);
    }
    assert_ne!(ids[0], ids[1]);
    assert_eq!(subject.received_ids(), ids);
}

async fn id_in_the_other_spelling_is_the_id(subject: &dyn Subject) {
    let event = UdmEvent::new("fw").with_field("eventId", "a");
    let result = subject.transport().send(&event).await;
    assert!(result.success);
    assert_eq!(result.event_id, "a");
    assert_eq!(subject.received_ids(), ["a"]);
    let result = subject.transport().send(&event.with_event_id("b")).await;
    assert_eq!(result.error.unwrap().kind, TransportErrorKind::InvalidEvent, "the event has two ids");
}

async fn rejected_event_is_a_result_with_an_error(subject: &dyn Subject) {
    let result = subject.transport().send(&event("bad")).await;
    assert!(!result.success);
    assert_eq!(result.event_id, "bad");
    assert!(result.error.is_some());
    assert_eq!(result.server_event_id, None);
}

async fn batch_has_one_result_per_event_in_order(subject: &dyn Subject) {
    let batch = subject.transport().send_batch(&[event("a"), event("bad"), event("b")]).await;
    let results: Vec<_> = batch
        .results
        .iter()
        .map(|result| (result.event_id.as_str(), result.success, result.error.is_none()))
        .collect();
    assert_eq!(results, [("a", true, true), ("bad", false, false), ("b", true, true)]);
    assert!(!batch.success);
    assert_eq!((batch.total_events, batch.successful_events, batch.failed_events), (3, 2, 1));
}

async fn batch_of_accepted_events_is_a_success(subject: &dyn Subject) {
    let batch = subject.transport().send_batch(&[event("a"), event("b")]).await;
    assert!(batch.success);
    assert_eq!((batch.total_events, batch.successful_events, batch.failed_events), (2, 2, 0));
    assert!(batch.batch_id.is_some());
    assert!(batch.response_time_ms.unwrap() >= 0.0);
}

async fn empty_batch_is_a_success(subject: &dyn Subject) {
    let batch = subject.transport().send_batch(&[]).await;
    assert!(batch.success);
    assert_eq!((batch.total_events, batch.successful_events, batch.failed_events), (0, 0, 0));
    assert_eq!((batch.results.len(), batch.batch_id), (0, None));
    assert!(subject.received_ids().is_empty());
}

async fn long_batch_arrives_complete_and_in_order(subject: &dyn Subject) {
    let events: Vec<_> = (0..2345).map(|number| event(&number.to_string())).collect();
    let batch = subject.transport().send_batch(&events).await;
    let ids: Vec<_> = (0..2345).map(|number| number.to_string()).collect();
    assert!(batch.success);
    assert_eq!(batch.results.into_iter().map(|result| result.event_id).collect::<Vec<_>>(), ids);
    assert_eq!(subject.received_ids(), ids);
}

async fn same_id_gets_the_same_server_id(subject: &dyn Subject) {
    let first = subject.transport().send(&event("a")).await;
    let again = subject.transport().send_batch(&[event("a")]).await;
    assert_eq!(first.server_event_id, again.results[0].server_event_id);
}

async fn connect_and_disconnect_can_be_repeated(subject: &dyn Subject) {
    let transport = subject.transport();
    for _ in 0..2 {
        transport.connect().await.unwrap();
        transport.connect().await.unwrap();
        assert!(transport.send(&event("a")).await.success);
        transport.disconnect().await;
        transport.disconnect().await;
    }
}

async fn sending_does_not_require_connect(subject: &dyn Subject) {
    let transport = subject.transport();
    assert!(transport.send(&event("a")).await.success);
    transport.disconnect().await;
    assert!(transport.send_batch(&[event("b")]).await.success);
}

async fn concurrent_tasks_share_one_transport(subject: &dyn Subject) {
    let events: Vec<_> = (0..32).map(|number| event(&number.to_string())).collect();
    let results = join_all(events.iter().map(|event| subject.transport().send(event))).await;
    let ids: Vec<_> =
        results.into_iter().filter(|result| result.success).map(|result| result.event_id).collect();
    assert_eq!(ids, (0..32).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(subject.received_ids().into_iter().collect::<HashSet<_>>(), ids.into_iter().collect());
}

async fn results_have_the_specified_fields(subject: &dyn Subject) {
    let batch = subject.transport().send_batch(&[event("a"), event("bad")]).await;
    let batch: Value = serde_json::to_value(batch).unwrap();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<HashSet<_>>();
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<HashSet<_>>();
    let of_batch = [
        "success",
        "total_events",
        "successful_events",
        "failed_events",
        "results",
        "batch_id",
        "response_time_ms",
    ];
    let of_result = ["success", "event_id", "timestamp", "error", "response_time_ms", "server_event_id"];
    assert_eq!(names(&batch), set(&of_batch));
    assert_eq!(names(&batch["results"][0]), set(&of_result));
    assert_eq!(names(&batch["results"][1]), set(&of_result));
    assert_eq!(batch["results"][0]["error"], json!(null));
    assert!(batch["results"][0]["timestamp"].as_str().unwrap().ends_with('Z'));
    let of_error = ["kind", "status", "code", "message", "request_id", "retryable", "retry_after_ms"];
    assert_eq!(names(&batch["results"][1]["error"]), set(&of_error));
}

async fn ready_service_is_healthy(subject: &dyn Subject) {
    assert!(subject.transport().health_check().await);
    assert!(subject.transport().connect().await.is_ok());
    assert!(subject.received_ids().is_empty());
}

async fn json_is_sent_unchanged(subject: &dyn Subject) {
    let event: OutgoingEvent = r#"{ "source_id": "fw", "event_id": "a", "n": 1.50 }"#.parse().unwrap();
    let sent = subject.transport().send_json(&[event]).await.into_result().unwrap();
    assert_eq!(sent[0].event_id, "a");
    let error = "{ \"source_id\": ".parse::<OutgoingEvent>().unwrap_err();
    assert_eq!(error.kind, TransportErrorKind::InvalidEvent);
}

async fn without_a_send_in_flight_flush_returns_at_once(subject: &dyn Subject) {
    let transport = subject.transport();
    assert!(transport.send(&event("a")).await.success);
    assert_eq!(transport.flush(Duration::MAX).await, 0);
}

async fn unavailable_service_is_not_healthy_and_connect_fails(subject: &dyn Subject) {
    assert!(subject.transport().connect().await.is_err());
    assert!(!subject.transport().health_check().await);
}
