//! Invented event types of one tenant: the number of its subjects is bounded, over all replicas and restarts, other tenants are not
//! affected, and readers and consumers find the events.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream;
use contract::paths::Upstream;
use e2e::{ALL_SERVICES, ApiUser, Service, Services, Svc, api_client, program};
use reqwest::Method;
use serde_json::{Value, json};
use testkit::{Client, join_all, wait_until, within};

const LIMIT: Duration = Duration::from_mins(1);
const BATCH: usize = 1_000;
const BATCHES: usize = 2;
const READERS: usize = 20;
/// Streams that each reader opens.
const OPENED: usize = 4;
/// Types and `GENERIC_EVENT`.
const MAX_SUBJECTS: usize = 1_001;

fn client(service: &Service, user: &ApiUser) -> Client {
    api_client(&format!("http://{}", service.address)).bearer(&user.token)
}

/// Sends events, each with a new type and one source.
async fn invent(client: &Client, name: &str) {
    for batch in 0..BATCHES {
        let event = |number: usize| {
            let event_type = format!("{name}_{}", batch * BATCH + number);
            json!({ "source_id": "fw", "event_id": event_type, "metadata": { "event_type": event_type } })
        };
        let events: Vec<_> = (0..BATCH).map(event).collect();
        let response = client.post("/events/batch", &events).await;
        assert_eq!(response.status, 202, "batch {batch} of {name}");
    }
}

async fn subjects(services: &Services, tenant: &str) -> usize {
    let client = bus::connect(&bus::Config::new(&services.nats.url, "e2e")).await.unwrap();
    let filter = json!({ "subjects_filter": format!("udm.v1.*.{tenant}.*") });
    let info: Value = jetstream::new(client).request("STREAM.INFO.UDM", &filter).await.unwrap();
    info["state"]["subjects"].as_object().map_or(0, serde_json::Map::len)
}

/// Opens streams of all stored events, one after the other. Returns the status of each.
async fn read_repeatedly(client: Client) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..OPENED {
        let path = "/events/stream?since=2020-01-01T00:00:00Z";
        let response = within(LIMIT, "a stream", client.request(Method::GET, path).send()).await.unwrap();
        statuses.push(response.status().as_u16());
    }
    statuses
}

/// Sends events until `stop`. Each must be accepted.
async fn send_repeatedly(client: &Client, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let event = json!({ "source_id": "s" });
        within(LIMIT, "an event", client.post("/events", &event)).await.expect::<Value>(202);
    }
}

#[tokio::test]
async fn a_tenant_with_invented_event_types_and_many_readers_affects_no_other_tenant() {
    let services = Services::prepare().await;
    services.migrate_all().await;
    let [identity, session, first] = ALL_SERVICES.map(|service| services.start(service));
    let limit = [("SVC_LIMIT_EVENT_STREAM", "30/min")];
    let mut running = [identity, session, first, services.start_second_with(Upstream::Ingest, &limit)];
    for service in &mut running {
        service.wait_until_ready().await;
    }
    let [identity, session, first, second] = &mut running;
    wait_until("the replicas know each other", async || {
        (second.metric("svc_ingest_replicas").await > 1.5).then_some(())
    })
    .await;
    let base_url = format!("http://{}", identity.address);
    let alpha = ApiUser::create_acme(&base_url, &services.platform_token, "ada@acme.example").await;
    let beta = ApiUser::create_tenant(&base_url, &services.platform_token, "beta", "b@beta.example").await;

    // Another tenant sends all the time.
    let (stop, of_beta) = (AtomicBool::new(false), client(second, &beta));
    let attack = async {
        invent(&client(first, &alpha), "FIRST").await;
        invent(&client(second, &alpha), "SECOND").await;
        let of_alpha = client(second, &alpha);
        let readers = (0..READERS).map(|_| read_repeatedly(of_alpha.clone()));
        let (statuses, ()) = tokio::join!(join_all(readers), invent(&of_alpha, "THIRD"));
        stop.store(true, Ordering::Relaxed);
        statuses.concat()
    };
    let (statuses, ()) = tokio::join!(attack, send_repeatedly(&of_beta, &stop));
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");

    // Each replica adds its part of the free subjects, which it counts at most every ten seconds.
    let of_alpha = subjects(&services, "acme").await;
    assert!((MAX_SUBJECTS / 2..=MAX_SUBJECTS).contains(&of_alpha), "{of_alpha}");
    assert_eq!(subjects(&services, "beta").await, 1);
    let replaced = "svc_publish_replaced_subjects_total";
    assert!(first.metric(replaced).await + second.metric(replaced).await > 4_000.0);

    // A replica that starts counts the subjects in the stream.
    first.process.signal(rustix::process::Signal::KILL);
    first.process.wait().await;
    *first = services.start(Upstream::Ingest);
    first.wait_until_ready().await;
    invent(&client(first, &alpha), "FOURTH").await;
    assert!(subjects(&services, "acme").await <= MAX_SUBJECTS);

    let key = json!({ "name": "reader", "scopes": ["events:read"] });
    let key: Value = client(session, &alpha).post("/api-keys", &key).await.expect(201);
    let svc = Path::new(program("svc").get_program()).to_owned();
    let svc = Svc::new(&svc, &format!("http://{}", first.address), "acme")
        .with_api_key(key["key"].as_str().unwrap());
    let types = ["FIRST_0", "FIRST_1999", "SECOND_1999", "FOURTH_1999"];
    let mut tail = vec!["events", "tail", "--since", "2020-01-01T00:00:00Z", "--no-follow"];
    tail.extend(types.iter().flat_map(|name| ["--type", name]));
    let printed = svc.run_ok(&tail, "").await;
    assert_eq!(printed.lines().count(), types.len(), "{printed}");
    assert!(types.iter().all(|name| printed.contains(&format!(" {name} "))), "{printed}");
}
