//! A locked table, a full stream, a tenant above its quota, and a full quarantine.

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::{ConnectOptions, HeaderMap};
use contract::paths::Upstream;
use e2e::{ApiUser, api_client};
use futures::StreamExt as _;
use serde_json::{Value, json};
use testkit::wait_until;
use tokio::task::JoinSet;

use super::Watched;

#[tokio::test]
async fn a_locked_table() {
    let Some(mut watched) = Watched::start(&[]).await else { return };
    let mut locking = watched.superuser().await;
    for statement in ["begin", "lock table identity.users in access exclusive mode"] {
        sqlx::query(statement).execute(&mut locking).await.unwrap();
    }
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut locking).await.unwrap();
    watched.values.push(("<pid>", pid.to_string()));
    let mut readers = JoinSet::new();
    for _ in 0..12 {
        let client = watched.ada.client.clone();
        readers.spawn(async move {
            loop {
                client.get("/users").await;
            }
        });
    }
    let outputs = watched.expect(&["SvcDatabaseSaturated", "SvcHighLatency"], async || ()).await;
    let holder = format!("{{{pid}}}");
    assert!(outputs.values().any(|output| output.contains(&holder)), "the holder of the lock: {outputs:#?}");
    watched.act("SvcDatabaseSaturated", "select pg_terminate_backend(<pid>)").await;
    // The requests are fast again.
    watched.expect_recovery(async || ()).await;
    readers.shutdown().await;
    assert_eq!(watched.ada.client.get("/users").await.status, 200);
}

/// A size of the stream of events, in bytes.
async fn size(watched: &Watched, name: &str) -> f64 {
    watched.running[2].as_ref().unwrap().metric(&format!("svc_stream_{name}_bytes{{stream=\"UDM\"}}")).await
}

/// The used part of the stream of events.
async fn used(watched: &Watched) -> f64 {
    size(watched, "stored").await / size(watched, "limit").await
}

/// Sends events until 85 % of the stream are used. The metric is up to a few seconds old.
async fn fill(watched: &Watched) {
    let events: Vec<_> = (0..8).map(|_| json!({ "source_id": "fw", "note": "x".repeat(240_000) })).collect();
    let limit = size(watched, "limit").await;
    let mut stored = size(watched, "stored").await;
    while stored < 0.86 * limit {
        let sent = watched.ada.client.post("/events/batch", &events).await;
        assert_eq!(sent.status, 202, "{sent}");
        stored += 8.0 * 240_000.0;
    }
    wait_until("85 % are used", async || (used(watched).await >= 0.85).then_some(())).await;
}

/// Resumes the tenant. Its administrator logs in again, because a suspension revokes sessions.
async fn resume(watched: &mut Watched) {
    watched.platform.run_ok(&["tenants", "resume", "acme"], "").await;
    watched.ada = ApiUser::log_in(&watched.proxy.base_url, "acme", "ada@acme.example").await;
}

#[tokio::test]
async fn streams_that_are_nearly_full() {
    let Some(mut watched) = Watched::start(&[("SVC_TENANT_STREAM_SHARE", "100")]).await else { return };
    fill(&watched).await;
    let alerts = ["SvcStreamGrowing", "SvcStreamNearlyFull"];
    let outputs = watched.expect(&alerts, async || ()).await;
    assert!(outputs["nats stream subjects UDM"].contains(".acme.GENERIC_EVENT"), "{outputs:#?}");
    watched.act("SvcStreamNearlyFull", "svc tenants suspend <tenant>").await;
    assert_eq!(watched.send_event().await, 401);
    resume(&mut watched).await;
    let purge = "nats stream purge UDM --keep <number> --force";
    watched.values.extend([("<number>", "1".to_owned()), ("<size>", "256MB".to_owned())]);
    watched.act("SvcStreamNearlyFull", purge).await;
    watched.expect_recovery(async || ()).await;

    wait_until("ingest reads the stream", async || (used(&watched).await < 0.1).then_some(())).await;
    fill(&watched).await;
    watched.expect(&["SvcStreamNearlyFull"], async || ()).await;
    let edit = "nats stream edit UDM --max-bytes <size> --force";
    watched.act("SvcStreamNearlyFull", edit).await;
    watched.expect_recovery(async || ()).await;
    // The chart value.
    watched.restart(Upstream::Ingest, &[("SVC_STREAM_MAX_BYTES", "300MiB")]).await;
    assert!(used(&watched).await < 0.3);

    watched.platform.run_ok(&["consumers", "create", "archive", "--tenant", "acme"], "").await;
    watched.act("SvcStreamNearlyFull", "svc events dlq delete <consumer> --all --all-tenants").await;
    let wrong = json!({ "email": "ada@acme.example", "password": "not-the-password-9" });
    let login = api_client(&watched.proxy.base_url).header("X-Tenant-ID", "acme");
    assert_eq!(login.post("/auth/password/login", &wrong).await.status, 401);
    let failures = async || watched.diagnose("SvcStreamGrowing").await["nats stream subjects AUDIT"].clone();
    wait_until("the event is published", async || {
        failures().await.contains("authn_login_fail").then_some(())
    })
    .await;
    watched.act("SvcStreamNearlyFull", "nats stream edit AUDIT --max-bytes <size> --force").await;
    let failed_logins = "nats stream purge AUDIT --subject='audit.v1.*.identity.authn_login_fail' --force";
    watched.act("SvcStreamNearlyFull", failed_logins).await;
    assert!(!failures().await.contains("authn_login_fail"));
    let url = watched.services.nats.url_of("audit-administrator");
    std::fs::write(watched.home.path().join("admin-url"), url).unwrap();
    watched.values.push(("<file>", "admin-url".to_owned()));
    watched.act("SvcStreamNearlyFull", "svc-identity streams apply --nats-url-file <file>").await;
}

#[tokio::test]
async fn a_tenant_above_its_quota_and_with_a_full_quarantine() {
    let Some(mut watched) = Watched::start(&[("SVC_QUARANTINE_MAX_ITEMS", "5")]).await else { return };
    let client = watched.ada.client.clone();
    for item in ["{", "[1", "\"", "{\"source_id\": ", "nul"] {
        let path = "/events/batch?invalid=quarantine";
        let sent = client.post_bytes(path, "application/x-ndjson", item).await;
        assert!([202, 207].contains(&sent.status), "{sent}");
    }
    let platform = api_client(&watched.proxy.base_url).bearer(&watched.services.platform_token);
    let quota = json!({ "quota": { "events_per_second": 1 } });
    platform.patch("/tenants/acme", &quota).await.expect::<Value>(200);
    let list = watched.platform.run_ok(&["events", "dlq", "list", "_ingest", "--output", "ndjson"], "").await;
    let first: Value = serde_json::from_str(list.lines().next().unwrap()).unwrap();
    watched.values.push(("<number>", first["sequence"].to_string()));
    let events: Vec<_> = (0..50).map(|_| json!({ "source_id": "fw" })).collect();
    let flood = async || {
        client.post("/events/batch", &events).await;
    };
    let outputs = watched.expect(&["SvcQuotaExceeded", "SvcQuarantineNearlyFull"], &flood).await;
    let by_tenant =
        "svc events dlq list _ingest --all-tenants --output ndjson | jq -r .tenant_id | sort | uniq -c";
    assert_eq!(outputs[by_tenant].trim(), "5 acme");
    watched.act("SvcQuarantineNearlyFull", "svc events dlq show _ingest <number> --tenant <tenant>").await;
    let suspend = "svc tenants suspend <tenant>";
    watched.act("SvcQuotaExceeded", suspend).await;
    resume(&mut watched).await;
    watched.values.retain(|(placeholder, _)| *placeholder != "<number>");
    watched.values.push(("<number>", "default".to_owned()));
    let raise = "svc tenants update <tenant> --events-per-second <number> --bytes-per-second <number>";
    watched.act("SvcQuotaExceeded", raise).await;
    watched.act("SvcQuarantineNearlyFull", "svc_dead_letter_used_ratio{half=\"quarantine\"}").await;
    let save = "svc events dlq list _ingest --tenant <tenant> --output ndjson > items.ndjson";
    watched.act("SvcQuarantineNearlyFull", save).await;
    let saved = std::fs::read_to_string(watched.home.path().join("items.ndjson")).unwrap();
    assert_eq!(saved.lines().count(), 5, "{saved}");
    watched.act("SvcQuarantineNearlyFull", "svc events dlq delete _ingest --all --tenant <tenant>").await;
    let client = watched.ada.client.clone();
    let load = async || {
        client.post("/events/batch", &events).await;
    };
    watched.expect_recovery(load).await;
    assert_eq!(client.post("/events/batch", &events).await.status, 202);
}

#[tokio::test]
async fn a_consumer_that_sends_requests_without_pause() {
    let Some(mut watched) = Watched::start(&[]).await else { return };
    let monitor = format!("http://{}", watched.accounts.monitor);
    let options = ["--monitor", &monitor, "--max-messages-per-second", "500", "--suspension", "600"];
    let keeper = watched.accounts.keep(&watched.services.nats, &options);
    let create = ["consumers", "create", "archive", "--tenant", "acme", "--output", "json"];
    let created: Value = serde_json::from_str(&watched.platform.run_ok(&create, "").await).unwrap();
    let address = watched.services.nats.url.rsplit_once('@').unwrap().1.to_owned();
    e2e::flood(&address, "archive", created["login"]["password"].as_str().unwrap()).await;
    let outputs = watched.expect(&["SvcConsumerSuspended"], async || ()).await;
    let shown = &outputs["svc consumers get <consumer>"];
    assert!(shown.contains("suspended until") && shown.contains("messages per second"), "{outputs:#?}");
    watched.act("SvcConsumerSuspended", "svc consumers rotate-login <consumer>").await;
    let resumed = watched.act("SvcConsumerSuspended", "svc consumers resume <consumer>").await;
    assert!(!resumed.contains("suspended"), "{resumed}");
    watched.expect_recovery(async || ()).await;
    watched.act("SvcConsumerSuspended", "svc consumers delete <consumer>").await;
    drop(keeper);
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a consumer has no `bus::Publisher`")]
async fn dead_letters_without_space() {
    let Some(mut watched) = Watched::start(&[("SVC_TENANT_STREAM_SHARE", "1")]).await else { return };
    let keeper = watched.accounts.keep(&watched.services.nats, &[]);
    assert_eq!(watched.send_event().await, 202);
    let create = ["consumers", "create", "archive", "--tenant", "acme", "--output", "json"];
    let created: Value = serde_json::from_str(&watched.platform.run_ok(&create, "").await).unwrap();
    let password = created["login"]["password"].as_str().unwrap().to_owned();
    let address = watched.services.nats.url.rsplit_once('@').unwrap().1;
    let login = ConnectOptions::with_user_and_password("archive".to_owned(), password);
    let consumer = async_nats::jetstream::new(login.connect(address).await.unwrap());
    let durable: PullConsumer = consumer.get_consumer_from_stream("archive", "UDM").await.unwrap();
    let event = durable.messages().await.unwrap().next().await.unwrap().unwrap();
    let mut headers = HeaderMap::new();
    for (name, values) in event.headers.as_ref().unwrap().iter() {
        if !name.to_string().to_ascii_lowercase().starts_with("nats-") {
            headers.insert(name.clone(), values[0].clone());
        }
    }
    headers.insert("Udm-Dlq-Stream", "UDM");
    headers.insert("Udm-Dlq-Sequence", event.info().unwrap().stream_sequence.to_string());
    // The consumer repeats a dead letter until it is stored.
    let send = async || {
        for _ in 0..20 {
            let sent = consumer.publish_with_headers(
                "udm.dlq.v1.acme.archive",
                headers.clone(),
                event.payload.clone(),
            );
            let error = sent.await.unwrap().await.err().map(|error| error.to_string()).unwrap_or_default();
            if error.contains("dead letters of this tenant or consumer") {
                break;
            }
            assert!(error.is_empty() || error.contains("JetStream is not available"), "{error}");
        }
    };
    let outputs = watched.expect(&["SvcDeadLettersRejected"], &send).await;
    let by_tenant =
        "svc events dlq list <consumer> --all-tenants --output ndjson | jq -r .tenant_id | sort | uniq -c";
    assert!(outputs[by_tenant].trim().ends_with(" acme"), "{outputs:#?}");
    watched.act("SvcDeadLettersRejected", "svc events dlq replay <consumer> --all --all-tenants").await;
    send().await;
    watched.act("SvcDeadLettersRejected", "svc events dlq delete <consumer> --all --all-tenants").await;
    watched.expect_recovery(async || ()).await;
    drop(keeper);
}
