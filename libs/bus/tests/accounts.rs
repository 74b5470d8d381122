//! The NATS accounts (`deploy/nats`): what a user of one account sends changes nothing in the others. NATS does not check the reply
//! subject of a request, and publishes the response with the rights of the server, so each request of each user is sent with each
//! foreign subject as its reply subject. Effects are checked as the administrators.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

#[path = "accounts/requests.rs"]
mod requests;

use std::collections::{BTreeMap, HashMap};

use async_nats::client::RequestErrorKind;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::{self, Context, stream::Config};
use async_nats::{Client, ConnectOptions, HeaderMap, Message, Subscriber};
use bus::{AuditProfile, Durable, DurableFilter, INVALIDATION_SUBJECT, InvalidationMessage, Login, Profile};
use chrono::DateTime;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use testkit::nats::connect;
use testkit::wait_until;
use testkit::{NatsCluster, NatsServer};

#[path = "accounts/limits.rs"]
mod limits;

const MAX_BYTES: u64 = 16 << 20;
const INVALIDATION: &str = r#"{"publisher":"018f2e6e-7c1d-7000-8000-000000000001","sequence":7,"committed_at":"2026-01-31T12:00:00Z","invalidations":[]}"#;
const ANNOUNCEMENT: &str = r#"{"replica":"018f2e6e-7c1d-7000-8000-000000000001","leaves":false}"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Account {
    Udm,
    Audit,
    Facade,
    Consumer,
}

/// A user and what it may send.
struct User {
    name: &'static str,
    account: Account,
    /// Messages on these subjects may reach other accounts. What identity lets the server publish on the subject of invalidations is no
    /// valid invalidation.
    reaches: &'static [&'static str],
    requests: &'static [Request],
}

impl User {
    /// ingest can delete the streams in its account and creates those of FACADE. The other users cannot, also not in their own.
    fn must_not_change(&self, account: Account) -> bool {
        account == Account::Audit || self.account != Account::Udm
    }
}

/// Subject, payload, and a header.
type Request = (&'static str, &'static str, Option<(&'static str, &'static str)>);

const USERS: [User; 4] = [
    User {
        name: "ingest",
        account: Account::Udm,
        reaches: &[],
        requests: &[
            // The response has an empty payload, which is a valid request to delete a stream.
            ("$JS.API.CONSUMER.MSG.NEXT.UDM.empty", r#"{"batch":1,"no_wait":true}"#, None),
            // The response is an event with the payload `{}`.
            ("$JS.API.CONSUMER.MSG.NEXT.UDM.full", r#"{"batch":1,"no_wait":true}"#, None),
            ("$JS.API.CONSUMER.INFO.UDM.full", "", None),
            (
                "$JS.API.CONSUMER.CREATE.UDM.pushed",
                r#"{"stream_name":"UDM","config":{"durable_name":"pushed","deliver_subject":"audit.v1.beta.identity.x","ack_policy":"none"}}"#,
                None,
            ),
            (
                "$JS.API.STREAM.CREATE.UDM_COPY",
                r#"{"name":"UDM_COPY","sources":[{"name":"AUDIT","external":{"api":"AUDIT.API","deliver":"copy"}}]}"#,
                None,
            ),
            ("$JS.API.STREAM.NAMES", "", None),
            ("$JS.API.STREAM.INFO.UDM", "", None),
            ("$JS.API.STREAM.MSG.GET.UDM_DLQ", r#"{"seq":1}"#, None),
            ("AUDIT.API.STREAM.MSG.GET.AUDIT", r#"{"seq":1}"#, None),
            ("AUDIT.API.STREAM.MSG.GET.AUDIT", r#"{"last_by_subj":"audit.v1.>"}"#, None),
            ("AUDIT.API.STREAM.MSG.GET.AUDIT", "", None),
            (
                "AUDIT.API.STREAM.MSG.GET.AUDIT",
                "",
                Some(("Nats-Request-Info", r#"{"acc":"AUDIT","user":"audit-administrator"}"#)),
            ),
            (
                "AUDIT.API.STREAM.MSG.GET.AUDIT",
                r#"{"seq":1}"#,
                Some(("Nats-Trace-Dest", "svc.invalidations.v1")),
            ),
            ("udm.v1.07.acme.LOGIN", "{}", None),
            ("udm.v1.07.acme.LOGIN", "{}", Some(("Nats-Trace-Dest", "audit.v1.beta.identity.x"))),
            ("svc.ingest.replicas.v1", "{}", None),
            ("udm.dlq.v1.acme._ingest", "{}", None),
            ("FACADE.API.STREAM.NAMES", "", None),
            ("FACADE.API.STREAM.INFO.UDM", "", None),
            ("FACADE.API.STREAM.CREATE.UDM", "", None),
            (
                "FACADE.API.STREAM.CREATE.COPY",
                r#"{"name":"COPY","sources":[{"name":"AUDIT","external":{"api":"AUDIT.API","deliver":"copy"}}]}"#,
                None,
            ),
            ("FACADE.API.STREAM.INFO.UDM", "", Some(("Nats-Trace-Dest", "audit.v1.beta.identity.x"))),
            ("udm.v1.07.acme.LOGIN", INVALIDATION, Some(("Nats-Trace-Dest", INVALIDATION_SUBJECT))),
        ],
    },
    User {
        name: "identity",
        account: Account::Audit,
        reaches: &["svc.invalidations.v1"],
        requests: &[
            ("audit.v1.acme.identity.x", "{}", None),
            ("audit.v1.acme.identity.x", "", None),
            ("audit.v1.acme.identity.x", INVALIDATION, None),
            ("audit.v1.acme.identity.x", INVALIDATION, Some(("Nats-Trace-Dest", INVALIDATION_SUBJECT))),
            ("audit.v1.acme.identity.x", INVALIDATION, Some(("Nats-Msg-Id", "1"))),
            ("$JS.API.STREAM.INFO.AUDIT", INVALIDATION, None),
            (
                "$JS.API.STREAM.CREATE.AUDIT",
                r#"{"name":"AUDIT","subjects":["audit.v1.>"],"republish":{"src":">","dest":"svc.invalidations.v1"}}"#,
                None,
            ),
            ("audit.anonymous.v1.identity.x", "", None),
            // An unfinished atomic batch is acknowledged with an empty payload, if the stream accepts batches.
            ("audit.v1.acme.identity.x", "", Some(("Nats-Batch-Id", "batch"))),
            ("audit.v1.acme.identity.x", "", Some(("Nats-Expected-Last-Sequence", "999999"))),
            ("audit.v1.acme.identity.x", "", Some(("Nats-Rollup", "all"))),
            ("audit.v1.acme.identity.x", "", Some(("Nats-Rollup", "sub"))),
            ("audit.v1.acme.identity.x", "", Some(("Nats-TTL", "1s"))),
            ("audit.v1.acme.identity.x", "", Some(("Nats-Trace-Dest", "$JS.API.STREAM.DELETE.AUDIT"))),
            ("audit.v1.acme.identity.x", "", Some(("Nats-Trace-Dest", "svc.invalidations.v1"))),
            ("$JS.API.STREAM.INFO.AUDIT", "", None),
            ("$JS.API.STREAM.INFO.AUDIT_ANONYMOUS", r#"{"subjects_filter":">"}"#, None),
            ("$JS.API.STREAM.CREATE.AUDIT", "", None),
            (
                "$JS.API.STREAM.CREATE.AUDIT",
                r#"{"name":"AUDIT","subjects":["audit.v1.>"],"max_age":1000000000}"#,
                None,
            ),
            (
                "$JS.API.STREAM.CREATE.AUDIT_ANONYMOUS",
                r#"{"name":"AUDIT_ANONYMOUS","republish":{"src":">","dest":"svc.>"}}"#,
                None,
            ),
        ],
    },
    User {
        name: "session",
        account: Account::Audit,
        reaches: &["svc.invalidations.v1"],
        requests: &[
            ("audit.v1.acme.session.x", "{}", None),
            ("audit.v1.acme.session.x", "", Some(("Nats-Batch-Id", "batch"))),
            ("audit.v1.acme.session.x", "", Some(("Nats-Rollup", "all"))),
            ("audit.v1.acme.session.x", "", Some(("Nats-Trace-Dest", "$JS.API.STREAM.DELETE.AUDIT"))),
            ("svc.invalidations.v1", "", None),
            ("$JS.API.STREAM.INFO.AUDIT", "", None),
        ],
    },
    User {
        name: "consumer",
        account: Account::Consumer,
        reaches: &[
            // ingest stores a dead letter.
            "svc.consumers.api.v1.consumer.DEAD_LETTER.acme",
            // ingest answers these and does nothing else.
            "svc.consumers.api.v1.consumer.CREATE.UDM.consumer",
            "svc.consumers.api.v1.consumer.CREATE.UDM.consumer.udm.v1.>",
            "svc.consumers.api.v1.consumer.CREATE.UDM.new",
            "svc.consumers.api.v1.consumer.CREATE.AUDIT.new",
            "svc.consumers.api.v1.consumer.DURABLE.CREATE.UDM.new",
            "svc.consumers.api.v1.consumer.NAMES.UDM",
            "svc.consumers.api.v1.consumer.LIST.AUDIT",
        ],
        requests: &[
            // The response has an empty payload.
            ("$JS.API.CONSUMER.MSG.NEXT.UDM.consumer", r#"{"batch":1,"no_wait":true}"#, None),
            // The response is an event.
            ("$JS.API.CONSUMER.MSG.NEXT.UDM.consumer", r#"{"batch":1}"#, None),
            ("$JS.API.CONSUMER.MSG.NEXT.UDM.consumer", r#"{"batch":1,"expires":200000000}"#, None),
            ("$JS.API.CONSUMER.INFO.UDM.consumer", "", None),
            ("$JS.API.CONSUMER.INFO.UDM.consumer", "", Some(("Nats-Request-Info", r#"{"acc":"UDM"}"#))),
            ("$JS.API.CONSUMER.INFO.UDM.consumer", "", Some(("Nats-Trace-Dest", "udm.v1.07.beta.LOGIN"))),
            ("$JS.ACK.UDM.consumer.1.1.1.1.0", "", None),
            ("$JS.ACK.UDM.consumer.1.1.1.1.0", r#"+NXT {"batch":1,"no_wait":true}"#, None),
            ("$JS.API.INFO", "", None),
            ("$JS.API.STREAM.NAMES", "", None),
            ("$JS.API.STREAM.INFO.UDM", "", None),
            ("$JS.API.STREAM.INFO.UDM", "", Some(("Nats-Trace-Dest", "$JS.API.STREAM.DELETE.UDM"))),
            (
                "$JS.API.CONSUMER.CREATE.UDM.consumer",
                r#"{"stream_name":"UDM","config":{"name":"consumer","deliver_subject":"svc.invalidations.v1"}}"#,
                None,
            ),
            ("$JS.API.CONSUMER.CREATE.UDM.consumer.udm.v1.>", "", None),
            ("$JS.API.CONSUMER.NAMES.UDM", r#"{"offset":0}"#, None),
            ("$JS.API.CONSUMER.LIST.AUDIT", "", Some(("Nats-Trace-Dest", "udm.v1.07.beta.LOGIN"))),
            ("$JS.API.STREAM.LIST", "", None),
            ("udm.dlq.v1.acme.consumer", "{}", None),
            ("udm.dlq.v1.acme.consumer", "{}", Some(("Nats-Rollup", "all"))),
            ("udm.dlq.v1.acme.consumer", "{}", Some(("Nats-Expected-Last-Sequence", "999999"))),
            ("udm.dlq.v1.acme.consumer", INVALIDATION, Some(("Nats-Trace-Dest", INVALIDATION_SUBJECT))),
            ("udm.dlq.v1.acme.consumer", ANNOUNCEMENT, Some(("Nats-Trace-Dest", "svc.ingest.replicas.v1"))),
        ],
    },
];

/// Subjects of an account that its users, or those of others, must not reach. They are reply subjects, and are also published directly.
const TARGETS: [(Account, &[&str]); 3] = [
    (
        Account::Audit,
        &[
            "$JS.API.STREAM.DELETE.AUDIT",
            "$JS.API.STREAM.DELETE.AUDIT_ANONYMOUS",
            "$JS.API.STREAM.PURGE.AUDIT",
            "$JS.API.STREAM.UPDATE.AUDIT",
            "$JS.API.STREAM.CREATE.AUDIT_COPY",
            "$JS.API.STREAM.MSG.DELETE.AUDIT",
            "$JS.API.CONSUMER.CREATE.AUDIT.new",
            "$JS.API.CONSUMER.DELETE.AUDIT.victim",
            "AUDIT.API.STREAM.MSG.GET.AUDIT",
            "AUDIT.API.STREAM.DELETE.AUDIT",
            "audit.v1.beta.identity.x",
            "audit.anonymous.v1.identity.x",
            "svc.invalidations.v1",
        ],
    ),
    (
        Account::Udm,
        &[
            "$JS.API.STREAM.DELETE.UDM",
            "$JS.API.STREAM.DELETE.UDM_DLQ",
            "$JS.API.STREAM.PURGE.UDM",
            "$JS.API.STREAM.UPDATE.UDM",
            "$JS.API.STREAM.MSG.DELETE.UDM_DLQ",
            "$JS.API.CONSUMER.DELETE.UDM.victim",
            "$JS.API.CONSUMER.CREATE.UDM.new",
            "$JS.API.CONSUMER.DURABLE.CREATE.UDM.new",
            "$JS.API.CONSUMER.PAUSE.UDM.victim",
            "$JS.API.CONSUMER.MSG.NEXT.UDM.victim",
            "$JS.ACK.UDM.victim.1.1.1.1.0",
            "$JS.FC.UDM.victim.x",
            "udm.v1.07.beta.LOGIN",
            "udm.dlq.v1.beta.victim",
            "udm.dlq.v1.beta.consumer",
            // As the subject of a dead letter of the consumer.
            "udm.dlq.v1.acme.consumer",
            "svc.ingest.replicas.v1",
            "svc.ingest.consumers.v1",
        ],
    ),
    (
        Account::Facade,
        &[
            "FACADE.API.STREAM.DELETE.UDM",
            "FACADE.API.STREAM.UPDATE.UDM",
            "FACADE.API.STREAM.CREATE.NEW",
            "$JS.API.STREAM.CREATE.NEW",
        ],
    ),
];

/// The administrator of an account, with the messages on the subjects of the services.
struct Administrator {
    context: Context,
    messages: Vec<Subscriber>,
}

impl Administrator {
    async fn connect(urls: &str, user: &str) -> Self {
        let client = connect(urls, user).await.unwrap();
        let mut messages = Vec::new();
        for subjects in ["svc.>", "audit.>", "udm.>"] {
            messages.push(client.subscribe(subjects).await.unwrap());
        }
        client.flush().await.unwrap();
        Self { context: jetstream::new(client), messages }
    }

    fn received(&mut self) -> Vec<Message> {
        let next = |messages: &mut Subscriber| messages.next().now_or_never().flatten();
        let mut received = Vec::new();
        for messages in &mut self.messages {
            received.extend(std::iter::from_fn(|| next(messages)));
        }
        received
    }

    /// All streams and durables of the account.
    async fn streams(&self) -> BTreeMap<String, Stream> {
        let mut streams = BTreeMap::new();
        let mut infos = self.context.streams();
        while let Some(info) = infos.try_next().await.unwrap() {
            let stream = self.context.get_stream(&info.config.name).await.unwrap();
            let mut durables = stream.consumers().try_collect::<Vec<_>>().await.unwrap();
            durables.sort_by(|left, right| left.name.cmp(&right.name));
            // Changes with the requests of its login.
            let durables = durables.into_iter().filter(|durable| durable.name != "consumer");
            let durables = durables.map(|durable| {
                json!([
                    durable.name,
                    durable.delivered.consumer_sequence,
                    durable.num_ack_pending,
                    durable.num_waiting
                ])
            });
            let subjects = stream.info_with_subjects(">").await.unwrap().try_collect().await.unwrap();
            let found = Stream {
                config: info.config,
                created: info.created.unix_timestamp_nanos(),
                first_sequence: info.state.first_sequence,
                deleted: info.state.deleted_count.unwrap_or(0),
                durables: durables.collect(),
                subjects,
            };
            streams.insert(found.config.name.clone(), found);
        }
        streams
    }
}

/// The stream of the account FACADE, which has no user.
async fn facade(administrator: &Administrator) -> Stream {
    let context = jetstream::with_prefix(administrator.context.client(), bus::FACADE_API_PREFIX);
    let stream = context.get_stream("UDM").await.unwrap();
    let info = stream.cached_info();
    Stream {
        config: info.config.clone(),
        created: info.created.unix_timestamp_nanos(),
        first_sequence: info.state.last_sequence,
        deleted: info.state.messages,
        durables: Vec::new(),
        subjects: HashMap::new(),
    }
}

/// What an attack could change.
#[derive(Clone, Debug, PartialEq)]
struct Stream {
    config: Config,
    created: i128,
    first_sequence: u64,
    deleted: u64,
    durables: Vec<Value>,
    /// Number of messages by subject.
    subjects: HashMap<String, usize>,
}

impl Stream {
    /// The same stream without the messages on these subjects.
    fn without(mut self, subjects: &[&str]) -> Self {
        self.subjects.retain(|subject, _| !subjects.contains(&subject.as_str()));
        self
    }

    /// Asserts that messages were added at most.
    fn assert_only_appended(&self, after: &Self, attack: &str) {
        let appended = Self { subjects: after.subjects.clone(), ..self.clone() };
        assert_eq!(*after, appended, "{attack}");
        for (subject, count) in &self.subjects {
            assert!(after.subjects[subject] >= *count, "{attack}: {subject}");
        }
    }
}

/// A broker with all streams, each with messages, and durables.
struct System {
    urls: String,
    administrators: [(Account, Administrator); 2],
}

impl System {
    async fn start(urls: &str, replicas: usize) -> Self {
        let udm = Administrator::connect(urls, "administrator").await;
        let audit = Administrator::connect(urls, "audit-administrator").await;
        let profile = Profile { replicas, ..Profile::single_server(MAX_BYTES) };
        bus::ensure(&udm.context, &profile).await.unwrap();
        let facade = jetstream::with_prefix(udm.context.client(), bus::FACADE_API_PREFIX);
        bus::ensure(&facade, profile.facade()).await.unwrap();
        let profile = AuditProfile { replicas, ..AuditProfile::single_server(MAX_BYTES) };
        bus::ensure(&audit.context, &profile).await.unwrap();
        for (name, filter) in
            [("consumer", ">"), ("full", ">"), ("victim", ">"), ("empty", "udm.v1.*.none.>")]
        {
            let durable = pull::Config {
                durable_name: Some(name.to_owned()),
                ack_policy: AckPolicy::Explicit,
                filter_subject: filter.to_owned(),
                ..pull::Config::default()
            };
            // A new stream of a cluster has a leader, which answers late while the machine is busy.
            wait_until("the durable is created", async || {
                udm.context.create_consumer_on_stream(durable.clone(), "UDM").await.ok()
            })
            .await;
        }
        for number in 0..20 {
            for (administrator, subjects) in [
                (&udm, ["udm.v1.07.acme.LOGIN", "udm.dlq.v1.acme.victim"]),
                (&audit, ["audit.v1.acme.identity.x", "audit.anonymous.v1.identity.x"]),
            ] {
                for subject in subjects {
                    store(&administrator.context, subject, number).await;
                }
            }
        }
        Self { urls: urls.to_owned(), administrators: [(Account::Udm, udm), (Account::Audit, audit)] }
    }

    /// The streams that a user must not change.
    async fn state(&self, user: &User) -> BTreeMap<(Account, String), Stream> {
        let mut state = BTreeMap::new();
        for (account, administrator) in &self.administrators {
            if user.must_not_change(*account) {
                let streams = administrator.streams().await.into_iter();
                state.extend(streams.map(|(name, stream)| ((*account, name), stream)));
            }
        }
        if user.must_not_change(Account::Facade) {
            let stream = facade(&self.administrators[0].1).await;
            state.insert((Account::Facade, "UDM".to_owned()), stream);
        }
        state
    }

    /// Sends all attacks of a user, and checks the effects after each request.
    async fn attack(&mut self, user: &User) {
        let client = connect(&self.urls, user.name).await.unwrap();
        let targets = TARGETS.into_iter().filter(|(account, _)| user.must_not_change(*account));
        let targets: Vec<_> = targets.flat_map(|(_, subjects)| subjects).copied().collect();
        let payloads = ["", "{}", INVALIDATION, ANNOUNCEMENT];
        let direct = targets.iter().flat_map(|target| payloads.map(|payload| (*target, payload, None)));
        for request in user.requests.iter().copied().chain(direct) {
            let before = self.state(user).await;
            for (_, administrator) in &mut self.administrators {
                administrator.received();
            }
            for target in &targets {
                send(&client, request, target).await;
            }
            let attack = format!("{}: {request:?}", user.name);
            assert_unchanged(user, &before, &self.state(user).await, &attack);
            self.assert_not_received(user, &attack);
        }
    }

    /// Asserts that no message of the user has arrived in another account, except for those that may.
    fn assert_not_received(&mut self, user: &User, attack: &str) {
        for (account, administrator) in &mut self.administrators {
            for message in administrator.received() {
                // An event of the own durable, which ingest drops: JetStream sends it to the mapped subject of dead letters.
                let is_own_event =
                    message.reply.as_ref().is_some_and(|reply| reply.starts_with("$JS.ACK.UDM.consumer."));
                let is_permitted = *account == user.account
                    || user.reaches.contains(&message.subject.as_str())
                    || is_own_event && user.account == Account::Consumer;
                assert!(is_permitted, "{attack}: {account:?} has received {message:?}");
                let invalidation = serde_json::from_slice::<InvalidationMessage>(&message.payload);
                let is_forged = message.subject.as_str() == INVALIDATION_SUBJECT
                    && invalidation.is_ok()
                    && user.name != "session";
                assert!(!is_forged, "{attack}: {message:?}");
            }
        }
    }
}

fn assert_unchanged(
    user: &User,
    before: &BTreeMap<(Account, String), Stream>,
    after: &BTreeMap<(Account, String), Stream>,
    attack: &str,
) {
    assert!(after.keys().eq(before.keys()), "{attack}: {:?} instead of {:?}", after.keys(), before.keys());
    for ((account, name), before) in before {
        let after = &after[&(*account, name.clone())];
        if *account == user.account {
            before.assert_only_appended(after, attack);
        } else {
            let without = |stream: &Stream| stream.clone().without(user.reaches);
            assert_eq!(without(before), without(after), "{attack}");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "stores any message")]
async fn store(context: &Context, subject: &'static str, number: usize) {
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Msg-Id", format!("{subject} {number}"));
    context.publish_with_headers(subject, headers, "{}".into()).await.unwrap().await.unwrap();
}

/// Sends the request with the reply subject, and returns when the server has received it.
#[expect(clippy::disallowed_methods, reason = "chooses the reply subject")]
async fn send(client: &Client, (subject, payload, header): Request, reply: &'static str) {
    let mut headers = HeaderMap::new();
    if let Some((name, value)) = header {
        headers.insert(name, value);
        if name == "Nats-Batch-Id" {
            headers.insert("Nats-Batch-Sequence", "1");
        }
    }
    client.publish_with_reply_and_headers(subject, reply, headers, payload.into()).await.unwrap();
    client.flush().await.unwrap();
}

/// The accounts of the durables `consumer` and `victim` of the tenant `acme`, as the service derives them. The password of a
/// user is its name.
fn consumers() -> String {
    let durable = |(account, name): (u16, &str)| Durable {
        name: name.to_owned(),
        definition: DurableFilter { tenant_id: "acme".parse().ok(), ..DurableFilter::default() }.into(),
        login: Some(Login { account, hash: name.to_owned(), digest: None }),
        suspension: None,
        owner: None,
        streams: vec!["UDM".to_owned()],
        filter_subjects: Vec::new(),
        ack_floors: vec![0],
        deliveries: 0,
        delivered_to: 0,
        created_at: DateTime::UNIX_EPOCH,
        pending: 0,
        ack_pending: 0,
        redelivered: 0,
        last_delivered_at: None,
        last_acknowledged_at: None,
        is_paused: false,
    };
    bus::accounts_file(&[(3, "consumer"), (4, "victim")].map(durable))
}

fn user(name: &str) -> &'static User {
    USERS.iter().find(|user| user.name == name).unwrap()
}

async fn attack_a_server(name: &str) {
    let server = NatsServer::start_with_consumers(&consumers()).await.unwrap();
    let mut system = System::start(&server.url, 1).await;
    system.attack(user(name)).await;
}

#[tokio::test]
async fn requests_of_ingest_have_no_effect_in_the_account_of_audit_events() {
    attack_a_server("ingest").await;
}

#[tokio::test]
async fn requests_of_identity_have_no_effect_on_events_and_stored_audit_events() {
    attack_a_server("identity").await;
}

#[tokio::test]
async fn requests_of_session_have_no_effect_on_events_and_stored_audit_events() {
    attack_a_server("session").await;
}

#[tokio::test]
async fn requests_of_a_consumer_have_no_effect_in_the_accounts_of_the_services() {
    attack_a_server("consumer").await;
}

#[tokio::test]
async fn a_consumer_receives_nothing_of_other_accounts_and_learns_nothing_about_tenants() {
    let server = NatsServer::start_with_consumers(&consumers()).await.unwrap();
    let system = System::start(&server.url, 1).await;
    let (consumer, victim) = (login(&server, "consumer").await, login(&server, "victim").await);
    let mut everything = Vec::new();
    for subjects in [">", "_INBOX.>", "udm.>", "svc.>", "$JS.>", "_R_.>"] {
        everything.push(consumer.subscribe(subjects).await.unwrap());
    }
    consumer.flush().await.unwrap();
    // The victim reads with the default inbox prefix, which is that of the consumer too.
    let durable: PullConsumer =
        jetstream::new(victim.clone()).get_consumer_from_stream("victim", "UDM").await.unwrap();
    let mut events = durable.fetch().max_messages(5).messages().await.unwrap();
    while let Some(event) = events.try_next().await.unwrap() {
        event.double_ack().await.unwrap();
    }
    store(&system.administrators[0].1.context, "udm.v1.07.acme.LOGIN", 1000).await;
    consumer.flush().await.unwrap();
    for messages in &mut everything {
        let received = messages.next().now_or_never().flatten();
        assert!(received.is_none(), "{received:?}");
    }
    drop(everything);
    for subject in ["$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO.UDM"]
    {
        let details = r#"{"subjects_filter":">","deleted_details":true}"#;
        let request = if subject.contains(".INFO.") { details } else { "" };
        let response = consumer.request(subject, request.into()).await.unwrap();
        let text = std::str::from_utf8(&response.payload).unwrap();
        assert!(text.contains("UDM") || subject == "$JS.API.INFO", "{subject}: {text}");
        for other in ["acme", "beta", "AUDIT", "DLQ"] {
            assert!(!text.contains(other), "{subject}: {text}");
        }
    }
    for subject in ["$JS.API.CONSUMER.INFO.UDM.victim", "$JS.API.STREAM.INFO.UDM_DLQ"] {
        let error = consumer.request(subject, "".into()).await.unwrap_err();
        assert_eq!(error.kind(), RequestErrorKind::NoResponders, "{subject}");
    }
}

/// The negative control: in the account of the streams, permissions do not prevent the first attack.
#[tokio::test]
async fn with_a_consumer_in_the_account_of_the_events_the_attack_is_found() {
    let permissions = r#"{ user: shared, password: shared, permissions: { publish: "$JS.API.CONSUMER.MSG.NEXT.UDM.empty", subscribe: "_INBOX.shared.>" } }"#;
    let administrator = "{ user: administrator,";
    let accounts = testkit::nats::accounts_with(&consumers(), str::to_owned);
    let accounts = accounts.replacen(administrator, &format!("{permissions}\n{administrator}"), 1);
    let server = NatsServer::start_with(&accounts).await.unwrap();
    let system = System::start(&server.url, 1).await;
    let (attacked, before) = (user("consumer"), system.state(user("consumer")).await);
    let client = connect(&server.url, "shared").await.unwrap();
    let (subject, payload, header) = attacked.requests[0];
    let request = (subject.replace("consumer", "empty").leak() as &'static str, payload, header);
    send(&client, request, "$JS.API.STREAM.DELETE.UDM_DLQ").await;
    let administrator = &system.administrators[0].1.context;
    wait_until("the attack deletes the stream", async || {
        administrator.get_stream("UDM_DLQ").await.is_err().then_some(())
    })
    .await;
    assert_ne!(system.state(attacked).await, before);
}

/// Connects a consumer with the default options of the client library.
async fn login(server: &NatsServer, name: &str) -> Client {
    let address = server.url.rsplit_once('@').unwrap().1;
    let options = ConnectOptions::with_user_and_password(name.to_owned(), name.to_owned());
    options.connect(address).await.unwrap()
}

#[tokio::test]
async fn in_a_cluster_requests_of_all_users_have_no_effect_in_other_accounts() {
    let cluster = NatsCluster::start_with_consumers(&consumers()).await.unwrap();
    let mut system = System::start(&cluster.url, 3).await;
    for user in &USERS {
        system.attack(user).await;
    }
}
