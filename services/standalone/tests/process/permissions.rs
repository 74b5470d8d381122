//! A consumer in one command: its login works at once with the default options of a client, and ends with the consumer.

use async_nats::jetstream;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::{Client, ConnectOptions, Event};
use contract::consumers::{ConsumerLogin, CreatedConsumer};
use futures::TryStreamExt as _;
use serde_json::{Value, json};
use testkit::{DEADLINE, within};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};

use super::installation::{Installation, Run};

struct System {
    run: Run,
    platform: testkit::Client,
    installation: Installation,
}

impl System {
    fn start() -> Self {
        // Fails when another test of this process has installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let installation = Installation::new();
        let run = installation.up("data");
        Self { platform: platform(&run), run, installation }
    }

    async fn create(&self, name: &str, tenant: &str) -> ConsumerLogin {
        let request = json!({ "name": name, "tenant_id": tenant });
        let created: CreatedConsumer = self.platform.post("/consumers", &request).await.expect(201);
        let login = created.login.unwrap();
        assert!(login.active, "the login works before the response");
        login
    }

    /// Stores an event as the administrator of the broker.
    #[expect(clippy::disallowed_methods, reason = "publishes to the stream of this test")]
    async fn store(&self, tenant: &str) {
        let client = bus::connect(&bus::Config::new(&self.run.run_file.nats_url, "test")).await.unwrap();
        let subject = format!("udm.v1.07.{tenant}.LOGIN");
        jetstream::new(client).publish(subject, "{}".into()).await.unwrap().await.unwrap();
    }

    async fn connect(&self, login: &ConsumerLogin) -> Result<Client, async_nats::ConnectError> {
        self.connect_with(login, ConnectOptions::default()).await
    }

    async fn connect_with(
        &self,
        login: &ConsumerLogin,
        options: ConnectOptions,
    ) -> Result<Client, async_nats::ConnectError> {
        let address = self.run.run_file.nats_url.rsplit_once('@').unwrap().1;
        options.user_and_password(login.user.clone(), login.password.clone()).connect(address).await
    }
}

fn platform(run: &Run) -> testkit::Client {
    let token = std::fs::read_to_string(&run.run_file.platform_token_file).unwrap();
    testkit::Client::new(&run.run_file.base_url).bearer(token.trim())
}

/// Reads and acknowledges all events of the durable with the default API prefix. Returns their subjects.
async fn read_all(client: &Client, name: &str) -> Vec<String> {
    let context = jetstream::new(client.clone());
    let consumer: PullConsumer = context.get_stream("UDM").await.unwrap().get_consumer(name).await.unwrap();
    let messages = consumer.fetch().max_messages(10).messages().await.unwrap();
    let messages: Vec<_> = messages.try_collect().await.unwrap();
    for message in &messages {
        message.double_ack().await.unwrap();
    }
    messages.iter().map(|message| message.subject.to_string()).collect()
}

#[tokio::test]
async fn a_login_reads_acknowledges_and_writes_dead_letters_of_its_consumer_at_once() {
    let system = System::start();
    for tenant in ["acme", "beta"] {
        system.store(tenant).await;
    }
    let login = system.create("acme-siem", "acme").await;
    let client = system.connect(&login).await.unwrap();
    assert_eq!(read_all(&client, "acme-siem").await, ["udm.v1.07.acme.LOGIN"]);
    let ack = client.request("udm.dlq.v1.acme.acme-siem", "{}".into()).await.unwrap();
    let ack: Value = serde_json::from_slice(&ack.payload).unwrap();
    assert_eq!(ack, json!({ "stream": "UDM_DLQ", "seq": 1 }));

    // The broker forgets the reply subject of a longer request.
    let too_long = r#"{"expires":61000000000}"#;
    let response = client.request("$JS.API.CONSUMER.MSG.NEXT.UDM.acme-siem", too_long.into()).await.unwrap();
    assert_eq!(response.status.unwrap().as_u16(), 409, "{:?}", response.description);
    let output = system.installation.output();
    assert!(!output.contains("timestamp"), "a login that was awaited is logged as an error:\n{output}");
}

#[tokio::test]
async fn a_client_that_creates_its_consumer_gets_the_existing_one_if_it_matches() {
    let system = System::start();
    let login = system.create("acme-siem", "acme").await;
    system.store("acme").await;
    let client = system.connect(&login).await.unwrap();
    let context = jetstream::new(client.clone());
    let request = |filter: &str, ack_policy| pull::Config {
        durable_name: Some("acme-siem".to_owned()),
        filter_subject: filter.to_owned(),
        ack_policy,
        ..pull::Config::default()
    };
    for filter in ["udm.v1.*.acme.>", ""] {
        let config = request(filter, AckPolicy::Explicit);
        let consumer = context.create_consumer_on_stream(config, "UDM").await.unwrap();
        assert_eq!(consumer.cached_info().config.filter_subject, "udm.v1.*.acme.>");
    }
    for config in [request("udm.v1.>", AckPolicy::Explicit), request("udm.v1.*.acme.>", AckPolicy::None)] {
        let error = context.create_consumer_on_stream(config, "UDM").await.unwrap_err();
        assert!(error.to_string().contains("svc consumers create"), "{error}");
    }
    assert_eq!(read_all(&client, "acme-siem").await, ["udm.v1.07.acme.LOGIN"]);
}

#[tokio::test]
async fn a_deleted_consumer_and_a_replaced_login_are_cut_off_within_a_second_and_others_are_not() {
    let system = System::start();
    let (first, other) = (system.create("first", "acme").await, system.create("other", "acme").await);
    let (sender, mut disconnects) = mpsc::unbounded_channel();
    let options = ConnectOptions::new().max_reconnects(1).event_callback(move |event| {
        let sender = sender.clone();
        async move {
            if matches!(event, Event::Disconnected) {
                let _ = sender.send(Instant::now());
            }
        }
    });
    let _connected = system.connect_with(&first, options).await.unwrap();
    let remaining = system.connect(&other).await.unwrap();

    let rotated: CreatedConsumer =
        system.platform.post("/consumers/first/rotate-login", &json!({})).await.expect(200);
    let began = Instant::now();
    let ended = within(DEADLINE, "the end of the connection", disconnects.recv()).await.unwrap();
    assert!(ended.saturating_duration_since(began) < Duration::from_secs(1));
    let rotated = rotated.login.unwrap();
    assert!(rotated.active && rotated.password != first.password);
    assert!(system.connect(&first).await.is_err(), "the replaced password");
    system.connect(&rotated).await.unwrap();

    system.platform.delete("/consumers/first").await.expect_empty(204);
    let began = Instant::now();
    while system.connect(&rotated).await.is_ok() {
        assert!(began.elapsed() < Duration::from_secs(1), "the login of a deleted consumer works");
    }
    // The account of the deleted consumer belongs to the next one.
    system.store("beta").await;
    let next = system.create("next", "beta").await;
    let client = system.connect(&next).await.unwrap();
    assert_eq!(read_all(&client, "next").await, ["udm.v1.07.beta.LOGIN"]);
    assert_eq!(remaining.connection_state(), async_nats::connection::State::Connected);
    assert_eq!(read_all(&remaining, "other").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_login_works_after_a_restart_and_more_consumers_than_empty_accounts_work() {
    let system = System::start();
    let mut logins = Vec::new();
    for number in 0..40 {
        logins.push(system.create(&format!("c{number}"), "acme").await);
    }
    system.store("acme").await;
    let System { run, installation, .. } = system;
    drop(run);
    let run = installation.up("data");
    let system = System { platform: platform(&run), run, installation };
    for login in [&logins[0], &logins[39]] {
        let client = system.connect(login).await.unwrap();
        assert_eq!(read_all(&client, &login.user).await, ["udm.v1.07.acme.LOGIN"]);
    }
}
