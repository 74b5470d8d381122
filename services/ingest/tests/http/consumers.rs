//! `/consumers`.

use std::time::Duration;

use async_nats::jetstream::{
    self,
    consumer::{DeliverPolicy, PullConsumer},
};
use chrono::DateTime;
use contract::Page;
use contract::consumers::{Consumer, ConsumerAccounts, ConsumerStart, CreatedConsumer};
use contract::events::AcceptedEvent;
use futures::TryStreamExt as _;
use serde_json::{Value, json};
use service::Clock as _;
use service::clock::SystemClock;
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
    for request in [logins, json!({ "name": "all", "all_tenants": true })] {
        let created: CreatedConsumer = system.platform_admin().post("/consumers", &request).await.expect(201);
        assert_eq!(created.consumer.streams, ["UDM"]);
        let login = created.login.unwrap();
        assert_eq!((login.user, login.active), (created.consumer.name.to_string(), false));
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
        let request = json!({ "name": format!("half-{first}"), "tenant_id": "acme", "partitions": { "first": first, "last": last } });
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
    let request = json!({ "name": "some", "all_tenants": true, "partitions": { "first": 14, "last": 31 } });
    let some: Consumer = platform.post("/consumers", &request).await.expect(201);
    assert_eq!(some.streams, ["UDM_00_15", "UDM_16_31"]);
    let ConsumerAccounts { content } = platform.get("/consumers/_accounts").await.expect(200);
    for stream in &some.streams {
        assert!(content.contains(&format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.some\"")), "{content}");
    }
    platform.post("/consumers", &request).await.expect::<Consumer>(200);
    let all: Consumer =
        platform.post("/consumers", &json!({ "name": "all", "all_tenants": true })).await.expect(201);
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
    let created: CreatedConsumer = platform.post("/consumers", &request).await.expect(201);
    assert_eq!(
        (created.consumer.start, &created.consumer.filter_subjects[..]),
        (ConsumerStart::All, &["udm.v1.*.acme.>".to_owned()][..])
    );
    // Scripts see that there is no login.
    let again: Value = platform.post("/consumers", &request).await.expect(200);
    assert_eq!(again.get("login"), Some(&Value::Null));
    let again: CreatedConsumer = serde_json::from_value(again).unwrap();
    assert_eq!((again.consumer, again.login), (created.consumer.clone(), None));
    for other in [
        json!({ "name": "archive", "all_tenants": true }),
        json!({ "name": "archive", "tenant_id": "beta" }),
        json!({ "name": "archive", "tenant_id": "acme", "ack_wait_seconds": 60 }),
    ] {
        platform.post("/consumers", &other).await.expect_problem(409, "consumer_exists");
    }
    let listed = Consumer { oldest_unread_seconds: Some(0), ..created.consumer };
    assert_eq!(list(&system).await, [listed]);
}

#[tokio::test]
async fn the_list_shows_the_progress_in_pages() {
    let system = TestSystem::start().await.unwrap();
    let user = system.create_tenant("acme").await;
    let platform = system.platform_admin();
    for name in ["b", "a", "c"] {
        let request = json!({ "name": name, "tenant_id": "acme" });
        platform.post("/consumers", &request).await.expect::<Consumer>(201);
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

/// Returns the seconds since a message was stored, rounded up.
async fn seconds_since(system: &TestSystem, stream: &str, sequence: u64) -> impl Fn() -> i64 {
    let context = jetstream::new(system.nats.connect("administrator").await.unwrap());
    let stored = context.get_stream(stream).await.unwrap().get_raw_message(sequence).await.unwrap();
    move || SystemClock.now().timestamp() - stored.time.unix_timestamp()
}

/// Checks that the oldest unread event of a consumer is this message. Waits until it is at least a second old.
async fn expect_oldest(system: &TestSystem, name: &str, stream: &str, sequence: u64) {
    let age = seconds_since(system, stream, sequence).await;
    wait_until("the event is older", async || {
        let least = age() - 1;
        let path = format!("/consumers/{name}");
        let consumer: Consumer = system.platform_admin().get(&path).await.expect(200);
        let shown = i64::try_from(consumer.oldest_unread_seconds.unwrap()).unwrap();
        assert!((least..=age()).contains(&shown), "{shown} s of message {sequence}, which has {}", age());
        (shown > 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_consumer_shows_the_age_of_the_oldest_event_of_its_types_without_an_acknowledgement() {
    let system = TestSystem::start().await.unwrap();
    let (user, platform) = (system.create_tenant("acme").await, system.platform_admin());
    let listed_age = async || list(&system).await[0].oldest_unread_seconds;
    let types =
        json!({ "name": "logins", "tenant_id": "acme", "event_types": ["USER_LOGIN", "USER_LOGOUT"] });
    platform.post("/consumers", &types).await.expect::<Consumer>(201);
    send(&user, "s", "NETWORK_DNS").await;
    let age = seconds_since(&system, "UDM", 1).await;
    wait_until("the event is older", async || (age() > 1).then_some(())).await;
    assert_eq!(listed_age().await, Some(0));
    send(&user, "s", "USER_LOGOUT").await;
    expect_oldest(&system, "logins", "UDM", 2).await;
    send(&user, "s", "USER_LOGIN").await;
    expect_oldest(&system, "logins", "UDM", 2).await;

    let context = jetstream::new(system.nats.connect("administrator").await.unwrap());
    let consumer: PullConsumer = context.get_consumer_from_stream("logins", "UDM").await.unwrap();
    let events = consumer.fetch().max_messages(2).messages().await.unwrap();
    let events: Vec<_> = events.try_collect().await.unwrap();
    expect_oldest(&system, "logins", "UDM", 2).await;
    events[0].double_ack().await.unwrap();
    expect_oldest(&system, "logins", "UDM", 3).await;
    events[1].double_ack().await.unwrap();
    assert_eq!(listed_age().await, Some(0));
}

#[tokio::test]
async fn the_oldest_unread_event_is_that_of_all_streams() {
    let system = TestSystem::start_with(&[("SVC_STREAMS", "2")]).await.unwrap();
    let (user, platform) = (system.create_tenant("acme").await, system.platform_admin());
    let tenant = "acme".parse().unwrap();
    let source_in = |stream: u8| {
        let mut sources = (0..).map(|number| format!("s{number}"));
        sources.find(|source| bus::partition(&tenant, source) / 32 == stream).unwrap()
    };
    platform.post("/consumers", &json!({ "name": "a", "tenant_id": "acme" })).await.expect::<Consumer>(201);
    send(&user, &source_in(1), "USER_LOGIN").await;
    expect_oldest(&system, "a", "UDM_32_63", 1).await;
    send(&user, &source_in(0), "USER_LOGIN").await;
    expect_oldest(&system, "a", "UDM_32_63", 1).await;
    let context = jetstream::new(system.nats.connect("administrator").await.unwrap());
    let consumer: PullConsumer = context.get_consumer_from_stream("a", "UDM_32_63").await.unwrap();
    let events = consumer.fetch().max_messages(1).messages().await.unwrap();
    for event in events.try_collect::<Vec<_>>().await.unwrap() {
        event.double_ack().await.unwrap();
    }
    expect_oldest(&system, "a", "UDM_00_31", 1).await;
}

#[tokio::test]
async fn a_deleted_consumer_is_gone_and_consumers_of_others_stay() {
    let system = TestSystem::start().await.unwrap();
    let platform = system.platform_admin();
    let request = json!({ "name": "archive", "tenant_id": "acme" });
    platform.post("/consumers", &request).await.expect::<Consumer>(201);
    let context = jetstream::new(system.nats.connect("administrator").await.unwrap());
    let foreign =
        jetstream::consumer::pull::Config { durable_name: Some("foreign".into()), ..Default::default() };
    context.create_consumer_on_stream(foreign, "UDM").await.unwrap();

    platform.delete("/consumers/archive").await.expect_empty(204);
    for name in ["archive", "foreign", "unknown", "a.b"] {
        platform.delete(&format!("/consumers/{name}")).await.expect_problem(404, "not_found");
    }
    let request = json!({ "name": "foreign", "tenant_id": "acme" });
    platform.post("/consumers", &request).await.expect_problem(409, "consumer_exists");
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
        (json!({ "name": "ingest" }), "/name"),
        (json!({ "name": "a", "tenant_id": null }), "/tenant_id"),
        (json!({ "name": "a", "all_tenants": true }), "/tenant_id"),
        (json!({ "name": "a", "tenant_id": "*" }), "/tenant_id"),
        (json!({ "name": "a", "event_types": ["*"] }), "/event_types/0"),
        (json!({ "name": "a", "event_types": ["A", "A"] }), "/event_types/1"),
        (json!({ "name": "a", "event_types": types }), "/event_types"),
        (json!({ "name": "a", "partitions": { "first": 2, "last": 1 } }), "/partitions"),
        (json!({ "name": "a", "partitions": { "first": 0, "last": 64 } }), "/partitions"),
        (json!({ "name": "a", "start": "yesterday" }), "/start"),
        (json!({ "name": "a", "start": "2199-01-01T00:00:00Z" }), "/start"),
        (json!({ "name": "a", "start": "2263-01-01T00:00:00Z" }), "/start"),
        (json!({ "name": "a", "ack_wait_seconds": 0 }), "/ack_wait_seconds"),
        (json!({ "name": "a", "ack_wait_seconds": 3601 }), "/ack_wait_seconds"),
        (json!({ "name": "a", "max_ack_pending": 0 }), "/max_ack_pending"),
    ] {
        let mut request = request;
        if request.get("tenant_id").is_none() {
            request["tenant_id"] = "acme".into();
        }
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
    let request = json!({ "name": "archive", "tenant_id": "acme" });
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

#[tokio::test]
async fn a_consumer_starts_at_all_events_at_new_ones_or_at_a_time_and_can_be_reset() {
    let system = TestSystem::start().await.unwrap();
    let (user, platform) = (system.create_tenant("acme").await, system.platform_admin());
    send(&user, "old", "USER_LOGIN").await;
    for (name, start, pending) in [
        ("a", "all", 1),
        ("n", "new", 0),
        ("t", "2026-01-01T00:00:00Z", 1),
        ("fast-clock", (SystemClock.now() + Duration::from_secs(50)).to_rfc3339().as_str(), 0),
        ("before-nats", "1600-01-01T00:00:00Z", 1),
    ] {
        let request = json!({
            "name": name, "tenant_id": "acme", "start": start, "ack_wait_seconds": 7, "max_ack_pending": 3,
        });
        let created: Consumer = platform.post("/consumers", &request).await.expect(201);
        assert_eq!((created.ack_wait_seconds, created.max_ack_pending), (7, 3));
        assert_eq!(created.pending, pending, "{start}");
    }
    let context = jetstream::new(system.nats.connect("administrator").await.unwrap());
    let new: PullConsumer = context.get_consumer_from_stream("n", "UDM").await.unwrap();
    let policy = new.cached_info().config.deliver_policy;
    assert_eq!(
        policy,
        DeliverPolicy::ByStartSequence { start_sequence: 2 },
        "kept if a crash loses the state"
    );
    let login = |content: &str| content.split("user: \"a\"").nth(1).unwrap()[..90].to_owned();
    let before: ConsumerAccounts = platform.get("/consumers/_accounts").await.expect(200);
    assert_eq!(deliver(&system, "a").await.len(), 1);
    let reset: Consumer = platform.post("/consumers/a/reset", &json!({ "to": "all" })).await.expect(200);
    assert_eq!((reset.pending, reset.ack_pending, reset.max_ack_pending), (1, 0, 3));
    let reset: Consumer = platform.post("/consumers/a/reset", &json!({ "to": "new" })).await.expect(200);
    assert_eq!((reset.pending, reset.start), (0, ConsumerStart::New));
    let mut same = json!({ "name": "a", "tenant_id": "acme", "start": "new", "ack_wait_seconds": 7, "max_ack_pending": 3 });
    platform.post("/consumers", &same).await.expect::<Consumer>(200);
    same["start"] = "all".into();
    platform.post("/consumers", &same).await.expect_problem(409, "consumer_exists");
    let after: ConsumerAccounts = platform.get("/consumers/_accounts").await.expect(200);
    assert_eq!(login(&before.content), login(&after.content), "the login remains");
    for to in ["x", "2199-01-01T00:00:00Z"] {
        let answer = platform.post("/consumers/a/reset", &json!({ "to": to })).await;
        let problem = answer.expect_problem(422, "validation_failed");
        assert_eq!(problem.errors[0].pointer, "/to");
    }
    platform.post("/consumers/x/reset", &json!({ "to": "all" })).await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn a_consumer_of_several_types_gets_all_events_since_its_start() {
    const TYPES: [&str; 3] = ["USER_LOGIN", "USER_LOGOUT", "GENERIC_EVENT"];
    let system = TestSystem::start().await.unwrap();
    let (user, platform) = (system.create_tenant("acme").await, system.platform_admin());
    for number in 0..10 {
        send(&user, &format!("old {}", number % 4), "USER_LOGIN").await;
    }
    let broker = jetstream::new(system.nats.connect("administrator").await.unwrap());
    let last = broker.get_stream("UDM").await.unwrap().cached_info().state.last_timestamp;
    let start = DateTime::from_timestamp_nanos(i64::try_from(last.unix_timestamp_nanos() + 1).unwrap());
    for number in 0..30 {
        send(&user, &format!("fw {}", number % 4), TYPES[number % 3]).await;
    }
    let request = json!({ "name": "logins", "tenant_id": "acme", "start": start, "event_types": TYPES });
    let created: Consumer = platform.post("/consumers", &request).await.expect(201);
    assert_eq!(created.pending, 30);
    let reset = json!({ "to": start });
    let reset: Consumer = platform.post("/consumers/logins/reset", &reset).await.expect(200);
    assert_eq!(reset.pending, 30);
}

#[tokio::test]
async fn a_paused_consumer_gets_no_events_until_it_is_resumed() {
    let system = TestSystem::start().await.unwrap();
    let (user, platform) = (system.create_tenant("acme").await, system.platform_admin());
    let request = json!({ "name": "archive", "tenant_id": "acme" });
    platform.post("/consumers", &request).await.expect::<Consumer>(201);
    let paused: Consumer = platform.post("/consumers/archive/pause", &json!({})).await.expect(200);
    assert!(paused.paused);
    send(&user, "s", "USER_LOGIN").await;
    assert!(deliver(&system, "archive").await.is_empty());
    let resumed: Consumer = platform.post("/consumers/archive/resume", &json!({})).await.expect(200);
    assert!(!resumed.paused);
    assert_eq!(deliver(&system, "archive").await.len(), 1);
    platform.post("/consumers/x/pause", &json!({})).await.expect_problem(404, "not_found");
}

#[tokio::test]
async fn an_administrator_sees_the_consumers_of_the_tenant_only() {
    let system = TestSystem::start().await.unwrap();
    let (acme, platform) = (system.create_tenant("acme").await, system.platform_admin());
    for request in [
        json!({ "name": "ours", "tenant_id": "acme" }),
        json!({ "name": "theirs", "tenant_id": "beta" }),
        json!({ "name": "everything", "all_tenants": true }),
    ] {
        platform.post("/consumers", &request).await.expect::<Consumer>(201);
    }
    let listed: Page<Consumer> = acme.client.get("/consumers").await.expect(200);
    assert_eq!(listed.items.iter().map(|consumer| consumer.name.as_str()).collect::<Vec<_>>(), ["ours"]);
    acme.client.get("/consumers/ours").await.expect::<Consumer>(200);
    for name in ["theirs", "everything", "unknown"] {
        acme.client.get(&format!("/consumers/{name}")).await.expect_problem(404, "not_found");
    }
    acme.client.get("/consumers/_accounts").await.expect_problem(403, "forbidden");
    acme.client.get("/consumers?tenant_id=other").await.expect_problem(403, "tenant_mismatch");
    let of_acme: Page<Consumer> = platform.get("/consumers?tenant_id=acme").await.expect(200);
    assert_eq!(of_acme.items.iter().map(|consumer| consumer.name.as_str()).collect::<Vec<_>>(), ["ours"]);
}

#[tokio::test]
async fn requests_of_a_tenant_for_its_consumers_are_limited() {
    let system = TestSystem::start_with(&[("SVC_LIMIT_AUDIT", "2/h")]).await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    acme.client.get("/consumers").await.expect::<Page<Consumer>>(200);
    acme.client.get("/consumers/unknown").await.expect_problem(404, "not_found");
    for path in ["/consumers", "/consumers/unknown"] {
        acme.client.get(path).await.expect_problem(429, "rate_limited");
    }
    other.client.get("/consumers").await.expect::<Page<Consumer>>(200);
    for _ in 0..3 {
        list(&system).await;
    }
}

#[tokio::test]
async fn consumers_that_are_created_at_the_same_time_have_separate_accounts() {
    let system = TestSystem::start().await.unwrap();
    let platform = system.platform_admin();
    let created = (0..8).map(async |number| {
        let request = json!({ "name": format!("c{number}"), "tenant_id": "acme" });
        platform.post("/consumers", &request).await.expect::<CreatedConsumer>(201)
    });
    futures::future::join_all(created).await;
    let ConsumerAccounts { content } = platform.get("/consumers/_accounts").await.expect(200);
    assert_eq!(content.matches("user: \"c").count(), 8, "{content}");
    assert_eq!(content.matches("CONSUMER_").count(), 64, "32 empty accounts: {content}");
}
