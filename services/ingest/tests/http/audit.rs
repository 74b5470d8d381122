//! `/audit`.

use async_nats::jetstream;
use chrono::{DateTime, SecondsFormat};
use contract::audit::AuditRecord;
use contract::{Page, Role};
use serde_json::{Value, json};
use tenancy::Actor;
use testkit::Client;
use testsystem::{TestSystem, TestUser};
use uuid::Uuid;

struct Fixture {
    system: TestSystem,
    acme: TestUser,
    other: TestUser,
}

impl Fixture {
    /// Two tenants, with events that alternate in the stream.
    async fn start() -> Self {
        let system = TestSystem::start().await.unwrap();
        let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
        for number in 0..3 {
            for admin in [&acme, &other] {
                system.create_api_key(admin, &json!({ "name": format!("key {number}") })).await;
                system.wait_for_empty_outbox().await;
            }
        }
        Self { system, acme, other }
    }
}

async fn list(client: &Client, query: &str) -> Page<AuditRecord> {
    client.get(&format!("/audit{query}")).await.expect(200)
}

/// The numbers in the stream and the ids of the events of a tenant, or of all.
async fn stored(system: &TestSystem, tenant: &str) -> Vec<(u64, Uuid)> {
    let broker = jetstream::new(system.nats.connect("audit-administrator").await.unwrap());
    let mut stream = broker.get_stream("AUDIT").await.unwrap();
    let last = stream.info().await.unwrap().state.last_sequence;
    let mut stored = Vec::new();
    for sequence in 1..=last {
        let message = stream.get_raw_message(sequence).await.unwrap();
        let event: Value = serde_json::from_slice(&message.payload).unwrap();
        if event["tenant_id"].as_str().is_some_and(|id| tenant.is_empty() || id == tenant) {
            stored.push((sequence, event["id"].as_str().unwrap().parse().unwrap()));
        }
    }
    stored
}

fn ids(records: &[AuditRecord]) -> Vec<Uuid> {
    records.iter().map(|record| record.id).collect()
}

async fn expect_in_stream_order(system: &TestSystem, tenant: &str, records: &[AuditRecord]) {
    let stored: Vec<_> = stored(system, tenant).await.into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids(records), stored, "{tenant}");
}

#[tokio::test]
async fn administrator_lists_only_the_audit_events_of_the_own_tenant_in_stream_order() {
    let Fixture { system, acme, other } = Fixture::start().await;
    let records = list(&acme.client, "?limit=200").await.items;
    assert!(records.iter().all(|record| record.tenant_id.as_str() == "acme"), "{records:?}");
    expect_in_stream_order(&system, "acme", &records).await;
    let created: Vec<_> =
        records.iter().filter(|record| record.about.as_deref() == Some("api_key")).collect();
    assert_eq!(created.len(), 3);
    assert_eq!((created[0].context.as_str(), created[0].event.as_str()), ("session", "authn_token_created"));
    assert_eq!(created[0].actor, Actor::User { user_id: acme.user.user_id });

    let foreign = list(&other.client, "?limit=200").await.items;
    assert!(foreign.iter().all(|record| record.tenant_id.as_str() == "other"), "{foreign:?}");
    let all = list(&system.platform_admin(), "?limit=200").await.items;
    expect_in_stream_order(&system, "", &all).await;
    assert_eq!(all.len(), records.len() + foreign.len());
    let of_one = list(&system.platform_admin(), "?limit=200&tenant_id=other").await.items;
    assert_eq!(of_one, foreign);
}

#[tokio::test]
async fn no_query_returns_records_of_another_tenant() {
    let Fixture { system: _system, acme, other } = Fixture::start().await;
    let foreign = list(&other.client, "?limit=200").await.items;
    for (name, start) in [("after", ""), ("cursor", "audit.")] {
        let query = format!("/audit?{name}={start}{}", foreign[0].position);
        let problem = acme.client.get(&query).await.expect_problem(422, "validation_failed");
        assert_eq!(problem.errors[0].pointer, format!("/{name}"));
        assert!(problem.errors[0].message.contains("same tenant"), "{problem:?}");
    }
    let user = list(&acme.client, &format!("?user_id={}", other.user.user_id)).await;
    assert_eq!(user.items, []);
    let last = list(&acme.client, "?limit=200").await.items.pop().unwrap().position;
    assert_eq!(
        list(&acme.client, &format!("?after={last}")).await,
        Page { items: vec![], next_cursor: None }
    );
    acme.client.get("/audit?tenant_id=other").await.expect_problem(403, "tenant_mismatch");
    for query in [
        "kind=*",
        "kind=%3E",
        "kind=x.other",
        "kind=authn_login_failed",
        "after=1",
        "type=session_created",
        "cursor=other",
        "limit=201",
        "since=now",
    ] {
        acme.client.get(&format!("/audit?{query}")).await.expect_problem(422, "validation_failed");
    }
}

#[tokio::test]
async fn members_list_their_own_audit_events_and_api_keys_none() {
    let Fixture { system, acme, .. } = Fixture::start().await;
    let member = system.add_user(&acme, "bob@acme.example", Role::Member).await;
    system.wait_for_empty_outbox().await;
    let own = format!("?user_id={}", member.user.user_id);
    let mut of_member = list(&acme.client, &own).await;
    let by_admin = Actor::User { user_id: acme.user.user_id };
    let (mut with_address, mut without) = (0, 0);
    for record in of_member.items.iter_mut().filter(|record| record.ip.is_some()) {
        if record.actor == by_admin {
            (record.ip, without) = (None, without + 1);
        } else {
            with_address += 1;
        }
    }
    assert!(with_address > 0 && without > 0, "{of_member:?}");
    for query in ["", &own] {
        assert_eq!(list(&member.client, query).await, of_member, "without the address of the administrator");
    }
    let of_admin = format!("/audit?user_id={}", acme.user.user_id);
    member.client.get(&of_admin).await.expect_problem(404, "not_found");
    let (_, key) =
        system.create_api_key(&acme, &json!({ "name": "k", "scopes": ["events:read", "users:read"] })).await;
    key.get("/audit").await.expect_problem(403, "forbidden");
}

#[tokio::test]
async fn filters_select_by_name_user_and_time() {
    let Fixture { system, acme, .. } = Fixture::start().await;
    let member = system.add_user(&acme, "bob@acme.example", Role::Member).await;
    system.wait_for_empty_outbox().await;
    let logins = list(&acme.client, "?kind=authn_login_success").await.items;
    assert_eq!(logins.len(), 2);
    let of_member = list(&acme.client, &format!("?user_id={}", member.user.user_id)).await.items;
    assert!(!of_member.is_empty());
    let is_about = |record: &AuditRecord| {
        record.user_id == Some(member.user.user_id)
            || record.actor == Actor::User { user_id: member.user.user_id }
    };
    assert!(of_member.iter().all(is_about), "{of_member:?}");
    let all = list(&acme.client, "?limit=200").await.items;
    assert_eq!(all.iter().filter(|record| is_about(record)).count(), of_member.len());

    let broker = jetstream::new(system.nats.connect("audit-administrator").await.unwrap());
    let (fourth, id) = stored(&system, "acme").await[3];
    assert_eq!(id, all[3].id);
    let message = broker.get_stream("AUDIT").await.unwrap().get_raw_message(fourth).await.unwrap();
    let since = DateTime::from_timestamp(message.time.unix_timestamp(), message.time.nanosecond()).unwrap();
    let since = since.to_rfc3339_opts(SecondsFormat::Nanos, true);
    let list_since = async |time: &str| list(&acme.client, &format!("?limit=200&since={time}")).await.items;
    assert_eq!(list_since(since.as_str()).await, all[3..]);
    assert_eq!(list_since("1600-01-01T00:00:00Z").await, all);
    assert_eq!(list_since("2263-01-01T00:00:00Z").await, []);
    let after = &all[1].position;
    assert_eq!(list(&acme.client, &format!("?limit=200&after={after}&since={since}")).await.items, all[2..]);
}

#[tokio::test]
async fn the_events_of_an_api_key_are_those_about_it_and_those_that_it_caused() {
    let Fixture { system, acme, .. } = Fixture::start().await;
    let member = system.add_user(&acme, "bob@acme.example", Role::Member).await;
    let scopes = json!({ "name": "k", "scopes": ["users:write"] });
    let (key, client) = system.create_api_key(&acme, &scopes).await;
    let invite = json!({ "email": "chloe@acme.example" });
    let _: Value = client.post("/users/invite", &invite).await.expect(201);
    system.wait_for_empty_outbox().await;
    let query = format!("?key_id={}", key.id);
    let of_key = list(&acme.client, &query).await.items;
    let is_about = |record: &AuditRecord| record.key_id == Some(key.id);
    let is_by = |record: &AuditRecord| record.actor == Actor::ApiKey { key_id: key.id };
    assert!(of_key.iter().any(is_about) && of_key.iter().any(is_by), "{of_key:?}");
    let all = list(&acme.client, "?limit=200").await.items;
    let selected: Vec<_> = all.into_iter().filter(|record| is_about(record) || is_by(record)).collect();
    assert_eq!(of_key, selected);
    assert_eq!(list(&member.client, &query).await.items, [], "a member gets only the own events");
}

#[tokio::test]
async fn pages_cover_all_records_once() {
    let Fixture { system: _system, acme, .. } = Fixture::start().await;
    let all = list(&acme.client, "?limit=200").await;
    assert_eq!(all.next_cursor, None);
    let (mut paged, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let page = list(&acme.client, &query).await;
        assert!(page.items.len() <= 2);
        paged.extend(page.items);
        let Some(cursor) = page.next_cursor else { break };
        query = format!("?limit=2&cursor={cursor}");
    }
    assert_eq!(paged, all.items);
}

#[expect(clippy::disallowed_methods, reason = "stores more events than a test can cause")]
#[tokio::test]
async fn a_request_reads_a_bounded_number_of_events_and_returns_a_cursor() {
    let Fixture { system, acme, .. } = Fixture::start().await;
    let own = list(&acme.client, "?limit=200").await.items.len();
    let broker = jetstream::new(system.nats.connect("audit-administrator").await.unwrap());
    let event = json!({
        "id": "01890a5d-ac96-774b-bcce-b302099a8057", "occurred_at": "2026-01-31T12:00:00Z", "tenant_id": "acme",
        "context": "session", "event": "session_created", "actor": { "type": "system" },
    });
    for _ in 0..1_200 {
        let stored = broker.publish("audit.v1.acme.session.session_created", event.to_string().into());
        stored.await.unwrap().await.unwrap();
    }
    // A message that is not an audit event does not hide the others.
    broker.publish("audit.v1.acme.session.x", "{}".into()).await.unwrap().await.unwrap();
    let unknown = tenancy::UserId::generate();
    let (mut pages, mut query) = (0, format!("?user_id={unknown}"));
    loop {
        let page = list(&acme.client, &query).await;
        pages += 1;
        assert_eq!(page.items, []);
        let Some(cursor) = page.next_cursor else { break };
        assert!(cursor.len() == "audit.".len() + 38, "{cursor}");
        query = format!("?user_id={unknown}&cursor={cursor}");
    }
    assert!(pages > 1, "{pages}");
    let events = list(&acme.client, "?kind=session_created&limit=1").await.items;
    assert_eq!(events.len(), 1);
    assert!(own > 0);
}

#[tokio::test]
async fn without_the_stream_or_the_broker_audit_events_are_unavailable() {
    let Fixture { mut system, acme, .. } = Fixture::start().await;
    let broker = jetstream::new(system.nats.connect("audit-administrator").await.unwrap());
    broker.delete_stream("AUDIT").await.unwrap();
    acme.client.get("/audit").await.expect_problem(503, "dependency_unavailable");
    system.nats.stop();
    acme.client.get("/audit").await.expect_problem(503, "dependency_unavailable");
}

#[tokio::test]
async fn requests_of_a_tenant_are_limited_and_the_platform_administrator_is_not() {
    let system = TestSystem::start_with(&[("SVC_LIMIT_AUDIT", "3/h")]).await.unwrap();
    let (acme, other) = (system.create_tenant("acme").await, system.create_tenant("other").await);
    for _ in 0..4 {
        list(&system.platform_admin(), "?tenant_id=acme").await;
    }
    for _ in 0..3 {
        list(&acme.client, "").await;
    }
    let problem = acme.client.get("/audit").await.expect_problem(429, "rate_limited");
    assert!(problem.retry_after_ms.unwrap() > 0);
    list(&other.client, "").await;
    for _ in 0..4 {
        list(&system.platform_admin(), "").await;
    }
}
