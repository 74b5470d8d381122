//! `/metrics` of the admin port, and the page that lists what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use contract::identity::{Delivery, InviteUser};
use contract::{Role, identity};
use testkit::wait_until;
use testsystem::TestSystem;

/// A metric as it is exposed.
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

/// Whatever makes the system show each of its metrics.
async fn used() -> TestSystem {
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
    system
}

/// Reads `OpenMetrics` text: of each family its kind, its help and the labels that it has.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ").filter(|rest| *rest != "EOF") {
            let mut words = rest.splitn(3, ' ');
            let (what, name, value) =
                (words.next().unwrap(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let family = families.entry(name.to_owned()).or_default();
            match what {
                "HELP" => {
                    assert!(family.help.is_empty(), "{name} stands twice");
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
async fn every_metric_is_documented_and_every_documented_one_is_there() {
    let families = families(&scrape(&used().await).await);
    assert!(families.keys().all(|name| name.starts_with("svc_")), "{:?}", families.keys());
    let documented = include_str!("../../../../docs/metrics.md");
    let expected = table(&families);
    assert!(documented.contains(&expected), "docs/metrics.md must hold this table:\n{expected}");
}

#[tokio::test]
async fn metrics_tell_what_happened() {
    let system = used().await;
    let expected = [
        r#"svc_build_info{process="standalone",version="0.1.0"} 1"#,
        r#"svc_database_connections_max{service="identity"} 8"#,
        "svc_hash_queue_length 0",
        "svc_hash_shed_total 0",
        "svc_hash_workers 2",
        // An invite is accepted, then its password verified.
        "svc_hash_duration_seconds_count 2",
        r#"svc_http_requests_total{service="ingest",method="POST",route="/api/v1/events",status="202"} 2"#,
        r#"svc_http_request_duration_seconds_count{service="ingest",method="POST",route="/api/v1/events"} 2"#,
        r#"svc_http_requests_in_flight{service="ingest"} 0"#,
        r#"svc_outbox_deliveries_total{schema="identity",outcome="dead_lettered"} 0"#,
        r#"svc_outbox_rows{schema="identity",state="dead_lettered"} 0"#,
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
    // A mail is there a moment before its row is settled.
    let none = r#"svc_outbox_deliveries_total{schema="identity",outcome="done"} 0"#;
    let text = wait_until("the mail is counted", async || {
        Some(scrape(&system).await).filter(|text| !text.contains(none))
    })
    .await;
    for wanted in expected {
        assert!(text.lines().any(|line| line == wanted), "{wanted}\n{text}");
    }
}
