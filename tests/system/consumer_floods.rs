//! A consumer that sends more messages than it needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::{Client, ConnectOptions, Event};
use e2e::{ApiUser, KeptAccounts, Services, api_client, flood};
use futures::StreamExt as _;
use serde_json::{Value, json};
use testkit::{TestResponse, wait_until, within};
use tokio::task::JoinSet;

/// Events of the consumer that reads.
const BACKLOG: usize = 10_000;

/// The name and password in a response.
fn login(consumer: &Value) -> [String; 2] {
    ["user", "password"].map(|field| consumer["login"][field].as_str().unwrap().to_owned())
}

/// Connects with default options. The flag is set if the connection ends.
async fn connect(
    address: &str,
    consumer: &Value,
) -> Result<(Client, Arc<AtomicBool>), async_nats::ConnectError> {
    let (ended, [user, password]) = (Arc::new(AtomicBool::new(false)), login(consumer));
    let flag = Arc::clone(&ended);
    let options = ConnectOptions::with_user_and_password(user, password).event_callback(move |event| {
        flag.fetch_or(matches!(event, Event::Disconnected | Event::Closed), Ordering::Relaxed);
        std::future::ready(())
    });
    Ok((options.connect(address).await?, ended))
}

async fn durable(client: &Client, name: &str) -> Option<PullConsumer> {
    let stream = async_nats::jetstream::new(client.clone()).get_stream("UDM").await.ok()?;
    stream.get_consumer(name).await.ok()
}

/// Repeats a request while the broker reloads its configuration: it then gets 503.
async fn served(request: impl AsyncFn() -> TestResponse) -> TestResponse {
    wait_until("the request is served", async || {
        let response = request().await;
        (response.status != 503).then_some(response)
    })
    .await
}

/// Requests single events until all are acknowledged.
async fn read_backlog(consumer: PullConsumer) {
    let mut read = 0;
    while read < BACKLOG {
        let batch = consumer.batch().max_messages(1).expires(Duration::from_secs(5)).messages().await;
        // Without an answer of the broker, the next request follows.
        let Ok(mut batch) = batch else { continue };
        while let Some(Ok(event)) = batch.next().await {
            event.ack().await.unwrap();
            read += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_floods_is_suspended_for_a_time_and_no_other_tenant_is_affected() {
    let (kept, nats) = KeptAccounts::start_server().await;
    let monitor = format!("http://{}", kept.monitor);
    let options = ["--monitor", &monitor, "--max-messages-per-second", "500", "--suspension", "15"];
    let services = Services::prepare_with(nats).await;
    services.migrate_all().await;
    let _running = services.start_all(&[]).await;
    let mut keeper = kept.keep(&services.nats, &options);
    let proxy = services.start_proxy().await;
    let platform = api_client(&proxy.base_url).bearer(&services.platform_token);
    let token = &services.platform_token;
    let beta = ApiUser::create_tenant(&proxy.base_url, token, "beta", "bob@beta.example").await;
    let create = async |name: &str, tenant: &str| -> Value {
        let consumer = json!({ "name": name, "tenant_id": tenant });
        served(async || platform.post("/consumers", &consumer).await).await.expect(201)
    };
    let (flooding, reading) = (create("flooding", "acme").await, create("reading", "beta").await);
    let events: Vec<_> = (0..1000).map(|_| json!({ "source_id": "fw" })).collect();
    for _ in 0..BACKLOG / 1000 {
        let stored = served(async || beta.client.post("/events/batch", &events).await).await;
        assert_eq!(stored.status, 202);
    }

    let address = services.nats.url.rsplit_once('@').unwrap().1.to_owned();
    let (client, is_ended) = connect(&address, &reading).await.unwrap();
    let mut reader = JoinSet::new();
    reader.spawn(read_backlog(durable(&client, "reading").await.unwrap()));
    let [name, password] = login(&flooding);
    let limit = testkit::DEADLINE;
    within(limit, "the end of the connections of the login", flood(&address, &name, &password)).await;
    assert!(connect(&address, &flooding).await.is_err(), "{}", keeper.output());

    let suspension = wait_until("the suspension is shown", async || {
        let response = platform.get("/consumers/flooding").await;
        let shown = response.json()["suspension"].clone();
        (response.status == 200 && shown.is_object()).then_some(shown)
    })
    .await;
    let time =
        |field: &str| suspension[field].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    assert_eq!((time("until") - time("since")).num_seconds(), 15, "{suspension}");
    assert!(suspension["messages_per_second"].as_u64().unwrap() > 500, "{suspension}");
    wait_until("events of another tenant are accepted", async || {
        (beta.client.post("/events", &json!({ "source_id": "fw" })).await.status == 202).then_some(())
    })
    .await;

    within(limit, "reading", reader.join_all()).await;
    let other: Value = served(async || platform.get("/consumers/reading").await).await.expect(200);
    assert!(
        other["suspension"].is_null() && !is_ended.load(Ordering::Relaxed),
        "{other}: {}",
        keeper.output()
    );
    assert!(!keeper.output().contains("consumer=\"reading\""), "{}", keeper.output());

    wait_until("the login reads again", async || {
        let (client, _) = connect(&address, &flooding).await.ok()?;
        durable(&client, "flooding").await
    })
    .await;
    let ended: Value = served(async || platform.get("/consumers/flooding").await).await.expect(200);
    assert!(ended["suspension"].is_null(), "{ended}");
    keeper.expect_running();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_ends_when_the_consumer_is_resumed_and_not_when_its_login_is_replaced() {
    let (kept, nats) = KeptAccounts::start_server().await;
    let services = Services::prepare_with(nats).await;
    services.migrate_all().await;
    let _running = services.start_all(&[]).await;
    let monitor = format!("http://{}", kept.monitor);
    let options = ["--monitor", &monitor, "--max-messages-per-second", "500", "--suspension", "600"];
    let _keeper = kept.keep(&services.nats, &options);
    let proxy = services.start_proxy().await;
    let platform = api_client(&proxy.base_url).bearer(&services.platform_token);
    let consumer = json!({ "name": "flooding", "tenant_id": "acme" });
    let created: Value = served(async || platform.post("/consumers", &consumer).await).await.expect(201);
    let (address, [name, password]) = (services.nats.url.rsplit_once('@').unwrap().1, login(&created));
    within(testkit::DEADLINE, "the flood", flood(address, &name, &password)).await;
    wait_until("the suspension is stored", async || {
        let response = platform.get("/consumers/flooding").await;
        (response.status == 200 && response.json()["suspension"].is_object()).then_some(())
    })
    .await;

    let rotate = async || platform.post("/consumers/flooding/rotate-login", &json!({})).await;
    let replaced: Value = served(rotate).await.expect(200);
    assert_eq!(
        (replaced["login"]["active"].as_bool(), replaced["suspension"].is_object()),
        (Some(false), true)
    );
    assert!(connect(address, &replaced).await.is_err());
    let resume = async || platform.post("/consumers/flooding/resume", &json!({})).await;
    let resumed: Value = served(resume).await.expect(200);
    assert!(resumed["suspension"].is_null(), "{resumed}");
    wait_until("the login reads", async || {
        let (client, _) = connect(address, &replaced).await.ok()?;
        durable(&client, "flooding").await
    })
    .await;
}
