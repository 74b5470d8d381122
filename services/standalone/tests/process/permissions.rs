//! The NATS accounts of consumers (`deploy/nats`): a consumer reads its own durable and has no other effect, also not with the reply
//! subjects of its requests, which NATS does not check. Effects are checked as the administrator.

use std::collections::BTreeMap;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Event, Message, Subscriber};
use contract::consumers::{Consumer, NatsPermissions};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{DEADLINE, wait_until, within};
use tokio::sync::mpsc;

use super::installation::{Installation, Run, send};

const TENANT_ACCOUNT: &str = include_str!("../../../../deploy/nats/tenant-account.conf");
const PASSWORD: &str = "a-password-of-this-test";

/// A client, and the denials that the broker sends to it.
struct User {
    client: Client,
    denials: mpsc::UnboundedReceiver<String>,
}

impl User {
    async fn connect(run: &Run, name: &str, password: &str, inbox_prefix: &str) -> Option<Self> {
        let (sender, denials) = mpsc::unbounded_channel();
        let options = ConnectOptions::with_user_and_password(name.to_owned(), password.to_owned());
        let options = options.custom_inbox_prefix(inbox_prefix).event_callback(move |event| {
            let sender = sender.clone();
            async move {
                if let Event::ServerError(error) = event {
                    let _ = sender.send(error.to_string().to_lowercase());
                }
            }
        });
        let address = run.run_file.nats_url.rsplit_once('@').unwrap().1;
        Some(Self { client: options.connect(address).await.ok()?, denials })
    }

    /// Publishes a message, with a reply subject that the client library would not choose.
    #[expect(clippy::disallowed_methods, reason = "tests the permissions of the broker")]
    async fn publish(&self, subject: &str, reply: Option<&str>, payload: &str) {
        let (subject, payload) = (subject.to_owned(), payload.to_owned().into());
        match reply {
            Some(reply) => self.client.publish_with_reply(subject, reply.to_owned(), payload).await.unwrap(),
            None => self.client.publish(subject, payload).await.unwrap(),
        }
        self.client.flush().await.unwrap();
    }

    async fn assert_denied(&mut self, operation: &str, subject: &str) {
        let denial = within(DEADLINE, operation, self.denials.recv()).await.unwrap();
        assert!(
            denial.contains(operation) && denial.contains(&subject.to_lowercase()),
            "{subject}: {denial}"
        );
    }

    async fn cannot_publish(&mut self, subject: &str) {
        self.publish(subject, None, "").await;
        self.assert_denied("publish", subject).await;
    }

    async fn cannot_subscribe(&mut self, subject: &str) {
        let _subscription = self.client.subscribe(subject.to_owned()).await.unwrap();
        self.client.flush().await.unwrap();
        self.assert_denied("subscription", subject).await;
    }

    /// Reads and acknowledges all events of the durable. Returns their subjects.
    async fn read_all(&self, durable: &str) -> Vec<String> {
        let context = jetstream::with_prefix(self.client.clone(), "JS.API");
        let consumer: PullConsumer = context.get_consumer_from_stream(durable, "UDM").await.unwrap();
        let mut subjects = Vec::new();
        loop {
            let messages = consumer.fetch().max_messages(10).messages().await.unwrap();
            let messages: Vec<_> = messages.try_collect().await.unwrap();
            if messages.is_empty() {
                return subjects;
            }
            for message in messages {
                message.double_ack().await.unwrap();
                subjects.push(message.subject.to_string());
            }
        }
    }

    /// Pulls one event of the durable.
    async fn pull(&self, durable: &str) -> Message {
        let inbox = self.client.new_inbox();
        let mut events = self.client.subscribe(inbox.clone()).await.unwrap();
        let subject = format!("JS.API.CONSUMER.MSG.NEXT.UDM.{durable}");
        self.publish(&subject, Some(&inbox), r#"{"batch":1}"#).await;
        within(DEADLINE, "an event", events.next()).await.unwrap()
    }

    /// Sends the request and returns the response.
    async fn request(&self, subject: &str, payload: &'static str) -> Value {
        let response = self.client.request(subject.to_owned(), payload.into()).await.unwrap();
        serde_json::from_slice(&response.payload).unwrap()
    }
}

/// A running system with the consumers `consumer` and `victim`, each with its user, and `observer`, a user that may do everything in
/// the account `CONSUMERS`.
struct System {
    run: Run,
    admin: Context,
    audit_admin: Context,
    /// Messages on the subject of invalidations.
    invalidations: Subscriber,
    /// Audit events of tenants that do not exist.
    audit_events: Vec<Subscriber>,
    _installation: Installation,
}

impl System {
    async fn start() -> Self {
        // Fails when another test of this process has installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let installation = Installation::new();
        let run = installation.up_with("data", &[("NATS_TENANT_ACME_PASSWORD", PASSWORD)]);
        let client = bus::connect(&bus::Config::new(&run.run_file.nats_url, "test")).await.unwrap();
        let invalidations = client.subscribe("svc.>").await.unwrap();
        let audit_client =
            bus::connect(&bus::Config::new(&run.run_file.audit_nats_url, "test")).await.unwrap();
        let mut audit_events = Vec::new();
        for subject in ["audit.v1.acme.>", "audit.v1.beta.>", "audit.anonymous.v1.identity.x"] {
            audit_events.push(audit_client.subscribe(subject).await.unwrap());
        }
        let (admin, audit_admin) = (jetstream::new(client), jetstream::new(audit_client));
        let system =
            Self { run, admin, audit_admin, invalidations, audit_events, _installation: installation };
        system.create_consumer(json!({ "name": "consumer" })).await;
        let victim = system.create_consumer(json!({ "name": "victim" })).await.nats;
        let observer =
            NatsPermissions { publish: vec![">".into()], subscribe: vec![">".into()], ..victim.clone() };
        system.add_users(&[("victim", &victim), ("observer", &observer)]).await;
        system
    }

    async fn create_consumer(&self, request: Value) -> Consumer {
        let token = std::fs::read_to_string(&self.run.run_file.platform_token_file).unwrap();
        let platform = testkit::Client::new(&self.run.run_file.base_url).bearer(token.trim());
        platform.post("/consumers", &request).await.expect(201)
    }

    /// Adds users with the permissions from the API, and a user without permissions, as docs/consumers.md describes.
    async fn add_users(&self, users: &[(&str, &NatsPermissions)]) {
        let mut added = vec![format!("users: [\n{{ user: bare, password: \"{PASSWORD}\" }}")];
        added.extend(users.iter().map(|(name, NatsPermissions { publish, subscribe, .. })| {
            format!(
                "{{ user: {name}, password: \"{PASSWORD}\", permissions: {{ publish: {{ allow: {publish:?} }}, subscribe: {{ allow: {subscribe:?} }} }} }}"
            )
        }));
        let text = std::fs::read_to_string(&self.run.run_file.consumers_file).unwrap();
        let added = added.join("\n") + "\n";
        self.reload(&text.replacen("users: [", &added, 1), users.last().unwrap().0).await;
    }

    /// Replaces the users of consumers and waits until this user can connect.
    async fn reload(&self, consumers: &str, user: &str) {
        std::fs::write(&self.run.run_file.consumers_file, consumers).unwrap();
        send(self.run.run_file.children.nats, Signal::HUP);
        wait_until("the user is known", async || {
            User::connect(&self.run, user, PASSWORD, "_INBOX.test").await
        })
        .await;
    }

    async fn user(&self, name: &str) -> User {
        User::connect(&self.run, name, PASSWORD, &format!("_INBOX.{name}")).await.unwrap()
    }

    /// The user that is part of the installation.
    async fn consumer(&self) -> User {
        let url = self.run.run_file.consumer_nats_url.strip_prefix("nats://consumer:").unwrap();
        let password = url.split_once('@').unwrap().0;
        User::connect(&self.run, "consumer", password, "_INBOX.consumer").await.unwrap()
    }

    /// Stores an event. The payload is that of a pull request too.
    #[expect(clippy::disallowed_methods, reason = "publishes to the stream of this test")]
    async fn store(&self, subject: &str) {
        let payload = r#"{"source_id":"s","batch":100,"no_wait":true}"#;
        self.admin.publish(subject.to_owned(), payload.into()).await.unwrap().await.unwrap();
    }

    /// Everything that a consumer could change: each stream with its number of messages, and each durable with its progress.
    async fn state(&mut self) -> BTreeMap<String, Value> {
        let mut state = BTreeMap::new();
        for stream in ["UDM", "UDM_DLQ", "AUDIT", "AUDIT_ANONYMOUS"] {
            let admin = if stream.starts_with("AUDIT") { &self.audit_admin } else { &self.admin };
            let stream = admin.get_stream(stream).await.unwrap();
            let info = stream.cached_info();
            let name = info.config.name.clone();
            // The services write audit events at any time.
            let content = name.starts_with("UDM").then_some([info.state.messages, info.state.last_sequence]);
            state.insert(
                name.clone(),
                json!([content, info.config, info.created.unix_timestamp_nanos().to_string()]),
            );
            let mut durables = stream.consumers();
            while let Some(info) = durables.try_next().await.unwrap() {
                let progress = [info.delivered.consumer_sequence, info.ack_floor.stream_sequence];
                let open = [info.num_ack_pending, info.num_waiting, info.num_redelivered];
                // These durables change with the requests of their users.
                let value = if ["consumer", "acme"].contains(&info.name.as_str()) {
                    json!(info.config)
                } else {
                    json!([info.config, progress, open])
                };
                state.insert(format!("{name}/{}", info.name), value);
            }
        }
        while let Some(Some(message)) = self.invalidations.next().now_or_never() {
            // Each message of session names its publisher. No response of the server does.
            let content: Value = serde_json::from_slice(&message.payload).unwrap_or_default();
            let is_by_session = content["publisher"].is_string();
            assert!(is_by_session, "not sent by a service: {message:?}");
        }
        for subscriber in &mut self.audit_events {
            assert!(subscriber.next().now_or_never().is_none(), "an audit event was forged");
        }
        state
    }
}

#[tokio::test]
async fn a_consumer_reads_acknowledges_and_writes_dead_letters_of_its_durable() {
    let mut system = System::start().await;
    for tenant in ["acme", "beta"] {
        system.store(&format!("udm.v1.07.{tenant}.LOGIN")).await;
    }
    let consumer = system.consumer().await;
    assert_eq!(consumer.read_all("consumer").await, ["udm.v1.07.acme.LOGIN", "udm.v1.07.beta.LOGIN"]);
    let info = consumer.request("JS.API.CONSUMER.INFO.UDM.consumer", "").await;
    assert_eq!((&info["ack_floor"]["stream_seq"], &info["num_ack_pending"]), (&json!(2), &json!(0)));
    let ack = consumer.request("udm.dlq.v1.acme.consumer", "{}").await;
    assert_eq!(ack, json!({ "stream": "UDM_DLQ", "seq": 1 }));
    assert_eq!(system.state().await["UDM_DLQ"][0][0], 1);

    // The broker forgets the reply subject of a longer request.
    let too_long =
        consumer.client.request("JS.API.CONSUMER.MSG.NEXT.UDM.consumer", r#"{"expires":61000000000}"#.into());
    let status = too_long.await.unwrap();
    assert_eq!(status.status.unwrap().as_u16(), 409, "{:?}", status.description);
}

#[tokio::test]
async fn requests_other_than_those_of_the_own_durable_have_no_effect() {
    let mut system = System::start().await;
    system.store("udm.v1.07.acme.LOGIN").await;
    let before = system.state().await;
    let mut consumer = system.consumer().await;
    for subject in [
        // Consumers, also push consumers with a foreign deliver subject.
        "$JS.API.CONSUMER.CREATE.UDM.new",
        "JS.API.CONSUMER.CREATE.UDM.new",
        "$JS.API.CONSUMER.DURABLE.CREATE.UDM.new",
        "$JS.API.CONSUMER.DELETE.UDM.victim",
        "JS.API.CONSUMER.DELETE.UDM.victim",
        // Streams.
        "$JS.API.STREAM.DELETE.UDM",
        "JS.API.STREAM.DELETE.UDM",
        "$JS.API.STREAM.PURGE.UDM",
        "$JS.API.STREAM.UPDATE.UDM",
        "$JS.API.STREAM.MSG.GET.UDM",
        "$JS.API.DIRECT.GET.UDM",
        "JS.API.DIRECT.GET.UDM",
        // Other durables.
        "JS.API.CONSUMER.MSG.NEXT.UDM.victim",
        "JS.API.CONSUMER.INFO.UDM.victim",
        "$JS.ACK.UDM.victim.1.1.1.1.0",
        "JS.API.CONSUMER.MSG.NEXT.AUDIT.consumer",
        "$JS.API.CONSUMER.MSG.NEXT.UDM.consumer",
        // Messages of the services and of other consumers.
        "udm.v1.07.acme.LOGIN",
        "audit.v1.acme.identity.authn_login_success",
        "audit.anonymous.v1.identity.x",
        "svc.invalidations.v1",
        "udm.dlq.v1.acme.victim",
        "_INBOX.victim.x",
        "_INBOX.consumer.x",
    ] {
        consumer.cannot_publish(subject).await;
    }
    for subject in ["_INBOX.victim.>", "_INBOX.>", "udm.v1.>", "udm.dlq.v1.>", "svc.>", "$JS.>", "_R_.>", ">"]
    {
        consumer.cannot_subscribe(subject).await;
    }
    let mut bare = system.user("bare").await;
    bare.cannot_publish("JS.API.CONSUMER.INFO.UDM.consumer").await;
    bare.cannot_subscribe("_INBOX.bare.x").await;

    // Users without restrictions reach only the exports of the services.
    let observer = system.user("observer").await;
    let create = r#"{"stream_name":"UDM","config":{"name":"new","deliver_subject":"svc.invalidations.v1","ack_policy":"none"}}"#;
    for (subject, payload) in [
        ("$JS.API.CONSUMER.CREATE.UDM.new", create),
        ("JS.API.CONSUMER.CREATE.UDM.new", create),
        ("$JS.API.CONSUMER.DELETE.UDM.victim", ""),
        ("JS.API.CONSUMER.DELETE.UDM.victim", ""),
        ("$JS.API.STREAM.DELETE.UDM", ""),
        ("JS.API.STREAM.DELETE.UDM", ""),
        ("$JS.API.STREAM.PURGE.AUDIT", ""),
        ("$JS.API.STREAM.MSG.GET.UDM", r#"{"seq":1}"#),
        ("$JS.API.DIRECT.GET.UDM", r#"{"seq":1}"#),
        ("udm.v1.07.acme.LOGIN", "{}"),
        ("audit.v1.acme.identity.authn_login_success", "{}"),
        ("svc.invalidations.v1", "{}"),
    ] {
        observer.publish(subject, Some("_INBOX.observer.x"), payload).await;
    }
    // The broker processes the messages of a connection in order.
    observer.request("JS.API.CONSUMER.INFO.UDM.victim", "").await;
    assert_eq!(system.state().await, before);
}

#[tokio::test]
async fn reply_subjects_of_a_consumer_have_no_effect_in_the_account_of_the_services() {
    let mut system = System::start().await;
    let (mut consumer, observer) = (system.consumer().await, system.user("observer").await);
    let mut messages = observer.client.subscribe(">").await.unwrap();
    // `victim` has an event that it has not acknowledged yet.
    system.store("udm.v1.07.acme.LOGIN").await;
    let victim = system.user("victim").await;
    let next = "JS.API.CONSUMER.MSG.NEXT.UDM.consumer";
    let unacknowledged = victim.pull("victim").await.reply.unwrap();

    for reply in [
        "$JS.API.STREAM.DELETE.UDM",
        "$JS.API.STREAM.DELETE.AUDIT",
        "$JS.API.STREAM.DELETE.UDM_DLQ",
        "$JS.API.STREAM.PURGE.UDM",
        "$JS.API.CONSUMER.DELETE.UDM.victim",
        "JS.API.STREAM.DELETE.UDM",
        "svc.invalidations.v1",
        "udm.v1.07.beta.LOGIN",
        "audit.v1.beta.identity.authn_login_success",
        "udm.dlq.v1.beta.victim",
        "JS.API.CONSUMER.MSG.NEXT.UDM.victim",
        "JS.API.CONSUMER.INFO.UDM.victim",
    ] {
        for (request, payload) in [
            // The response has an empty payload.
            (next, r#"{"batch":1,"no_wait":true}"#),
            // The response is an event with a pull request as payload.
            (next, r#"{"batch":1}"#),
            ("$JS.ACK.UDM.consumer.1.1.1.1.0", r#"+NXT {"batch":1}"#),
            // The response to an acknowledgement is empty.
            ("acknowledge", ""),
            ("JS.API.CONSUMER.INFO.UDM.consumer", ""),
            ("udm.dlq.v1.acme.consumer", "{}"),
        ] {
            consumer.read_all("consumer").await;
            let mut subject = request.to_owned();
            if payload.ends_with(r#"{"batch":1}"#) || request == "acknowledge" {
                system.store("udm.v1.07.acme.LOGIN").await;
            }
            if request == "acknowledge" {
                subject = consumer.pull("consumer").await.reply.unwrap().to_string();
            }
            let before = system.state().await;
            observer.publish("earlier.messages.end", None, "").await;
            while messages.next().await.unwrap().subject.as_str() != "earlier.messages.end" {}
            consumer.publish(&subject, Some(reply), payload).await;
            let response = async {
                while let Some(message) = messages.next().await {
                    let is_event = message.reply.is_some_and(|ack| ack.starts_with("$JS.ACK.UDM.consumer."));
                    if is_event || message.subject.as_str() == reply {
                        return;
                    }
                }
            };
            within(DEADLINE, &format!("the response to {request} at {reply}"), response).await;
            let mut after = system.state().await;
            if request.starts_with("udm.dlq") {
                assert_eq!(
                    after["UDM_DLQ"][0][0].as_u64(),
                    before["UDM_DLQ"][0][0].as_u64().map(|count| count + 1)
                );
                after.insert("UDM_DLQ".to_owned(), before["UDM_DLQ"].clone());
            }
            assert_eq!(after, before, "{request} with the reply subject {reply}");
        }
    }
    let before = system.state().await;
    consumer.publish(next, Some(&unacknowledged), r#"{"batch":1}"#).await;
    consumer.assert_denied("reply", &unacknowledged).await;
    assert_eq!(system.state().await, before);
}

#[tokio::test]
async fn the_account_of_a_tenant_reads_the_durable_of_the_tenant_only() {
    let mut system = System::start().await;
    system.create_consumer(json!({ "name": "acme", "tenant_id": "acme" })).await;
    let consumers = std::fs::read_to_string(&system.run.run_file.consumers_file).unwrap();
    // nats-server starts the imports of a new account at the second reload.
    for _ in 0..2 {
        system.reload(&format!("{consumers}{TENANT_ACCOUNT}"), "tenant-acme").await;
    }
    for tenant in ["acme", "beta"] {
        system.store(&format!("udm.v1.07.{tenant}.LOGIN")).await;
    }
    let mut tenant = User::connect(&system.run, "tenant-acme", PASSWORD, "_INBOX.acme").await.unwrap();
    wait_until("the account imports its durable", async || {
        tenant.client.request("JS.API.CONSUMER.INFO.UDM.acme", "".into()).await.ok()
    })
    .await;
    assert_eq!(tenant.read_all("acme").await, ["udm.v1.07.acme.LOGIN"]);

    let before = system.state().await;
    for subject in [
        "JS.API.CONSUMER.MSG.NEXT.UDM.victim",
        "JS.API.CONSUMER.INFO.UDM.victim",
        "$JS.ACK.UDM.victim.1.1.1.1.0",
        "$JS.API.STREAM.DELETE.UDM",
        "$JS.API.CONSUMER.CREATE.UDM.new",
        "$JS.API.DIRECT.GET.UDM",
        "udm.v1.07.acme.LOGIN",
        "udm.dlq.v1.acme.acme",
        "audit.v1.acme.identity.x",
        "svc.invalidations.v1",
    ] {
        tenant.cannot_publish(subject).await;
    }
    for subject in ["_INBOX.consumer.>", "udm.v1.>", ">"] {
        tenant.cannot_subscribe(subject).await;
    }
    for reply in [
        "$JS.API.STREAM.DELETE.UDM",
        "$JS.API.CONSUMER.DELETE.UDM.victim",
        "svc.invalidations.v1",
        "audit.v1.beta.identity.x",
    ] {
        tenant
            .publish("JS.API.CONSUMER.MSG.NEXT.UDM.acme", Some(reply), r#"{"batch":1,"no_wait":true}"#)
            .await;
        tenant.publish("JS.API.CONSUMER.INFO.UDM.acme", Some(reply), "").await;
    }
    tenant.request("JS.API.CONSUMER.INFO.UDM.acme", "").await;
    assert_eq!(system.state().await, before);
}
