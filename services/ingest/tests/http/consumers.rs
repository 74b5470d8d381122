//! `/consumers`.

use async_nats::jetstream::{self, consumer::PullConsumer};
use contract::Page;
use contract::consumers::Consumer;
use contract::events::AcceptedEvent;
use futures::TryStreamExt as _;
use serde_json::{Value, json};
use testkit::wait_until;
use testsystem::{TestSystem, TestUser};

async fn send(user: &TestUser, source_id: &str, event_type: &str) {
    let event = json!({ "source_id": source_id, "metadata": { "event_type": event_type } });
    user.client.post("/events", &event).await.expect::<AcceptedEvent>(202);
}

/// Delivers all pending events of a durable, without acknowledgements. Returns their subjects.
async fn deliver(system: &TestSystem, name: &str) -> Vec<String> {
    let context = jetstream::new(system.nats.connect("administrator").await.unwrap());
    let consumer: PullConsumer = context.get_consumer_from_stream(name, "UDM").await.unwrap();
    let messages = consumer.fetch().max_messages(100).messages().await.unwrap();
    messages.map_ok(|message| message.subject.to_string()).try_collect().await.unwrap()
}

async fn list(system: &TestSystem) -> Vec<Consumer> {
    system.platform_admin().get("/consumers").await.expect::<Page<Consumer>>(200).items
}

#[tokio::test]
async fn a_consumer_gets_the_events_of_its_tenant_and_types_only() {
    let system = TestSystem::start().await.unwrap();
    let (acme, beta) = (system.create_tenant("acme").await, system.create_tenant("beta").await);
    let logins =
        json!({ "name": "logins", "tenant_id": "acme", "event_types": ["USER_LOGIN", "USER_LOGOUT"] });
    for (request, tenant) in [(logins, "acme"), (json!({ "name": "all" }), "*")] {
        let created: Consumer = system.platform_admin().post("/consumers", &request).await.expect(201);
        let name = request["name"].as_str().unwrap();
        assert_eq!(created.streams, ["UDM"]);
        assert_eq!(
            (created.nats.api_prefix, created.nats.inbox_prefix),
            ("JS.API".into(), format!("_INBOX.{name}"))
        );
        assert_eq!(created.nats.subscribe, [format!("_INBOX.{name}.>")]);
        let publish = [
            format!("JS.API.CONSUMER.INFO.UDM.{name}"),
            format!("JS.API.CONSUMER.MSG.NEXT.UDM.{name}"),
            format!("$JS.ACK.UDM.{name}.>"),
            format!("udm.dlq.v1.{tenant}.{name}"),
        ];
        assert_eq!(created.nats.publish, publish);
    }
    for user in [&acme, &beta] {
        for event_type in ["USER_LOGIN", "USER_LOGOUT", "NETWORK_DNS"] {
            send(user, "s", event_type).await;
        }
    }
    let subjects = deliver(&system, "logins").await;
    assert_eq!(subjects.len(), 2, "{subjects:?}");
    assert!(subjects.iter().all(|subject| subject.contains(".acme.USER_LOG")), "{subjects:?}");
    assert_eq!(deliver(&system, "all").await.len(), 6);
}

#[tokio::test]
async fn consumers_of_different_partitions_share_the_events() {
    let system = TestSystem::start().await.unwrap();
    let user = system.create_tenant("acme").await;
    let halves = [(0, 31), (32, 63)];
    for (first, last) in halves {
        let request =
            json!({ "name": format!("half-{first}"), "partitions": { "first": first, "last": last } });
        system.platform_admin().post("/consumers", &request).await.expect::<Consumer>(201);
    }
    let tenant = "acme".parse().unwrap();
    let sources: Vec<_> = (0..8).map(|source| format!("source-{source}")).collect();
    for source in &sources {
        send(&user, source, "USER_LOGIN").await;
    }
    for (first, last) in halves {
        let expected =
            sources.iter().filter(|source| (first..=last).contains(&bus::partition(&tenant, source)));
        let expected = expected.count();
        assert!(expected > 0);
        assert_eq!(deliver(&system, &format!("half-{first}")).await.len(), expected);
    }
}

#[tokio::test]
async fn a_consumer_is_created_in_each_stream_that_stores_its_partitions() {
    let system = TestSystem::start_with(&[("SVC_STREAMS", "4")]).await.unwrap();
    let (user, platform) = (system.create_tenant("acme").await, system.platform_admin());
    let request = json!({ "name": "some", "partitions": { "first": 14, "last": 31 } });
    let some: Consumer = platform.post("/consumers", &request).await.expect(201);
    assert_eq!(some.streams, ["UDM_00_15", "UDM_16_31"]);
    assert_eq!(some.nats.publish.len(), 2 * 3 + 1, "{:?}", some.nats.publish);
    platform.post("/consumers", &request).await.expect::<Consumer>(200);
    let all: Consumer = platform.post("/consumers", &json!({ "name": "all" })).await.expect(201);
    assert_eq!(all.streams, ["UDM_00_15", "UDM_16_31", "UDM_32_47", "UDM_48_63"]);

    let tenant = "acme".parse().unwrap();
    let sources: Vec<_> = (0..8).map(|source| format!("source-{source}")).collect();
    for source in &sources {
        send(&user, source, "USER_LOGIN").await;
    }
    let selected = sources.iter().filter(|source| (14..=31).contains(&bus::partition(&tenant, source)));
    let pending: Vec<_> = list(&system).await.iter().map(|consumer| consumer.pending).collect();
    assert_eq!(pending, [8, selected.count() as u64]);
    platform.delete("/consumers/all").await.expect_empty(204);
    assert_eq!(list(&system).await.len(), 1);
}

#[tokio::test]
async fn a_repeated_request_changes_nothing_and_another_definition_is_a_conflict() {
    let system = TestSystem::start().await.unwrap();
    let platform = system.platform_admin();
    let request = json!({ "name": "archive", "tenant_id": "acme" });
    let created: Consumer = platform.post("/consumers", &request).await.expect(201);
    let again: Consumer = platform.post("/consumers", &request).await.expect(200);
    assert_eq!(again, created);
    for other in [json!({ "name": "archive" }), json!({ "name": "archive", "tenant_id": "beta" })] {
        platform.post("/consumers", &other).await.expect_problem(409, "consumer_exists");
    }
    assert_eq!(list(&system).await, [created]);
}

#[tokio::test]
async fn the_list_shows_the_progress_in_pages() {
    let system = TestSystem::start().await.unwrap();
    let user = system.create_tenant("acme").await;
    let platform = system.platform_admin();
    for name in ["b", "a", "c"] {
        platform.post("/consumers", &json!({ "name": name })).await.expect::<Consumer>(201);
    }
    send(&user, "s", "USER_LOGIN").await;
    let pending = list(&system).await;
    assert_eq!(pending.iter().map(|consumer| consumer.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(pending.iter().all(|consumer| (consumer.pending, consumer.ack_pending) == (1, 0)));
    assert!(pending.iter().all(|consumer| consumer.last_delivered_at.is_none()));

    deliver(&system, "b").await;
    let delivered = &list(&system).await[1];
    assert_eq!((delivered.pending, delivered.ack_pending), (0, 1));
    assert!(delivered.last_delivered_at.is_some() && delivered.last_acknowledged_at.is_none());

    let first: Page<Consumer> = platform.get("/consumers?limit=2").await.expect(200);
    let cursor = first.next_cursor.unwrap();
    let second: Page<Consumer> =
        platform.get(&format!("/consumers?limit=2&cursor={cursor}")).await.expect(200);
    assert_eq!((first.items.len(), second.items.len()), (2, 1));
    assert!(second.next_cursor.is_none());
}

#[tokio::test]
async fn a_deleted_consumer_is_gone_and_consumers_of_others_stay() {
    let system = TestSystem::start().await.unwrap();
    let platform = system.platform_admin();
    platform.post("/consumers", &json!({ "name": "archive" })).await.expect::<Consumer>(201);
    let context = jetstream::new(system.nats.connect("administrator").await.unwrap());
    let foreign =
        jetstream::consumer::pull::Config { durable_name: Some("foreign".into()), ..Default::default() };
    context.create_consumer_on_stream(foreign, "UDM").await.unwrap();

    platform.delete("/consumers/archive").await.expect_empty(204);
    for name in ["archive", "foreign", "unknown", "a.b"] {
        platform.delete(&format!("/consumers/{name}")).await.expect_problem(404, "not_found");
    }
    platform.post("/consumers", &json!({ "name": "foreign" })).await.expect_problem(409, "consumer_exists");
    assert!(list(&system).await.is_empty());
    assert!(
        context.get_consumer_from_stream::<jetstream::consumer::Config, _, _>("foreign", "UDM").await.is_ok()
    );
}

#[tokio::test]
async fn invalid_definitions_are_rejected_with_the_field() {
    let system = TestSystem::start().await.unwrap();
    let types: Vec<_> = (0..17).map(|number| format!("TYPE_{number}")).collect();
    for (request, pointer) in [
        (json!({}), "/name"),
        (json!({ "name": "a.b" }), "/name"),
        (json!({ "name": "a", "tenant_id": "*" }), "/tenant_id"),
        (json!({ "name": "a", "event_types": ["*"] }), "/event_types/0"),
        (json!({ "name": "a", "event_types": ["A", "A"] }), "/event_types/1"),
        (json!({ "name": "a", "event_types": types }), "/event_types"),
        (json!({ "name": "a", "partitions": { "first": 2, "last": 1 } }), "/partitions"),
        (json!({ "name": "a", "partitions": { "first": 0, "last": 64 } }), "/partitions"),
    ] {
        let answer = system.platform_admin().post("/consumers", &request).await;
        let problem = answer.expect_problem(422, "validation_failed");
        assert_eq!(problem.errors.len(), 1, "{problem:?}");
        assert_eq!(problem.errors[0].pointer, pointer);
    }
    assert!(list(&system).await.is_empty());
}

#[tokio::test]
async fn consumers_cannot_be_managed_while_the_broker_is_down() {
    let mut system = TestSystem::start().await.unwrap();
    let platform = system.platform_admin();
    system.nats.stop();
    let request = json!({ "name": "archive" });
    platform.post("/consumers", &request).await.expect_problem(503, "dependency_unavailable");
    platform.get("/consumers").await.expect_problem(503, "dependency_unavailable");
    platform.delete("/consumers/archive").await.expect_problem(503, "dependency_unavailable");
    system.nats.restart().await.unwrap();
    wait_until("the consumer is created", async || {
        (platform.post("/consumers", &request).await.status < 300).then_some(())
    })
    .await;
    assert_eq!(platform.get("/consumers").await.expect::<Value>(200)["items"][0]["name"], "archive");
}
