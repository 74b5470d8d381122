//! `/metrics` of the admin port and `docs/metrics.md`, and the metrics of the outbox relay.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use contract::identity::{Delivery, InviteUser};
use contract::{Role, identity};
use database::outbox::{
    CONCURRENCY, DELIVERY_TIMEOUT, Deliver, DeliveryError, OutboxMessage, Relay, RetryPolicy,
};
use service::Tasks;
use service::clock::SystemClock;
use service::telemetry::Metrics;
use testkit::wait_until;
use testsystem::TestSystem;

/// A metric family.
#[derive(Default)]
struct Family {
    kind: String,
    labels: BTreeSet<String>,
    help: String,
}

async fn scrape(system: &TestSystem) -> String {
    let client = testkit::client::plain_http();
    let response = client.get(format!("{}/metrics", system.admin_url)).send().await.unwrap();
    let media_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    assert_eq!(media_type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.text().await.unwrap()
}

/// A system after requests that create all metrics.
async fn system_with_all_metrics() -> TestSystem {
    let system = TestSystem::start_with(&[("SVC_LIMIT_DEFAULT", "1000/s")]).await.unwrap();
    let acme = system.create_tenant("acme").await;
    let event = serde_json::json!({"source_id": "fw", "event_id": "e1"});
    for _ in 0..2 {
        assert_eq!(acme.client.post("/events", &event).await.status, 202);
    }
    let email = "bob@acme.example".to_owned();
    let invite = InviteUser { email: email.clone(), role: Role::Member, delivery: Delivery::Email };
    let _: identity::Invite = acme.client.post("/users/invite", &invite).await.expect(201);
    system.wait_for_mail(&email).await;
    let consumer = serde_json::json!({ "name": "archive", "tenant_id": "acme" });
    system.platform_admin().post("/consumers", &consumer).await.expect::<serde_json::Value>(201);
    let pending = "svc_consumer_pending_events{consumer=\"archive\"} 1\n";
    wait_until("the consumer is measured", async || scrape(&system).await.contains(pending).then_some(()))
        .await;
    system
}

/// Parses `OpenMetrics` text into families with kind, help and labels.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ").filter(|rest| *rest != "EOF") {
            let mut words = rest.splitn(3, ' ');
            let (keyword, name, value) =
                (words.next().unwrap(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let family = families.entry(name.to_owned()).or_default();
            match keyword {
                "HELP" => {
                    assert!(family.help.is_empty(), "{name} is exposed twice");
                    value.trim_end_matches('.').clone_into(&mut family.help);
                    name.clone_into(&mut current);
                }
                "TYPE" => value.clone_into(&mut family.kind),
                _ => {}
            }
        } else if let Some((_, rest)) = line.split_once('{') {
            let pairs = rest.split_once('}').unwrap().0.split("\",").filter(|pair| !pair.is_empty());
            let labels = pairs.map(|pair| pair.split_once('=').unwrap().0.to_owned());
            families.get_mut(&current).unwrap().labels.extend(labels.filter(|label| label != "le"));
        }
    }
    families
}

/// The table of `docs/metrics.md`.
fn table(families: &BTreeMap<String, Family>) -> String {
    let mut table = String::from("| Metric | Kind | Labels | Meaning |\n| --- | --- | --- | --- |\n");
    for (name, Family { kind, labels, help }) in families {
        let suffix = match kind.as_str() {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(table, "| `{name}{suffix}` | {kind} | {} | {help} |", labels.join(", "));
    }
    table
}

#[tokio::test]
async fn the_metrics_documentation_matches_the_exposed_metrics() {
    let families = families(&scrape(&system_with_all_metrics().await).await);
    assert!(families.keys().all(|name| name.starts_with("svc_")), "{:?}", families.keys());
    let documented = include_str!("../../docs/metrics.md");
    let expected = table(&families);
    assert!(documented.contains(&expected), "docs/metrics.md must contain this table:\n{expected}");
}

#[tokio::test]
async fn metrics_count_requests_hashes_and_published_events() {
    let system = system_with_all_metrics().await;
    let expected = [
        r#"svc_build_info{process="standalone",version="0.1.0"} 1"#,
        r#"svc_database_connections_max{service="identity",pool="requests"} 4"#,
        r#"svc_database_connections_max{service="identity",pool="relays"} 2"#,
        "svc_consumers_unmeasured 0",
        r#"svc_consumer_unacknowledged_events{consumer="archive"} 0"#,
        "svc_event_retention_seconds 259200",
        "svc_hash_queue_length 0",
        "svc_hash_shed_total 0",
        "svc_hash_workers 2",
        // One hash when the invite is accepted, one at login.
        "svc_hash_duration_seconds_count 2",
        r#"svc_http_requests_total{service="ingest",method="POST",route="/api/v1/events",status="202"} 2"#,
        r#"svc_http_request_duration_seconds_count{service="ingest",method="POST",route="/api/v1/events"} 2"#,
        r#"svc_http_requests_in_flight{service="ingest"} 0"#,
        r#"svc_outbox_deliveries_total{schema="identity",kind="invite_mail",outcome="dead_lettered"} 0"#,
        r#"svc_outbox_rows{schema="identity",kind="invite_mail",state="dead_lettered"} 0"#,
        r#"svc_publish_available{stream="UDM"} 1"#,
        r#"svc_publish_duration_seconds_count{stream="UDM"} 2"#,
        r#"svc_publish_in_flight_bytes{stream="UDM"} 0"#,
        r#"svc_publish_messages_total{stream="UDM",outcome="accepted"} 1"#,
        r#"svc_publish_messages_total{stream="UDM",outcome="duplicate"} 1"#,
        r#"svc_publish_messages_total{stream="UDM",outcome="misconfigured"} 0"#,
        r#"svc_readiness_gate_open{gate="schema"} 1"#,
        r#"svc_database_available{service="session"} 1"#,
        r#"svc_stream_limit_bytes{stream="UDM"} 67108864"#,
    ];
    // The mail is written before its outbox message is counted.
    let none = r#"svc_outbox_deliveries_total{schema="identity",kind="invite_mail",outcome="delivered"} 0"#;
    let text = wait_until("the mail is counted", async || {
        Some(scrape(&system).await).filter(|text| !text.contains(none))
    })
    .await;
    for line in expected {
        assert!(text.lines().any(|exposed| exposed == line), "{line}\n{text}");
    }
    // The event of the consumer is older than the start of the measurement.
    let age = text
        .lines()
        .find_map(|line| line.strip_prefix("svc_consumer_oldest_unread_seconds{consumer=\"archive\"} "));
    assert!((0..600).contains(&age.unwrap().parse::<i64>().unwrap()), "{age:?}");
    system.platform_admin().delete("/consumers/archive").await.expect_empty(204);
    wait_until("the metrics of a deleted consumer end", async || {
        (!scrape(&system).await.contains("consumer=\"archive\"")).then_some(())
    })
    .await;
}

/// No message is due, so nothing is delivered.
struct NeverDelivers;

impl Deliver for NeverDelivers {
    async fn deliver(&self, row: &OutboxMessage) -> Result<(), DeliveryError> {
        unreachable!("{row:?}")
    }
}

#[tokio::test]
async fn the_outbox_metrics_count_pending_and_dead_lettered_messages_and_the_oldest_age() {
    let system = TestSystem::start().await.unwrap();
    // Due in an hour, so that the relay of the system does not deliver them.
    system
        .run_sql(
            "insert into identity.outbox (outbox_id, tenant_id, kind, payload, created_at, due_at, dead_lettered_at)
            values
                (gen_random_uuid(), 'acme', 'x', '{}', now() - interval '10 minutes', now() + interval '1 hour', null),
                (gen_random_uuid(), 'globex', 'x', '{}', now(), now() + interval '1 hour', null),
                (gen_random_uuid(), 'acme', 'x', '{}', now() - interval '2 hours', now(), now())",
        )
        .await;
    let (metrics, tasks) = (Metrics::new("test"), Tasks::default());
    let relay = Relay {
        queue: system.database.pool("svc_identity").unwrap().measured(&metrics, &tasks),
        name: "test",
        kinds: &["x"],
        retry_policy: RetryPolicy::DeadLetter { attempts: 5 },
        timeout: DELIVERY_TIMEOUT,
        concurrency: CONCURRENCY,
        deliver: NeverDelivers,
        clock: Arc::new(SystemClock),
    };
    tasks.spawn("relay", relay.run(tasks.clone()));
    let pending = "svc_outbox_rows{schema=\"identity\",kind=\"test\",state=\"pending\"} 2\n";
    let text = wait_until("the gauges are updated", async || {
        Some(metrics.text()).filter(|text| text.contains(pending))
    })
    .await;
    assert!(
        text.contains("svc_outbox_rows{schema=\"identity\",kind=\"test\",state=\"dead_lettered\"} 1\n"),
        "{text}"
    );
    let oldest = text.lines().find_map(|line| {
        line.strip_prefix("svc_outbox_oldest_age_seconds{schema=\"identity\",kind=\"test\"} ")
    });
    let oldest: f64 = oldest.unwrap().parse().unwrap();
    assert!((600.0..660.0).contains(&oldest), "{oldest}");
    tasks.stopping().cancel();
}
